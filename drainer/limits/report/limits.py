"""The report of limits: the boundaries, what decided, and every trial with its signals."""

from __future__ import annotations

from datetime import UTC, datetime

from drainer.limits.report.boundary import boundary_chart, search_charts
from drainer.limits.search.boundary import Limits
from drainer.limits.search.point import Trial
from drainer.limits.view.limits import (
    MARKS,
    VERDICTS,
    boundary_cells,
    decided_by,
    held_fixed,
    mb_words,
    signal_words,
    value_words,
    warnings,
)
from drainer.view import figures
from drainer.view.report.page import Moment, render


def limits_page(limits: Limits, now: datetime) -> str:
    """The page; ``now`` is in the zone that times are to be told in."""
    settings = limits.settings
    rows = [boundary_cells(limits, each) for each in limits.boundaries]
    unfinished = "The search did not end: repeat the command to resume it."
    return render(
        "limits.html",
        now,
        {"limits": limits.as_json()},
        title="What the brokers bear",
        limits=limits,
        settings=settings,
        headline=_headline(limits),
        begun=Moment.of(datetime.fromtimestamp(limits.at, UTC).astimezone(now.tzinfo)),
        warnings=[*warnings(limits), *([] if limits.complete else [unfinished])],
        cards=[(row[0], f"{row[1]}/s", f"messages; {row[3]} MB/s a broker") for row in rows],
        rows=rows,
        chart_of_boundary=boundary_chart(limits),
        names={value: value_words(settings.axis, value) for value in limits.baseline},
        searches=search_charts(limits),
        trials=[_trial(limits, trial, now) for trial in limits.trials],
        held_fixed=held_fixed(settings),
        decided_by=decided_by(settings),
        share=figures.share(settings.safe_share),
        most_mb=settings.bytes_per_s_most / 1e6,
    )


def _headline(limits: Limits) -> str:
    known = [each for each in limits.boundaries if each.messages_per_s > 0]
    if not known:
        return "No boundary is known yet"
    best = max(known, key=limits.mb_per_s_a_broker)
    rate = limits.mb_per_s_a_broker(best)
    name = value_words(limits.settings.axis, best.value)
    prefix = "At least" if best.is_open else "Up to"
    return f"{prefix} {rate:,.1f} MB/s a broker, at {name}"


def _trial(limits: Limits, trial: Trial, now: datetime) -> tuple[str, ...]:
    axis = limits.settings.axis
    value = axis.of(trial.point)
    at = datetime.fromtimestamp(trial.at, UTC).astimezone(now.tzinfo)
    mark, _ = MARKS[trial.verdict]
    return (
        f"{at:%H:%M:%S}",
        value_words(axis, value),
        figures.count(trial.point.producers),
        figures.rate(trial.point.messages_per_s),
        mb_words(trial.point.bytes_per_s),
        f"{mark} {VERDICTS[trial.verdict]}",
        trial.why,
        ", ".join(signal_words(trial.signals, limits.baseline.get(value))),
    )
