"""The command line: one file a command, and no logic."""

from drainer.cli.app import app, main

__all__ = ["app", "main"]
