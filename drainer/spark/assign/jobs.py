"""The jobs of a drain on Spark, which read and handle its waves."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import starmap
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as columns
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from drainer.errors import BrokerUnreachable, Halted, Interrupted, raised_as
from drainer.model.claims import Shard, Stream
from drainer.model.ranges import Range
from drainer.spark.read.slices import Manifest, SliceTask
from drainer.spark.session.failure import SparkBroke, spark_failures
from drainer.spark.session.session import Session
from drainer.spark.task.handling import TaskRunner
from drainer.spark.task.rows import CHUNKS, MANIFEST, OUTCOMES
from drainer.spark.task.source import DOES_IT_SHUFFLE, TaskInput

# The rows of a wave, and the number of the task for each shard to handle.
WaveShare = tuple[DataFrame, Mapping[Shard, int]]
_TYPES = {"int": IntegerType(), "long": LongType(), "binary": BinaryType()}


@contextmanager
def _as_interrupted() -> Iterator[None]:
    """Raise failures of Spark as Interrupted: they stop the drain, which can be resumed."""
    with raised_as(Interrupted, SparkBroke), spark_failures():
        yield


@dataclass(frozen=True, slots=True)
class PreparedWave:
    """A wave that was read, whose chunks Spark keeps on disk.

    Attributes:
        rows: the chunks.
        ranges: the offsets ``[start, end)`` by partition.
        delivered: the offsets of messages to account for, by partition.
        subs: the number of sub-messages to handle, by shard and partition.
        slices: by shard and partition and by the first offset of each slice, the number of its
            sub-messages and their checksum.
        manifests: the manifests of the slices.
        units: the messages that ``split`` rejected, by partition.
        stops: for each partition that stops at such a message, the offset after the message.
    """

    rows: DataFrame
    ranges: Mapping[int, Range]
    delivered: Mapping[int, Sequence[Range]]
    subs: Mapping[Shard, Mapping[int, int]]
    slices: Mapping[tuple[Shard, int], Mapping[int, tuple[int, int]]]
    manifests: Sequence[Manifest]
    units: Mapping[int, Sequence[Range]] = field(default_factory=dict)
    stops: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: DataFrame, manifests: Sequence[Manifest], task: SliceTask) -> PreparedWave:
        """Return the wave that ``task`` has read. Raises Interrupted if slices are missing."""
        read = sorted((each.partition, each.start, each.end) for each in manifests)
        if read != sorted((each.partition, each.start, each.end) for each in task.slices):
            raise Interrupted("Spark read other slices than were requested", hint=DOES_IT_SHUFFLE)
        ranges: dict[int, Range] = {}
        delivered: dict[int, list[Range]] = {}
        subs: dict[Shard, Counter[int]] = {}
        slices: dict[tuple[Shard, int], dict[int, tuple[int, int]]] = {}
        units: dict[int, list[Range]] = {}
        stops: dict[int, int] = {}
        for each in sorted(manifests, key=lambda each: (each.partition, each.start)):
            number = each.partition
            ranges[number] = (ranges.get(number, (each.start, 0))[0], each.end)
            delivered.setdefault(number, []).extend(each.delivered)
            units.setdefault(number, []).extend(each.units)
            if each.stop is not None:
                stops.setdefault(number, each.stop)
            for own_number, count in each.subs.items():
                shard = Shard(own_number, task.of)
                subs.setdefault(shard, Counter())[number] += count
                by_start = slices.setdefault((shard, number), {})
                by_start[each.start] = count, each.checksums[own_number]
        return cls(rows, ranges, delivered, subs, slices, manifests, units, stops)

    @property
    def log_bytes(self) -> int:
        """The bytes of keys and values in the log."""
        return sum(each.log_bytes for each in self.manifests)

    @property
    def connected(self) -> bool:
        """Whether barriers or sub-messages connect shards. If so, a divided wave is incomplete."""
        return any(each.connected for each in self.manifests)

    @property
    def stops_at_ends(self) -> bool:
        """Whether no partition stops before the end of its range."""
        return all(stop == self.ranges[n][1] for n, stop in self.stops.items())

    def ensure_ends(self) -> None:
        """Ensure that no partition stops before its end: what is missing would count as a hole.

        Raises Halted.
        """
        if not self.stops_at_ends:
            raise Halted(
                f"the reading stops at {dict(self.stops)}, before the ends of {dict(self.ranges)}",
                hint="Resume. This is a bug in drainer: report it, and keep the plan.",
            )

    def given(self, shard: Shard) -> dict[int, TaskInput]:
        """Return what a task is given of a shard, by stream."""
        return {
            Stream(n, shard): TaskInput(*self.ranges[n], self.slices[shard, n])
            for n in self.subs[shard]
        }

    def release(self) -> None:
        """Let Spark remove the chunks."""
        with _as_interrupted():
            self.rows.unpersist()


class Jobs:
    """Runs the jobs of a drain on a session. Each method blocks, so it is called in a thread.

    Errors of Spark become drainer's own errors. All jobs have the tag ``tag``, and each also has a
    tag of its own, by which it can be cancelled.
    """

    def __init__(self, session: Session, tag: str) -> None:
        self.session = session
        self._tag = tag

    def read(self, task: SliceTask, tasks: int, name: str) -> PreparedWave:
        """Read the slices of ``task`` with at least ``tasks`` Spark tasks, and return the wave.

        Its chunks are on the disks of the executors.
        """
        with _as_interrupted():
            self._name(name)
            rows = _mapped(self._numbers(max(tasks, len(task.slices))), task.split, CHUNKS)
            rows = rows.persist(StorageLevel.DISK_ONLY)
            try:
                found = rows.where(columns.col("shard") == MANIFEST).select("body").collect()
                manifests = [msgspec.json.decode(body, type=Manifest) for (body,) in found]
                return PreparedWave.of(rows, manifests, task)
            except BaseException:
                with suppress(Exception):  # Spark itself may be gone.
                    rows.unpersist()
                raise

    def handle(
        self, parts: Sequence[WaveShare], runner: TaskRunner, name: str
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """Handle parts of waves, and return the number of each task with its outcome.

        ``parts`` has the share of each of several waves.
        """
        tasks = len(runner.given)
        # If Spark has lost rows, it reads them again, and brokers may not answer at that time.
        with raised_as(Interrupted, BrokerUnreachable), _as_interrupted():
            self._name(name)
            rows = reduce(lambda one, other: one.union(other), starmap(_assigned, parts))
            placed = self.session.placed(rows, tasks, "task")
            chunks = placed.sortWithinPartitions("is_chunk", "partition", "offset")
            chunks = chunks.drop("task", "is_chunk")
            found = _mapped(chunks, runner.handle, OUTCOMES).collect()
        if sorted(task for task, _ in found) != list(range(tasks)):
            raise Interrupted(
                f"Spark ran {len(found)} tasks for the {tasks} of a dispatch", hint=DOES_IT_SHUFFLE
            )
        return [(task, pickle.loads(outcome)) for task, outcome in found]

    def slots(self) -> int:
        """Return the number of tasks that can run at once."""
        with _as_interrupted():
            return self.session.slots()

    def cancel(self, name: str) -> None:
        """End a job; Spark kills its tasks."""
        with _as_interrupted():
            self.session.cancel(self._tag_of(name))

    def _name(self, name: str) -> None:
        self.session.name_jobs(f"{self._tag}: {name}", self._tag, self._tag_of(name))

    def _tag_of(self, name: str) -> str:
        return f"{self._tag}: {name}".replace(",", "")

    def _numbers(self, tasks: int) -> DataFrame:
        """Return the numbers from 0 to ``tasks`` - 1 as rows, each in its own partition."""
        return self.session.spark.range(0, tasks, 1, tasks)


# The functions below use no SQL text, because Spark takes half a second to load its SQL parser.


def _mapped(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Return the rows that a function makes from these. ``schema`` is a text such as ``CHUNKS``."""
    names_and_types = (column.split() for column in schema.split(", "))
    fields = [StructField(name, _TYPES[kind]) for name, kind in names_and_types]
    return rows.mapInArrow(function, StructType(fields))


def _assigned(rows: DataFrame, tasks: Mapping[Shard, int]) -> DataFrame:
    """Return the rows of these shards, each with the number of its task.

    The column ``is_chunk`` is for sorting the counts of slices before the chunks.
    """
    # The tasks of all shards are one text, because each column object takes a call to the JVM.
    numbers = {shard.number: task for shard, task in tasks.items()}
    by_shard = columns.lit(",".join(str(numbers.get(n, -1)) for n in range(max(numbers) + 1)))
    task = columns.get(columns.split(by_shard, ","), columns.col("shard")).cast(IntegerType())
    is_chunk = columns.length("body") > 0
    assigned = rows.select("*", task.alias("task"), is_chunk.alias("is_chunk"))
    return assigned.where(columns.col("task") >= 0)
