"""The reading of waves, without Spark: what becomes of it when it is asked to stop, and how waves
are read that do not fit into the shards."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from builders import a_plan
from core.limit_samples import measured
from drainer.errors import BrokerUnreachable, Halted, Interrupted, SplitFailed
from drainer.kafka.settings import ClientSettings
from drainer.limits.search.boundary import cap_curve
from drainer.message import Barrier, SubMessage
from drainer.model.claims import Components, ShardMap, key_hash
from drainer.model.order import Order
from drainer.model.ranges import Range
from drainer.spark import reading
from drainer.spark.jobs import Jobs, PreparedWave
from drainer.spark.lease import LOCAL
from drainer.spark.python_worker import HandlerSpec
from drainer.spark.reading import Reader, WaveSettings
from drainer.spark.sharding import Sharding
from drainer.spark.shipping import Shipped
from drainer.spark.slices import Manifest, SliceTask
from drainer.spark.slots import Slots

if TYPE_CHECKING:
    from pyspark import RDD

SPEC = HandlerSpec(Shipped("h.py:H"), ClientSettings("x:1"), a_plan(0).terms, 1, "/state", LOCAL, 1)
TERMS = WaveSettings(SPEC, 2**20, Slots(3, 2), 64)


class Rows:
    """What Spark holds until it is let go of."""

    held = True

    def unpersist(self) -> None:
        self.held = False


class MadeUpJobs:
    """Reads whatever is asked for; what is in ``answers`` comes instead, once.

    A cancelled job goes on: Spark had not heard of it yet. With ``forgets`` it never hears of any.
    """

    def __init__(self, *answers: Exception, forgets: bool = False) -> None:
        self.answers = list(answers)
        self.forgets = forgets
        self.asked = threading.Event()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.rows: list[Rows] = []
        self.times = 0

    def read(self, task: SliceTask, name: str) -> PreparedWave:
        self.times += 1
        self.begun.release()
        if self.answers:
            raise self.answers.pop(0)
        self.may_end.wait(10)
        rows = Rows()
        self.rows.append(rows)
        ranges = {each.partition: (each.start, each.end) for each in task.slices}
        return PreparedWave(rows, ranges, {}, {}, task.streams)  # type: ignore[arg-type]

    def wait_until_begun(self, name: str, give_up: Callable[[], bool]) -> None:
        while self.forgets and not give_up():
            self.asked.set()

    def cancel(self, name: str) -> None:
        self.may_end.set()


def reader_of(jobs: MadeUpJobs) -> Reader:
    return Reader(a_plan(100), {0: 0}, TERMS, cast(Jobs, jobs))


async def begun(jobs: MadeUpJobs) -> None:
    assert await asyncio.to_thread(jobs.begun.acquire, timeout=10)


async def stop(reader: Reader) -> None:
    reader.stop()
    await reader.cancel()


def test_a_stop_while_the_broker_is_away_reads_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "READ_AGAIN_S", 0.05)
    jobs = MadeUpJobs(BrokerUnreachable("nobody answers"))
    jobs.may_end.set()

    async def story() -> None:
        reader = reader_of(jobs)
        reader.begin()
        await begun(jobs)
        while reader.trouble is None:  # noqa: ASYNC110 - it says so at once
            await asyncio.sleep(0)
        await stop(reader)
        with pytest.raises(Interrupted):
            await reader.take()

    asyncio.run(story())
    assert jobs.times == 1


def test_a_wave_that_somebody_waits_for_is_let_go_of_at_a_stop() -> None:
    jobs = MadeUpJobs()

    async def story() -> None:
        reader = reader_of(jobs)
        taking = asyncio.create_task(reader.take())
        await begun(jobs)
        await stop(reader)
        taking.cancel()  # as the drain does with its work
        with pytest.raises((Interrupted, asyncio.CancelledError)):
            await taking

    asyncio.run(story())
    assert [rows.held for rows in jobs.rows] == [False]


def test_a_wave_that_came_at_the_same_moment_as_a_stop_is_not_handled() -> None:
    jobs = MadeUpJobs()

    async def story() -> None:
        reader = reader_of(jobs)
        taking = asyncio.create_task(reader.take())
        await begun(jobs)
        reader.stop()
        jobs.may_end.set()
        with pytest.raises(Interrupted):
            await taking
        await reader.cancel()

    asyncio.run(story())
    assert [rows.held for rows in jobs.rows] == [False]


def test_a_wave_is_not_held_back_for_a_job_that_is_over() -> None:
    jobs = MadeUpJobs(forgets=True)
    jobs.may_end.set()

    async def story() -> None:
        reader = reader_of(jobs)
        reader.begin(behind="a job that Spark has forgotten")
        assert await asyncio.to_thread(jobs.asked.wait, 10)
        assert await asyncio.wait_for(reader.take(), 10) is not None

    asyncio.run(story())


SHARDS = 16
KIB, MIB = 1024, 1024**2
Keys = tuple[str, ...]  # of a sub-message; none of a barrier


class ModelledJobs:
    """Reads messages of one sub-message each, as slices are read."""

    def __init__(self, backlog: Sequence[Keys], message_bytes: float = 1.0) -> None:
        self.backlog = backlog
        self.message_bytes = message_bytes
        self.reads: list[tuple[Range, int]] = []  # and into how many shards

    def read(self, task: SliceTask, name: str) -> PreparedWave:
        manifests = [self._manifest(task, each.start, each.end) for each in task.slices]
        bounds = task.slices[0].start, task.slices[-1].end
        self.reads.append((bounds, task.streams.shards))
        return PreparedWave.of(cast("RDD[Any]", Rows()), manifests, task)

    def _manifest(self, task: SliceTask, start: int, end: int) -> Manifest:
        shard_map, components = ShardMap(Order(task.handler.terms.order), task.joins), Components()
        subs, barriers, undivided = Counter[int](), list[int](), None
        for offset in range(start, end):
            keys = self.backlog[offset]
            components.join(map(key_hash, keys))
            if not keys:
                barriers.append(offset)
            sub = SubMessage(keys=keys) if keys else Barrier()
            shard = shard_map.shard_of(sub, task.streams.shards, task.streams.joins)
            if shard is not None:
                subs[shard] += 1
            elif undivided is None:
                undivided = offset
        return Manifest(
            0,
            start,
            end,
            subs=dict(subs),
            undivided=undivided,
            joined=components.sets,
            barriers=tuple(barriers),
            log_bytes=int(self.message_bytes * (end - start)),
        )


def read_all(
    backlog: Sequence[Keys], wave_bytes: int, message_bytes: float = 1.0
) -> tuple[list[PreparedWave], ModelledJobs]:
    jobs = ModelledJobs(backlog, message_bytes)
    terms = replace(TERMS, wave_bytes=wave_bytes, shards=SHARDS, message_bytes=message_bytes)

    async def story() -> list[PreparedWave]:
        reader = Reader(a_plan(len(backlog)), {0: 0}, terms, cast(Jobs, jobs))
        found = []
        while (prepared := await reader.take()) is not None:
            found.append(prepared)
        return found

    return asyncio.run(story()), jobs


def test_where_the_same_sub_keys_are_joined_again_a_wave_is_read_once() -> None:
    pairs = [(f"a{n}", f"b{n}") for n in range(30)]
    backlog = [pairs[n // 10 % 30] if n % 10 == 0 else (f"k{n}",) for n in range(3_000)]

    waves, jobs = read_all(backlog, wave_bytes=600)

    assert [wave.ranges[0] for wave in waves] == [(n, n + 600) for n in range(0, 3_000, 600)]
    assert [bounds for bounds, _ in jobs.reads] == [(0, 600), *(w.ranges[0] for w in waves)]
    assert len({wave.streams for wave in waves}) == 1
    for wave in waves:
        assert max(sum(each.values()) for each in wave.subs.values()) < 3 * 600 / SHARDS


def test_joins_that_come_up_later_are_added_to_those_before() -> None:
    backlog = [("a", "b")] * 500 + [("c", "d")] * 500 + [("a", "b"), ("c", "d")] * 500

    waves, jobs = read_all(backlog, wave_bytes=500)

    assert [start for (start, _), _ in jobs.reads] == [0, 0, 500, 500, 1000, 1500]
    assert [wave.streams.joins for wave in waves] == [1, 2, 2, 2]


def test_waves_are_as_long_as_what_they_connect_leaves_shards_to_others() -> None:
    drawn = Random(1)

    def keys() -> Keys:
        return tuple({f"k{drawn.randrange(4_000)}" for _ in range(drawn.choice((1, 1, 2)))})

    waves, _ = read_all([keys() for _ in range(24_000)], 256 * MIB, message_bytes=4 * KIB)

    sizes = [end - start for start, end in (wave.ranges[0] for wave in waves)]
    assert sizes[:4] == [2_048, 8_192, 4_096, 4_096]
    for wave in (waves[0], *waves[2:]):
        assert max(sum(each.values()) for each in wave.subs.values()) < sizes[0]


def test_all_stretches_of_a_wave_are_divided_by_its_own_joins() -> None:
    drawn = Random(1)

    def keys(offset: int) -> Keys:
        if offset == 9_800:  # in a wave that connects too much for its length
            return ()
        return tuple({f"k{drawn.randrange(4_000)}" for _ in range(drawn.choice((1, 1, 2)))})

    waves, _ = read_all([keys(n) for n in range(12_000)], 256 * MIB, message_bytes=4 * KIB)

    before, alone, after = waves[1:4]
    assert [wave.ranges[0][0] for wave in (before, alone, after)] == [2_048, 9_800, 9_801]
    assert (before.streams, alone.streams.shards) == (after.streams, 1)
    assert before.joins is not None
    assert before.joins.shards
    assert before.joins == after.joins


def test_messages_with_barriers_are_one_shard_s_and_those_between_are_not() -> None:
    backlog = [() if 300 <= n < 302 or n == 700 else (f"k{n}",) for n in range(1_000)]

    waves, _ = read_all(backlog, wave_bytes=1_000)

    assert [(wave.ranges[0], wave.streams.shards) for wave in waves] == [
        ((0, 300), SHARDS),
        ((300, 302), 1),
        ((302, 700), SHARDS),
        ((700, 701), 1),
        ((701, 1_000), SHARDS),
    ]


def test_a_wave_with_many_barriers_is_one_shard_s() -> None:
    waves, _ = read_all([() if n % 20 == 0 else (f"k{n}",) for n in range(400)], wave_bytes=400)

    assert [(wave.ranges[0], wave.streams.shards) for wave in waves] == [((0, 400), 1)]


class Rejecting(ModelledJobs):
    """Split rejects messages at some offsets, which stop their partition: ``rejects`` says which at
    a reading, by its number from 1."""

    def __init__(self, backlog: Sequence[Keys], rejects: Callable[[int, int], bool]) -> None:
        super().__init__(backlog)
        self.rejects = rejects
        self.rows: list[Rows] = []

    def read(self, task: SliceTask, name: str) -> PreparedWave:
        prepared = super().read(task, name)
        self.rows.append(cast("Rows", prepared.rows))
        return prepared

    def _manifest(self, task: SliceTask, start: int, end: int) -> Manifest:
        found, number = super()._manifest(task, start, end), len(self.reads) + 1
        at = next((n for n in range(start, end) if self.rejects(number, n)), None)
        stop = None if at is None else at + 1
        return msgspec.structs.replace(found, delivered=((start, stop or end),), stop=stop)


def read_rejecting(
    rejects: Callable[[int, int], bool], barriers: Sequence[int] = ()
) -> tuple[list[PreparedWave], Reader]:
    """Reads a backlog of 500; every wave has all of the offsets that it says."""
    jobs = Rejecting([() if n in barriers else (f"k{n}",) for n in range(500)], rejects)

    async def story() -> tuple[list[PreparedWave], Reader]:
        reader = Reader(a_plan(500), {0: 0}, replace(TERMS, shards=SHARDS), cast(Jobs, jobs))
        found = []
        while (prepared := await reader.take()) is not None:
            assert prepared.delivered == {0: [prepared.ranges[0]]}
            found.append(prepared)
        return found, reader

    found, reader = asyncio.run(story())
    for each, after in pairwise(found):
        assert each.ranges[0][1] == after.ranges[0][0], "waves follow each other"
    assert [id(each) for each in jobs.rows if each.held] == [id(each.rows) for each in found]
    return found, reader


def test_a_wave_that_stops_earlier_in_stretches_than_before_ends_there() -> None:
    waves, reader = read_rejecting(lambda reading, n: reading > 1 and n == 205, (100, 300))

    assert [wave.ranges[0] for wave in waves] == [(0, 100), (100, 101), (101, 206)]
    assert reader.stops == {0}


def test_a_wave_that_stops_earlier_each_time_it_is_read_ends_at_the_last_stop() -> None:
    waves, reader = read_rejecting(lambda reading, n: n == {1: 70, 2: 30}.get(reading, 10))

    assert [wave.ranges[0] for wave in waves] == [(0, 11)]
    assert reader.stops == {0}


def test_what_is_split_at_the_second_reading_stops_nothing() -> None:
    waves, reader = read_rejecting(lambda reading, n: reading == 1 and n == 70)

    assert [wave.ranges[0] for wave in waves] == [(0, 71), (71, 500)]
    assert not reader.stops


def test_what_is_split_in_a_stretch_stops_nothing() -> None:
    waves, reader = read_rejecting(lambda reading, n: reading < 3 and n == 205, (100,))

    assert [wave.ranges[0][1] for wave in waves] == [100, 101, 206, 500]
    assert not reader.stops


def test_a_wave_that_lacks_what_is_behind_a_stop_is_refused() -> None:
    wave = PreparedWave(
        cast("RDD[Any]", Rows()), {0: (0, 9)}, {0: [(0, 5)]}, {}, Sharding(1), stops={0: 5}
    )

    with pytest.raises(Halted, match="before the ends"):
        wave.ensure_ends()


def test_slices_that_are_not_those_asked_for_are_refused() -> None:
    class Short(ModelledJobs):
        def _manifest(self, task: SliceTask, start: int, end: int) -> Manifest:
            return super()._manifest(task, start, end - 1)

    async def story() -> None:
        await Reader(a_plan(9), {0: 0}, TERMS, cast(Jobs, Short([("k",)] * 9))).take()

    with pytest.raises(Interrupted, match="other slices"):
        asyncio.run(story())


def test_a_split_that_joins_others_at_the_second_reading_is_found_out() -> None:
    class Turning(ModelledJobs):
        def read(self, task: SliceTask, name: str) -> PreparedWave:
            self.backlog = [(*keys, f"x{len(self.reads)}") for keys in self.backlog]
            return super().read(task, name)

    async def story() -> None:
        jobs = Turning([(f"k{n}", f"l{n}") for n in range(99)])
        await Reader(a_plan(99), {0: 0}, replace(TERMS, shards=SHARDS), cast(Jobs, jobs)).take()

    with pytest.raises(SplitFailed, match="not deterministic: offset 0 of partition 0"):
        asyncio.run(story())


def test_tasks_read_at_their_share_of_what_groups_read() -> None:
    curve = cap_curve([measured({100: 1_000.0}, groups=5)])
    handler, rest = replace(SPEC, terms=replace(SPEC.terms, limits=curve)), cast("Any", None)
    task = SliceTask(handler, rest, {}, (), {}, rest, share=0.5, message_bytes=100.0)

    pace = task.pace()

    assert pace is not None
    assert pace.messages_per_s == pytest.approx(0.5 * 0.8 * 5_000)
