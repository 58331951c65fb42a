"""Limits as a person sees them: what will be done, the search, and what was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from drainer.limits.file import LimitsFile
from drainer.limits.kafka.traffic import TrafficTargets
from drainer.limits.measure import PreparedLimits
from drainer.limits.search.boundary import MeasuredLimits, from_json
from drainer.limits.search.trial import End
from drainer.limits.trials import LimitsStatus
from drainer.limits.view import SearchView, limits_page, named_limits, show_limits_action
from drainer.view.page import Curves
from drainer.view.report.page import html
from drainer.view.terminal import Terminal
from operations.modelled import SETTINGS, ModelledCluster, nothing_known, run

from . import samples
from .facts import items
from .samples import ENDED, EVIL
from .test_report import Reader

TOPIC = "drainer.limits.20261121-190312-0a1b2c"
PATH = Path("my limits.json")


@pytest.fixture(scope="module")
def statuses(tmp_path_factory: pytest.TempPathFactory) -> list[LimitsStatus]:
    """All statuses of a search."""
    statuses: list[LimitsStatus] = []
    run(ModelledCluster(), tmp_path_factory.mktemp("limits") / "limits.json", statuses=statuses)
    return statuses


@pytest.fixture(scope="module")
def limits(statuses: list[LimitsStatus]) -> MeasuredLimits:
    return statuses[-1].limits


def ended(found: MeasuredLimits, end: End, **changes: object) -> MeasuredLimits:
    first, *rest = found.boundaries
    changed = replace(first, end=end, **changes)  # type: ignore[arg-type]
    return replace(found, boundaries=(changed, *rest))


def test_the_topic_is_named_before_anything_is_touched() -> None:
    terminal, _, err = samples.terminal()
    file, other = LimitsFile(PATH), f"{TOPIC[:-1]}d"
    known = nothing_known(replace(SETTINGS, topics=2))
    targets = TrafficTargets((TOPIC, f"{TOPIC[:-1]}e"), 10, 5)
    prepared = PreparedLimits(file, known, None, targets, (other,))

    show_limits_action(terminal, prepared, "broker-1:9092", "local[*]")

    text = " ".join(err.getvalue().split())
    assert f"test topic {TOPIC}, {TOPIC[:-1]}e (deleted at the end)" in text
    assert "messages of 100 B, 1 KiB, 10 KiB (5 groups reading, 10 partitions per broker," in text
    assert "2 topics, random payloads, compression none)" in text
    assert "at most 100.0 MB/s (by --max-rate; 400 producers of 250.0 kB/s each)" in text
    assert f"left behind {other} (test topics of killed runs, removed now)" in text


def test_the_page_begins_with_the_verdict_and_the_way_to_use_it_and_ends_with_the_boundaries(
    limits: MeasuredLimits,
) -> None:
    terminal, out, _ = samples.terminal(width=200)
    terminal.present(limits_page([(PATH, limits)]))

    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    boundary = limits.boundaries[1]
    rate, mb = boundary.messages_per_s, boundary.bytes_per_s / 1e6
    (line,) = [line for line in lines if line.startswith("1 KiB")]
    assert line in lines[-3:]
    assert line.startswith(f"1 KiB {rate:,.0f} {mb:,.1f} {boundary.low:,.0f} to ")
    assert f" {0.8 * rate:,.0f} {0.8 * 5 * rate:,.0f} " in line  # what a drain may write and read
    assert "round trip 80 ms" in line
    assert lines[1] == "use them: drainer run … --broker-limits 'my limits.json'"


def test_the_report_has_the_findings_for_programs(limits: MeasuredLimits) -> None:
    text = html(limits_page([(PATH, replace(limits, cluster_id=EVIL))]), ENDED)
    reader = Reader(text)

    assert EVIL not in text
    assert EVIL in reader.text
    assert from_json(orjson.loads(reader.data)) == replace(limits, cluster_id=EVIL)


def test_nothing_is_offered_of_a_search_that_found_nothing_yet() -> None:
    page = limits_page([(PATH, nothing_known())])

    assert page.warnings == ("The search is not complete: repeat the command.",)
    assert page.ways_on == ()
    assert page.headline.text == "no boundary is known yet"


def test_a_lower_bound_is_shown_as_one_and_why(limits: MeasuredLimits) -> None:
    for end, why in (
        (End.MOST, "lower bound: the highest rate tried; raise --max-rate"),
        (End.WIDE, "lower bound: no trial overloaded the brokers"),
        (End.CLIENTS, "lower bound: clients could do no more; add executors, or cores: round trip"),
    ):
        found = ended(limits, end, high=None)
        text = Reader(html(limits_page([(PATH, found)]), ENDED)).text
        assert why in text
        assert f"≥ {found.boundaries[0].messages_per_s:,.0f}" in text
        assert f"above {found.boundaries[0].low:,.0f}" in text
    none = limits_page([(PATH, ended(limits, End.NONE, messages_per_s=0.0, low=0.0))])
    assert "no traffic was safe: round trip" in Reader(html(none, ENDED)).text


def test_a_boundary_that_is_wider_than_required_is_warned_of_with_a_way_out(
    limits: MeasuredLimits,
) -> None:
    few = replace(limits, settings=replace(limits.settings, trials=limits.boundaries[0].trials))
    for found, way_out in ((few, "Add --trials"), (limits, "Lower --max-rate")):
        page = limits_page([(PATH, ended(found, End.WIDE, low=100_000.0))])

        (warning,) = page.warnings
        assert warning.startswith("100 B: the boundary is 100,000 to ")
        assert "messages/s, wider than 5.0% on either side" in warning
        assert way_out in warning


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_has_a_line_for_each_trial_and_boundary_that_is_new(
    statuses: list[LimitsStatus], quiet: bool
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


def test_a_screen_has_a_line_of_what_runs_now(statuses: list[LimitsStatus]) -> None:
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
