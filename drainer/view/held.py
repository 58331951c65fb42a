"""Output held back while a frame stands on the screen, and let out above it."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import TextIO


class HeldOutput(io.TextIOBase):
    """Stands in for stdout and stderr while a live view runs, so that a ``print`` in a handler
    neither tears the frame nor costs one.

    Whole lines wait for ``take``; ``full`` is called (on the writer's thread) when ``limit`` of
    characters wait already. Threads may write at the same time.
    """

    def __init__(self, real: TextIO, full: Callable[[], None], limit: int = 1 << 20) -> None:
        self._real = real
        self._full = full
        self._limit = limit
        self._lock = threading.Lock()
        self._held: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        with self._lock:
            self._held.append(text)
            self._size += len(text)
            full = self._size > self._limit
        if full:
            self._full()
        return len(text)

    def take(self, *, rest: bool = False) -> str:
        """The whole lines written so far; with ``rest`` an unfinished last line too."""
        with self._lock:
            text = "".join(self._held)
            lines, end, tail = text.rpartition("\n")
            if rest or len(tail) > self._limit:
                lines, end, tail = text, "" if text.endswith("\n") or not text else "\n", ""
            self._held = [tail] if tail else []
            self._size = len(tail)
        return lines + end

    def isatty(self) -> bool:
        return self._real.isatty()

    def fileno(self) -> int:
        return self._real.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._real.encoding
