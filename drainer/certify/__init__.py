"""Checks of what a handler promises, for drainer.testing and the command certify. An extension."""
