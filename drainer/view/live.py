"""Views of a running drain.

On a screen, a view is redrawn in place. Elsewhere it prints lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from heapq import nlargest
from typing import Any, Self, TextIO, cast

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.live import Live
from rich.segment import Segment, Segments

from drainer.model.status import ProgressStatus, Status, share_finished
from drainer.view import figures, priority
from drainer.view.layout import Pieces, broken, pieces, plain, segments, wrapped
from drainer.view.limit import limit
from drainer.view.page import STOPPED, Field, Line, Page, Tone
from drainer.view.status import (
    beside_verdict,
    causes,
    event_words,
    expected_end,
    facts,
    partition_cells,
    partition_heading,
    status_fields,
    time_left,
    verdict,
    warnings,
)
from drainer.view.streams import LineStream
from drainer.view.terminal import Terminal

FRAME_S = 0.2  # The time between two drawings of a running line.
# What handlers print is kept until the next frame, but no more than this many characters. Beyond
# that it is printed at once, or the oldest is dropped while the terminal takes nothing.
PRINTED_MOST = 1 << 20
PARTITIONS_SHOWN = 8
CHANGES_SHOWN = 2
WRAPPED_MOST = 4  # A cause or a fact takes at most this many lines of a frame.
_WIDEST = 110  # The columns of a frame, at most, because longer lines are hard to read.
_NOTEBOOK_LINES = 41
_TITLE_LEAST = 20  # The title of a frame has at least this many columns.


class LiveView:
    """A context manager that shows a frame, which each ``update`` redraws.

    The last frame stays on the screen. While Ctrl-S stops the terminal, the view leaves out frames.
    What handlers print appears above the frame with the next update. A terminal that nobody reads
    may stop ``update``, so a drain calls it in another thread (``view/background.py``).
    """

    def __init__(self, terminal: Terminal, below: str = "") -> None:
        self._terminal = terminal
        self._below = below
        self._live = _live(terminal)
        self._last: Status | None = None
        self._streams = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._printed = deque[str]()  # Whole lines that handlers printed, in any thread.
        self._printed_chars = 0

    def __enter__(self) -> Self:
        stream = LineStream(sys.stderr, self._keep)
        self._streams.callback(stream.end_line)
        # Typeshed wants a TextIO, but nothing that prints needs more than a LineStream has.
        self._streams.enter_context(contextlib.redirect_stderr(cast(TextIO, stream)))
        if self._terminal.shares_screen:
            self._streams.enter_context(contextlib.redirect_stdout(cast(TextIO, stream)))
        self._live.start()
        self._streams.enter_context(without_echo(self._terminal))
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        self._release()
        if self._last is not None:
            self._live.update(self._frame(self._last))
        self._live.stop()

    def update(self, status: Status) -> None:
        """Draw a frame. While Ctrl-S stops the terminal, the frame is left out."""
        self._last = status
        if not self._terminal.is_ready:
            return
        self._release()
        self._live.update(self._frame(status, self._below), refresh=True)

    def _frame(self, status: Status, below: str = "") -> Segments:
        """Return the frame as segments, with ``below`` as its last line.

        Rich measures and wraps its own kind of texts, and the drain would have to wait for that.
        It prints segments as they are.
        """
        width, height = self._terminal.console.size
        return drawn(frame(status, width, height, below), min(width, _WIDEST))

    def _keep(self, lines: str) -> None:
        with self._lock:
            self._printed.append(lines)
            self._printed_chars += len(lines)
            full = self._printed_chars > PRINTED_MOST
            is_read = full and self._terminal.is_ready
            while self._printed_chars > PRINTED_MOST and not is_read:
                self._printed_chars -= len(self._printed.popleft())
        if is_read:
            self._release()

    def _release(self) -> None:
        with self._lock:
            printed, self._printed_chars = "".join(self._printed), 0
            self._printed.clear()
        if printed:
            # Handlers may print a lot, and rich would take too long to measure and wrap a text. So
            # it gets a segment, which it prints as it is.
            self._terminal.console.print(Segments([Segment(printed)]), crop=False, end="")


class RunningLine:
    """A context manager that shows a line, and removes it at the end.

    On a screen, the line is redrawn in place, and what a person types is not echoed. Elsewhere,
    ``draw`` prints a line every ``every_s`` seconds, or nothing if ``every_s`` is None. While
    Ctrl-S stops the terminal, nothing is drawn.
    """

    def __init__(self, terminal: Terminal, every_s: float | None = None) -> None:
        self._terminal = terminal
        self._every_s = every_s
        self._due_s = time.monotonic() + (every_s or 0.0)
        self._live: Live | None = None
        self._shown = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._terminal.is_live and not self._terminal.quiet:
            self._live = self._shown.enter_context(_live(self._terminal, transient=True))
            self._shown.enter_context(without_echo(self._terminal))
            self._every_s, self._due_s = FRAME_S, 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def draw(self, text: str) -> None:
        """Show a text, unless the last one was shown too short a time ago."""
        if self._every_s is None or time.monotonic() < self._due_s or not self._terminal.is_ready:
            return
        self._due_s = time.monotonic() + self._every_s
        if self._live is None:
            self._terminal.print_line(text)
        else:
            width = self._terminal.console.width
            rows = ([(row, Tone.PLAIN)] for row in broken(text, width))
            self._live.update(drawn(rows, width), refresh=True)


def _live(terminal: Terminal, *, transient: bool = False) -> Live:
    return Live(
        console=terminal.console,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=transient,
    )


def drawn(lines: Iterable[Pieces], width: int) -> Segments:
    """Return lines as rich prints them, each cut to a width."""
    return Segments([each for line in lines for each in (*segments(line, width), Segment.line())])


class NotebookView:
    """A context manager that shows the frame in a notebook, as an output that is redrawn."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last frame in the notebook."""

    def update(self, status: Status) -> None:
        text = "\n".join(map(plain, frame(status, _WIDEST, _NOTEBOOK_LINES)))
        if self._handle is None:
            self._handle = self._display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


# The time between two lines of a log, by the drain's own clock. It is long enough that the log of a
# whole night can still be read.
INTERVAL_S = 5.0
COMMITTED_SHOWN = 8  # A line has the committed offsets of at most this many partitions.


class LineView:
    """A context manager that writes a line every few seconds, however often it is updated.

    It also writes a line when the drain begins to stop, when a trouble begins or is over, and at
    the end. It takes the time from the status.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last: Status | None = None  # The latest status.
        self._printed: Status | None = None  # The status of the latest line.
        self._due_s: float | None = None  # It is None until the first line is written.
        # Warnings that must not be printed again.
        self._warned: set[tuple[str, str | None]] = set()
        self._changes_seen = 0  # How many changes of the drain were printed so far.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None and self._last is not self._printed:
            self._print(self._last)

    def update(self, status: Status) -> None:
        """Write the lines that are due, unless the reader of the log has stopped reading."""
        self._last = status
        if not self._terminal.is_ready:
            return
        if self._due_s is None:
            fields = {"plan": status.plan, "concurrency": status.limits.concurrency}
            who = {"topic": status.topic, "group": status.group}
            self._terminal.event(logging.INFO, "begin", start_line(status), **who, **fields)
            self._due_s = status.timing.elapsed_s + INTERVAL_S
        control = status.control
        new, self._changes_seen = control.changes_total - self._changes_seen, control.changes_total
        for event in control.changes[-new:] if new else ():
            self._terminal.event(logging.INFO, event.what, event_words(event), **event.as_json())
        self._warn(status)
        if status.timing.elapsed_s >= self._due_s:
            self._print(status)

    def _warn(self, status: Status) -> None:
        for event, text, _ in warnings(status):
            known = (event, {"trouble": status.health.trouble, "stopping": text}.get(event))
            if known not in self._warned:
                self._warned.add(known)
                self._terminal.event(logging.WARNING, event, text)
        over = {known for known in self._warned if known[0] == "trouble"}
        if status.health.trouble is None and over:
            self._warned -= over
            self._terminal.event(logging.INFO, "trouble_over", "trouble over")

    def _print(self, status: Status) -> None:
        line = status_line(status)
        self._terminal.event(logging.INFO, "progress", line, **status_fields(status))
        self._printed = status
        self._due_s = status.timing.elapsed_s + INTERVAL_S


def start_line(status: Status) -> str:
    """Return the first line of a log, which says what is drained."""
    total = figures.count(sum(part.end - part.start for part in status.progress.partitions))
    parts = figures.counted(len(status.progress.partitions), "partition")
    concurrency = figures.count(status.limits.concurrency)
    if status.limits.auto is not None:
        concurrency = f"auto, {figures.count(status.limits.auto.most)} at most"
    return (
        f"draining {status.topic} for group {status.group}: ~{total} messages in {parts},"
        f" concurrency {concurrency}, plan {status.plan}"
    )


def status_line(status: Status, now: datetime | None = None) -> str:
    """Return a line such as ``12s  41.2%  eta 3m 20s  done at 17:31  messages 1,234,567 of …``."""
    words = [
        figures.duration(status.timing.elapsed_s),
        figures.percent(share_finished(status.progress.partitions))
        + priority.of_what(status.progress),
    ]
    if not all(part.complete for part in status.progress.partitions):
        words.append(f"eta {figures.duration(status.progress.eta_s)}")
        words += filter(None, [expected_end(status, now)])
        if status.control.stopping is None:
            words.append(f"limited by {limit(status)}")
    for each in facts(status):
        note = f" ({each.note})" if each.note else ""
        words.append(f"{each.label} {each.value}{note}")
    if status.control.paused is not None:
        words.append("paused")
    if status.health.trouble is not None:
        words.append("in trouble")  # An earlier line has described the trouble.
    committed = [
        f"{part.partition}:{figures.offset(part.committed)}"
        for part in status.progress.partitions[:COMMITTED_SHOWN]
    ]
    if (more := len(status.progress.partitions) - len(committed)) > 0:
        committed.append(f"+{more} more")
    words.append(f"committed {' '.join(committed) or 'none'}")
    return "  ".join(words)


def status_page(status: Status) -> Page:
    """Make a page of one line, which a program prints."""
    return Page(Line(status_line(status)), ())


ProgressView = LineView | LiveView | NotebookView


def progress_view(terminal: Terminal, below: str = "") -> ProgressView:
    """Return the view that suits the terminal. With --quiet, it shows only warnings.

    ``below`` is the last line of a view that is redrawn in place.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if ipython is not None and getattr(shell, "kernel", None):
        return NotebookView(ipython.display.display)
    live = terminal.is_live and not terminal.quiet
    return LiveView(terminal, below) if live else LineView(terminal)


def frame(
    status: Status, width: int, height: int, below: str = "", now: datetime | None = None
) -> list[Pieces]:
    """Return the lines of a frame for a screen of this size, with ``below`` as the last one.

    What matters most comes first, because lines that have no room are left out. ``now`` is the time
    from which the end is counted.
    """
    width, last = min(width, _WIDEST), [[], [(below, Tone.QUIET)]] if below else []
    height -= 1 + len(last)
    said, of_class = verdict(status, now, of_all=True), priority.time_left(status.progress)
    lines = [*_title(status, width), _total(status, said, width, now)]
    lines += [[(of_class.rjust(width), Tone.STRONG)]] if of_class else []
    if status.progress.complete or said.mark == STOPPED:  # The line above has any other verdict.
        lines.append([(said.marked, said.tone)])
    for text, tone in beside_verdict(status):
        lines += [[(line, tone)] for line in broken(f"! {text}", width)]
    lines += _whole(causes(status), width)
    plan = Field("plan", status.plan)
    latest = reversed(status.control.changes[-CHANGES_SHOWN:])
    changes = (Field("change", event_words(event, now)) for event in latest)
    lines += [[], *_whole((*facts(status), *changes, plan), width)]
    room = height - len(lines) - 3  # A blank line, the heading and "and N more" take three lines.
    if status.progress.partitions and room > 0:
        lines += [[], *_partitions(status.progress, width, min(room, PARTITIONS_SHOWN))]
    return [*lines[:height], *last]


def _whole(fields: Iterable[Field], width: int) -> Iterator[Pieces]:
    """Yield fields in a few lines each, of which the last one may still be too long."""
    for line in map(pieces, fields):
        rows = [part for row in wrapped(line, width) for part in _chopped(row, width)]
        rest = [piece for row in rows[WRAPPED_MOST - 1 :] for piece in row]  # It is cut later.
        yield from [*rows[: WRAPPED_MOST - 1], *([rest] if rest else [])]


def _chopped(row: Pieces, width: int) -> list[Pieces]:
    """Break a row that is too long although it has only one word, such as a path."""
    if cell_len(plain(row)) <= width:
        return [row]
    return [[(text, row[-1][1])] for text in chop_cells(plain(row), width)]


def _title(status: Status, width: int) -> Iterator[Pieces]:
    left = f"Draining {status.topic} for group {status.group}"
    right = f"{figures.duration(status.timing.elapsed_s)} so far"
    room = max(_TITLE_LEAST, width - len(right) - 2)
    first, *more = broken(left, room)
    yield [(f"{set_cell_size(first, room)}  ", Tone.STRONG), (right, Tone.QUIET)]
    yield from ([(each, Tone.STRONG)] for each in more)


def _total(status: Status, said: Line, width: int, now: datetime | None) -> Pieces:
    """Return the bar, the share that is done, and the verdict if the drain goes on."""
    share = share_finished(status.progress.partitions)
    left, tone = said.marked, said.tone
    if status.progress.complete or said.mark == STOPPED:
        left, tone = "done" if share >= 1 else time_left(status, now, of_all=True), Tone.STRONG
    done, left = f"  {figures.percent(share):>6}  ", f"{left:>15}"
    return [*_bar(share, width - len(done + left)), (done, Tone.STRONG), (left, tone)]


def _partitions(progress: ProgressStatus, width: int, room: int) -> Iterator[Pieces]:
    partitions = progress.partitions
    # Partitions without work are left out, unless there are no others.
    shown = [part for part in partitions if part.end > part.start] or partitions
    if len(shown) > room:
        worst = nlargest(room, shown, key=lambda part: part.end - part.start - part.finished)
        # In the order of their numbers, rows don't change places from one frame to the next.
        shown = sorted(worst, key=lambda part: part.partition)
    shares = [share_finished((part,)) for part in shown]
    rows = map(partition_cells, shown)
    names = "partition", *partition_heading(progress)
    heading, *lines = map("  ".join, figures.aligned([names, *rows]))
    yield [(heading, Tone.QUIET)]
    for line, share in zip(lines, shares, strict=True):
        yield [(f"{line}  ", Tone.PLAIN), *_bar(share, width - len(line) - 2)]
    more = len(partitions) - len(shown)
    if more:
        complete = sum(part.complete for part in partitions)
        text = f"and {more:,} more, {complete:,} of {len(partitions):,} done"
        yield [(text, Tone.QUIET)]


def _bar(share: float, width: int) -> Pieces:
    if width < 4:
        return []
    halves = int(share * width * 2)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    # The two parts of the bar also differ in weight, so that it can be read without colours.
    return [(full, Tone.GOOD), ("─" * (width - len(full)), Tone.QUIET)]


@contextmanager
def without_echo(terminal: Terminal) -> Iterator[None]:
    """Keep what a person types off the screen, where it would spoil what is drawn, and drop it."""
    descriptor = terminal.keyboard
    try:
        found = None if descriptor is None else termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):
        found = None
    if descriptor is None or found is None:
        yield
        return
    silent = [*found]
    silent[3] &= ~termios.ECHO
    _set_modes(descriptor, silent)
    try:
        yield
    finally:
        _set_modes(descriptor, found)


def _set_modes(descriptor: int, modes: list[Any]) -> None:
    """Set the modes of a terminal, and drop what was typed, unless another process has it now."""
    # In the background, this signal would stop the process, and with it the drain.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    with suppress(OSError, termios.error):
        if os.tcgetpgrp(descriptor) == os.getpgrp():
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, modes)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
