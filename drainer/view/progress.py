"""The view of a running drain: a live frame on a screen, plain lines anywhere else."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from drainer.engine.status import Status
from drainer.view.lines import LineView
from drainer.view.live import LiveView
from drainer.view.log import LogTerminal, LogView
from drainer.view.terminal import Terminal


class ProgressView(Protocol):
    """What both views are: entered when the drain starts, updated as it runs, left at its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def update(self, status: Status) -> None: ...


def progress_view(terminal: Terminal) -> ProgressView:
    """The view that suits the terminal; when quiet, one that tells of trouble only."""
    if isinstance(terminal, LogTerminal):
        return LogView(terminal)
    if terminal.quiet or not (terminal.is_live or terminal.is_recorded):
        return LineView(terminal)
    return LiveView(terminal)
