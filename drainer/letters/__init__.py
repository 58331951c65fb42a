"""An extension that lists, shows and redrives dead letters after a drain."""
