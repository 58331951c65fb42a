"""The command line: one file a command, and no logic."""

import gc

# Nothing that is loaded is garbage: to look for it anyway takes a fifth of the time to start.
gc.disable()
try:
    from drainer.cli.app import app, main
finally:
    gc.enable()
gc.freeze()

__all__ = ["app", "main"]
