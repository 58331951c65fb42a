"""Single keys that steer a drain, on the terminal that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil

from drainer.engine.control import Change, Control, ControlRequest, Pause, Stop, Unpause
from drainer.model.status import Status

STEP = 1.25  # of the concurrency, up or down
SHORT = "p pause  + - concurrency  s stop  ? help"
LONG = "p pauses and unpauses  + - 25% more or fewer calls in flight  s stops like Ctrl-C"


@dataclass(eq=False)
class ControlKeys:
    """Turns keys into requests by ``by``; with ``refused``, into that line."""

    control: Control
    by: str
    refused: str | None = None
    status: Status | None = None  # the latest; set by whoever gets it
    line: str = SHORT  # what to show below the view

    def press(self, key: str) -> None:
        """Request what a key stands for, from any thread; ignore other keys."""
        status = self.status
        requests: dict[str, Callable[[Status], ControlRequest]] = {
            "p": lambda now: Pause() if now.control.paused is None else Unpause(),
            "+": lambda now: _concurrency(ceil(now.limits.concurrency * STEP)),
            "-": lambda now: _concurrency(int(now.limits.concurrency / STEP)),
            "s": lambda now: Stop(),
        }
        if key == "?":
            self.line = SHORT if self.line == LONG else LONG
        elif key in requests and self.refused is not None:
            self.line = self.refused
        elif key in requests and status is not None:
            self.control.request(requests[key](status), self.by).add_done_callback(self._show)

    def _show(self, done: Future[tuple[str, ...]]) -> None:
        error = done.exception()  # a DrainerError: a request has no other
        self.line = ", ".join(done.result()) if error is None else str(error)


def _concurrency(calls: int) -> Change:
    return Change({"concurrency": max(1, calls)})
