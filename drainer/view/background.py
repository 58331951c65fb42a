"""A view in a thread of its own: a terminal that nobody reads stops whoever writes to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Self

from drainer.model.status import Status
from drainer.view.live import ProgressView


class InBackground:
    """A context manager that draws a view and prints lines in a thread, so that no caller waits.

    While the terminal takes nothing, statuses and the oldest lines are left out. At the end, it
    waits until the terminal takes the rest: the drain is over then, and its plan is written.
    """

    LINES_MOST = 1_000

    def __init__(self, view: ProgressView, print_line: Callable[[str], None]) -> None:
        self._view = view
        self._print = print_line
        self._lines = deque[str](maxlen=self.LINES_MOST)
        self._status: Status | None = None  # The latest one, until it is drawn.
        self._news = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._draw, name="view", daemon=True)

    def __enter__(self) -> Self:
        self._view.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._news.set()
        self._thread.join()
        self._view.__exit__(None, None, None)

    def update(self, status: Status) -> None:
        """Have a status drawn, unless a later one comes first."""
        self._status = status
        self._news.set()

    def print_line(self, text: str) -> None:
        """Have a line printed above the view."""
        self._lines.append(text)
        self._news.set()

    def _draw(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            is_over = self._is_over  # What came before it was set is drawn below.
            while self._lines:
                self._print(self._lines.popleft())
            status, self._status = self._status, None
            if status is not None:
                self._view.update(status)
            if is_over:
                return
