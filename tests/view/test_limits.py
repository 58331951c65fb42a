"""Limits as a person sees them: the search, its report, and results side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from drainer.limits.search.boundary import MeasuredLimits, from_json
from drainer.limits.trials import LimitsStatus
from drainer.limits.view import SearchView, limits_page, named_limits
from drainer.view.page import Curves
from drainer.view.report.page import html
from drainer.view.terminal import Terminal
from operations.modelled import nothing_known, searched

from . import samples
from .facts import items
from .limits import PATH
from .samples import ENDED, EVIL
from .test_report import Reader


@pytest.fixture
def statuses() -> tuple[LimitsStatus, ...]:
    """All statuses of a search."""
    return searched()[2]


@pytest.fixture
def limits() -> MeasuredLimits:
    return searched()[1]


def test_the_report_has_the_findings_for_programs(limits: MeasuredLimits) -> None:
    text = html(limits_page([(PATH, replace(limits, cluster_id=EVIL))]), ENDED)
    reader = Reader(text)

    assert EVIL not in text
    assert EVIL in reader.text
    assert from_json(orjson.loads(reader.data)) == replace(limits, cluster_id=EVIL)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_has_a_line_for_each_trial_and_boundary_that_is_new(
    statuses: tuple[LimitsStatus, ...], quiet: bool
) -> None:
    terminal, _, err = samples.terminal(quiet=quiet)
    half = len(statuses) // 2
    known, limits = statuses[half].limits, statuses[-1].limits

    with SearchView(terminal, known) as view:
        for status in statuses[half:]:
            view.update(status)

    lines = err.getvalue().splitlines()
    trials = [line for line in lines if "producers)" in line]
    if quiet:
        assert lines == []
    else:
        last = limits.trials[-1]
        assert len(trials) == len(limits.trials) - len(known.trials)
        assert f"10 KiB  {last.point.messages_per_s:,.0f} messages/s, " in trials[-1]
        assert f"({last.point.producers} producers): {last.verdict}" in trials[-1]
        assert len(lines) - len(trials) == len(limits.boundaries) - len(known.boundaries)


def test_a_screen_has_a_line_of_what_runs_now(statuses: tuple[LimitsStatus, ...]) -> None:
    screen = samples.Screen()
    terminal = Terminal(stderr=screen, width=250, height=50)
    status = next(s for s in statuses if len(s.limits.boundaries) == 1 and s.phase == "steady")

    with SearchView(terminal, nothing_known()) as view:
        view.update(status)

    assert status.point is not None
    assert f"{status.point.messages_per_s:,.0f} messages/s" in screen.getvalue()
    assert "steady" in screen.getvalue()
    assert "(unloaded 2.0 ms)" in screen.getvalue()


def test_results_side_by_side_are_named_by_what_they_differ_in_and_drawn_in_one_chart(
    limits: MeasuredLimits,
) -> None:
    settings = replace(limits.settings, consumer_groups=9, message_bytes=(100,))
    first, *_ = limits.boundaries
    twice = replace(first, messages_per_s=2 * first.messages_per_s, high=None)
    others = [
        (PATH, limits),
        (Path("three.json"), replace(limits, brokers=3)),
        (Path("nine.json"), replace(limits, settings=settings, boundaries=(twice,))),
    ]

    page = limits_page(others)

    labels = [f"{each} reading" for each in ("1 broker, 5 groups", "3 brokers, 5 groups")]
    labels.append("1 broker, 9 groups reading")
    of_brokers, rates = [item for item in items(page) if isinstance(item, Curves)]
    assert [curve.label for curve in rates.series] == labels
    assert of_brokers.series[1].points[0][1] == pytest.approx(of_brokers.series[0].points[0][1] / 3)
    terminal, out, _ = samples.terminal(width=250)
    terminal.present(page)
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    (nine,) = [line for line in lines if labels[2] in line]
    assert nine.startswith("100 B")
    assert " 2.00 " in nine
    drawn = html(page, ENDED)
    assert drawn.count("<svg") == 2
    assert drawn.count("<circle") == 2 * sum(len(curve.points) for curve in rates.series)
    assert set(page.data) == set(labels)
    same = named_limits([(PATH, limits), (Path("again.json"), limits)])
    assert [label for label, _ in same] == [f"({PATH})", "(again.json)"]
