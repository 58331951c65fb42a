"""The report of an estimate: how long a drain will take, what binds, and what could be done."""

from __future__ import annotations

from datetime import datetime

from drainer.insight.estimate import DeadlineVerdict, Estimate
from drainer.insight.report.spread import Limit, curve, durations
from drainer.insight.view.estimate import binding, skipped_words
from drainer.insight.view.retention import doomed_warning
from drainer.view import figures
from drainer.view.report.chart import Chart, Line
from drainer.view.report.page import Moment, render

LOG_FROM = 30  # times that the longest is above the shortest


def estimate_page(found: Estimate, now: datetime) -> str:
    """The page; ``now`` is when it was estimated, in the zone that times are to be told in."""
    some = bool(found.workload.messages)
    return render(
        "estimate.html",
        now,
        {"estimate": found.as_json()},
        title=f"Estimate: {found.topic} for {found.group}",
        found=found,
        asked=found.asked,
        headline=f"Takes about {figures.duration(found.asked.seconds)}"
        if some
        else "Nothing to drain",
        about="" if found.workload.whole else "~",
        verdict=_verdict(found.verdict, now) if found.verdict and some else None,
        too_near=doomed_warning(found.doomed, found.asked.seconds),
        skipped=skipped_words(found.skipped, whole=found.workload.whole),
        binding=binding(found, found.asked) if some else None,
        charts=_charts(found) if some else [],
        concurrencies=[
            (figures.count(each.concurrency), each, each.concurrency == found.asked.concurrency)
            for each in found.table
        ],
        orders=[
            (order.value, each, order is found.question.order)
            for order, each in found.orders.items()
        ],
        each_s=_each_s(found),
    )


def _verdict(found: DeadlineVerdict, now: datetime) -> tuple[str, str, Moment]:
    """The style, the words, and the deadline."""
    by = Moment.of(found.deadline.astimezone(now.tzinfo))
    least = found.least_concurrency
    if found.met:
        less = "" if least is None else f"; a concurrency of {figures.count(least)} would do"
        margin = figures.duration(found.margin_s)
        return "good", f"✓ It makes the deadline, with {margin} to spare{less}.", by
    way_out = (
        "no concurrency is enough"
        if least is None
        else f"a concurrency of {figures.count(least)} would make it"
    )
    late = figures.duration(-found.margin_s)
    return "bad", f"✗ It misses the deadline, by {late}; {way_out}.", by


def _each_s(found: Estimate) -> float:
    costs = found.setting.costs
    return costs.sub_message_s + costs.message_s / max(1.0, found.workload.fan_out)


def _charts(found: Estimate) -> list[Chart]:
    limit = None
    if found.verdict is not None and found.verdict.left_s > 0:
        left = figures.duration(found.verdict.left_s)
        limit = Limit(found.verdict.left_s, f"the deadline, in {left}")
    charts = [_by_concurrency(found, limit), _by_order(found, limit)]
    if any(seconds > 0 for seconds in found.asked.bounds.values()):
        charts.append(_bounds(found, limit))
    return charts


def _by_concurrency(found: Estimate, limit: Limit | None) -> Chart:
    seconds = [each.seconds for each in found.table]
    fastest = found.table[min(range(len(seconds)), key=seconds.__getitem__)]
    log = max(seconds) > LOG_FROM * max(min(seconds), 1e-9)
    return curve(
        "by-concurrency",
        "By concurrency",
        f"How long it takes with so many at once, in {found.question.order.value} order; the least"
        f" of these is {figures.duration(fastest.seconds)}, with"
        f" {figures.count(fastest.concurrency)}.",
        [each.concurrency for each in found.table],
        [
            Line("takes", seconds, "c1"),
            Line(
                "the hottest lane alone", [each.serial_s for each in found.table], "c5", dashed=True
            ),
        ],
        "concurrency, logarithmic",
        "s",
        log=log,
        limit=limit,
    )


def _by_order(found: Estimate, limit: Limit | None) -> Chart:
    return durations(
        "by-order",
        "By order",
        f"How long it takes with {figures.count(found.asked.concurrency)} at once, when order is"
        " kept for each sub-key, each message key, or each partition.",
        [
            (order.value, each.seconds, figures.duration(each.seconds))
            for order, each in found.orders.items()
        ],
        limit,
    )


def _bounds(found: Estimate, limit: Limit | None) -> Chart:
    bounds = sorted(found.asked.bounds.items(), key=lambda item: -item[1])
    return durations(
        "bounds",
        "What binds",
        "The least that each of these allows for, were it alone. The longest is what binds.",
        [(name, seconds, figures.duration(seconds)) for name, seconds in bounds if seconds > 0],
        limit,
    )
