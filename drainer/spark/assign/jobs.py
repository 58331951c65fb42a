"""The jobs of a drain: reading and handling each wave."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as columns
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from drainer.errors import BrokerUnreachable, Halted, Interrupted, raised_as
from drainer.model.ranges import Range
from drainer.spark.read.slices import Manifest, SliceTask
from drainer.spark.session.failure import SparkBroke, spark_failures
from drainer.spark.session.session import Session
from drainer.spark.state.sharding import Sharding
from drainer.spark.task.handling import DOES_IT_SHUFFLE, TaskInput, TaskRunner
from drainer.spark.task.rows import CHUNKS, MANIFEST, OUTCOMES

_TYPES = {"int": IntegerType(), "long": LongType(), "binary": BinaryType()}


@contextmanager
def _stopping() -> Iterator[None]:
    """Let failures of Spark stop the drain: they are not a bug of it."""
    with raised_as(Interrupted, SparkBroke), spark_failures():
        yield


@dataclass(frozen=True, slots=True)
class PreparedWave:
    """A wave that was read and lies ready, in chunks."""

    rows: DataFrame  # of chunks, which Spark keeps on disk
    ranges: Mapping[int, Range]  # the offsets ``[start, end)`` that it has, by partition
    delivered: Mapping[int, Sequence[Range]]  # the offsets of messages to account for, by partition
    # Sub-messages that are to be handled, by shard and partition.
    subs: Mapping[int, Mapping[int, int]]
    # Of its slices, by shard and partition and by their first offset: how many with which checksum.
    slices: Mapping[tuple[int, int], Mapping[int, tuple[int, int]]]
    streams: Sharding  # by what the sub-keys are divided
    manifests: Sequence[Manifest]  # of its slices
    # Messages that ``split`` rejected, by partition.
    units: Mapping[int, Sequence[Range]] = field(default_factory=dict)
    # By partition that stops at such a message, the offset behind it.
    stops: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: DataFrame, manifests: Sequence[Manifest], task: SliceTask) -> PreparedWave:
        read = sorted((each.partition, each.start, each.end) for each in manifests)
        if read != sorted((each.partition, each.start, each.end) for each in task.slices):
            raise Interrupted("Spark gave other slices than were to be read", hint=DOES_IT_SHUFFLE)
        ranges: dict[int, Range] = {}
        delivered: dict[int, list[Range]] = {}
        subs: dict[int, Counter[int]] = {}
        slices: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        units: dict[int, list[Range]] = {}
        stops: dict[int, int] = {}
        for each in sorted(manifests, key=lambda each: (each.partition, each.start)):
            number = each.partition
            ranges[number] = (ranges.get(number, (each.start, 0))[0], each.end)
            delivered.setdefault(number, []).extend(each.delivered)
            units.setdefault(number, []).extend(each.units)
            if each.stop is not None:
                stops.setdefault(number, each.stop)
            for shard, count in each.subs.items():
                subs.setdefault(shard, Counter())[number] += count
                by_start = slices.setdefault((shard, number), {})
                by_start[each.start] = count, each.checksums[shard]
        return cls(rows, ranges, delivered, subs, slices, task.streams, manifests, units, stops)

    @property
    def log_bytes(self) -> int:
        """Bytes of keys and values, as the log has them."""
        return sum(each.log_bytes for each in self.manifests)

    @property
    def connected(self) -> bool:
        """Whether barriers or sub-messages connect shards; then a divided wave is incomplete."""
        return any(each.connected for each in self.manifests)

    @property
    def stops_at_ends(self) -> bool:
        """Whether it has all of its ranges: no partition stops before the end of its own."""
        return all(stop == self.ranges[n][1] for n, stop in self.stops.items())

    def ensure_ends(self) -> None:
        """Raises Halted when it lacks what is behind a stop, which would count as holes."""
        if not self.stops_at_ends:
            raise Halted(
                f"the reading stops at {dict(self.stops)}, before the ends of {dict(self.ranges)}",
                hint="Resume. This is a bug in drainer: report it, and keep the plan.",
            )

    def given(self, shard: int) -> dict[int, TaskInput]:
        """Return what a task is given of a shard, by partition."""
        return {
            n: TaskInput(*self.ranges[n], subs, self.slices[shard, n])
            for n, subs in self.subs[shard].items()
        }

    def release(self) -> None:
        """Lets go of the rows."""
        with _stopping():
            self.rows.unpersist()


class Jobs:
    """Runs them on a session; every method blocks, and is called in a thread of its own.

    What Spark raises becomes one of drainer's errors. All jobs have the tag ``tag``, and each one
    that can be cancelled has a tag of its own.
    """

    def __init__(self, session: Session, tag: str) -> None:
        self._session = session
        self._tag = tag

    def read(self, task: SliceTask, tasks: int, name: str) -> PreparedWave:
        """Reads a wave, which is the slices of ``task``, in so many tasks at least, and keeps its
        chunks on disk."""
        with _stopping():
            self._name(name)
            rows = _mapped(self._numbers(max(tasks, len(task.slices))), task.split, CHUNKS)
            rows = rows.persist(StorageLevel.DISK_ONLY)
            try:
                found = rows.where(columns.col("shard") == MANIFEST).select("body").collect()
                manifests = [msgspec.json.decode(body, type=Manifest) for (body,) in found]
                return PreparedWave.of(rows, manifests, task)
            except BaseException:
                with suppress(Exception):  # Spark itself may be what is gone
                    rows.unpersist()
                raise

    def handle(
        self, parts: Sequence[tuple[DataFrame, Mapping[int, int]]], runner: TaskRunner, name: str
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """Handles parts of waves, each with its rows and its tasks by shard; gives the number of
        each task with its outcome."""
        tasks = len(runner.given)
        # Spark reads again what it has lost, and brokers may not answer then.
        with raised_as(Interrupted, BrokerUnreachable), _stopping():
            self._name(name)
            rows = reduce(_union, [_assigned(*part) for part in parts])
            placed = self._session.placed(rows, tasks, "task")
            chunks = placed.sortWithinPartitions("is_chunk", "partition", "offset")
            chunks = chunks.drop("task", "is_chunk")
            found = _mapped(chunks, runner.handle, OUTCOMES).collect()
        if sorted(task for task, _ in found) != list(range(tasks)):
            raise Interrupted(
                f"Spark ran {len(found)} tasks for the {tasks} of a dispatch", hint=DOES_IT_SHUFFLE
            )
        return [(task, pickle.loads(outcome)) for task, outcome in found]

    @property
    def slots_s(self) -> float:
        """Seconds between two questions for the slots."""
        return self._session.slots_s

    def slots(self) -> int:
        """Number of tasks that can run at once."""
        with _stopping():
            return self._session.slots()

    def cancel(self, name: str) -> None:
        """Ends a job; its tasks are killed."""
        with _stopping():
            self._session.cancel(self._tag_of(name))

    def _name(self, name: str) -> None:
        self._session.name_jobs(f"{self._tag}: {name}", self._tag, self._tag_of(name))

    def _tag_of(self, name: str) -> str:
        return f"{self._tag}: {name}".replace(",", "")

    def _numbers(self, tasks: int) -> DataFrame:
        """A row for each of so many tasks, with its number."""
        return self._session.spark.range(0, tasks, 1, tasks)


# No SQL as text: to load the parser of it takes Spark half a second.


def _mapped(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """The rows that a function makes of these; ``schema`` is such as ``CHUNKS``."""
    names_and_types = (column.split() for column in schema.split(", "))
    fields = [StructField(name, _TYPES[kind]) for name, kind in names_and_types]
    return rows.mapInArrow(function, StructType(fields))


def _assigned(rows: DataFrame, tasks: Mapping[int, int]) -> DataFrame:
    """The rows of these shards with the task of each; what slices have comes before the chunks."""
    # One text: each column that is made takes a call to the JVM, and there may be many shards.
    by_shard = columns.lit(",".join(str(tasks.get(shard, -1)) for shard in range(max(tasks) + 1)))
    task = columns.get(columns.split(by_shard, ","), columns.col("shard")).cast(IntegerType())
    is_chunk = columns.length("body") > 0
    assigned = rows.select("*", task.alias("task"), is_chunk.alias("is_chunk"))
    return assigned.where(columns.col("task") >= 0)


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.union(other)
