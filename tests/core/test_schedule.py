"""The schedule of a drain on Spark, which test_gathering.py plays in drawn courses of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.core.lanes import Lanes
from drainer.message import SubMessage
from drainer.model.claims import Shard, key_hash
from drainer.model.ranges import Range
from drainer.spark.assign.control import Lender
from drainer.spark.assign.schedule import Part, Schedule, Waves
from drainer.spark.session.session import HOPE_AGAIN_S, HOPE_S, Slots
from drainer.spark.state.records import Borrowed


def one_wave(schedule: Schedule, wave: int, *counts: int) -> None:
    schedule.add(wave, {Shard(n, len(counts)): each for n, each in enumerate(counts)})


def dispatched(
    schedule: Schedule, slots: int, busy: int = 0, *, urgent: bool = False, least: int = 1
) -> list[list[Part]]:
    tasks = schedule.dispatch(slots, busy, urgent=urgent, least=least)
    assert tasks is not None
    return tasks


def test_the_heaviest_shards_are_dispatched_apart() -> None:
    schedule = Schedule()
    one_wave(schedule, 1, 9, 5, 4, 3, 3, 2)

    tasks = dispatched(schedule, 3)

    assert [sum(part.subs for part in parts) for parts in tasks] == [9, 8, 9]
    assert [len(parts) for parts in tasks] == [1, 2, 3]


def test_no_more_tasks_than_the_work_is_worth() -> None:
    schedule = Schedule()
    one_wave(schedule, 1, 10, 10, 10, 10)

    assert len(dispatched(schedule, 4, least=15)) == 2


def test_a_dispatch_waits_until_half_of_the_slots_are_free() -> None:
    schedule = Schedule()
    one_wave(schedule, 1, *[10] * 8)
    first = dispatched(schedule, 4)
    one_wave(schedule, 2, *[10] * 8)

    for part in first[0]:
        schedule.done(part.shard)
    assert schedule.dispatch(1, 3, urgent=False) is None
    for part in first[1]:
        schedule.done(part.shard)

    free = {part.shard for part in (*first[0], *first[1])}
    assert {part.shard for parts in dispatched(schedule, 2, 2) for part in parts} == free


@pytest.mark.parametrize("urgent", [False, True])
def test_what_is_urgent_or_hot_does_not_wait(urgent: bool) -> None:
    schedule = Schedule()
    hot = 10 if urgent else 100
    one_wave(schedule, 1, hot, *[10] * 7)
    first = dispatched(schedule, 4)
    one_wave(schedule, 2, hot, *[10] * 7)
    (of_hot,) = (parts for parts in first if any(part.shard.number == 0 for part in parts))

    for part in of_hot:
        schedule.done(part.shard)

    assert dispatched(schedule, 1, 3, urgent=urgent)[0][0].wave == 2


@pytest.mark.parametrize("hot", [False, True])
def test_two_waves_are_on_disk_and_four_where_a_lane_is_hot(hot: bool) -> None:
    schedule = Schedule()
    for wave in range(1, 9):
        if schedule.wants_to_read:
            one_wave(schedule, wave, 100 if hot else 10, *[10] * 7)
        for parts in schedule.dispatch(4, 0, urgent=True) or ():
            for part in parts:
                if part.shard.number and hot:
                    schedule.done(part.shard)

    assert len(schedule.waves) == (4 if hot else 2)


CALLS, SLOTS, SHARDS, WAVES, SUBS = 32, 8, 64, 10, 4_000
# In steps of which a call takes one and a wave 125: were that 12.5 s, a dispatch would take 0.4 s
# to start, and what is lent would be another one's within 0.4 to 0.8 s.
READING, START, LINGER, LENDING = 30, 4, 5, 4
LEAST = SUBS // 20


class Task:
    """A task in virtual time, with lanes as they are."""

    def __init__(
        self, begins: int, subs: Sequence[SubMessage], shards: Mapping[Shard, int]
    ) -> None:
        self.begins = begins
        self.left = dict(shards)
        self.lanes = Lanes()
        for sub in subs:
            self.lanes.push(sub, sub.key)
        self.running: list[SubMessage] = []
        self.seen = self.allowed = 0

    def step(self) -> list[Shard]:
        """The shards that are done with."""
        ended, self.running = self.running, []
        for done in ended:
            self.lanes.finish(done)
            self.left[shard_of(str(done.key))] -= 1
        while len(self.running) < self.allowed and (sub := self.lanes.take()) is not None:
            self.running.append(sub)
        over = [shard for shard, left in self.left.items() if not left]
        for shard in over:
            del self.left[shard]
        return over


def backlog(draw: Random) -> list[list[str]]:
    """Waves of sub-keys; in every second one there is a lane that takes as long as two waves."""
    waves = []
    for wave in range(WAVES):
        keys = [f"doc-{draw.randrange(3_000)}" for _ in range(SUBS)]
        if wave % 2 == 0 and wave < WAVES - 2:  # a later one could not end with the others
            keys[: SUBS // 16] = [f"hot-{wave}"] * (SUBS // 16)
        draw.shuffle(keys)
        waves.append(keys)
    return waves


def test_a_hot_lane_that_moves_is_drained_within_a_tenth_of_the_bound() -> None:
    waves = backlog(Random(0))
    lanes = Counter(key for keys in waves for key in keys)
    bound = max(lanes.total() / CALLS, *lanes.values())

    assert drained_in(waves) <= 1.1 * bound


def shard_of(key: str) -> Shard:
    return Shard(key_hash(key) % SHARDS, SHARDS)


def drained_in(waves: list[list[str]]) -> int:
    schedule, lender = Schedule(), Lender(CALLS)
    rows: dict[tuple[int, Shard], list[str]] = defaultdict(list)
    tasks: dict[str, Task] = {}
    step = read = idle_since = reading = begun = 0
    while read < len(waves) or tasks or schedule.waves:
        if read < len(waves) and schedule.wants_to_read:
            reading -= 1
            if reading <= 0:
                for key in waves[read]:
                    rows[read, shard_of(key)].append(key)
                schedule.add(read, Counter(map(shard_of, waves[read])))
                read, reading = read + 1, READING
        free = min(SLOTS - len(tasks), lender.room)
        if not free:
            idle_since = step
        urgent = step - idle_since >= LINGER
        dispatch = schedule.dispatch(free, len(tasks), urgent=urgent, least=LEAST)
        if dispatch is not None:
            idle_since = step
            for parts in dispatch:
                subs_of_task = [
                    SubMessage(key) for p in parts for key in rows.pop((p.wave, p.shard))
                ]
                begun, name = begun + 1, str(begun)
                tasks[name] = Task(step + START, subs_of_task, {p.shard: p.subs for p in parts})
                lender.begin(name, len(subs_of_task))
        if step % LENDING == 0 or dispatch is not None:
            for name, task in tasks.items():
                if task.begins <= step:
                    running, ready = len(task.running), task.lanes.ready
                    lender.reported(name, Borrowed(task.seen, running, ready))
            for name, granted in lender.grants().items():
                tasks[name].allowed, tasks[name].seen = granted, lender.number
        for name, task in list(tasks.items()):
            if task.begins <= step:
                for shard in task.step():
                    schedule.done(shard)
                if not task.left:
                    del tasks[name]
                    lender.end(name)
        step += 1
    return step


# --- slots are counted as they come and go; where tasks that wait bring executors, some wait ---


@pytest.mark.parametrize(
    ("slots", "handling"),
    [
        (Slots(16), 14),  # one in eight reads ahead
        (Slots(7), 7),
        (Slots(2), 2),
        (Slots(0), 1),
        (Slots(2, wanted=12), 12),
        (Slots(2, wanted=12, grows=True), 2),
        (Slots(20, wanted=12, grows=True), 12),
    ],
)
def test_most_slots_handle_unless_a_number_is_wanted(slots: Slots, handling: int) -> None:
    assert slots.handling == handling


def test_slots_that_come_are_used_and_those_that_go_are_not() -> None:
    slots = Slots(3)
    assert slots.room(busy=3) == 0
    slots.look(9, busy=2, now_s=1)
    assert slots.room(busy=2) == 6
    slots.look(2, busy=8, now_s=2)
    assert slots.room(busy=8) < 0
    slots.look(0, busy=8, now_s=3)
    assert slots.room(busy=0) == 1


def test_tasks_wait_for_executors_until_none_has_come_for_long() -> None:
    slots = Slots(4, grows=True)
    assert slots.room(busy=3) == 5, "as many as there are may wait"
    slots.look(4, busy=8, now_s=10)
    slots.look(4, busy=3, now_s=11 + HOPE_S)
    assert slots.room(busy=3) == 5, "none waited"
    slots.look(4, busy=8, now_s=11 + HOPE_S)
    assert slots.room(busy=1) == 3, "no more than have a slot"
    slots.look(4, busy=1, now_s=11 + HOPE_AGAIN_S)
    assert slots.room(busy=3) == 5, "others may have left executors meanwhile"
    slots.look(4, busy=8, now_s=12 + HOPE_AGAIN_S)
    slots.look(4, busy=8, now_s=13 + HOPE_AGAIN_S + HOPE_S)
    slots.look(5, busy=8, now_s=14 + HOPE_AGAIN_S + HOPE_S)
    assert slots.room(busy=8) == 2, "one came"


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40), st.floats(0, 200)), max_size=20),
)
def test_no_more_tasks_than_were_wanted(wanted: int, looks: list[tuple[int, int, float]]) -> None:
    slots, now_s = Slots(1, wanted, grows=True), 0.0
    for count, busy, later_s in looks:
        now_s += later_s
        slots.look(count, busy, now_s)
        assert busy + max(0, slots.room(busy)) <= max(wanted, busy)
        assert slots.room(0) >= 1, "there is always one that wants a slot"


# --- waves, which leave nothing of a backlog out ---

KIB, MIB = 1024, 1024**2
LEFTS = st.dictionaries(
    st.integers(0, 120),
    st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=20,
)


@settings(deadline=None)
@given(LEFTS, st.integers(1, 10**6), st.integers(1, 5000))
def test_waves_follow_each_other_without_a_hole(
    lefts: dict[int, Range], wave_bytes: int, of_each: int
) -> None:
    waves = Waves(lefts, wave_bytes, 500.0)
    at = {n: start for n, (start, _) in lefts.items()}
    for _ in range(20):
        if not waves.left:
            break
        ranges = waves.next()
        assert {n: start for n, (start, _) in ranges.items()} == {
            n: at[n] for n, (_, end) in lefts.items() if at[n] < end
        }
        for n, (start, end) in ranges.items():
            assert start < end <= lefts[n][1]
            at[n] = end
        waves.took(ranges, of_each * sum(end - start for start, end in ranges.values()), 1.0)
    assert waves.left == sum(end - at[n] for n, (_, end) in lefts.items())


def test_waves_follow_sizes_that_drift() -> None:
    waves = Waves({0: (0, 10**9)}, MIB, 1.0)
    size, sizes = 1_000.0, list[float]()
    for _ in range(60):
        (bounds,) = waves.next().values()
        read = size * (bounds[1] - bounds[0])
        sizes.append(read / MIB)
        waves.took({0: bounds}, int(read), 1.0)
        size *= 1.1

    assert all(0.9 < each < 1.25 for each in sizes[10:])


@given(LEFTS, st.integers(1, 10**6), st.integers(1, 64))
def test_slices_are_a_wave_in_about_as_many_parts_as_read_at_once(
    lefts: dict[int, Range], wave_bytes: int, readers: int
) -> None:
    waves = Waves(lefts, wave_bytes, 500.0)
    ranges = waves.next()

    slices = waves.slices(ranges, readers)

    for n, (start, end) in ranges.items():
        own = [(each.start, each.end) for each in slices if each.partition == n]
        assert [begun for begun, _ in own] == [start, *(ended for _, ended in own[:-1])]
        assert own[-1][1] == end
    assert len(slices) <= readers + 2 * len(ranges)


@given(st.floats(0.001, 10_000), st.integers(1, 64))
def test_a_slice_is_large_unless_split_takes_long(processor_s: float, readers: int) -> None:
    wave_bytes = 512 * MIB
    waves = Waves({0: (0, 10**12)}, wave_bytes, KIB)
    for _ in range(4):
        ranges = waves.next()
        waves.took(ranges, KIB * (ranges[0][1] - ranges[0][0]), processor_s)

    slices = waves.slices(waves.next(), readers)

    slice_bytes = wave_bytes / len(slices)
    slice_s = processor_s / len(slices)
    assert len(slices) == readers or slice_bytes > 15 * MIB or 3.9 < slice_s < 4.1
    assert len(slices) == 1 or slice_bytes < 17 * MIB or len(slices) == readers
    assert slice_bytes >= MIB
