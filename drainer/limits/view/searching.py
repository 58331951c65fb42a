"""The search for what brokers bear while it goes on: a frame on a screen, lines anywhere else."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from drainer.escape import printable
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.point import Found, Trial
from drainer.limits.search.settings import Value
from drainer.limits.trials import LimitsStatus
from drainer.limits.view.limits import (
    MARKS,
    VERDICTS,
    between,
    ended,
    mb_words,
    point_words,
    signal_words,
    trial_words,
    unsure,
    value_words,
)
from drainer.view import figures
from drainer.view.layout import (
    GOOD_STYLE,
    HEAD_STYLE,
    OK,
    QUIET_STYLE,
    WARN_STYLE,
    safe,
    table,
)
from drainer.view.terminal import Terminal

FRAME_S = 0.2
TRIALS_SHOWN = 14


class SearchView(AbstractContextManager["SearchView"], Protocol):
    """Entered when the search begins, updated all along, left at its end."""

    def update(self, status: LimitsStatus) -> None: ...


def limits_view(terminal: Terminal, known: Limits) -> SearchView:
    """The view that suits the terminal; what is known already is not told again."""
    if terminal.quiet or not (terminal.is_live or terminal.is_recorded):
        return SearchLines(terminal, known)
    return SearchFrame(terminal)


class SearchFrame:
    """A frame that is redrawn in place; the last one stays.

    It draws when told, and leaves a frame out rather than wait for a terminal that is held: whoever
    waits there can't stop the traffic.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._last: LimitsStatus | None = None
        self._due_s = 0.0

    def __enter__(self) -> Self:
        if self._terminal.is_live:
            self._live = Live(
                console=self._terminal.console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            if self._last is not None:
                self._live.update(frame(self._last))
            self._live.stop()
        if self._last is not None:
            self._terminal.keep(frame(self._last))

    def update(self, status: LimitsStatus) -> None:
        """Draws a frame, a few times a second."""
        self._last = status
        if self._live is None or status.elapsed_s < self._due_s or not self._terminal.is_ready:
            return
        self._due_s = status.elapsed_s + FRAME_S
        self._live.update(frame(status), refresh=True)


class SearchLines:
    """A line for each trial and each boundary."""

    def __init__(self, terminal: Terminal, known: Limits) -> None:
        self._terminal = terminal
        self._trials = len(known.trials)
        self._boundaries = len(known.boundaries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, status: LimitsStatus) -> None:
        """Writes what is new."""
        axis = status.limits.settings.axis
        for trial in status.limits.trials[self._trials :]:
            name = value_words(axis, axis.of(trial.point))
            took = figures.duration(status.elapsed_s)
            left = figures.duration(status.left_s)
            self._terminal.say(f"{took}  {name}  {trial_words(trial)}  (about {left} left)")
        self._trials = len(status.limits.trials)
        for boundary in status.limits.boundaries[self._boundaries :]:
            name = value_words(axis, boundary.value)
            rate = f"{figures.rate(boundary.messages_per_s)} messages/s ({between(boundary)})"
            took = figures.duration(status.elapsed_s)
            self._terminal.say(f"{took}  {name}  boundary: {rate}, {ended(boundary)}")
        self._boundaries = len(status.limits.boundaries)


def frame(status: LimitsStatus) -> RenderableType:
    """One frame: the values and what is known of them, the running trial, the trials of now."""
    limits = status.limits
    axis = limits.settings.axis
    spent = figures.duration(status.elapsed_s)
    title = Text.assemble(
        ("Finding out how much traffic the brokers bear", HEAD_STYLE),
        (f"   {spent} so far, about {figures.duration(status.left_s)} left", QUIET_STYLE),
    )
    values = _table("", "", "messages/s", "between", "trials")
    for value in limits.settings.values:
        boundary = limits.boundary(value)
        known = None if boundary else status.found if value == status.value else None
        values.add_row(
            Text(value_words(axis, value), HEAD_STYLE), *_row(status, value, boundary, known)
        )
    parts: list[RenderableType] = [title, Text(), values]
    if status.running is not None:
        parts += [Text(), *_running(status)]
    trials = limits.trials_of(status.value)[-TRIALS_SHOWN:]
    if trials:
        parts += [Text(), _trials(trials)]
    return Group(*map(safe, parts))


def _row(
    status: LimitsStatus, value: Value, boundary: Boundary | None, known: Found | None
) -> tuple[str | Text, ...]:
    if boundary is not None:
        return (
            Text("?" if unsure(boundary) else OK, WARN_STYLE if unsure(boundary) else GOOD_STYLE),
            figures.rate(boundary.messages_per_s),
            between(boundary),
            figures.count(boundary.trials),
            _cut(ended(boundary)),
        )
    if known is None or value not in status.limits.baseline:
        waits = "without load first" if value == status.value else "to come"
        return ("", "", "", "", _cut(waits))
    pace = status.limits.settings.point(value, 1).pace
    low = figures.rate(known.safe * pace)
    high = "?" if known.overloaded is None else figures.rate(known.overloaded * pace)
    return ("…", "", f"{low} to {high}", figures.count(known.trials), "")


def _running(status: LimitsStatus) -> list[RenderableType]:
    running = status.running
    assert running is not None
    axis = status.limits.settings.axis
    head = Text.assemble(
        (f"{value_words(axis, status.value)}  ", HEAD_STYLE),
        point_words(running.point),
        (f"   {running.phase}, {figures.duration(running.seconds)}", QUIET_STYLE),
    )
    if running.signals is None:
        return [head]
    baseline = status.limits.baseline.get(status.value)
    said = "   ".join(signal_words(running.signals, baseline))
    return [head, Text(f"  {said}", QUIET_STYLE)]


def _trials(trials: tuple[Trial, ...]) -> RenderableType:
    rows = _table("", "messages/s", "sent", "MB/s", "")
    for trial in trials:
        mark, style = MARKS[trial.verdict]
        rows.add_row(
            Text(mark, style),
            figures.rate(trial.point.messages_per_s),
            figures.rate(trial.signals.sent_per_s),
            mb_words(trial.point.bytes_per_s),
            Text(VERDICTS[trial.verdict], style),
            _cut(trial.why),
        )
    return rows


def _table(*columns: str) -> Table:
    """With a last column that is cut where the screen ends, and no other is."""
    made = table(*columns)
    made.add_column("")
    return made


def _cut(text: str) -> Text:
    return Text(printable(text), QUIET_STYLE, no_wrap=True, overflow="ellipsis")
