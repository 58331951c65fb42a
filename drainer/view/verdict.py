"""The end of a drain in words: how long it takes, when that is on the clock, and the margin.

Every screen that says when a drain ends gets its words from ``ending``, so all of them agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from drainer.model.deadline import DeadlineStatus
from drainer.model.listed import clock_time
from drainer.view import figures
from drainer.view.page import BAD, OK, Field, Line, Tone


def ending(
    how_long: str,
    left_s: float | None,
    deadline: DeadlineStatus | None = None,
    now: datetime | None = None,
    *,
    end: str = "done at",
) -> str:
    """Return ``takes about 41s, done at 17:06, 14h 53m before Mon 08:00``.

    ``how_long`` begins the text. ``left_s`` is the time from now until the end; if it is None, the
    text is ``how_long`` alone.
    """
    if deadline is not None:  # The deadline was judged by the drain's own clock.
        now = deadline.at - timedelta(seconds=deadline.left_s)
    now = now or datetime.now().astimezone()
    words = [how_long] if how_long else []
    with suppress(OverflowError):  # An end after the year 9999 has no time on the clock.
        if left_s is not None:
            at = now + timedelta(seconds=left_s)
            words.append(f"{end} {clock_time(at, now)}")
            if deadline is not None:
                words.append(_margin(deadline.at - at, deadline.at, now))
    return ", ".join(words)


def _margin(margin: timedelta, deadline: datetime, now: datetime) -> str:
    side = "after" if margin < timedelta() else "before"
    return f"{figures.duration(abs(margin).total_seconds())} {side} {clock_time(deadline, now)}"


def judged(words: str, found: DeadlineStatus | None) -> Line:
    """Return a line with these words. Its mark and tone say whether the deadline will be met."""
    if found is None or found.margin_s is None:
        return Line(words, Tone.STRONG)
    if not found.late:
        return Line(words, Tone.GOOD, OK)
    return Line(words, Tone.BAD if found.missed else Tone.WARN, BAD)


def deadline_field(found: DeadlineStatus | None) -> Iterator[Field]:
    """Yield the deadline as a field, for a page that knows no end to compare with it."""
    if found is not None:
        at = clock_time(found.at, found.at - timedelta(seconds=found.left_s))
        away = figures.duration(abs(found.left_s))
        yield Field("deadline", f"{at}, in {away}" if found.left_s >= 0 else f"{at}, {away} ago")
