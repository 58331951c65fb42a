"""The course of a drain as plots, one for each question that somebody on call may have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from math import nan

from drainer.engine.history import History, HistoryPoint, rates
from drainer.model.latency import Latency
from drainer.model.listed import clock_time
from drainer.text.escape import shorten
from drainer.view import figures
from drainer.view.page import Column, Plot, Series, Table, bars

# The plots of counts. Each has a name, a title, a description of what it shows, and its lines: a
# label, and the field of the history's intervals that has the values.
_COUNTS = (
    (
        "to-go",
        "Offsets left",
        "Offsets from the watermark to the end of the backlog.",
        {"offsets": "to_go"},
    ),
    (
        "in-handler",
        "In the handler",
        "Sub-messages in the handler at once, on average, and the concurrency. If a call takes"
        " several, concurrency counts calls.",
        {"in the handler": "running_s", "concurrency": "concurrency"},
    ),
    (
        "lanes",
        "Lanes",
        "Sub-keys with sub-messages waiting or running, and those that only wait for a worker."
        " If none waits for a worker, more concurrency does not help.",
        {"lanes": "lanes", "waiting for a worker": "lanes_ready"},
    ),
    (
        "failing",
        "Failures so far",
        "Failed attempts of this run. Dead letters and skipped sub-messages of all runs.",
        {
            "failed attempts": "failures",
            "retries": "retries",
            "timeouts": "timeouts",
            "dead letters": "dead",
            "given up and skipped": "failed",
            "skipped": "skipped",
        },
    ),
)


def plots(history: History, begun: datetime, whole: Latency | None) -> list[Plot]:
    """Make the plots of a drain. There are none if the drain was too short.

    ``begun`` has the time zone in which times are shown. ``whole`` is the handler's latency over
    the whole run.
    """
    found = history.points
    if len(found) < 3:
        return []
    plot = partial(
        Plot,
        begun=begun,
        seconds=[each.ends_s for each in found],
        troubles=[(trouble.begins_s, trouble.ends_s) for trouble in history.troubles],
    )
    speed = _rates(found, "finished")
    done = f"Sub-messages done per second, at most {figures.rate(max(speed))}."
    lines = [Series("sub-messages per second", speed)]
    made = [plot("throughput", "Throughput", done, series=lines)]
    for name, title, description, fields in _COUNTS:
        counts = {label: _values(found, name) for label, name in fields.items()}
        lines = [
            Series(label, values, f"c{number}")
            for number, (label, values) in enumerate(counts.items(), 1)
            if any(values)
        ]
        if lines:
            made.append(plot(name, title, description, series=lines))
    if whole is not None and any(each.latency_s for each in found):
        values = [each.latency_s or (nan, nan, nan) for each in found]
        lines = [
            Series(f"p{percent}", [each[at] for each in values], f"c{at + 1}")
            for at, percent in enumerate((50, 95, 99))
        ]
        description = (
            "Time per attempt that succeeded, over the last ten seconds. Whole run:"
            f" {figures.latency(whole)}."
        )
        made.append(plot("latency", "Latency of the handler", description, series=lines, unit="s"))
    return made


def _values(found: Sequence[HistoryPoint], name: str) -> list[float]:
    """Return a field's value at the end of each interval.

    ``running_s`` adds up the time of all calls, so its rate is returned: the mean number of calls.
    """
    if name == "running_s":
        return _rates(found, name)
    return [getattr(each, name) for each in found]


def _rates(found: Sequence[HistoryPoint], name: str) -> list[float]:
    """Return how fast a field grew in each interval.

    The first interval has no length, because it is the beginning of the drain. So it gets the rate
    of the second.
    """
    known = rates(found, [getattr(each, name) for each in found])
    return [known[0], *known]


def troubles(history: History, begun: datetime, now: datetime) -> Table | None:
    """Return a table of the drain's troubles, whose intervals are shaded in the plots."""
    if not history.troubles:
        return None
    rows = [
        (
            clock_time(begun + timedelta(seconds=trouble.begins_s), now, "%H:%M:%S"),
            figures.duration(trouble.ends_s - trouble.begins_s),
            trouble.text,
        )
        for trouble in history.troubles
    ]
    if history.troubles_more:
        rows.append(("", "", f"and {figures.counted(history.troubles_more, 'more')}"))
    columns = (Column("from"), "for", Column("", wide=True))
    return Table(columns, tuple(rows), caption="Shaded in the charts.")


def deepest_lanes(history: History) -> Table | None:
    """Return bars of the sub-keys that had the most sub-messages waiting at once."""
    rows = [
        (shorten(key, 60), float(depth), figures.count(depth))
        for key, depth in history.hottest
        if depth > 1
    ]
    return bars("sub-key", "most waiting at once", rows) if rows else None
