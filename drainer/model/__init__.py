"""Records that the rest is about: settings, and how records are written as JSON."""
