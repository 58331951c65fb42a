"""The jobs of a drain: a look at the executors, then for each wave reading it and handling it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
import pyarrow as pa
from pyspark import StorageLevel, TaskContext

from drainer.core.progress import Range, intersect
from drainer.errors import BrokerUnreachable, Interrupted, Refused, StateRefused
from drainer.kafka.cluster import Cluster
from drainer.kafka.loss import recreated
from drainer.spark.failure import SparkBroke, carrying, spark_failures
from drainer.spark.handling import OUTCOME_SCHEMA, Handling
from drainer.spark.python_worker import HandlerSpec, python_worker
from drainer.spark.rows import ROW_SCHEMA, SPARK_SCHEMA, Manifest
from drainer.spark.splitting import UNDIVIDED_MOST, Splitting
from drainer.spark.state import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGUN_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Checking:
    """A look at the executors before anything is handled: opens the handler in a task, asks the
    cluster for the topic, and writes to the state; the row it gives names what it wrote.

    It goes through Spark as a wave does, so it also brings up what Spark makes at first use.

    Raises Refused or UsageError, through Spark, when the task can't do one of these.
    """

    handler: HandlerSpec
    topic_id: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        with carrying():
            spec = self.handler
            state = State.open(spec.state, spec.drain_id)
            if state.epoch() is None:
                raise elsewhere(state, "the driver writes to {}, and a task sees nothing of it")
            with python_worker().at_work(spec):
                pass
            with Cluster.connect(spec.client) as cluster:
                if cluster.topic(spec.topic).topic_id != self.topic_id:
                    raise recreated(spec.topic)
            name = state.probe(spec.epoch)
        row = dict.fromkeys(ROW_SCHEMA.names) | {"claim": 0, "value": name.encode()}
        yield pa.RecordBatch.from_pylist([row] * len(numbers), schema=ROW_SCHEMA)


def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What handles the rows of the look: it does nothing."""
    count = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"claim": ["none"], "outcome": [str(count)]})


def insist_on_probes(state: State, names: list[str]) -> None:
    """Raises StateRefused when what tasks wrote is not seen here."""
    if not names:
        raise Refused("Spark ran no task", hint="has the cluster any executor for this drain?")
    for name in names:
        if not state.has(name):
            raise elsewhere(state, "the tasks write to {}, and this process sees nothing of it")


def elsewhere(state: State, what: str) -> StateRefused:
    """What to raise for a state that is not the same place for all."""
    return StateRefused(
        f"{what.format(state.uri)}: it is not the same place everywhere",
        hint="name one that all of them and this machine reach with --state: s3://, gs://,"
        " abfs://, or a folder that is mounted everywhere",
    )


Rower: TypeAlias = Splitting | Checking  # gives rows


@contextmanager
def _stopping() -> Iterator[None]:
    """What becomes of Spark stops a drain, and is no bug of it."""
    try:
        with spark_failures():
            yield
    except SparkBroke as error:
        raise Interrupted(str(error), hint=error.hint) from error.__cause__


@dataclass(frozen=True, slots=True)
class PreparedWave:
    """A wave that was read and lies ready, by claim.

    Attributes:
        ranges: the offsets ``[start, end)`` that it has, by partition; fewer than were asked for
            when the messages are larger than was thought.
        delivered: the offsets of messages to account for, by partition.
        subs: how many sub-messages each claim is given, by its number.
        undivided: offsets of messages that need tasks to act as one, by partition.
        too_many: whether these are more than were reported.
        read_bytes: what the records take in memory, estimated.
    """

    frame: DataFrame
    ranges: Mapping[int, Range]
    delivered: Mapping[int, Sequence[Range]]
    subs: Mapping[int, int]
    undivided: Mapping[int, Sequence[int]]
    too_many: bool
    read_bytes: int

    def release(self) -> None:
        """Lets go of the rows."""
        with _stopping():
            self.frame.unpersist()


class Jobs:
    """Runs them; every method blocks, and is called in a thread of its own.

    What Spark raises comes out as an error of drainer's.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context = session.sparkContext

    def check(self, checking: Checking, slots: int, tasks: int, name: str) -> list[str]:
        """Runs it in as many tasks as there are slots; gives what each wrote to the state."""
        with spark_failures():
            self._context.setJobGroup(name, name, interruptOnCancel=True)
            frame = self._by_claim(checking, slots, tasks)
            try:
                found = frame.select("value").distinct().collect()
                frame.mapInArrow(passing, OUTCOME_SCHEMA).collect()
            finally:
                frame.unpersist()
        return [bytes(row[0]).decode() for row in found]

    def prepare(self, splitting: Splitting, name: str) -> PreparedWave:
        """Reads a wave, which is the slices of ``splitting``."""
        with _stopping():
            self._context.setJobGroup(name, name, interruptOnCancel=True)
            frame = self._by_claim(splitting, len(splitting.slices), splitting.claims)
            try:
                found = frame.where(f"claim = {splitting.claims}").select("value").collect()
            except BaseException:
                with suppress(Exception):  # Spark itself may be what is gone
                    frame.unpersist()
                raise
        manifests = [Manifest.decode(bytes(row[0])) for row in found]
        return _prepared(frame, manifests)

    def handle(
        self, prepared: PreparedWave, handling: Handling, name: str
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """Handles what was prepared; gives each claim with the outcome of its task."""
        within = " or ".join(
            f"(partition = {number} and offset < {end})"
            for number, (_, end) in prepared.ranges.items()
        )
        try:
            with _stopping():
                self._context.setJobGroup(name, name, interruptOnCancel=True)
                frame = prepared.frame.where(within).mapInArrow(handling, OUTCOME_SCHEMA)
                rows = frame.collect()
        except BrokerUnreachable as error:  # Spark reads again what it has lost
            raise Interrupted(str(error), hint=error.hint) from error
        if sorted(row[0] for row in rows) != sorted(handling.claims):
            raise Interrupted(
                f"Spark ran {len(rows)} tasks for {len(handling.claims)} claims of a wave",
                hint="resume with the plan; does a setting of Spark change how it shuffles?",
            )
        return [(row[0], orjson.loads(row[1])) for row in rows]

    def _by_claim(self, task: Rower, tasks: int, claims: int) -> DataFrame:
        """The rows that so many tasks make, one partition a claim, and one behind them."""
        return (
            self._session.range(0, tasks, 1, tasks)
            .mapInArrow(task, SPARK_SCHEMA)
            .repartitionById(claims + 1, "claim")
            .sortWithinPartitions("partition", "offset")
            .persist(StorageLevel.DISK_ONLY)
        )

    def wait_until_begun(self, name: str, give_up: Callable[[], bool]) -> None:
        """Returns when Spark knows of a job: it gets its slots before those that come later."""
        with _stopping():
            tracker = self._context.statusTracker()
            while not give_up() and not tracker.getJobIdsForGroup(name):
                time.sleep(BEGUN_LOOK_S)

    def cancel(self, name: str) -> None:
        """Ends a job; its tasks are killed."""
        with _stopping():
            self._context.cancelJobGroup(name)


def _prepared(frame: DataFrame, manifests: Sequence[Manifest]) -> PreparedWave:
    by_partition: dict[int, list[Manifest]] = {}
    for manifest in sorted(manifests, key=lambda each: (each.partition, each.start)):
        by_partition.setdefault(manifest.partition, []).append(manifest)
    ranges: dict[int, Range] = {}
    delivered: dict[int, Sequence[Range]] = {}
    undivided: dict[int, Sequence[int]] = {}
    subs: dict[int, int] = {}
    read, too_many = 0, False
    for number, slices in by_partition.items():
        taken = []
        for each in slices:
            taken.append(each)
            if each.reached < each.end:  # what lies behind it is read again in the next wave
                break
        ranges[number] = (slices[0].start, taken[-1].reached)
        delivered[number] = [r for each in taken for r in each.delivered]
        if found := [offset for each in taken for offset in each.undivided]:
            undivided[number] = found
        too_many = too_many or any(len(each.undivided) > UNDIVIDED_MOST for each in taken)
        read += sum(each.read_bytes for each in taken)
        for each in taken:
            for claim, count in each.subs.items():
                subs[claim] = subs.get(claim, 0) + count
    delivered = {n: intersect(found, [ranges[n]]) for n, found in delivered.items()}
    return PreparedWave(frame, ranges, delivered, subs, undivided, too_many, read)
