"""The queries of a drain on Spark. Each of them reads and handles one slice of the backlog."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as columns
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from drainer.errors import Interrupted, raised_as
from drainer.model.ranges import Range
from drainer.spark.reading.slices import Manifest, SliceReader
from drainer.spark.session.failure import SparkBroke, spark_failures
from drainer.spark.session.session import Session
from drainer.spark.state.state import TaskInput
from drainer.spark.task.chunk import CHECKSUM_MASK
from drainer.spark.task.handling import TaskOutcome, TaskRunner
from drainer.spark.task.rows import CHUNKS, OUTCOMES
from drainer.spark.task.source import DOES_IT_SHUFFLE

_TYPES = {"int": IntegerType(), "long": LongType(), "binary": BinaryType()}


@contextmanager
def _as_interrupted() -> Iterator[None]:
    """Raise failures of Spark as Interrupted: they stop the drain, which can be resumed."""
    with raised_as(Interrupted, SparkBroke), spark_failures():
        yield


@dataclass(frozen=True, slots=True)
class SliceContents:
    """What the readers of a slice have found in it.

    Attributes:
        of: the number of shards that the slice is divided into.
        ranges: the offsets ``[start, end)`` by partition.
        delivered: the offsets of messages to account for, by partition.
        given: what there is to handle, by the number of the shard and by partition.
        units: the messages that ``split`` rejected, by partition.
        stops: for each partition that stops at such a message, the offset after the message.
        manifests: the manifests of the spans.
    """

    of: int
    ranges: Mapping[int, Range]
    delivered: Mapping[int, Sequence[Range]]
    given: Mapping[int, Mapping[int, TaskInput]]
    units: Mapping[int, Sequence[Range]]
    stops: Mapping[int, int]
    manifests: Sequence[Manifest]

    @classmethod
    def of_spans(cls, of: int, manifests: Sequence[Manifest]) -> SliceContents:
        """Return the contents of a slice that is divided into ``of`` shards."""
        ranges: dict[int, Range] = {}
        delivered: dict[int, list[Range]] = {}
        units: dict[int, list[Range]] = {}
        stops: dict[int, int] = {}
        found: dict[int, dict[int, tuple[int, int]]] = {}
        for each in sorted(manifests, key=lambda each: (each.partition, each.start)):
            number = each.partition
            ranges[number] = (ranges.get(number, (each.start, 0))[0], each.end)
            delivered.setdefault(number, []).extend(each.delivered)
            units.setdefault(number, []).extend(each.units)
            if each.stop is not None:
                stops.setdefault(number, each.stop)
            for shard, count in each.subs.items():
                subs, checksum = found.setdefault(shard, {}).get(number, (0, 0))
                checksum = (checksum + each.checksums[shard]) & CHECKSUM_MASK
                found[shard][number] = subs + count, checksum
        given = {
            shard: {n: TaskInput(*ranges[n], *sums) for n, sums in by_partition.items()}
            for shard, by_partition in found.items()
        }
        return cls(of, ranges, delivered, given, units, stops, manifests)

    @property
    def log_bytes(self) -> int:
        """The bytes of keys and values in the log."""
        return sum(each.log_bytes for each in self.manifests)

    @property
    def processor_s(self) -> float:
        """The processor time that reading and splitting took."""
        return sum(each.processor_s for each in self.manifests)

    @property
    def connected(self) -> bool:
        """Whether barriers or sub-messages connect shards. If so, a divided slice is incomplete."""
        return any(each.connected for each in self.manifests)

    @property
    def stops_at_ends(self) -> bool:
        """Whether no partition stops before the end of its range."""
        return all(stop == self.ranges[n][1] for n, stop in self.stops.items())

    def subs(self) -> dict[int, dict[int, int]]:
        """Return the number of sub-messages by shard and partition."""
        return {
            shard: {n: each.subs for n, each in by_partition.items()}
            for shard, by_partition in self.given.items()
        }


class Queries:
    """Runs the queries of a drain on a session. Each method blocks, so it is called in a thread.

    Errors of Spark become drainer's own errors. All jobs have the tag ``tag``, and those of one
    query also have a tag of their own, by which they can be cancelled.
    """

    def __init__(self, session: Session, tag: str) -> None:
        self.session = session
        self._tag = tag

    def drain(
        self, reader: SliceReader, runner: TaskRunner
    ) -> list[tuple[int, TaskOutcome | None]]:
        """Read and handle a slice. Return the number of each shard with the outcome of its task."""
        count, spans = len(runner.order), len(reader.spans)
        with _as_interrupted():
            tag = self._tag_of(runner.slice)
            self.session.name_jobs(tag, self._tag, tag)
            numbers = self.session.spark.range(0, spans, 1, spans)
            rows = mapped(numbers, reader.split, CHUNKS)
            # A text is one literal. A list would be one for each shard, which takes seconds.
            places = ",".join(map(str, sorted(range(count), key=runner.order.__getitem__)))
            texts = columns.split(columns.lit(places), ",")
            place = columns.get(texts, columns.col("shard")).cast("int")
            placed = self.session.placed(rows, count, place)
            chunks = placed.sortWithinPartitions("partition", "offset")
            found = mapped(chunks, runner.handle, OUTCOMES).collect()
        # Adaptive execution runs no task at all if nothing was read.
        if found and sorted(shard for shard, _ in found) != list(range(count)):
            raise Interrupted(
                f"Spark ran {len(found)} tasks for the {count} of a slice", hint=DOES_IT_SHUFFLE
            )
        return [(shard, pickle.loads(outcome)) for shard, outcome in found]

    def slots(self) -> int:
        """Return the number of tasks that can run at once."""
        with _as_interrupted():
            return self.session.slots()

    def cancel(self, number: int) -> None:
        """End the query of a slice; Spark kills its tasks."""
        with _as_interrupted():
            self.session.cancel(self._tag_of(number))

    def _tag_of(self, number: int) -> str:
        return f"{self._tag}: slice {number}"


# This uses no SQL text, because Spark takes half a second to load its SQL parser.
def mapped(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Return the rows that a function makes from these. ``schema`` is a text such as ``CHUNKS``."""
    names_and_types = (column.split() for column in schema.split(", "))
    fields = [StructField(name, _TYPES[kind]) for name, kind in names_and_types]
    return rows.mapInArrow(function, StructType(fields))
