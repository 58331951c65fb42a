"""The history of a drain: what it keeps of two weeks, and that thinning out distorts nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from builders import a_status, changed, counts
from drainer.engine.history import (
    HOTTEST_MOST,
    TROUBLES_MOST,
    History,
    HistoryPoint,
    Trouble,
    rates,
)
from drainer.model.status import Status
from drainer.model.unhandled import RuleStatus


def at(elapsed_s: float, done: int = 0, **changes: object) -> Status:
    found = a_status(elapsed_s=elapsed_s, sub_messages=counts(done=done))
    return changed(found, **changes)


def lengths(points: tuple[HistoryPoint, ...] | list[HistoryPoint]) -> list[float]:
    return [after.ends_s - before.ends_s for before, after in pairwise(points)]


@pytest.mark.parametrize("count", [1, 2, 100, 101, 1_001])
def test_what_is_kept_is_bounded_even_and_exact(count: int) -> None:
    history = History(100)
    for n in range(count):
        history.add(at(n / 2, n * 500))
    history.add(at(count / 2 - 0.49, count * 500))  # the last one comes when the drain ends
    found = history.points

    assert len(found) <= 101
    assert found[0].ends_s == 0
    assert found[-1].finished == count * 500
    *whole, _ = lengths(found)[:-1] or [0.0]
    assert len(set(whole)) <= 1, "all are of one length, but for the last two"
    assert all(rate == 1000 for rate in rates(found[:-1], [each.finished for each in found[:-1]]))
    assert len(history.evenly(20)) <= 22


def test_what_rules_took_out_is_no_failure() -> None:
    history = History(10)
    found = counts(done=60, skipped=40)
    history.add(at(1.0, sub_messages=found, rules=RuleStatus({"e-mails": 37})))
    assert history.points[-1].skipped == 3


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
