"""What is redrawn in place while something runs: the frame of a drain, or one line."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Self, TextIO, cast

from rich.live import Live
from rich.segment import Segment, Segments
from rich.text import Text

from drainer.engine.status import Status
from drainer.escape import printable
from drainer.view.lines import LineView
from drainer.view.panel import StatusPanel
from drainer.view.streams import LineStream
from drainer.view.terminal import Terminal

FRAME_S = 0.2  # between two drawings of a running line
HELD_MOST = 1 << 20  # characters that handlers printed since the last frame


class LiveView:
    """A context manager; each ``update`` redraws the frame, and the last one stays on the screen.

    Where nothing can be redrawn it shows that last frame only.

    It is called from the thread that the drain runs on, so it starts no thread, draws only when
    told, and leaves out a frame rather than wait for a terminal that is held. What handlers print
    meanwhile appears above the frame with the next update: it neither tears a frame nor costs one.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._last: Status | None = None
        self._streams = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._held: list[str] = []  # whole lines of handlers, from any thread
        self._held_chars = 0

    def __enter__(self) -> Self:
        if not self._terminal.is_live:
            return self
        self._live = _live(self._terminal)
        stream = LineStream(sys.stderr, self._hold)
        self._streams.callback(stream.rest)
        # Typeshed wants a TextIO; nothing that prints needs more than what a LineStream has.
        self._streams.enter_context(contextlib.redirect_stderr(cast(TextIO, stream)))
        if self._terminal.shares_screen:
            self._streams.enter_context(contextlib.redirect_stdout(cast(TextIO, stream)))
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        if self._live is not None:
            self._release()
            if self._last is not None:
                self._live.update(StatusPanel(self._last))
            self._live.stop()
        elif self._last is not None:
            self._terminal.show(StatusPanel(self._last))

    def update(self, status: Status) -> None:
        """Draws a frame. It doesn't wait for a terminal that is held."""
        self._last = status
        if self._live is None or not self._terminal.is_ready:
            return
        self._release()
        self._live.update(StatusPanel(status), refresh=True)

    def _hold(self, lines: str) -> None:
        with self._lock:
            self._held.append(lines)
            self._held_chars += len(lines)
            full = self._held_chars > HELD_MOST
        if full:
            self._release()

    def _release(self) -> None:
        with self._lock:
            held, self._held, self._held_chars = "".join(self._held), [], 0
        if held:
            # As it is: the measuring and wrapping of a text is too slow for a hot handler's.
            self._terminal.console.print(Segments([Segment(held)]), crop=False, end="")


class RunningLine:
    """A context manager: one line that is redrawn in place on a screen, and gone at the end.

    Elsewhere ``draw`` says the line each ``every_s`` seconds; with None it says nothing. A line is
    left out rather than wait for a terminal that is held.
    """

    def __init__(self, terminal: Terminal, every_s: float | None = None) -> None:
        self._terminal = terminal
        self._every_s = every_s
        self._due_s = time.monotonic() + (every_s or 0.0)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._terminal.is_live and not self._terminal.quiet:
            self._live = _live(self._terminal, transient=True)
            self._live.start()
            self._every_s, self._due_s = FRAME_S, 0.0
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, text: str) -> None:
        """Shows this, if it is time."""
        if self._every_s is None or time.monotonic() < self._due_s or not self._terminal.is_ready:
            return
        self._due_s = time.monotonic() + self._every_s
        if self._live is None:
            self._terminal.say(text)
        else:
            line = Text(printable(text), no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=True)


def _live(terminal: Terminal, *, transient: bool = False) -> Live:
    return Live(
        console=terminal.console,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=transient,
    )


ProgressView = LineView | LiveView


def progress_view(terminal: Terminal) -> ProgressView:
    """The view that suits the terminal; when quiet, one that shows trouble only."""
    seen = terminal.is_live or terminal.is_recorded
    return LiveView(terminal) if seen and not terminal.quiet else LineView(terminal)
