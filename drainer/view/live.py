"""The live view: a frame that is redrawn in place while the drain runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Self, TextIO, cast

from rich.live import Live
from rich.segment import Segment, Segments

from drainer.engine.status import Status
from drainer.view.lines import LineView
from drainer.view.panel import StatusPanel
from drainer.view.streams import LineStream
from drainer.view.terminal import Terminal

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
        self._live = Live(
            console=self._terminal.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
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


ProgressView = LineView | LiveView


def progress_view(terminal: Terminal) -> ProgressView:
    """The view that suits the terminal; when quiet, one that shows trouble only."""
    seen = terminal.is_live or terminal.is_recorded
    return LiveView(terminal) if seen and not terminal.quiet else LineView(terminal)
