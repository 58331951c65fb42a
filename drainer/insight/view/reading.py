"""How far the reading of a backlog has come: a line that is redrawn, or one each few seconds."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from drainer.view import figures
from drainer.view.terminal import Terminal

INTERVAL_S = 5.0


class ReadingView:
    """A context manager; ``update`` it as often as wanted."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._due_s = time.monotonic() + INTERVAL_S
        self._bar: Progress | None = None
        if terminal.is_live and not terminal.quiet:
            self._bar = Progress(
                TextColumn("reading"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[said]}"),
                TimeRemainingColumn(),
                console=terminal.console,
                transient=True,
            )

    def __enter__(self) -> ReadingView:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, said="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """So many offsets of so many are read."""
        said = f"{figures.count(done)} of {figures.counted(total, 'offset')}"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, said=said)
        elif time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + INTERVAL_S
            self._terminal.say(f"reading: {said}")
