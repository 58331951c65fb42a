"""Checks of what a handler must promise, for drainer.testing and the command. An extension."""
