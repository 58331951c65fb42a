"""The commands ``dead`` and ``redrive``."""
