"""The history of a drain: what it keeps of two weeks, and that thinning out tells no lies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from drainer.core.latency import Latency
from drainer.core.progress import Counts
from drainer.engine.history import (
    HOTTEST_MOST,
    PARTITIONS_APART,
    TROUBLES_MOST,
    History,
    Interval,
    Trouble,
    rates,
)
from drainer.engine.status import PartitionStatus, RuleStatus, Status
from view.samples import status

AN_HOUR = 3600 * 2  # statuses, two a second


def at(elapsed_s: float, done: int = 0, **changes: object) -> Status:
    found = replace(status(), elapsed_s=elapsed_s, sub_messages=Counts(done, done))
    return replace(found, **changes)  # type: ignore[arg-type]


def partitions(*to_go: int) -> tuple[PartitionStatus, ...]:
    """Partitions of 1000, 2000, ... offsets, with so many to go."""
    return tuple(
        PartitionStatus(n, 10, 10 + 1000 * (n + 1), 0, 10 + 1000 * (n + 1) - left, None, 0)
        for n, left in enumerate(to_go)
    )


def lengths(stretches: tuple[Interval, ...] | list[Interval]) -> list[float]:
    return [after.ends_s - before.ends_s for before, after in pairwise(stretches)]


def filled(count: int, most: int = 100, per_s: int = 1000) -> History:
    history = History(most)
    for n in range(count):
        history.add(at(n / 2, n * per_s // 2))
    return history


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 2_345])
def test_it_never_keeps_more_than_it_may(count: int) -> None:
    history = History(100)
    for n in range(count):
        history.add(at(n / 2))
        assert len(history.stretches) <= 100


def test_an_hour_is_kept_in_stretches_of_one_length() -> None:
    found = filled(AN_HOUR).stretches
    assert 50 <= len(found) <= 100
    *whole, _ = lengths(found)  # the last is not over
    assert max(whole) == min(whole)
    assert found[-1].ends_s == (AN_HOUR - 1) / 2


def test_a_rate_is_exact_however_much_was_thinned_out() -> None:
    found = filled(AN_HOUR, per_s=1000).stretches
    assert rates(found, [stretch.finished for stretch in found]) == [1000.0] * (len(found) - 1)


def test_every_status_counts_in_a_mean_once() -> None:
    history = History(10)
    for n in range(1_000):
        history.add(at(n / 2, running=n % 2 * 10, lanes=7, lanes_ready=n % 4))
    found = history.stretches
    samples = sum(stretch.samples for stretch in found)
    assert samples == 1_000
    assert sum(stretch.running * stretch.samples for stretch in found) == pytest.approx(5 * samples)
    assert {stretch.lanes for stretch in found} == {7}


def test_what_a_chart_takes_is_even_and_loses_no_status() -> None:
    history = filled(777, most=1_000)
    history.add(at(776 / 2 + 0.01, 500_000))  # the last one comes when the drain ends
    found = history.evenly(50)
    assert len(found) <= 52
    assert min(lengths(found)) > max(lengths(found)) / 2
    assert found[-1].finished == 500_000
    assert sum(stretch.samples for stretch in found) == 778


def test_of_many_partitions_the_largest_are_told_apart_and_the_others_as_one() -> None:
    history = History()
    history.add(at(0, partitions=partitions(*range(40))))
    assert history.partitions == (*range(40 - PARTITIONS_APART, 40), None)
    assert history.folded == 40 - PARTITIONS_APART
    assert history.stretches[0].to_go[-1] == sum(range(40 - PARTITIONS_APART))
    assert sum(history.stretches[0].to_go) == sum(range(40))


def test_one_partition_is_never_folded_alone() -> None:
    history = History()
    history.add(at(0, partitions=partitions(*range(PARTITIONS_APART + 1))))
    assert history.folded == 0
    assert len(history.partitions) == PARTITIONS_APART + 1


def test_what_rules_took_out_is_no_failure() -> None:
    history = History(10)
    counts = Counts(100, done=60, skipped=40)
    history.add(at(1.0, sub_messages=counts, rules=RuleStatus({"e-mails": 37})))
    assert history.stretches[-1].skipped == 3


def test_a_trouble_lasts_until_it_is_gone() -> None:
    history = History()
    for second, trouble in enumerate((None, "away", "away", None, "away", "slow", None)):
        history.add(at(second, trouble=trouble))
    assert history.troubles == (
        Trouble(1, 3, "away"),
        Trouble(4, 5, "away"),
        Trouble(5, 6, "slow"),
    )


def test_troubles_without_end_are_counted_and_not_kept() -> None:
    history = History()
    for n in range(2 * TROUBLES_MOST + 10):
        history.add(at(n, trouble="away" if n % 2 else None))
    assert len(history.troubles) == TROUBLES_MOST
    assert history.troubles_more == 5


def test_a_lane_is_remembered_for_how_deep_it_was() -> None:
    history = History()
    history.add(at(0, hottest=(("a", 9), ("b", 4))))
    history.add(at(1, hottest=(("b", 6), ("c", 1))))
    assert history.hottest == [("a", 9), ("b", 6), ("c", 1)]


def test_lanes_without_end_are_forgotten_but_for_the_deepest() -> None:
    history = History()
    for n in range(1_000):
        history.add(at(n, hottest=((f"doc-{n}", n % 100), ("hot", 1_000))))
    assert history.hottest[0] == ("hot", 1_000)
    assert len(history.hottest) == HOTTEST_MOST
    assert [depth for _, depth in history.hottest[1:]] == [99] * (HOTTEST_MOST - 1)


def test_a_slow_moment_is_not_thinned_away() -> None:
    history = History(10)
    for n in range(1_000):
        slow_s = 9.0 if n == 500 else 0.01
        recent = Latency.of(100, 0.01, [0.01] * 99 + [slow_s] * 2) if n > 10 else None
        history.add(at(n / 2, latency_recent=recent))
    assert history.stretches[0].latency_s is None
    assert [each.latency_s for each in history.stretches].count((0.01, 0.01, 9.0)) == 1
