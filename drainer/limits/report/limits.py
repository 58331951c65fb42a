"""The report of limits: the boundaries, what decided, and every trial with its signals."""

from __future__ import annotations

from datetime import UTC, datetime

from drainer.limits.report.boundary import boundary_chart
from drainer.limits.report.searches import search_charts
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.point import Trial
from drainer.limits.view.limits import (
    MARKS,
    VERDICTS,
    at_least,
    between,
    decided_by,
    ended,
    held_fixed,
    is_open,
    most_words,
    signal_words,
    unsure,
    value_words,
    was_most,
)
from drainer.view import figures
from drainer.view.report.page import Moment, render


def limits_page(limits: Limits, now: datetime) -> str:
    """The page; ``now`` is in the zone that times are to be told in."""
    settings = limits.settings
    return render(
        "limits.html",
        now,
        {"limits": limits.as_json()},
        title="What the brokers bear",
        limits=limits,
        settings=settings,
        headline=_headline(limits),
        begun=Moment.of(datetime.fromtimestamp(limits.at, UTC).astimezone(now.tzinfo)),
        warnings=_warnings(limits),
        cards=[_card(limits, each) for each in limits.boundaries],
        rows=[_row(limits, each) for each in limits.boundaries],
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
    best = max(known, key=limits.bytes_per_s_a_broker)
    rate = limits.bytes_per_s_a_broker(best) / 1e6
    name = value_words(limits.settings.axis, best.value)
    prefix = "At least" if is_open(best) else "Up to"
    return f"{prefix} {rate:,.1f} MB/s a broker, at {name}"


def _warnings(limits: Limits) -> list[str]:
    told = []
    for each in limits.boundaries:
        name = value_words(limits.settings.axis, each.value)
        if was_most(limits, each):
            told.append(f"{name}: {most_words(limits)}")
        elif unsure(each):
            told.append(f"{name}: {ended(each)}")
    if not limits.complete:
        told.append("The search was not done to its end: the same command goes on with it.")
    return told


def _card(limits: Limits, boundary: Boundary) -> tuple[str, str, str]:
    rate = limits.bytes_per_s_a_broker(boundary) / 1e6
    return (
        value_words(limits.settings.axis, boundary.value),
        f"{at_least(boundary)}{figures.rate(boundary.messages_per_s)}/s",
        f"messages; {rate:,.1f} MB/s a broker",
    )


def _row(limits: Limits, boundary: Boundary) -> tuple[str, ...]:
    cap = limits.settings.safe_share * boundary.messages_per_s
    return (
        value_words(limits.settings.axis, boundary.value),
        f"{at_least(boundary)}{figures.rate(boundary.messages_per_s)}",
        between(boundary),
        f"{limits.bytes_per_s_a_broker(boundary) / 1e6:,.1f}",
        figures.rate(cap),
        f"{cap * boundary.message_bytes / 1e6:,.1f}",
        figures.count(boundary.trials),
        ended(boundary),
    )


def _trial(limits: Limits, trial: Trial, now: datetime) -> tuple[str, ...]:
    axis = limits.settings.axis
    value = axis.of(trial.point)
    at = datetime.fromtimestamp(trial.at, UTC).astimezone(now.tzinfo)
    mark, _ = MARKS[trial.judgement.verdict]
    return (
        f"{at:%H:%M:%S}",
        value_words(axis, value),
        figures.count(trial.point.producers),
        figures.rate(trial.point.messages_per_s),
        f"{trial.point.bytes_per_s / 1e6:,.1f}",
        f"{mark} {VERDICTS[trial.judgement.verdict]}",
        "; ".join(trial.judgement.why),
        ", ".join(signal_words(trial.signals, limits.baseline.get(value))),
    )
