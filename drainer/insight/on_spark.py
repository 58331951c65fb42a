"""``drainer inspect --full`` on Spark: tasks survey ranges of a backlog, and theirs make one."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from drainer.insight.inspect import InspectRequest, Progress
from drainer.insight.retention import READER
from drainer.insight.survey import Survey
from drainer.kafka.backlog import Backlog
from drainer.kafka.record import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_range
from drainer.message import Origin
from drainer.policy.rules.settings import RuleSettings
from drainer.spark.failure import carrying, spark_failures
from drainer.spark.options import OffsetRange, placed
from drainer.spark.session import spark_session
from drainer.spark.settings import SparkLook
from drainer.spark.shipping import Shipped, ship

OFFSETS = 200_000  # of a task, where that makes enough of them: each connects, and reads too far
FEWEST_OFFSETS = 1_000
TASKS_PER_CORE = 16  # at most
MERGED_BY = 16  # tasks, at most, so that the driver gets few surveys
LOOK_S = 0.25
COLUMNS = "survey binary"


@dataclass(frozen=True, slots=True)
class Connection:
    """How tasks connect, as it was typed: the file is read where they run.

    ``properties`` are ``name=value``. Neither is shown by ``repr``.
    """

    bootstrap_servers: str | None
    client_config: str | None = None
    properties: tuple[str, ...] = field(default=(), repr=False)

    def settings(self) -> ClientSettings:
        """Raises UsageError when the file is not there, or librdkafka rejects what it says."""
        file: Path | None = None if self.client_config is None else placed(self.client_config)
        return ClientSettings.load(self.bootstrap_servers, file, self.properties)


def survey_in_session(
    spark_look: SparkLook,
    connection: Connection,
    look: InspectRequest,
    say: Callable[[str], None],
    backlog: Backlog,
    progress: Progress,
    *,
    verbose: bool = False,
) -> Survey:
    """Surveys a whole backlog in a session that lasts as long as that does.

    ``say`` gets a line when Spark is started, which takes seconds. ``verbose`` lets Spark print
    errors in its own words, too. Raises what a task raised, and DrainerError for what else goes
    wrong on Spark.
    """
    master = spark_look.master
    say(f"starting Spark on {master}")
    with spark_failures():
        name = f"drainer inspect {backlog.topic}"
        # What fails is printed by drainer, and would be a second time with Java's stack.
        log = "error" if verbose else "off"
        own = {"spark.ui.enabled": "false"} if spark_look.is_local else {}  # seen by no one
        spark = spark_session(master, name, {**own, **spark_look.conf}, log=log)
    # Not on this thread: PySpark notices Ctrl-C on it, and can't cancel jobs while it is waiting
    # for one there.
    with ThreadPoolExecutor(1, "spark-survey") as thread:
        try:
            return thread.submit(
                survey_on_spark, spark, backlog, connection, look, spark_look.tasks, progress
            ).result()
        finally:
            with spark_failures():
                spark.stop()


def survey_on_spark(
    spark: SparkSession,
    backlog: Backlog,
    connection: Connection,
    look: InspectRequest,
    tasks: int | None = None,
    progress: Progress = lambda *_: None,
) -> Survey:
    """Reads and splits a whole backlog in tasks, by default as many as pay.

    Raises what a task raised, and DrainerError for what else goes wrong on Spark.
    """
    begun_s = time.monotonic()
    context = spark.sparkContext
    ranges = cut(backlog, tasks or _tasks(backlog.offsets, context.defaultParallelism))
    count = len(ranges)
    with spark_failures():
        shipped = None if look.handler is None else ship(context, look.handler)
    whole = Survey(look.handler)
    if ranges:
        task = partial(_survey_ranges, ranges, connection, shipped, look.rules)
        with spark_failures(), _watched(spark, backlog, count, progress):
            surveys = spark.range(0, count, 1, count).mapInArrow(task, COLUMNS)
            if count > MERGED_BY:
                surveys = surveys.repartition(MERGED_BY).mapInArrow(_merge_rows, COLUMNS)
            _merge_into(whole, surveys.toArrow().to_batches())
        progress(backlog.offsets, backlog.offsets)
    whole.tasks, whole.read_s = count, time.monotonic() - begun_s
    return whole


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


def _survey_ranges(
    ranges: tuple[OffsetRange, ...],
    connection: Connection,
    shipped: Shipped | None,
    rules: RuleSettings,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What a task does: it surveys the ranges whose numbers it gets. Raises ``Carried``."""
    with carrying():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _row(_survey_range(ranges[number], connection, shipped, rules))


def _survey_range(
    range_: OffsetRange, connection: Connection, shipped: Shipped | None, rules: RuleSettings
) -> Survey:
    survey = Survey(None if shipped is None else shipped.load(), rules)
    settings, number = connection.settings(), range_.origin.partition
    for batch in read_range(settings, range_.origin, range_.start, range_.end, reader=READER):
        # A batch knows the sizes of its records by some of them, and here each counts.
        messages = [KafkaMessage(batch.origin, r, len(r.key() or b"")) for r in batch.records]
        survey.take(number, messages, 0)
    survey.take(number, (), range_.end - range_.start)
    survey.end_window()
    return survey


def _merge_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carrying():
        merged = Survey(None)
        _merge_into(merged, batches)
        yield _row(merged)


def _merge_into(survey: Survey, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        for body in batch.column(0):
            survey.merge(pickle.loads(body.as_py()))


def _row(survey: Survey) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"survey": [pickle.dumps(survey, pickle.HIGHEST_PROTOCOL)]})


@contextmanager
def _watched(
    spark: SparkSession, backlog: Backlog, tasks: int, progress: Progress
) -> Iterator[None]:
    """Reports meanwhile how far the tasks are that read."""
    context, group = spark.sparkContext, f"inspect-{uuid.uuid4().hex[:8]}"
    over = threading.Event()

    def look() -> None:
        tracker, reported = context.statusTracker(), -1
        with suppress(Py4JError, OSError):  # whoever waits for the job notices, too
            while not over.wait(LOOK_S):
                jobs = map(tracker.getJobInfo, sorted(tracker.getJobIdsForGroup(group))[:1])
                stages = [number for job in jobs if job is not None for number in job.stageIds]
                stage = tracker.getStageInfo(min(stages)) if stages else None
                if stage is None or stage.numTasks != tasks:
                    continue
                if stage.numCompletedTasks != reported:
                    reported = stage.numCompletedTasks
                    progress(backlog.offsets * reported // tasks, backlog.offsets)

    context.setJobGroup(group, f"drainer inspect {backlog.topic}")
    watch = threading.Thread(target=look, name="spark-progress", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
