"""Limits as a person sees them: the search and its report."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from drainer.limits.search.boundary import MeasuredLimits, from_json
from drainer.limits.trials import LimitsStatus
from drainer.limits.view import SearchView, limits_page
from drainer.view.report.page import html
from drainer.view.terminal import Terminal
from operations.modelled import nothing_known, searched

from . import samples
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
    text = html(limits_page(PATH, replace(limits, cluster_id=EVIL)), ENDED)
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
