"""The jobs of a drain: a check of the executors, then reading and handling each wave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from drainer.errors import BrokerUnreachable, Halted, Interrupted, Refused, StateRefused
from drainer.kafka.cluster import Cluster
from drainer.kafka.loss import recreated
from drainer.model.ranges import Range
from drainer.spark.read.slices import Manifest, SliceTask
from drainer.spark.session.failure import SparkBroke, carrying, spark_failures
from drainer.spark.session.start import has_begun, slots_now, without_slots
from drainer.spark.state.sharding import Sharding
from drainer.spark.state.state import State
from drainer.spark.task.chunk import Row
from drainer.spark.task.handling import DOES_IT_SHUFFLE, Placing, TaskRunner
from drainer.spark.task.python_worker import HandlerSpec, python_worker

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

BEGUN_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Checking:
    """A look at the executors before anything is handled: opens the handler in a task, looks up
    the topic, and writes to the state; it gives the name of what it wrote.

    Raises Refused or UsageError, through Spark, when the task can't do one of these.
    """

    handler: HandlerSpec

    def __call__(self, _: Iterable[int]) -> Iterator[str]:
        with carrying():
            spec = self.handler
            state = State.open(spec.state, spec.terms.drain_id)
            if state.epoch() is None:
                raise state_error(state, "the driver writes to {}, but a task can't see it")
            with python_worker().at_work(spec):
                pass
            with Cluster.connect(spec.client) as cluster:
                if cluster.topic(spec.terms.topic).topic_id != spec.terms.topic_id:
                    raise recreated(spec.terms.topic)
            name = state.probe(spec.epoch)
        yield name


def ensure_probes(state: State, names: list[str]) -> None:
    """Raises StateRefused when what tasks wrote is not seen here."""
    if not names:
        raise Refused(
            "Spark ran no task", hint="Check that the cluster has an executor for this drain."
        )
    for name in names:
        if not state.has(name):
            raise state_error(state, "the tasks write to {}, but this process can't see it")


def state_error(state: State, what: str) -> StateRefused:
    """Error for a state that is not the same place for all."""
    return StateRefused(
        f"{what.format(state.uri)}: it must be the same place on all machines",
        hint="Use --state with a place that all executors and this machine reach: s3://, gs://,"
        " abfs://, or a folder mounted everywhere.",
    )


@contextmanager
def _stopping() -> Iterator[None]:
    """Let failures of Spark stop the drain: they are not a bug of it."""
    try:
        with spark_failures():
            yield
    except SparkBroke as error:
        raise Interrupted(str(error), hint=error.hint) from error.__cause__


@dataclass(frozen=True, slots=True)
class PreparedWave:
    """A wave that was read and lies ready, in chunks."""

    rows: RDD[Any]  # the chunks, which Spark keeps on disk, and the manifests
    ranges: Mapping[int, Range]  # the offsets ``[start, end)`` that it has, by partition
    delivered: Mapping[int, Sequence[Range]]  # the offsets of messages to account for, by partition
    # Sub-messages that are to be handled, by shard and partition.
    subs: Mapping[int, Mapping[int, int]]
    streams: Sharding  # by what the sub-keys are divided
    manifests: Sequence[Manifest] = ()  # of its slices
    # Messages that ``split`` rejected, by partition.
    units: Mapping[int, Sequence[Range]] = field(default_factory=dict)
    # By partition that stops at such a message, the offset behind it.
    stops: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: RDD[Any], manifests: Sequence[Manifest], task: SliceTask) -> PreparedWave:
        read = sorted((each.partition, each.start, each.end) for each in manifests)
        if read != sorted((each.partition, each.start, each.end) for each in task.slices):
            raise Interrupted("Spark gave other slices than were to be read", hint=DOES_IT_SHUFFLE)
        ranges: dict[int, Range] = {}
        delivered: dict[int, list[Range]] = {}
        subs: dict[int, Counter[int]] = {}
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
        return cls(rows, ranges, delivered, subs, task.streams, manifests, units, stops)

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

    def release(self) -> None:
        """Lets go of the rows."""
        with _stopping():
            self.rows.unpersist()


class Jobs:
    """Runs them; every method blocks, and is called in a thread of its own.

    What Spark raises becomes one of drainer's errors.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def check(self, checking: Checking, slots: int, name: str) -> list[str]:
        """Runs it in as many tasks as there are slots; gives what each wrote to the state."""
        with spark_failures():
            self._context.setJobGroup(name, name, interruptOnCancel=True)
            return self._run(checking, slots).collect()

    def read(self, task: SliceTask, name: str) -> PreparedWave:
        """Reads a wave, which is the slices of ``task``, and keeps its chunks on disk."""
        with _stopping():
            self._context.setJobGroup(name, name, interruptOnCancel=True)
            rows = self._run(task, len(task.slices)).persist(StorageLevel.DISK_ONLY)
            try:
                manifests = rows.mapPartitions(_manifests).collect()
            except BaseException:
                with suppress(Exception):  # Spark itself may be what is gone
                    rows.unpersist()
                raise
        return PreparedWave.of(rows, manifests, task)

    def handle(
        self, rows: Sequence[RDD[Any]], placings: Sequence[Placing], handling: TaskRunner, name: str
    ) -> list[tuple[int, Mapping[str, Any]]]:
        """Handles parts of waves, each with its rows; gives the number of each task with its
        outcome.

        The shuffle's files are removed then, and not when the JVM happens to collect garbage.
        """
        tasks = len(handling.given)
        try:
            with _stopping():
                self._context.setJobGroup(name, name, interruptOnCancel=True)
                placed = [
                    each.mapPartitions(placing)
                    for each, placing in zip(rows, placings, strict=True)
                ]
                chunks = placed[0] if len(placed) == 1 else self._context.union(placed)
                outcomes = chunks.repartitionAndSortWithinPartitions(
                    tasks, itemgetter(0)
                ).mapPartitions(handling)
                try:
                    found = outcomes.collect()
                finally:
                    outcomes.cleanShuffleDependencies()
        except BrokerUnreachable as error:  # Spark reads again what it has lost
            raise Interrupted(str(error), hint=error.hint) from error
        if sorted(task for task, _ in found) != list(range(tasks)):
            raise Interrupted(
                f"Spark ran {len(found)} tasks for the {tasks} of a deal", hint=DOES_IT_SHUFFLE
            )
        return found

    def wait_until_begun(self, name: str, give_up: Callable[[], bool]) -> None:
        """Returns when Spark knows of a job: it gets its slots before those that come later."""
        with _stopping():
            tracker = self._context.statusTracker()
            while not give_up() and not tracker.getJobIdsForGroup(name):
                time.sleep(BEGUN_LOOK_S)

    def waits_for(self, name: str) -> str:
        """Return what a job waits for that has not ended."""
        with _stopping():
            if has_begun(self._context, name):
                return "the handler is being opened in Spark's tasks"
            return without_slots(self._context)

    def slots(self) -> int:
        """Number of tasks that can run at once."""
        with _stopping():
            return slots_now(self._context)

    def cancel(self, name: str) -> None:
        """Ends a job; its tasks are killed."""
        with _stopping():
            self._context.cancelJobGroup(name)

    def _run(self, task: Callable[[Iterable[int]], Iterable[Any]], tasks: int) -> RDD[Any]:
        """Return the results of so many tasks, each of which gets its number."""
        return self._context.parallelize(range(tasks), tasks).mapPartitions(task)


def _manifests(rows: Iterable[Row | tuple[int, Manifest]]) -> Iterator[Manifest]:
    return (row[1] for row in rows if isinstance(row[1], Manifest))
