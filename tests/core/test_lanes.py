"""Lanes: the hottest first, and few entries for many of them; test_laws.py has their order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from drainer.core.lanes import HOT_WAITING, STALE_MIN, Lanes
from drainer.message import SubMessage

from .messages import entries_in, subs_of


def push_each(lanes: Lanes, *keys: str) -> list[SubMessage]:
    subs = subs_of(*keys)
    for sub in subs:
        lanes.push(sub, sub.key)
    return subs


def test_a_worker_leaves_its_lane_for_a_hotter_one() -> None:
    lanes = Lanes()
    push_each(lanes, *"a" * 4)
    first = lanes.take()
    assert first is not None
    push_each(lanes, *"b" * 100)

    taken = lanes.finish_and_take(first)

    assert taken is not None
    assert taken.key == "b"
    assert lanes.running == 1


def test_hottest_lists_lanes_by_what_waits_and_only_the_hot_ones() -> None:
    lanes = Lanes()
    push_each(lanes, *"a" * HOT_WAITING, *"b" * (2 * HOT_WAITING), *"c" * (HOT_WAITING - 1))

    assert lanes.hottest(9) == [("b", 2 * HOT_WAITING), ("a", HOT_WAITING)]
    assert lanes.hottest(1) == [("b", 2 * HOT_WAITING)]


def test_lanes_that_have_grown_leave_few_stale_entries_behind() -> None:
    lanes = Lanes()
    push_each(lanes, *[f"{n}" for n in range(100)] * 64)

    assert entries_in(lanes) <= STALE_MIN + 3 * 100


# --- how long it takes, on a virtual clock ---


def makespan(workload: Sequence[object], workers: int) -> int:
    """Units of time that ``workers`` need when each sub-message takes one."""
    lanes, now = Lanes(), 0
    for key in workload:
        lanes.push(SubMessage(key), key)
    running = [sub for _ in range(workers) if (sub := lanes.take()) is not None]
    while running:
        now += 1
        running = [sub for done in running if (sub := lanes.finish_and_take(done)) is not None]
        while len(running) < workers and (sub := lanes.take()) is not None:
            running.append(sub)
    assert len(lanes) == 0
    return now


def zipf(exponent: float, keys: int, count: int, seed: int) -> list[int]:
    weights = [rank**-exponent for rank in range(1, keys + 1)]
    return random.Random(seed).choices(range(keys), weights, k=count)


@pytest.mark.parametrize(
    ("exponent", "workers"),
    [
        pytest.param(1.1, 50, id="the-longest-lane-decides"),
        pytest.param(1.1, 5, id="each-decides"),
        pytest.param(0.6, 50, id="the-workers-decide"),
    ],
)
def test_a_skewed_backlog_takes_hardly_longer_than_it_must(exponent: float, workers: int) -> None:
    workload = zipf(exponent, keys=1_000, count=20_000, seed=1)
    longest = max(Counter(workload).values())

    # max(W/C, L): no schedule is shorter.
    assert makespan(workload, workers) <= 1.05 * max(len(workload) / workers, longest)
