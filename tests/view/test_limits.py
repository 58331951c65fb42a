"""Limits on the terminal: what will be done, the search, the boundaries, two findings."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from drainer.limits.kafka.topic import LiveTraffic, Own
from drainer.limits.leftovers import Leftovers
from drainer.limits.measure import PreparedLimits
from drainer.limits.request import LimitsRequest
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.comparison import compare
from drainer.limits.search.point import End
from drainer.limits.search.settings import Axis
from drainer.limits.trials import LimitsStatus
from drainer.limits.view.limits import (
    boundary_cells,
    show_comparison,
    show_leftovers,
    show_limits,
    show_limits_action,
    warnings,
)
from drainer.limits.view.searching import SearchFrame, SearchLines, limits_view
from drainer.view.terminal import Terminal
from operations.modelled import SETTINGS, ModelledCluster, nothing_known, run

from . import samples

TOPIC = "drainer.limits.20261121-190312-0a1b2c"
GROUPS = tuple(f"{TOPIC}.{number}" for number in range(1, 6))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[LimitsStatus]:
    """All that a search told of itself."""
    told: list[LimitsStatus] = []
    run(ModelledCluster(), tmp_path_factory.mktemp("limits") / "limits.json", said=told)
    return told


@pytest.fixture(scope="module")
def limits(said: list[LimitsStatus]) -> Limits:
    return said[-1].limits


def prepared(**changes: object) -> PreparedLimits:
    made = PreparedLimits(
        request=LimitsRequest(
            axis=Axis.MESSAGE_BYTES, values=SETTINGS.values, out=Path("limits.json")
        ),
        limits=nothing_known(),
        on_disk=None,
        bootstrap_servers="broker-1:9092",
        topic=TOPIC,
        groups=GROUPS,
        live=LiveTraffic(),
        left_behind=Own((), ()),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def action(found: PreparedLimits) -> str:
    terminal, out, err = samples.terminal()
    show_limits_action(terminal, found, "local[*]")
    assert out.getvalue() == ""
    return " ".join(err.getvalue().split())


def summary(found: Limits) -> str:
    terminal, _, err = samples.terminal(width=200)
    show_limits(terminal, found, Path("my limits.json"))
    return err.getvalue()


def ended(found: Limits, end: End, **changes: object) -> Limits:
    first, *rest = found.boundaries
    changed = replace(first, end=end, **changes)  # type: ignore[arg-type]
    return replace(found, boundaries=(changed, *rest))


def test_topic_and_groups_are_named_before_anything_is_touched() -> None:
    text = action(prepared())

    assert f"test topic {TOPIC} (10 partitions, deleted at the end)" in text
    assert f"groups {TOPIC}.1 … .5 (deleted at the end)" in text
    assert (
        "messages of 100 B, 1 KiB, 10 KiB (5 groups reading, 10 partitions, uncompressed)" in text
    )
    assert "at most 100.0 MB/s (set --max-mb-per-s; 400 producers of 250.0 kB/s each)" in text
    assert "result limits.json" in text
    assert "warning" not in text


def test_the_summary_has_a_line_for_each_boundary(limits: Limits) -> None:
    lines = [" ".join(line.split()) for line in summary(limits).splitlines()]

    boundary = limits.boundaries[1]
    rate, mb = boundary.messages_per_s, boundary.bytes_per_s / 1e6
    (line,) = [line for line in lines if line.startswith("1 KiB")]
    assert line.startswith(f"1 KiB {rate:,.0f} {mb:,.1f} {boundary.low:,.0f} to ")
    assert f"{0.8 * rate:,.0f} messages/s" in line
    assert "round trip 80 ms" in line
    assert "to use them drainer run … --limits 'my limits.json'" in lines


def test_a_lower_bound_says_that_it_is_one_and_why(limits: Limits) -> None:
    point = replace(limits.boundaries[0].point, producers=SETTINGS.producers_most)
    for found, why in (
        (ended(limits, End.MOST, high=None, point=point), "100 B: even 100.0 MB/s, the most"),
        (ended(limits, End.TRIALS, high=None, point=point), "100 B: even 100.0 MB/s, the most"),
        (ended(limits, End.CLIENTS, high=None), "100 B: lower bound: clients could do no more"),
    ):
        (warning,) = warnings(found)
        assert warning.startswith(why)
        _, rate, between, *_, ends = boundary_cells(found, found.boundaries[0])
        assert rate.startswith("≥ ")
        assert between.startswith("above ")
        assert ends.startswith("lower bound: ")
    assert warnings(limits) == []
    (warning,) = warnings(ended(limits, End.NONE, messages_per_s=0.0, low=0.0))
    assert warning.startswith("100 B: no traffic was safe: round trip")


def half(found: Limits) -> Limits:
    def halved(each: Boundary) -> Boundary:
        assert each.high is not None
        return replace(
            each, messages_per_s=each.messages_per_s / 2, low=each.low / 2, high=each.high / 2
        )

    return replace(
        found,
        cluster_id="c-2",
        boundaries=tuple(halved(each) for each in found.boundaries[1:]),
        settings=replace(found.settings, consumer_groups=7),
    )


def test_two_findings_side_by_side(limits: Limits) -> None:
    terminal, _, err = samples.terminal(width=200)
    after = half(limits)

    show_comparison(terminal, compare(limits, after), limits, after)

    text = " ".join(err.getvalue().split())
    before_rate = f"{limits.boundaries[1].messages_per_s:,.0f}/s"
    after_rate = f"{after.boundaries[0].messages_per_s:,.0f}/s"
    assert f"1 KiB {before_rate} {after_rate}" in text
    assert "-50% more than they are unsure of" in text
    assert "clusters two different ones" in text
    assert "other setting --consumer-groups was 5, and is 7" in text
    assert "A alone 100 B" in text


def test_leftovers_are_listed_by_name_and_what_is_in_use_is_left() -> None:
    terminal, _, err = samples.terminal()
    show_leftovers(terminal, Leftovers(Own((TOPIC,), GROUPS[:1]), Own((f"{TOPIC}x",), ())))

    lines = [" ".join(line.split()) for line in err.getvalue().splitlines()]
    assert f"topic {TOPIC}" in lines
    assert f"group {TOPIC}.1" in lines
    assert f"warning: {TOPIC}x is written to now by another run: it is left alone" in lines


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_has_a_line_for_each_trial_and_boundary_that_is_new(
    said: list[LimitsStatus], quiet: bool
) -> None:
    terminal, _, err = samples.terminal(quiet=quiet)
    half = len(said) // 2
    known, limits = said[half].limits, said[-1].limits

    with limits_view(terminal, known) as view:
        assert isinstance(view, SearchLines)
        for status in said[half:]:
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


def frame_of(status: LimitsStatus, width: int = 100) -> str:
    screen = samples.Screen()
    terminal = Terminal(
        stdin=io.StringIO(), stdout=io.StringIO(), stderr=screen, width=width, height=50
    )
    with limits_view(terminal, nothing_known()) as view:
        assert isinstance(view, SearchFrame)
        view.update(status)
    return screen.getvalue()


def test_the_frame_shows_the_range_the_trials_and_what_runs(said: list[LimitsStatus]) -> None:
    status = next(
        status
        for status in said
        if len(status.limits.boundaries) == 1
        and len(status.limits.trials_of(1024)) == 4
        and status.running is not None
        and status.running.signals is not None
    )

    text = " ".join(frame_of(status).split())

    assert status.running is not None
    assert status.found is not None
    assert f"{status.running.point.messages_per_s:,.0f} messages/s" in text
    assert "round trip" in text
    assert "(unloaded 2.0 ms)" in text
    assert "safe" in text
    assert "overloaded" in text
    assert "10 KiB" in text
    assert "to come" in text
    pace = SETTINGS.pace_bytes_per_s / 1024
    assert f"{status.found.safe * pace:,.0f} to " in text
    assert " left" in text
