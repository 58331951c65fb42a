"""The course of a drain as plots: one for each question that someone on call asks about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from math import nan

from drainer.core.latency import Latency
from drainer.engine.history import History, Interval, rates
from drainer.view import figures
from drainer.view.page import Column, Plot, Series, Table, bars

POINTS_MOST = 240  # of a line; more can't be told apart on a page


def plots(
    history: History, begun: datetime, whole: Latency | None, *, bundled: bool = False
) -> list[Plot]:
    """The plots, none when it was over too soon; ``begun`` has the zone to give the time in.

    ``whole`` is how long the handler took in the whole run. With ``bundled`` a call of it
    takes many sub-messages, and concurrency counts calls.
    """
    found = history.evenly(POINTS_MOST)
    if len(found) < 3:
        return []
    plot = partial(
        Plot,
        begun=begun,
        seconds=[each.ends_s for each in found],
        troubles=[(trouble.begins_s, trouble.ends_s) for trouble in history.troubles],
    )
    speed = rates(found, [each.finished for each in found])
    best = max(range(len(speed)), key=speed.__getitem__)
    when = begun + timedelta(seconds=found[best + 1].ends_s)
    mean = figures.rate(sum(each.running for each in found) / len(found))
    limits = Series("concurrency", [each.concurrency for each in found], "c2")
    made = [
        plot(
            "throughput",
            "Throughput",
            f"Sub-messages done per second; most at {when:%H:%M:%S}:"
            f" {figures.rate(speed[best])}/s.",
            series=[Series("sub-messages per second", [speed[0], *speed])],
            unit="per second",
        ),
        plot(
            "to-go",
            "Left above the watermark",
            f"Offsets from the watermark to the end of the backlog: {figures.count(found[0].to_go)}"
            f" at first, {figures.count(found[-1].to_go)} at last.",
            series=[Series("offsets", [each.to_go for each in found])],
        ),
        plot(
            "in-handler",
            "In the handler",
            f"Sub-messages in the handler at once, {mean} on average; concurrency limits"
            f" {'calls' if bundled else 'them'}.",
            series=[
                Series("in the handler", [each.running for each in found]),
                *([] if bundled else [limits]),
            ],
        ),
        plot(
            "lanes",
            "Lanes",
            "Sub-keys with something waiting or running, and those of them that only wait for a"
            " worker. If none waits, more concurrency does not help.",
            series=[
                Series("lanes", [each.lanes for each in found], "c3"),
                Series("waiting for a worker", [each.lanes_ready for each in found], "c4"),
            ],
        ),
    ]
    if whole is not None and any(each.latency_s for each in found):
        values = [each.latency_s or (nan, nan, nan) for each in found]
        quantiles = (("p50", "c1"), ("p95", "c5"), ("p99", "c6"))
        made.append(
            plot(
                "latency",
                "Latency of the handler",
                "How long attempts took that returned, of the last ten seconds. In the whole run:"
                f" {figures.latency(whole)}.",
                series=[
                    Series(label, [each[at] for each in values], ink)
                    for at, (label, ink) in enumerate(quantiles)
                ],
                unit="s",
            )
        )
    if failing := _failing(found):
        tells = "What there had been in this run: where a line rises, they came."
        made.append(plot("failing", "Failures, added up", tells, series=failing))
    return made


def _failing(found: Sequence[Interval]) -> list[Series]:
    first = found[0]
    lines = (
        Series("failed attempts", [each.failures for each in found], "c2"),
        Series("retries", [each.retries for each in found], "c1"),
        Series("timeouts", [each.timeouts for each in found], "c5"),
        Series("dead letters", [each.dead - first.dead for each in found], "bad"),
        Series("given up and skipped", [each.failed - first.failed for each in found], "c3"),
        Series("skipped", [each.skipped - first.skipped for each in found], "c4"),
    )
    return [line for line in lines if any(line.values)]


def troubles(history: History, begun: datetime) -> Table | None:
    """What the drain waited out: the shaded intervals of the plots."""
    if not history.troubles:
        return None
    rows = [
        (
            f"{begun + timedelta(seconds=trouble.begins_s):%H:%M:%S}",
            figures.duration(trouble.ends_s - trouble.begins_s),
            trouble.text,
        )
        for trouble in history.troubles
    ]
    if history.troubles_more:
        rows.append(("", "", f"and {figures.counted(history.troubles_more, 'more')}"))
    columns = (Column("from"), "for", Column("", wide=True))
    return Table(columns, tuple(rows), caption="The shaded parts of the charts.")


def deepest_lanes(history: History) -> Table | None:
    """The sub-keys for which the most was seen waiting at once."""
    rows = [
        (figures.sub_key(key, 60), float(depth), figures.count(depth))
        for key, depth in history.hottest
        if depth > 1
    ]
    return bars("sub-key", "seen waiting at once", rows) if rows else None
