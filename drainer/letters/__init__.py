"""Lists, shows and redrives dead letters, after the drain. This is an extension."""
