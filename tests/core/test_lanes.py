"""Lanes: order in each, nothing lost, no free worker idle without need, the hottest first."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from drainer.core import lanes as lanes_module
from drainer.core.lanes import HOT_WAITING, Lanes
from drainer.message import SubMessage

from .messages import subs_of

UNHASHABLE: Any = []


def push_each(lanes: Lanes, *keys: str) -> list[SubMessage]:
    subs = subs_of(*keys)
    for sub in subs:
        lanes.push(sub, sub.key)
    return subs


def bucket_entries(lanes: Lanes) -> int:
    return sum(len(bucket) for bucket in lanes._buckets)


# --- one by one ---


def test_one_lane_gives_one_at_a_time_in_order() -> None:
    lanes = Lanes()
    first, second = push_each(lanes, "a", "a")

    assert lanes.take() is first
    assert lanes.take() is None
    lanes.finish(first)
    assert lanes.take() is second


def test_what_is_pushed_behind_a_running_one_waits_for_it() -> None:
    lanes = Lanes()
    (first,) = push_each(lanes, "a")
    lanes.take()
    (second,) = push_each(lanes, "a")

    assert lanes.take() is None
    assert lanes.finish_and_take(first) is second


def test_an_unhashable_key_changes_nothing() -> None:
    lanes = Lanes()

    with pytest.raises(TypeError):
        lanes.push(SubMessage("a"), UNHASHABLE)
    with pytest.raises(TypeError):
        lanes.push_to_all(SubMessage("a"), ["a", UNHASHABLE])

    assert (len(lanes), lanes.ready) == (0, 0)
    assert lanes.take() is None


def test_several_keys_hold_a_lane_in_which_they_are_first_while_they_wait_for_another() -> None:
    lanes = Lanes()
    (a,) = push_each(lanes, "a")
    both = SubMessage(keys=["a", "b"])
    lanes.push_to_all(both, ["a", "b"])
    (b,) = push_each(lanes, "b")

    assert lanes.take() is a
    assert lanes.take() is None, "b stands behind a sub-message that waits for a"
    assert lanes.finish_and_take(a) is both
    assert lanes.finish_and_take(both) is b


def test_a_worker_stays_on_the_hottest_lane() -> None:
    lanes = Lanes()
    push_each(lanes, *"c" * 100, *"abdefgh" * 5)
    sub = lanes.take()

    keys = []
    for _ in range(80):
        assert sub is not None
        keys.append(sub.key)
        sub = lanes.finish_and_take(sub)

    assert set(keys) == {"c"}


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


# --- any order of events, against a plain list ---

KEYS = "abcde"


class LanesMachine(RuleBasedStateMachine):
    """Lanes beside a plain list of what was pushed.

    In the list a sub-message may start when no unfinished earlier one shares a key with it.
    """

    @initialize(parked_before=st.sets(st.sampled_from("de")))
    def begin(self, parked_before: set[str]) -> None:
        self.let_go: list[SubMessage] = []  # by parked lanes, as told
        self.lanes = Lanes(self.let_go.append, {repr(key) for key in parked_before})
        self.parked_before = parked_before
        self.parked: set[object] = set()
        self.parked_alone = 0
        self.left: list[SubMessage] = []  # as it should be told
        self.held: dict[SubMessage, frozenset[object]] = {}
        self.released: dict[SubMessage, frozenset[object]] = {}
        self.waiting: dict[SubMessage, frozenset[object]] = {}  # in the order of pushes
        self.running: dict[SubMessage, frozenset[object]] = {}
        self.in_one_lane: set[SubMessage] = set()  # pushed by key, so that its lane has a heat
        self.most_lanes = 0
        self.fresh_keys = 0

    def may_start(self) -> list[SubMessage]:
        held: set[object] = self.parked.union(
            *self.running.values(), *self.held.values(), *self.released.values()
        )
        startable = list(self.released)
        for sub, keys in self.waiting.items():
            if held.isdisjoint(keys):
                startable.append(sub)
            held |= keys
        return startable

    def push_by_key(self, key: Hashable) -> None:
        sub = SubMessage(key)
        self.in_one_lane.add(sub)
        self.find_parked(key)
        if key in self.parked:
            self.left.append(sub)
        else:
            self.waiting[sub] = frozenset([key])
        self.lanes.push(sub, key)

    def find_parked(self, *keys: Hashable) -> None:
        self.parked |= self.parked_before.intersection(keys)

    def check_taken(self, taken: SubMessage | None) -> None:
        startable = self.may_start()
        if taken is None:
            assert not startable, f"{len(startable)} may start and nothing was taken"
            return
        assert taken in startable, "taken out of turn"
        if taken in self.released:
            self.running[taken] = self.released.pop(taken)
            return
        if taken in self.in_one_lane:
            assert not self.released, "the next attempt comes before any lane"
            in_lane = Counter(key for keys in self.waiting.values() for key in keys)
            hottest = max(in_lane[sub.key] for sub in startable if sub in self.in_one_lane)
            waiting = in_lane[taken.key]
            assert 2 * waiting > hottest, f"{waiting} wait in this lane, {hottest} in another"
        self.running[taken] = self.waiting.pop(taken)

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 9))
    def push(self, key: str, count: int) -> None:
        for _ in range(count):
            self.push_by_key(key)

    @rule(count=st.integers(1, 5))
    def push_to_new_lanes(self, count: int) -> None:
        for _ in range(count):
            self.fresh_keys += 1
            self.push_by_key(self.fresh_keys)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
    def push_to_all(self, keys: list[str]) -> None:
        sub = SubMessage(keys=keys)
        self.waiting[sub] = frozenset(keys)
        self.find_parked(*keys)
        self.lanes.push_to_all(sub, keys)

    @rule()
    def push_alone(self) -> None:
        sub = SubMessage()
        self.waiting[sub] = frozenset()
        self.lanes.push_alone(sub)

    @rule()
    def take(self) -> None:
        self.check_taken(self.lanes.take())

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        sub = data.draw(st.sampled_from(list(self.running)))
        self.held[sub] = self.running.pop(sub)
        self.lanes.hold(sub)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unhold(self, data: st.DataObject) -> None:
        sub = data.draw(st.sampled_from(list(self.held)))
        self.running[sub] = self.held.pop(sub)
        self.lanes.unhold(sub)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        sub = data.draw(st.sampled_from(list(self.held)))
        self.released[sub] = self.held.pop(sub)
        self.lanes.release(sub)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), rarely=st.integers(0, 3))
    def park(self, data: st.DataObject, rarely: int) -> None:
        if rarely:
            return
        sub = data.draw(st.sampled_from(list(self.running)))
        keys = self.running.pop(sub)
        found = self.lanes.park(sub)
        assert len(found) == len(keys)
        assert set(found) == keys
        self.parked |= keys
        self.parked_alone += not keys
        gone = [s for s, k in self.waiting.items() if s in self.in_one_lane and k <= keys]
        for each in gone:
            del self.waiting[each]
        for key in found:  # lane by lane
            self.left += [each for each in gone if each.key == key]

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        sub = data.draw(st.sampled_from(list(self.running)))
        del self.running[sub]
        self.lanes.finish(sub)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish_and_take(self, data: st.DataObject) -> None:
        sub = data.draw(st.sampled_from(list(self.running)))
        del self.running[sub]
        self.check_taken(self.lanes.finish_and_take(sub))

    @precondition(lambda self: self.running)
    @rule(steps=st.integers(2, 30), data=st.data())
    def one_worker_goes_on(self, steps: int, data: st.DataObject) -> None:
        sub: SubMessage | None = data.draw(st.sampled_from(list(self.running)))
        for _ in range(steps):
            if sub is None:
                return
            del self.running[sub]
            sub = self.lanes.finish_and_take(sub)
            self.check_taken(sub)

    @invariant()
    def counts_agree(self) -> None:
        lanes = set().union(
            *self.waiting.values(),
            *self.running.values(),
            *self.held.values(),
            *self.released.values(),
        )
        self.most_lanes = max(self.most_lanes, len(lanes | self.parked))
        lanes -= self.parked
        assert self.let_go == self.left
        assert self.lanes.held == len(self.held)
        assert self.lanes.parked == len(self.parked) + self.parked_alone
        assert self.lanes.ready == len(self.may_start())
        assert self.lanes.running == len(self.running)
        assert len(self.lanes) == len(lanes)
        # Each lane once, and stale entries for at most two growths a lane.
        assert bucket_entries(self.lanes) <= lanes_module.STALE_MIN + 3 * self.most_lanes + 1

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None or not hasattr(self, "lanes"):
            return  # a rule failed, which says more than what follows would
        for sub in list(self.held):
            self.released[sub] = self.held.pop(sub)
            self.lanes.release(sub)
        while self.may_start() or self.running:
            running = next(iter(self.running), None)
            if running is None:
                self.check_taken(self.lanes.take())
            else:
                del self.running[running]
                self.check_taken(self.lanes.finish_and_take(running))
        self.counts_agree()
        assert self.lanes.take() is None
        if self.waiting:
            assert self.parked, "nothing else can hold back what has several keys"
        else:
            assert self.lanes.hottest(9) == []


def test_any_order_of_events_agrees_with_a_plain_list(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small, so that examples of a few steps come to clear stale entries and to list hot lanes.
    monkeypatch.setattr(lanes_module, "STALE_MIN", 2)
    monkeypatch.setattr(lanes_module, "HOT_WAITING", 4)
    run_state_machine_as_test(
        LanesMachine,
        settings=settings(deadline=None, max_examples=300, stateful_step_count=50, print_blob=True),
    )


# --- how long it takes, on a virtual clock ---


def makespan(
    workers: int,
    take: Callable[[], SubMessage | None],
    finish_and_take: Callable[[SubMessage], SubMessage | None],
) -> int:
    """How many units of time ``workers`` need when each sub-message takes one."""
    now = 0
    running = [sub for _ in range(workers) if (sub := take()) is not None]
    while running:
        now += 1
        monitor = [sub for done in running if (sub := finish_and_take(done)) is not None]
        while len(monitor) < workers and (sub := take()) is not None:
            monitor.append(sub)
        running = monitor
    return now


def makespan_of_lanes(workload: Sequence[object], workers: int) -> int:
    lanes = Lanes()
    for key in workload:
        lanes.push(SubMessage(key), key)
    took = makespan(workers, lanes.take, lanes.finish_and_take)
    assert len(lanes) == 0
    return took


def lower_bound(workload: Sequence[object], workers: int) -> float:
    """max(W/C, L): no schedule is shorter."""
    return max(len(workload) / workers, Counter(workload).most_common(1)[0][1])


def zipf(exponent: float, keys: int, count: int, seed: int) -> list[int]:
    weights = [rank**-exponent for rank in range(1, keys + 1)]
    return random.Random(seed).choices(range(keys), weights, k=count)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("exponent", "workers"),
    [
        pytest.param(1.1, 50, id="the-longest-lane-decides"),
        pytest.param(1.1, 5, id="both-decide"),
        pytest.param(0.6, 50, id="the-workers-decide"),
    ],
)
def test_a_skewed_backlog_takes_hardly_longer_than_it_must(
    exponent: float, workers: int, seed: int
) -> None:
    workload = zipf(exponent, keys=1_000, count=20_000, seed=seed)

    assert makespan_of_lanes(workload, workers) <= 1.05 * lower_bound(workload, workers)
