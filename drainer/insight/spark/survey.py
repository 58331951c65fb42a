"""A whole backlog, surveyed by tasks of Spark; what they count by name is added up by Spark SQL."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from drainer.engine.status import RuleStatus
from drainer.insight.inspection import SplitFailures
from drainer.insight.retention import READER
from drainer.insight.spark.task import (
    COLUMNS,
    KINDS,
    MESSAGE_KEYS,
    PART,
    PASSED,
    RULES,
    SUB_KEYS,
    Connection,
    SurveyPart,
    SurveyTask,
    part_row,
    parts_of,
)
from drainer.insight.statistics.contents import SHOWN, Contents, contents_of
from drainer.insight.statistics.sketch import Distinct, Mean, Share
from drainer.insight.statistics.skew import STEPS, Skew, skew_of
from drainer.kafka.backlog import Backlog
from drainer.loader import LoadedHandler
from drainer.message import Origin
from drainer.policy.rules.settings import LIMIT, RuleSettings
from drainer.spark.failure import carrying, spark_failures
from drainer.spark.ranges import OffsetRange
from drainer.spark.shipping import ship

OFFSETS = 200_000  # of a task, where that makes enough of them: each connects, and reads too far
FEWEST_OFFSETS = 1_000
TASKS_PER_CORE = 16  # at most
MERGED_BY = 16  # tasks, at most, so that the driver gets few parts
LOOK_S = 0.25

Progress = Callable[[int, int], None]  # (offsets that are behind it, offsets in all)
_Counted = dict[str, tuple[int, int]]  # how many different ones, and how many are over the limit


@dataclass(frozen=True, slots=True)
class SparkSurvey:
    """What was found; all counts are exact, and so are the distinct ones.

    Attributes:
        tasks: how many there were.
        offsets: how many were read, of all partitions.
        offsets_of: by partition.
        read_s: how long it took, with splitting.
        split_s: how much of the tasks' time went into splitting, added up.
        message_keys, sub_keys: how many different ones came.
        rule_status: what rules could not be told of.
    """

    tasks: int
    offsets: int
    offsets_of: dict[int, int]
    read_s: float
    part: SurveyPart
    message_keys: int
    sub_keys: int
    keys: Sequence[tuple[str, int]]
    hottest: Sequence[tuple[str, int]]
    kinds: Sequence[tuple[str, int]]
    rules: Sequence[tuple[str, int]]
    has_handler: bool
    windows: int = 1

    @property
    def bytes(self) -> int:
        """Keys and values of what was read."""
        return self.part.messages.bytes

    @property
    def split_s(self) -> float:
        return self.part.split_s

    @property
    def failures(self) -> SplitFailures | None:
        """None when there were none."""
        if self.part.first is None:
            return None
        _, text, hint = self.part.first
        return SplitFailures(self.part.failed, text, hint)

    @property
    def rule_status(self) -> RuleStatus:
        why = {name: reason for name, (_, reason) in self.part.why.items()}
        return RuleStatus(undecided=dict(self.part.undecided), why=why)

    def density(self, partition: int) -> float:
        """Messages per offset."""
        offsets = self.offsets_of.get(partition, 0)
        if not offsets:
            return self.part.messages.messages / self.offsets if self.offsets else 1.0
        return self.part.messages_of[partition] / offsets

    def mean_bytes(self, partition: int) -> float:
        """Of a message."""
        messages = self.part.messages_of[partition]
        if not messages:
            totals = self.part.messages
            return totals.bytes / totals.messages if totals.messages else 0.0
        return self.part.bytes_of[partition] / messages

    def contents(self, fraction: float, now_ms: int) -> Contents:
        """Of all messages; ``fraction`` is 1."""
        totals = self.part.messages
        return contents_of(
            totals,
            now_ms,
            mean_bytes=_mean(totals.bytes, totals.messages),
            message_keys=_exactly(self.message_keys),
            hottest_keys=_shares(self.keys, totals.messages),
        )

    def skew(self, fraction: float) -> Skew | None:
        """Of all that could be split; None without a handler."""
        if not self.has_handler:
            return None
        totals = self.part.splits
        subs = totals.sub_messages
        counts = [count for _, count in self.hottest]
        curve = ((step, sum(counts[:step]) / subs) for step in STEPS if step <= len(counts))
        return skew_of(
            totals,
            totals.fan_out(_mean(subs, totals.messages)),
            sub_keys=_exactly(self.sub_keys),
            hottest=_shares(self.hottest, subs),
            curve=tuple(curve),
            kinds=_shares(self.kinds, subs),
            rules=_shares(self.rules, subs),
        )


def survey_on_spark(
    spark: SparkSession,
    backlog: Backlog,
    connection: Connection,
    handler: LoadedHandler | None,
    rules: RuleSettings,
    tasks: int | None = None,
    progress: Progress = lambda *_: None,
) -> SparkSurvey:
    """Reads and splits a whole backlog in tasks, by default as many as pay.

    Needs little memory here and in each task, whatever there is to be counted: that lies with
    Spark, on disks where it has to. Raises what a task raised, and DrainerError for what else goes
    wrong on Spark.
    """
    begun_s = time.monotonic()
    context = spark.sparkContext
    ranges = cut(backlog, tasks or _tasks(backlog.offsets, context.defaultParallelism))
    with spark_failures():
        shipped = None if handler is None else ship(context, handler)
    task = SurveyTask(ranges, connection, shipped, rules, READER)
    part, counted, tops = SurveyPart(), _Counted(), dict[str, _Top]()
    if ranges:
        with spark_failures(), _watched(spark, backlog, len(ranges), progress):
            table = _table(spark, task)
            try:
                counted = _counted(table, rules.limit_per_key)
                tops = _tops(table)
                part = _merged(table, len(ranges))
            finally:
                table.unpersist()
        progress(backlog.offsets, backlog.offsets)
    passed_over = counted.get(PASSED, (0, 0))[1]
    ruled = [*tops.get(RULES, ()), *([(LIMIT, passed_over)] if passed_over else [])]
    return SparkSurvey(
        tasks=len(ranges),
        offsets=backlog.offsets,
        offsets_of={number: p.offsets for number, p in backlog.partitions.items()},
        read_s=time.monotonic() - begun_s,
        part=part,
        message_keys=counted.get(MESSAGE_KEYS, (0, 0))[0],
        sub_keys=counted.get(SUB_KEYS, (0, 0))[0],
        keys=tops.get(MESSAGE_KEYS, ()),
        hottest=tops.get(SUB_KEYS, ()),
        kinds=tops.get(KINDS, ()),
        rules=sorted(ruled, key=lambda rule: (-rule[1], rule[0])),
        has_handler=handler is not None,
    )


def cut(backlog: Backlog, tasks: int) -> tuple[OffsetRange, ...]:
    """A backlog in about so many ranges of about one length; each is of one partition."""
    ranges: list[OffsetRange] = []
    for number, part in sorted(backlog.partitions.items()):
        whole = OffsetRange(Origin(backlog.topic, backlog.topic_id, number), part.start, part.end)
        if part.offsets:
            ranges += whole.cut(max(1, round(tasks * part.offsets / backlog.offsets)))
    return tuple(ranges)


def _tasks(offsets: int, cores: int) -> int:
    pay = min(max(cores, offsets // OFFSETS), cores * TASKS_PER_CORE)
    return max(1, min(pay, offsets // FEWEST_OFFSETS))


def _table(spark: SparkSession, task: SurveyTask) -> DataFrame:
    """What was counted by name, added up: each ``what`` and ``same`` once."""
    count = len(task.ranges)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task.run(batches)

    rows = spark.range(0, count, 1, count).mapInArrow(run, COLUMNS)
    named = rows.withColumn("same", f.coalesce("same", "name"))
    # As many as read: then none has more to add up than one has read, and memory is bounded.
    return (
        named.repartition(max(count, spark.sparkContext.defaultParallelism), "what", "same")
        .groupBy("what", "same")
        .agg(
            f.sum("count").alias("count"),
            f.min("name").alias("name"),
            f.first("part").alias("part"),
        )
        .persist(StorageLevel.MEMORY_AND_DISK)
    )


def _counted(table: DataFrame, limit: int | None) -> _Counted:
    over = f.sum(f.greatest(f.col("count") - f.lit(limit or 0), f.lit(0)))
    rows = table.groupBy("what").agg(f.count("*").alias("different"), over.alias("over")).collect()
    return {row.what: (row.different, row.over) for row in rows}


_Top = Sequence[tuple[str, int]]


def _tops(table: DataFrame) -> dict[str, _Top]:
    """What came most of each, by falling count and then by name."""
    order = (f.desc("count"), f.asc("name"))
    most = {MESSAGE_KEYS: SHOWN, SUB_KEYS: max(STEPS), KINDS: SHOWN, RULES: SHOWN}
    each = [table.where(f.col("what") == w).orderBy(*order).limit(n) for w, n in most.items()]
    found = reduce(DataFrame.union, each).select("what", "name", "count").toArrow()
    tops: dict[str, list[tuple[str, int]]] = {what: [] for what in most}
    for row in found.to_pylist():
        tops[row["what"]].append((row["name"], row["count"]))
    return {w: sorted(top, key=lambda named: (-named[1], named[0])) for w, top in tops.items()}


def _merged(table: DataFrame, count: int) -> SurveyPart:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            yield part_row(parts_of(batches), "").select(["part"])

    parts = table.where(f.col("what") == PART).select("part")
    merged = parts.coalesce(min(count, MERGED_BY)).mapInArrow(merge, "part binary")
    return parts_of(merged.toArrow().to_batches())


@contextmanager
def _watched(
    spark: SparkSession, backlog: Backlog, tasks: int, progress: Progress
) -> Iterator[None]:
    """Tells meanwhile how far the tasks are that read."""
    context, group = spark.sparkContext, f"inspect-{uuid.uuid4().hex[:8]}"
    over = threading.Event()

    def look() -> None:
        tracker, told = context.statusTracker(), -1
        with suppress(Py4JError, OSError):  # whoever waits for the job hears of it, too
            while not over.wait(LOOK_S):
                jobs = map(tracker.getJobInfo, sorted(tracker.getJobIdsForGroup(group))[:1])
                stages = [number for job in jobs if job is not None for number in job.stageIds]
                stage = tracker.getStageInfo(min(stages)) if stages else None
                if stage is None or stage.numTasks != tasks or stage.numCompletedTasks == told:
                    continue
                told = stage.numCompletedTasks
                progress(backlog.offsets * told // tasks, backlog.offsets)

    context.setJobGroup(group, f"drainer inspect {backlog.topic}")
    watch = threading.Thread(target=look, name="spark-progress", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _shares(counts: _Top, whole: int) -> tuple[Share, ...]:
    if not whole:
        return ()
    return tuple(
        Share(name, count, count / whole, count / whole, min(1.0, count / whole))
        for name, count in counts[:SHOWN]
    )


def _mean(total: int, count: int) -> Mean:
    return Mean(total / count if count else 0.0, 0.0)


def _exactly(count: int) -> Distinct:
    return Distinct(count, count, count)
