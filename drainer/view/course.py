"""The course of a drain as plots: one for each thing that someone on call asks about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
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
    """The plots, none when it was over too soon; ``begun`` has the zone to tell the time in.

    ``whole`` is how long the handler took in the whole run. With ``bundled`` a call of it
    takes many sub-messages, and concurrency counts calls.
    """
    stretches = history.evenly(POINTS_MOST)
    if len(stretches) < 3:
        return []
    clock = Clock(
        begun,
        [stretch.ends_s for stretch in stretches],
        [(trouble.begins_s, trouble.ends_s) for trouble in history.troubles],
    )
    return [
        _throughput(stretches, clock),
        _to_go(stretches, clock, history),
        _in_handler(stretches, clock, bundled=bundled),
        *_latency(stretches, clock, whole),
        _lanes(stretches, clock),
        *_failing(stretches, clock),
    ]


def _throughput(stretches: Sequence[Interval], clock: Clock) -> Plot:
    found = rates(stretches, [stretch.finished for stretch in stretches])
    best = max(range(len(found)), key=found.__getitem__)
    when = clock.begun + timedelta(seconds=stretches[best + 1].ends_s)
    return Plot(
        "throughput",
        "Throughput",
        "Sub-messages finished per second; most at"
        f" {when:%H:%M:%S}: {figures.rate(found[best])}/s.",
        clock,
        [Series("sub-messages per second", [found[0], *found], "c1", filled=True)],
        "per second",
    )


def _to_go(stretches: Sequence[Interval], clock: Clock, history: History) -> Plot:
    partitions = history.partitions
    lines = [
        Series(
            f"partition {number}"
            if number is not None
            else f"{history.folded:,} smaller partitions together",
            [stretch.to_go[at] for stretch in stretches],
            f"c{at + 1}",
        )
        for at, number in enumerate(partitions)
    ]
    first, last = sum(stretches[0].to_go), sum(stretches[-1].to_go)
    return Plot(
        "to-go",
        "Left above the watermark",
        "Offsets from the watermark to the end of the backlog, in"
        f" {figures.counted(len(partitions) - 1 + (history.folded or 1), 'partition')}:"
        f" {figures.count(first)} at first, {figures.count(last)} at last.",
        clock,
        lines,
        "",
        stacked=True,
    )


def _in_handler(stretches: Sequence[Interval], clock: Clock, *, bundled: bool) -> Plot:
    mean = sum(stretch.running for stretch in stretches) / len(stretches)
    most = max(stretch.concurrency for stretch in stretches)
    allows = figures.count(most)
    if min(stretch.concurrency for stretch in stretches) < most:
        allows = f"up to {allows}"
    within = f"in {allows} calls" if bundled else f"of {allows}"
    lines = [Series("in the handler", [s.running for s in stretches], "c1", filled=True)]
    if not bundled:
        limits = [s.concurrency for s in stretches]
        lines.append(Series("concurrency", limits, "c2", dashed=True, stepped=True))
    return Plot(
        "in-handler",
        "In the handler",
        f"Sub-messages in the handler at once: {figures.rate(mean)} on average, {within} that"
        " concurrency allows.",
        clock,
        lines,
        "",
    )


def _latency(stretches: Sequence[Interval], clock: Clock, whole: Latency | None) -> list[Plot]:
    known = [stretch.latency_s for stretch in stretches if stretch.latency_s is not None]
    if not known or whole is None:
        return []
    unknown = (nan, nan, nan)
    values = [stretch.latency_s or unknown for stretch in stretches]
    spread = max(p99 for _, _, p99 in known) / max(min(p50 for p50, _, _ in known), 1e-6)
    log = spread > LOG_FROM
    return [
        Plot(
            "latency",
            "Latency of the handler",
            "How long attempts took that returned, of the last ten seconds"
            f"{', on a logarithmic scale' if log else ''}. In the whole run:"
            f" {figures.latency(whole)}.",
            clock,
            [
                Series("p50", [p50 for p50, _, _ in values], "c1"),
                Series("p95", [p95 for _, p95, _ in values], "c5"),
                Series("p99", [p99 for _, _, p99 in values], "c6"),
            ],
            "s",
            log=log,
        )
    ]


def _lanes(stretches: Sequence[Interval], clock: Clock) -> Plot:
    ready = max(stretch.lanes_ready for stretch in stretches)
    tells = (
        "Sub-keys with something waiting or running, and those of them that only wait for a worker."
    )
    if ready < 1:
        tells += " None was ever seen waiting: more concurrency would not have helped."
    return Plot(
        "lanes",
        "Lanes",
        tells,
        clock,
        [
            Series("lanes", [s.lanes for s in stretches], "c3", filled=True),
            Series("waiting for a worker", [s.lanes_ready for s in stretches], "c4"),
        ],
        "",
    )


def _named(lines: Sequence[Series]) -> str:
    # One line alone has no legend.
    return lines[0].label if len(lines) == 1 else "of each"


def _failing(stretches: Sequence[Interval], clock: Clock) -> list[Plot]:
    first = stretches[0]
    lines = [
        line
        for line in (
            Series("failed attempts", [s.failures for s in stretches], "c2"),
            Series("retries", [s.retries for s in stretches], "c1", dashed=True),
            Series("timeouts", [s.timeouts for s in stretches], "c5"),
            Series("dead letters", [s.dead - first.dead for s in stretches], "bad"),
            Series("given up and skipped", [s.failed - first.failed for s in stretches], "c3"),
            Series("skipped", [s.skipped - first.skipped for s in stretches], "c8"),
        )
        if any(line_value for line_value in line.values)
    ]
    if not lines:
        return []
    return [
        Plot(
            "failing",
            "Failures, added up",
            f"How many {_named(lines)} there had been in this run: where a line rises, they came.",
            clock,
            lines,
            "",
        )
    ]


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
