"""The live view: a frame that is redrawn in place while the drain runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TextIO, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment

from drainer.engine.status import Status
from drainer.view.lines import LineView
from drainer.view.log import LogTerminal
from drainer.view.panel import StatusPanel
from drainer.view.streams import StandIn
from drainer.view.terminal import Terminal


class LiveView:
    """A context manager; each ``update`` redraws the frame, and the last one stays on the screen.

    Where nothing can be redrawn it shows that last frame only.

    It is called from the thread that the drain runs on, so it starts no thread, draws only when
    told, and leaves out a frame rather than wait for a terminal that is held. What handlers print
    meanwhile appears above the frame with the next update.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._console = terminal.console
        self._live: Live | None = None
        self._held: HeldOutput | None = None
        self._streams = contextlib.ExitStack()
        self._last: Status | None = None

    def __enter__(self) -> LiveView:
        terminal = self._terminal
        if terminal.quiet or not terminal.is_live:
            return self
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._held = HeldOutput(sys.stderr, self._release)
        # Typeshed wants a TextIO; nothing that prints needs more than what HeldOutput has.
        stream = cast(TextIO, self._held)
        self._streams.enter_context(contextlib.redirect_stderr(stream))
        if terminal.shares_screen:
            self._streams.enter_context(contextlib.redirect_stdout(stream))
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        if self._live is None:
            if self._last is not None:
                self._terminal.show(StatusPanel(self._last))
            return
        self._release(rest=True)
        if self._last is not None:
            self._live.update(StatusPanel(self._last))
        self._live.stop()
        if self._last is not None:
            self._terminal.keep(StatusPanel(self._last))

    def update(self, status: Status) -> None:
        """Draws a frame. It doesn't wait for a terminal that is held."""
        self._last = status
        if self._live is None or not self._terminal.is_ready:
            return
        self._release()
        self._live.update(StatusPanel(status), refresh=True)

    def _release(self, *, rest: bool = False) -> None:
        held = self._held.take(rest=rest) if self._held is not None else ""
        if held:
            self._console.print(_Raw(held), crop=False, end="")


class _Raw:
    """Text as it is, without the measuring and wrapping that a print in a hot handler can't pay."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class HeldOutput(StandIn):
    """Stands in for stdout and stderr while a live view runs, so that a ``print`` in a handler
    neither tears the frame nor costs one.

    Whole lines wait for ``take``; ``full`` is called (on the writer's thread) when ``limit`` of
    characters wait already. Threads may write at the same time.
    """

    def __init__(self, real: TextIO, full: Callable[[], None], limit: int = 1 << 20) -> None:
        super().__init__(real)
        self._full = full
        self._limit = limit
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


ProgressView = LineView | LiveView


def progress_view(terminal: Terminal) -> ProgressView:
    """The view that suits the terminal; when quiet, one that shows trouble only."""
    if isinstance(terminal, LogTerminal) or terminal.quiet:
        return LineView(terminal)
    return LiveView(terminal) if terminal.is_live or terminal.is_recorded else LineView(terminal)
