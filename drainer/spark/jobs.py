"""The two jobs that a wave is: reading it into rows that lie by claim, and handling these."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from pyspark import StorageLevel

from drainer.core.progress import Range, intersect
from drainer.errors import BrokerUnreachable, Interrupted
from drainer.spark.checking import Checking, passing
from drainer.spark.failure import SparkBroke, spark_failures
from drainer.spark.handling import OUTCOME_SCHEMA, Handling
from drainer.spark.rows import SPARK_SCHEMA, Manifest
from drainer.spark.splitting import UNDIVIDED_MOST, Splitting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGUN_LOOK_S = 0.02

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
        too_many: whether these are more than were told.
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
                told = frame.select("value").distinct().collect()
                frame.mapInArrow(passing, OUTCOME_SCHEMA).collect()
            finally:
                frame.unpersist()
        return [bytes(row[0]).decode() for row in told]

    def prepare(self, splitting: Splitting, name: str) -> PreparedWave:
        """Reads a wave, which is the slices of ``splitting``."""
        with _stopping():
            self._context.setJobGroup(name, name, interruptOnCancel=True)
            frame = self._by_claim(splitting, len(splitting.slices), splitting.claims)
            try:
                told = frame.where(f"claim = {splitting.claims}").select("value").collect()
            except BaseException:
                with suppress(Exception):  # Spark itself may be what is gone
                    frame.unpersist()
                raise
        manifests = [Manifest.decode(bytes(row[0])) for row in told]
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

    def stop(self) -> None:
        """Ends the session."""
        with _stopping():
            self._session.stop()


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
