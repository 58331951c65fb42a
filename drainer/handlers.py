"""The built-in handlers: ``print`` and ``count``."""

from __future__ import annotations

import sys

from drainer.handler import Context, Handler
from drainer.message import SubMessage


class Print(Handler):
    """Prints one line a sub-message on standard output: its place, its sub-key, its payload."""

    async def handle(self, sub: SubMessage) -> None:
        sys.stdout.write(f"{sub}\t{_text(sub.key)}\t{_text(sub.payload)}\n")

    def close(self) -> None:
        sys.stdout.flush()


class Count(Handler):
    """Counts sub-messages and does nothing else: for trying things out, and for measuring."""

    def __init__(self) -> None:
        self.handled = 0

    def open(self, context: Context) -> None:
        self.handled = 0

    async def handle(self, sub: SubMessage) -> None:
        self.handled += 1


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)
