"""Slices of a drain on Spark: how a backlog is cut, and which of their tasks may begin when."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_plan, counts
from drainer.core.lanes import Lanes
from drainer.message import SubMessage
from drainer.model.claims import key_hash
from drainer.model.ranges import Range
from drainer.spark.assign.aggregation import OPEN_MOST, Aggregation, Slice
from drainer.spark.assign.control import Lender
from drainer.spark.assign.slicing import Slicer
from drainer.spark.session.session import HOPE_AGAIN_S, HOPE_S, Slots
from drainer.spark.state.records import Borrowed, Head, TaskStatus


def begun(aggregation: Aggregation, number: int, of: int, *subs: int) -> Slice:
    """Begin a slice of ten offsets with so many sub-messages by shard."""
    bounds = (10 * number - 10, 10 * number)
    by_shard = {n: {0: each} for n, each in enumerate(subs) if each}
    return aggregation.begin(number, of, {0: bounds}, {0: (bounds,)}, by_shard, {})


def end(aggregation: Aggregation, of: Slice, shard: int) -> None:
    """Let the task of a shard report that it has finished everything."""
    task = of.tasks[shard]
    start, stop = 10 * of.number - 10, 10 * of.number
    aggregation.add_progress(
        of, task, Head({task.claim: {0: (start, stop)}}, {0: counts(done=task.total)})
    )


def free(aggregation: Aggregation) -> list[str]:
    return [task.name for _, task in aggregation.free()]


def test_a_task_begins_when_its_shard_has_nothing_left_in_earlier_slices() -> None:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    first = begun(aggregation, 1, 2, 5, 5)
    begun(aggregation, 2, 2, 0, 5)
    begun(aggregation, 3, 2, 5, 5)
    assert free(aggregation) == ["1.0", "1.1"]
    for _, task in list(aggregation.free()):
        task.given = True

    end(aggregation, first, 1)
    assert free(aggregation) == ["2.1"]
    end(aggregation, first, 0)
    assert free(aggregation) == ["2.0", "2.1", "3.0"]


def test_a_slice_with_other_shards_waits_for_all_earlier_ones() -> None:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    first = begun(aggregation, 1, 2, 5, 5)
    begun(aggregation, 2, 3, 5, 0, 5)
    begun(aggregation, 3, 3, 0, 5, 0)
    for _, task in list(aggregation.free()):
        task.given = True
    end(aggregation, first, 0)
    end(aggregation, first, 1)
    assert free(aggregation) == []

    aggregation.end_slice(first)
    assert free(aggregation) == ["2.0", "2.1", "2.2", "3.1"]


def test_the_next_slice_is_read_once_a_task_has_ended_and_a_few_are_under_way() -> None:
    aggregation = Aggregation(a_plan(1_000), "/state", 1)
    assert aggregation.wants_next(4)
    assert aggregation.order(4) == (0, 1, 2, 3)
    for number in range(1, OPEN_MOST + 1):
        of = begun(aggregation, number, 4, 5, 9, 5, 5)
        assert aggregation.wants_next(4) is False
        for shard in (0, 2, 3):
            end(aggregation, of, shard)
        assert aggregation.wants_next(4) is (number < OPEN_MOST)
    assert aggregation.order(4) == (0, 2, 3, 1)
    assert aggregation.order(3) == (0, 1, 2), "its shards are others"


def test_the_next_slice_is_read_although_tasks_leave_lanes_parked() -> None:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    of = begun(aggregation, 1, 2, 5, 5)
    assert aggregation.wants_next(2) is False

    of.tasks[0].status = TaskStatus(borrowed=None)

    assert aggregation.wants_next(2)


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_no_task_that_has_to_wait_takes_a_slot_before_one_that_can_begin(
    busy: set[int], busy_since_earlier: set[int]
) -> None:
    aggregation = Aggregation(a_plan(100), "/state", 1)
    for number, at_work in enumerate((busy_since_earlier, busy), start=1):
        of = begun(aggregation, number, 8, *[5] * 8)
        for shard in set(range(8)) - at_work:
            end(aggregation, of, shard)

    order = aggregation.order(8)

    following = begun(aggregation, 3, 8, *[5] * 8)
    can_begin = [task.shard.number for of, task in aggregation.free() if of is following]
    assert list(order[: len(can_begin)]) == can_begin
    assert sorted(order) == list(range(8))


# --- hot lanes that move, in virtual time ---

CALLS, SLOTS, SUBS = 32, 8, 4_000
# In steps of which a call takes one and a slice 125: were that 12.5 s, a task would take 0.4 s to
# start, and what is lent would be another one's within 0.4 to 0.8 s.
READING, START, LENDING = 30, 4, 4


class Task:
    """A task in virtual time, with lanes as they are."""

    def __init__(self, begins: int, subs: Sequence[SubMessage]) -> None:
        self.begins = begins
        self.left = len(subs)
        self.lanes = Lanes()
        for sub in subs:
            self.lanes.push(sub, sub.key)
        self.running: list[SubMessage] = []
        self.seen = self.allowed = 0

    def step(self) -> None:
        ended, self.running = self.running, []
        self.left -= len(ended)
        for done in ended:
            self.lanes.finish(done)
        while len(self.running) < self.allowed and (sub := self.lanes.take()) is not None:
            self.running.append(sub)


def backlog(draw: Random, slices: int, every: int, hot: int) -> list[list[str]]:
    """Slices of sub-keys. One of ``every`` few has a lane of its own of ``hot`` sub-messages."""
    made = []
    for number in range(slices):
        keys = [f"doc-{draw.randrange(3_000)}" for _ in range(SUBS)]
        if number % every == 0 and number < slices - 2:  # a later one could not end with the others
            keys[:hot] = [f"hot-{number}"] * hot
        draw.shuffle(keys)
        made.append(keys)
    return made


def drained_in(slices: list[list[str]]) -> int:
    aggregation, lender = Aggregation(a_plan(10 * len(slices)), "/state", 1), Lender(CALLS)
    rows: dict[tuple[int, int], list[SubMessage]] = defaultdict(list)
    queue = deque[
        tuple[int, int]
    ]()  # Tasks that wait for a slot, in the order in which they begin.
    waiting: set[tuple[int, int]] = set()  # Tasks with a slot that wait for their share.
    tasks: dict[tuple[int, int], Task] = {}
    step = read = reading = 0
    order: tuple[int, ...] = ()
    while read < len(slices) or aggregation.slices:
        if read < len(slices) and aggregation.wants_next(SLOTS):
            if not reading:
                order = aggregation.order(SLOTS)
            reading += 1
            if reading >= READING:
                reading, read = 0, read + 1
                for key in slices[read - 1]:
                    rows[read, key_hash(key) % SLOTS].append(SubMessage(key))
                begun(aggregation, read, SLOTS, *(len(rows[read, n]) for n in range(SLOTS)))
                queue += [(read, shard) for shard in order]
        while queue and len(tasks) + len(waiting) < SLOTS:
            waiting.add(queue.popleft())
        for of, task in list(aggregation.free()):
            at = of.number, task.shard.number
            if at in waiting:
                waiting.remove(at)
                task.given = True
                tasks[at] = Task(step + START, rows.pop(at))
                lender.begin(task.name, task.total)
        if step % LENDING == 0:
            for at, each in tasks.items():
                if each.begins <= step:
                    report = Borrowed(each.seen, len(each.running), each.lanes.ready)
                    lender.reported("{}.{}".format(*at), report)
            grants = lender.grants()
            for at, each in tasks.items():
                each.allowed, each.seen = grants["{}.{}".format(*at)], lender.number
        for at, each in list(tasks.items()):
            if each.begins <= step:
                each.step()
            if not each.left:
                del tasks[at]
                lender.end("{}.{}".format(*at))
                of = aggregation.slices[at[0]]
                end(aggregation, of, at[1])
                if not of.unfinished:
                    aggregation.end_slice(of)
        step += 1
    return step


@pytest.mark.parametrize(
    ("slices", "every", "hot"),
    [
        (10, 2, SUBS // 16),
        (16, 1, SUBS // 16),
        (64, 1, SUBS // 16),
        (4, 1, SUBS * 3 // 10),
    ],
)
def test_hot_lanes_that_move_are_drained_near_the_bound(slices: int, every: int, hot: int) -> None:
    made = backlog(Random(0), slices, every, hot)
    lanes = Counter(key for keys in made for key in keys)
    bound = max(lanes.total() / CALLS, *lanes.values())
    assert drained_in(made) <= 1.3 * bound


# --- slots are counted as they come and go; where tasks that wait bring executors, some wait ---


@pytest.mark.parametrize(
    ("slots", "handling"),
    [
        (Slots(16), 16),
        (Slots(7), 7),
        (Slots(2), 2),
        (Slots(0), 1),
        (Slots(2, wanted=12), 12),
        (Slots(2, wanted=12, grows=True), 4),
        (Slots(8, grows=True), 16),
        (Slots(20, wanted=12, grows=True), 12),
    ],
)
def test_all_slots_handle_unless_a_number_is_wanted(slots: Slots, handling: int) -> None:
    assert slots.handling == handling


def test_tasks_wait_for_executors_until_none_has_come_for_long() -> None:
    slots = Slots(4, grows=True)
    slots.look(4, busy=8, now_s=10)
    slots.look(4, busy=3, now_s=11 + HOPE_S)
    assert slots.handling == 8, "none waited all the time"
    slots.look(4, busy=8, now_s=11 + HOPE_S)
    assert slots.handling == 4, "no more than have a slot"
    slots.look(4, busy=1, now_s=11 + HOPE_AGAIN_S)
    assert slots.handling == 8, "others may have left executors meanwhile"
    slots.look(4, busy=8, now_s=12 + HOPE_AGAIN_S)
    slots.look(4, busy=8, now_s=13 + HOPE_AGAIN_S + HOPE_S)
    assert slots.handling == 4
    slots.look(5, busy=8, now_s=14 + HOPE_AGAIN_S + HOPE_S)
    assert slots.handling == 10, "one came"


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40), st.floats(0, 200)), max_size=20),
)
def test_no_more_tasks_than_were_wanted(wanted: int, looks: list[tuple[int, int, float]]) -> None:
    slots, now_s = Slots(1, wanted, grows=True), 0.0
    for count, busy, later_s in looks:
        now_s += later_s
        slots.look(count, busy, now_s)
        assert 1 <= slots.handling <= wanted


# --- slices, which leave nothing of a backlog out ---

KIB, MIB = 1024, 1024**2
LEFTS = st.dictionaries(
    st.integers(0, 120),
    st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=20,
)


@settings(deadline=None)
@given(LEFTS, st.integers(1, 10**6), st.integers(1, 5000))
def test_slices_follow_each_other_without_a_hole(
    lefts: dict[int, Range], slice_bytes: int, of_each: int
) -> None:
    slicer = Slicer(lefts, slice_bytes, 500.0)
    at = {n: start for n, (start, _) in lefts.items()}
    for _ in range(20):
        if not slicer.left:
            break
        ranges = slicer.next()
        assert {n: start for n, (start, _) in ranges.items()} == {
            n: at[n] for n, (_, end) in lefts.items() if at[n] < end
        }
        for n, (start, end) in ranges.items():
            assert start < end <= lefts[n][1]
            at[n] = end
        slicer.took(ranges, of_each * sum(end - start for start, end in ranges.values()), 1.0)
    assert slicer.left == sum(end - at[n] for n, (_, end) in lefts.items())


def test_slices_follow_sizes_that_drift() -> None:
    slicer = Slicer({0: (0, 10**9)}, MIB, 1.0)
    size, sizes = 1_000.0, list[float]()
    for _ in range(60):
        (bounds,) = slicer.next().values()
        read = size * (bounds[1] - bounds[0])
        sizes.append(read / MIB)
        slicer.took({0: bounds}, int(read), 1.0)
        size *= 1.1

    assert all(0.9 < each < 1.25 for each in sizes[10:])


@given(LEFTS, st.integers(1, 10**6), st.integers(1, 64))
def test_spans_are_a_slice_in_about_as_many_parts_as_read_at_once(
    lefts: dict[int, Range], slice_bytes: int, readers: int
) -> None:
    slicer = Slicer(lefts, slice_bytes, 500.0)
    ranges = slicer.next()

    spans = slicer.spans(ranges, readers)

    for n, (start, end) in ranges.items():
        own = [(each.start, each.end) for each in spans if each.partition == n]
        assert [begun for begun, _ in own] == [start, *(ended for _, ended in own[:-1])]
        assert own[-1][1] == end
    assert len(spans) <= readers + 2 * len(ranges)


@given(st.floats(0.001, 10_000), st.integers(1, 64))
def test_a_span_is_large_unless_split_takes_long(processor_s: float, readers: int) -> None:
    slice_bytes = 512 * MIB
    slicer = Slicer({0: (0, 10**12)}, slice_bytes, KIB)
    for _ in range(4):
        ranges = slicer.next()
        slicer.took(ranges, KIB * (ranges[0][1] - ranges[0][0]), processor_s)

    spans = slicer.spans(slicer.next(), readers)

    span_bytes = slice_bytes / len(spans)
    span_s = processor_s / len(spans)
    assert len(spans) == readers or span_bytes > 15 * MIB or 3.9 < span_s < 4.1
    assert len(spans) == 1 or span_bytes < 17 * MIB or len(spans) == readers
    assert span_bytes >= MIB
