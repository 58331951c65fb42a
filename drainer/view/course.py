"""The course of a drain as plots: one for each question that someone on call asks about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from math import nan

from drainer.core.latency import Latency
from drainer.engine.history import History, Interval, rates
from drainer.view import figures
from drainer.view.page import Bars, Clock, Column, Plot, Series, Table

LOG_FROM = 30  # times that the slowest is above the fastest
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
    clock = Clock(
        begun,
        [each.ends_s for each in found],
        [(trouble.begins_s, trouble.ends_s) for trouble in history.troubles],
    )
    plot = partial(Plot, x=clock)
    speed = rates(found, [each.finished for each in found])
    best = max(range(len(speed)), key=speed.__getitem__)
    when = begun + timedelta(seconds=found[best + 1].ends_s)
    partitions = history.partitions
    made = [
        plot(
            "throughput",
            "Throughput",
            f"Sub-messages done per second; most at {when:%H:%M:%S}:"
            f" {figures.rate(speed[best])}/s.",
            series=[Series("sub-messages per second", [speed[0], *speed], filled=True)],
            unit="per second",
        ),
        plot(
            "to-go",
            "Left above the watermark",
            "Offsets from the watermark to the end of the backlog, in"
            f" {figures.counted(len(partitions) - 1 + (history.folded or 1), 'partition')}:"
            f" {figures.count(sum(found[0].to_go))} at first,"
            f" {figures.count(sum(found[-1].to_go))} at last.",
            series=[
                Series(
                    f"{history.folded:,} smaller partitions together"
                    if number is None
                    else f"partition {number}",
                    [each.to_go[at] for each in found],
                    f"c{at + 1}",
                )
                for at, number in enumerate(partitions)
            ],
            stacked=True,
        ),
        plot(
            "in-handler",
            "In the handler",
            f"Sub-messages in the handler at once: {_in_handler(found, bundled=bundled)}.",
            series=[
                Series("in the handler", [each.running for each in found], filled=True),
                *([] if bundled else [_concurrency(found)]),
            ],
        ),
        plot(
            "lanes",
            "Lanes",
            "Sub-keys with something waiting or running, and those of them that only wait for a"
            " worker. If none waits, more concurrency does not help.",
            series=[
                Series("lanes", [each.lanes for each in found], "c3", filled=True),
                Series("waiting for a worker", [each.lanes_ready for each in found], "c4"),
            ],
        ),
    ]
    known = [each.latency_s for each in found if each.latency_s is not None]
    if known and whole is not None:
        spread = max(p99 for *_, p99 in known) / max(min(p50 for p50, *_ in known), 1e-6)
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
                log=spread > LOG_FROM,
            )
        )
    if failing := _failing(found):
        tells = "What there had been in this run: where a line rises, they came."
        made.append(plot("failing", "Failures, added up", tells, series=failing))
    return made


def _in_handler(found: Sequence[Interval], *, bundled: bool) -> str:
    mean = sum(each.running for each in found) / len(found)
    limits = [each.concurrency for each in found]
    allows = f"{'up to ' if min(limits) < max(limits) else ''}{figures.count(max(limits))}"
    within = f"in {allows} calls" if bundled else f"of {allows}"
    return f"{figures.rate(mean)} on average, {within} that concurrency allows"


def _concurrency(found: Sequence[Interval]) -> Series:
    limits = [each.concurrency for each in found]
    return Series("concurrency", limits, "c2", dashed=True, stepped=True)


def _failing(found: Sequence[Interval]) -> list[Series]:
    first = found[0]
    lines = (
        Series("failed attempts", [each.failures for each in found], "c2"),
        Series("retries", [each.retries for each in found], "c1", dashed=True),
        Series("timeouts", [each.timeouts for each in found], "c5"),
        Series("dead letters", [each.dead - first.dead for each in found], "bad"),
        Series("given up and skipped", [each.failed - first.failed for each in found], "c3"),
        Series("skipped", [each.skipped - first.skipped for each in found], "c8"),
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


def deepest_lanes(history: History) -> Bars | None:
    """The sub-keys for which the most was seen waiting at once."""
    rows = tuple(
        (figures.sub_key(key, 60), float(depth), figures.count(depth))
        for key, depth in history.hottest
        if depth > 1
    )
    note = "sub-messages seen waiting for one sub-key at once; they are handled one by one"
    return Bars("", rows, note) if rows else None
