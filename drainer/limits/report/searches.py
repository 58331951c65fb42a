"""The searches for boundaries in a page: trials one after the other, a chart for each value."""

from __future__ import annotations

from drainer.limits.report.boundary import (
    BOUNDARY,
    MARKERS,
    TICKS_MOST,
    counted_verdicts,
    highest,
    key_of,
    tick_rates,
)
from drainer.limits.search.boundary import Limits
from drainer.limits.search.settings import Value
from drainer.limits.view.limits import value_words
from drainer.view import figures
from drainer.view.report.chart import INKS, Chart, Key, drawn

SEARCH_HEIGHT = 190


def search_charts(limits: Limits) -> list[Chart]:
    """For each value of the axis its trials, one after the other, for a page."""
    return [
        _search(limits, value, f"search-{number}")
        for number, value in enumerate(limits.settings.values)
        if limits.trials_of(value)
    ]


def _search(limits: Limits, value: Value, name: str) -> Chart:
    trials, boundary = limits.trials_of(value), limits.boundary(value)
    verdicts = [each for each in MARKERS if any(t.judgement.verdict is each for t in trials)]
    keys = [key_of(each) for each in verdicts]
    words = value_words(limits.settings.axis, value)
    if boundary is not None and boundary.messages_per_s:
        keys.insert(0, Key(BOUNDARY, "boundary, and between what it lies"))
    tells = (
        f"{figures.counted(len(trials), 'trial')}, one after the other: {counted_verdicts(trials)}."
    )
    with drawn(name, f"The search at {words}", tells, keys, SEARCH_HEIGHT) as drawing:
        axes = drawing.axes
        axes.set_yscale("log")
        for verdict in verdicts:
            marker, colour, _ = MARKERS[verdict]
            found = [
                (number, trial.point.messages_per_s)
                for number, trial in enumerate(trials, 1)
                if trial.judgement.verdict is verdict and trial.point.producers
            ]
            axes.scatter(
                [number for number, _ in found],
                [rate for _, rate in found],
                s=38,
                marker=marker,
                color=INKS[colour],
                edgecolors=INKS["card"],
                linewidths=0.6,
                zorder=3,
            )
        rates = [trial.point.messages_per_s for trial in trials if trial.point.producers]
        if boundary is not None and boundary.messages_per_s:
            axes.axhspan(
                min(boundary.low, boundary.messages_per_s) or boundary.messages_per_s,
                highest(boundary),
                color=INKS[BOUNDARY],
                alpha=0.16,
                lw=0,
            )
            axes.axhline(boundary.messages_per_s, color=INKS[BOUNDARY], zorder=2)
            rates += [boundary.messages_per_s]
        axes.set_xlim(0.4, len(trials) + 0.6)
        if rates:
            axes.set_ylim(min(rates) / 1.25, max(rates) * 1.25)
        tick_rates(axes)
        step = -(-len(trials) // TICKS_MOST) or 1
        axes.set_xticks(range(1, len(trials) + 1, step))
        axes.set_xlabel("trial")
    return drawing.chart
