"""The built-in handlers: ``print`` and ``count``."""

from __future__ import annotations

import sys

from msgspec import Raw

from drainer.handler import Context, Fatal, Handler
from drainer.message import SubMessage
from drainer.text.escape import printable


class Print(Handler):
    """Prints a line per sub-message on standard output: its place, its sub-key and its payload.

    If the output is lost, the drain halts, because nothing can bring the output back.
    """

    async def handle(self, sub: SubMessage) -> None:
        _ensure_output()
        sys.stdout.write(f"{sub}\t{_text(sub.key)}\t{_text(sub.content)}\n")

    def close(self) -> None:
        sys.stdout.flush()
        _ensure_output()


class Count(Handler):
    """Counts sub-messages and does nothing else, to try things out and to measure."""

    def __init__(self) -> None:
        self.handled = 0

    def open(self, context: Context) -> None:
        self.handled = 0

    async def handle(self, sub: SubMessage) -> None:
        self.handled += 1


def _ensure_output() -> None:
    # A stream of drainer (view/streams.py) notes that its output is lost instead of raising.
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    lost: OSError | None = getattr(raw, "lost", None)
    if lost is not None:
        raise Fatal(f"standard output is lost: {lost.strerror}")


def _text(value: object) -> str:
    if isinstance(value, bytes | Raw):
        return printable(bytes(value).decode("utf-8", "backslashreplace"))
    return "" if value is None else printable(str(value))
