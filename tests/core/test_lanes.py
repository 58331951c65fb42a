"""Lanes: the longest critical lane first, else the oldest sub-message, and few entries for them.

test_laws.py has the order in each lane.
"""

from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from drainer.core import lanes as lanes_module
from drainer.core.lanes import (
    BLOCK,
    BLOCKS_MIN,
    CRITICAL_SHARE_READ,
    CRITICAL_SHARE_UNREAD,
    HOT_WAITING,
    Lanes,
)
from drainer.message import SubMessage

from .messages import entries_in, subs_of


def for_two() -> Lanes:
    """Lanes for two workers: for one alone, none is critical."""
    lanes = Lanes()
    lanes.adjust(workers=2)
    return lanes


def push_each(lanes: Lanes, *keys: str) -> list[SubMessage]:
    subs = subs_of(*keys)
    for sub in subs:
        lanes.push(sub, sub.key)
    return subs


def keys_taken(lanes: Lanes) -> Iterator[object]:
    """Take all that is ready, and give the sub-keys."""
    while (sub := lanes.take()) is not None:
        yield sub.key


def test_a_worker_leaves_its_lane_for_a_hotter_one() -> None:
    lanes = for_two()
    push_each(lanes, *"a" * 4)
    first = lanes.take()
    assert first is not None
    push_each(lanes, *"b" * 100)

    taken = lanes.finish_and_take(first)

    assert taken is not None
    assert taken.key == "b"
    assert lanes.running == 1


def test_a_worker_stays_on_a_critical_lane_and_else_takes_the_oldest_sub_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes_module, "BLOCK", 1)  # So that the oldest is exact.
    lanes = for_two()
    push_each(lanes, *"aa", *"bcd", *"aaaa")
    first = lanes.take()
    assert first is not None
    assert (second := lanes.finish_and_take(first)) is not None
    assert second.key == "a", "5 of 8 wait there, and there are two workers"

    push_each(lanes, *"efghijklmnopqrst")
    assert (old := lanes.finish_and_take(second)) is not None
    assert old.key == "b", "a is no longer critical, and b is older"
    assert (old := lanes.take()) is not None
    assert old.key == "c"


def test_the_longest_critical_lane_goes_before_others_that_are_critical() -> None:
    lanes = for_two()
    lanes.adjust(workers=1_000)
    push_each(lanes, *"abc", *"d" * 4, *"e" * 9, *"f" * 2)

    assert list(keys_taken(lanes)) == [*"edf", *"abc"]


def test_a_sub_message_of_a_handler_s_own_type_may_be_false() -> None:
    class Empty(SubMessage):
        def __bool__(self) -> bool:
            return False

    lanes = Lanes()
    lanes.adjust(workers=4)
    lanes.push_each([Empty("a", None) for _ in range(10)])
    for _ in range(10):
        sub = lanes.take()
        assert sub is not None
        lanes.finish(sub)
    assert not len(lanes)


def test_a_lane_becomes_critical_when_the_rest_gets_less() -> None:
    lanes = for_two()
    push_each(lanes, *"abcdefghijklmnop", *"z" * 4)  # It is critical below 16 in all.

    assert "".join(map(str, keys_taken(lanes))) == "abcde" + "z" + "fghijklmnop"


def test_a_longer_lane_is_not_critical_once_all_is_read() -> None:
    lanes = for_two()
    push_each(lanes, *"abcdefghijkl", *"z" * 4)
    lanes.adjust(critical_share=CRITICAL_SHARE_READ)  # It is critical below 10 in all.

    assert "".join(map(str, keys_taken(lanes))) == "abcdefg" + "z" + "hijkl"


def test_what_waits_behind_a_delayed_sub_message_is_no_work_that_could_run() -> None:
    lanes = for_two()
    push_each(lanes, *"d" * 50)
    delayed = lanes.take()
    assert delayed is not None
    lanes.delay(delayed)
    push_each(lanes, *"d" * 50, *"abc", *"z" * 4)

    assert "".join(map(str, keys_taken(lanes))) == "zabc", "4 of 7, not of 106"

    lanes.resume(delayed)
    push_each(lanes, *"efg", *"y" * 4)
    assert "".join(map(str, keys_taken(lanes))) == "efgy"


def test_several_keys_wait_for_their_turn_unless_a_lane_of_theirs_is_critical() -> None:
    lanes = for_two()
    push_each(lanes, *"ab")
    both = SubMessage(keys=("x", "y"))
    lanes.push_to_all(both, ("x", "y"))
    push_each(lanes, *"c")

    assert [lanes.take() for _ in range(3)][-1] is both

    lanes = for_two()
    push_each(lanes, "x")
    hot = [SubMessage(keys=("x", f"y{n}")) for n in range(5)]
    for sub in hot:
        lanes.push_to_all(sub, sub.keys or ())
    first = lanes.take()
    assert first is not None
    push_each(lanes, *"abc")
    assert lanes.finish_and_take(first) is hot[0], "x has more than half of all that waits"


def steps_behind(lanes: Lanes, concurrency: int, keys: Sequence[str], most: int) -> int:
    """Play calls of equal length, and return how far the first unfinished is behind the work.

    ``most`` lanes are ready at once, at most, as far as there is more to push.
    """
    lanes.adjust(workers=concurrency)
    subs, pushed = [*map(SubMessage, keys)], 0
    finished, below, behind, done = set[int](), 0, 0, 0
    places = {id(sub): place for place, sub in enumerate(subs)}
    running: list[SubMessage] = []
    while done < len(subs):
        while pushed < len(subs) and lanes.ready < most:
            lanes.push_each([subs[pushed]])
            pushed += 1
        while len(running) < concurrency and (sub := lanes.take()) is not None:
            running.append(sub)
        for sub in running:
            lanes.finish(sub)
            finished.add(places[id(sub)])
        done += len(running)
        running.clear()
        while below in finished:
            below += 1
        behind = max(behind, done - below)
    return behind


def test_a_lane_keeps_its_age_while_only_new_keys_come() -> None:
    keys = [*["old"] * 60, *map(str, range(20_000))]

    assert steps_behind(Lanes(), 8, keys, 1_000) < 1_000


def test_lanes_that_were_passed_are_taken_oldest_first() -> None:
    lanes = for_two()
    lanes.adjust(workers=100)
    for _ in range(10):
        lanes.push_each([*map(SubMessage, map(str, range(1_000)))])
    first = [lanes.take() for _ in range(1_000)]
    assert lanes.take() is None  # The line has passed all of them.
    for sub in first:
        assert sub is not None
        lanes.finish(sub)
    lanes.adjust(workers=2)
    assert [*keys_taken(lanes)] == [*map(str, range(1_000))]


def test_one_worker_takes_the_oldest_whatever_is_critical() -> None:
    keys = [key for n in range(2_000) for key in ("hot", "hot", f"{n}")]

    assert steps_behind(Lanes(), 1, keys, 1_000) < 2 * BLOCK


def test_finished_sub_messages_with_several_keys_are_not_kept() -> None:
    class Payload:
        """Something that is seen to go."""

    lanes, made = Lanes(), list[weakref.ref[Payload]]()
    lanes.adjust(workers=2)
    for number in range(1_000):
        sub = SubMessage(None, Payload(), keys=("hot", f"{number}"))
        made.append(weakref.ref(sub.content))
        lanes.push_to_all(sub, sub.keys or ())
    del sub
    taken = lanes.take()
    for _ in range(900):
        assert taken is not None
        taken = lanes.finish_and_take(taken)
    assert sum(each() is not None for each in made) == 100


def test_hottest_lists_lanes_by_what_waits_and_only_the_hot_ones() -> None:
    lanes = for_two()
    push_each(lanes, *"a" * HOT_WAITING, *"b" * (2 * HOT_WAITING), *"c" * (HOT_WAITING - 1))

    assert lanes.hottest(9) == [("b", 2 * HOT_WAITING), ("a", HOT_WAITING)]
    assert lanes.hottest(1) == [("b", 2 * HOT_WAITING)]


def test_lanes_that_have_grown_leave_few_stale_entries_behind() -> None:
    lanes = for_two()
    push_each(lanes, *[f"{n}" for n in range(100)] * 64)

    assert entries_in(lanes) <= 6 * 100


def test_a_lane_that_was_shorter_again_is_hot_from_the_same_length_on() -> None:
    lanes = for_two()
    push_each(lanes, *"a" * 60)
    for _ in range(21):
        sub = lanes.take()
        assert sub is not None
        lanes.finish(sub)
    push_each(lanes, *"a" * (HOT_WAITING - 39))

    assert lanes.hottest(1) == [("a", HOT_WAITING)]


def test_several_keys_that_go_first_leave_few_stale_entries_behind() -> None:
    lanes = for_two()
    push_each(lanes, "hot")
    sub = lanes.take()
    for number in range(20_000):
        keys = ("hot", f"{number}")
        lanes.push_to_all(SubMessage(keys=keys), keys)
        if number > 9:
            assert sub is not None
            sub = lanes.finish_and_take(sub)

    assert entries_in(lanes) <= 2 * BLOCKS_MIN * BLOCK


def test_a_critical_lane_leaves_few_stale_entries_behind_old_ones_that_wait() -> None:
    lanes = for_two()
    old = push_each(lanes, "old", "z")
    push_each(lanes, *"z" * 9)
    lanes.take(), lanes.take()
    lanes.finish(old[0])
    push_each(lanes, "old")
    sub: SubMessage | None = old[1]
    for _ in range(10_000):
        assert sub is not None
        push_each(lanes, "z")
        sub = lanes.finish_and_take(sub)
        assert sub is not None
        assert sub.key == "z"

    assert entries_in(lanes) <= 4 * BLOCKS_MIN


# --- how long it takes, on a virtual clock ---


def played(
    messages: Sequence[Sequence[object]], workers: int
) -> tuple[int, list[tuple[float, float]]]:
    """Play a drain whose calls take one unit of time. Give the makespan, and at each unit the
    shares of sub-messages and of messages that are done up to the first that is not."""
    lanes = for_two()
    lanes.adjust(workers=workers)
    left = [len(keys) for keys in messages]
    of: dict[SubMessage, int] = {}
    subs = sum(left)
    unread = iter(enumerate(messages))
    running: list[SubMessage] = []
    done = watermark = now = 0
    path: list[tuple[float, float]] = []
    while True:
        while lanes.ready < 1_000 and (found := next(unread, None)):
            for sub in subs_of(*found[1]):
                of[sub] = found[0]
                lanes.push(sub, sub.key)
        if watermark < len(messages) and len(of) == subs:
            lanes.adjust(critical_share=CRITICAL_SHARE_READ)
        while len(running) < workers and (taken := lanes.take()) is not None:
            running.append(taken)
        if not running:
            break
        now += 1
        ended, running = running, []
        for sub in ended:
            done += 1
            left[of[sub]] -= 1
            if (following := lanes.finish_and_take(sub)) is not None:
                running.append(following)
        while watermark < len(messages) and not left[watermark]:
            watermark += 1
        path.append((done / subs, watermark / len(messages)))
    assert len(lanes) == 0
    assert done == subs
    return now, path


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
    bound = max(len(workload) / workers, longest)
    assert played([[key] for key in workload], workers)[0] <= 1.05 * bound


@pytest.mark.parametrize("keys", [150, 1_000, 20_000])
def test_the_watermark_follows_the_work_where_no_lane_is_long(keys: int) -> None:
    workers, drawn = 50, zipf(0, keys, count=20_000, seed=1)
    messages = [drawn[n : n + 10] for n in range(0, len(drawn), 10)]

    makespan, path = played(messages, workers)

    assert makespan <= 1.01 * len(drawn) / workers
    behind = max(done - watermark for done, watermark in path)
    assert behind <= 0.05 + 2 * workers / len(drawn)


# --- any events, against a slow oracle ---

KEYS = st.sampled_from("abcdefgh")
A_FEW = st.integers(1, 6)


class AnyEvents(RuleBasedStateMachine):
    """Lanes beside lists that are searched from end to end.

    Oldest first is exact here, because a block has only one sub-message that waits behind another.
    A lane may be up to a quarter shorter than the longest, or than one that is critical.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left: list[SubMessage] = []
        self.lanes = Lanes(self.left.append)
        self.lanes.adjust(workers=2)
        self.numbers: dict[SubMessage, int] = {}  # In the order in which they were pushed.
        self.waiting: dict[object, list[SubMessage]] = {}  # By lane, without those that started.
        self.holders: dict[object, SubMessage] = {}  # By lane, what it waits for.
        self.running: list[SubMessage] = []
        self.delayed: list[SubMessage] = []
        self.released: list[SubMessage] = []
        self.parked: set[object] = set()
        self.passed = 0  # Up to this number, the line may have passed a sub-message.

    @staticmethod
    def keys(sub: SubMessage) -> tuple[object, ...]:
        return (sub.key,) if sub.keys is None else sub.keys

    def may_start(self, sub: SubMessage) -> bool:
        return all(
            key not in self.holders and key not in self.parked and self.waiting[key][0] is sub
            for key in self.keys(sub)
        )

    @property
    def ready(self) -> list[SubMessage]:
        heads = {queue[0]: None for queue in self.waiting.values() if queue}
        return [sub for sub in heads if self.may_start(sub)]

    @property
    def work(self) -> int:
        """What waits and could run, or will be able to when what runs before it has finished."""
        blocked = self.parked | {key for sub in self.delayed for key in self.keys(sub)}
        waiting = {sub for queue in self.waiting.values() for sub in queue}
        free = sum(blocked.isdisjoint(self.keys(sub)) for sub in waiting)
        return free + len(self.released)

    # Events.

    @rule(keys=st.lists(KEYS, min_size=1, max_size=20), repeat=st.integers(1, 4))
    def push(self, keys: list[str], repeat: int) -> None:
        for sub in subs_of(*keys * repeat):
            self.lanes.push(sub, sub.key)
            self._pushed(sub)

    @rule(count=st.integers(1, 9))
    def push_distinct(self, count: int) -> None:
        subs = subs_of(*(f"{len(self.numbers)}-{n}" for n in range(count)))
        self.lanes.push_each(subs)
        for sub in subs:
            self._pushed(sub)

    @rule(keys=st.lists(KEYS, min_size=2, max_size=3, unique=True))
    def push_to_all(self, keys: list[str]) -> None:
        if self.parked.isdisjoint(keys):
            sub = SubMessage(keys=keys)
            self.lanes.push_to_all(sub, keys)
            self._pushed(sub)

    @rule(workers=st.integers(1, 12), read=st.booleans())
    def change(self, workers: int, read: bool) -> None:
        self.lanes.adjust(workers, CRITICAL_SHARE_READ if read else CRITICAL_SHARE_UNREAD)

    @rule(most=A_FEW)
    def take(self, most: int) -> None:
        for _ in range(most):
            self._taken(self.lanes.take())

    @precondition(lambda self: self.running)
    @rule(which=st.data(), most=A_FEW)
    def go_on(self, which: st.DataObject, most: int) -> None:
        sub = self._one_of(which, self.running)
        for _ in range(most):
            self._release_lanes(sub)
            following = self.lanes.finish_and_take(sub)
            self._taken(following)
            if following is None:
                return
            sub = self.running.pop()
        self.running.append(sub)

    @precondition(lambda self: self.running)
    @rule(which=st.data())
    def finish(self, which: st.DataObject) -> None:
        sub = self._one_of(which, self.running)
        self._release_lanes(sub)
        self.lanes.finish(sub)

    @precondition(lambda self: self.running)
    @rule(which=st.data(), most=A_FEW, fails=st.booleans())
    def take_a_run(self, which: st.DataObject, most: int, fails: bool) -> None:
        sub = self._one_of(which, self.running)
        self.running.append(sub)
        queue = self.waiting.get(self.keys(sub)[0], [])
        run: list[SubMessage] = []
        while len(run) < most and (behind := self.lanes.next_in_lane(sub)) is not None:
            assert behind is queue[len(run)]
            assert self.lanes.take_next_in_lane(sub) is behind
            run.append(behind)
        if fails and run:
            self.lanes.put_behind(sub, run)
        if fails:
            return
        del queue[: len(run)]
        for follower in run:
            self.lanes.finish(follower)

    @precondition(lambda self: self.running)
    @rule(which=st.data())
    def delay(self, which: st.DataObject) -> None:
        sub = self._one_of(which, self.running)
        self.delayed.append(sub)
        self.lanes.delay(sub)

    @precondition(lambda self: self.delayed)
    @rule(which=st.data(), again=st.booleans())
    def delay_no_more(self, which: st.DataObject, again: bool) -> None:
        sub = self._one_of(which, self.delayed)
        (self.lanes.release if again else self.lanes.resume)(sub)
        (self.released if again else self.running).append(sub)

    @precondition(lambda self: self.running)
    @rule(which=st.data(), chance=st.integers(0, 3))
    def park(self, which: st.DataObject, chance: int) -> None:
        if chance:
            return
        sub = self._one_of(which, self.running)
        self._release_lanes(sub)
        assert set(self.lanes.park(sub)) == set(self.keys(sub))
        for key in self.keys(sub):
            self.parked.add(key)
            self.waiting[key] = []
        # A sub-message with several sub-keys stays in its other lanes, and holds them up for good.

    @invariant()
    def what_is_ready_may_start(self) -> None:
        assert self.lanes.ready == len(self.ready) + len(self.released)
        assert self.lanes.running == len(self.running)

    @invariant()
    def few_entries_are_stale(self) -> None:
        waiting = sum(map(len, self.waiting.values())) + len(self.waiting)
        assert entries_in(self.lanes) <= 6 * waiting + 40

    # What they do.

    def _pushed(self, sub: SubMessage) -> None:
        self.numbers[sub] = len(self.numbers) + 1
        for key in self.keys(sub):
            if key not in self.parked:
                self.waiting.setdefault(key, []).append(sub)

    def _one_of(self, which: st.DataObject, subs: list[SubMessage]) -> SubMessage:
        return subs.pop(which.draw(st.integers(0, len(subs) - 1)))

    def _release_lanes(self, sub: SubMessage) -> None:
        for key in self.keys(sub):
            del self.holders[key]

    def _taken(self, taken: SubMessage | None) -> None:
        """Check that a choice is one that the rule allows."""
        if taken is None:
            assert not self.ready
            assert not self.released
            self.passed = len(self.numbers)
            return
        self.running.append(taken)
        if taken in self.released:
            self.released.remove(taken)
            return
        assert taken in self.ready
        assert not self.released or taken.keys is not None
        if taken.keys is None:
            self._check_choice(taken)
        for key in self.keys(taken):
            self.holders[key] = taken
            self.waiting[key].remove(taken)

    def _check_choice(self, taken: SubMessage) -> None:
        ready = self.ready
        # Of what stands in several lanes, it may count too much or too little while one of these
        # lanes is held up. One worker takes as long in any order, so no lane is critical.
        waiting = {sub for queue in self.waiting.values() for sub in queue}
        doubt = sum(sub.keys is not None for sub in waiting)
        share = self.lanes.critical_share / self.lanes.workers if self.lanes.workers > 1 else inf
        least, most = (share * max(0, self.work + each) for each in (-doubt, doubt))
        lengths = {sub: len(self.waiting[sub.key]) for sub in ready if sub.keys is None}
        longest = max(lengths.values())
        if longest > 1 and longest > most:
            assert 1.25 * lengths[taken] > longest, "another critical lane is longer"
            return
        number = self.numbers[taken]
        if lengths[taken] == 1 or 1.25 * lengths[taken] <= max(least, longest):
            older = [self.numbers[sub] for sub in ready if self.numbers[sub] < number]
            assert number <= self.passed or not older, "something ready is older"
        self.passed = max(self.passed, number)


def test_whatever_happens_each_choice_is_one_that_the_rule_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes_module, "BLOCK", 1)
    monkeypatch.setattr(lanes_module, "BLOCKS_MIN", 1)  # So that a few events come to clear.
    run_state_machine_as_test(
        AnyEvents,
        settings=settings(
            max_examples=settings().max_examples // 2, stateful_step_count=40, print_blob=True
        ),
    )
