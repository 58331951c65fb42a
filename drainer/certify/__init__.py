"""Checks of the promises of a handler, for drainer.testing and the command. An extension."""
