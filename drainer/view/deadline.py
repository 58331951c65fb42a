"""The deadline of a drain in words: whether it will be met, and by how much."""

from __future__ import annotations

from collections.abc import Iterator

from drainer.model.deadline import DeadlineStatus
from drainer.view import figures
from drainer.view.page import BAD, OK, Field, Line, Tone


def fields(found: DeadlineStatus | None) -> Iterator[Field]:
    """Yield the field of a deadline, if there is one."""
    if found is not None:
        yield Field("deadline", _words(found), tone=Tone.BAD if found.late else Tone.PLAIN)


def verdict(found: DeadlineStatus | None) -> Line | None:
    """Return whether the deadline will be met; None without a deadline or without an estimate."""
    if found is None or found.margin_s is None:
        return None
    margin = figures.duration(abs(found.margin_s))
    if not found.late:
        return Line(f"Meets the deadline {_at(found)}, with {margin} to spare", Tone.GOOD, OK)
    tone = Tone.BAD if found.missed else Tone.WARN
    return Line(f"Misses the deadline {_at(found)} by {margin}", tone, BAD)


def warning(found: DeadlineStatus | None) -> str | None:
    """Return a warning if the deadline is sure to be missed; None otherwise."""
    if found is None or not found.missed:
        return None
    return f"the drain will miss its deadline, {_words(found)}"


def _words(found: DeadlineStatus) -> str:
    """Return ``14 Mar 08:00: 20m 00s to spare`` and the like, in this machine's zone."""
    if found.margin_s is None:
        return f"{_at(found)}, in {figures.duration(found.left_s)}"
    margin = figures.duration(abs(found.margin_s))
    return f"{_at(found)}: {margin} {'too late' if found.late else 'to spare'}"


def _at(found: DeadlineStatus) -> str:
    return f"{found.at.astimezone():%d %b %H:%M}"
