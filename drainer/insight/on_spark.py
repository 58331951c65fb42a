"""``drainer inspect --full`` on Spark: tasks survey ranges of a backlog, and theirs make one."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import isqrt

import pyarrow as pa

from drainer.insight.inspection import InspectRequest
from drainer.insight.retention import READER
from drainer.insight.survey import Survey
from drainer.kafka.backlog import Backlog
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_range
from drainer.model.terms import TimeRange
from drainer.spark.read.options import OffsetRange, backlog_ranges, cut_evenly
from drainer.spark.session.failure import carrying, spark_failures
from drainer.spark.session.session import Session
from drainer.spark.session.settings import SparkLook, shown_master
from drainer.spark.session.shipping import Shipped, ship
from drainer.spark.session.start import interruptible, session_on
from drainer.spark.task.rows import batch_of

OFFSETS = 200_000  # of a task, where that makes enough of them: each connects, and reads too far
FEWEST_OFFSETS = 1_000
TASKS_PER_CORE = 16  # at most
SURVEYS = "survey binary"


def survey_in_session(
    place: SparkLook,
    settings: ClientSettings,
    print_line: Callable[[str], None],
    verbose: bool,
    backlog: Backlog,
    request: InspectRequest,
) -> Survey:
    """Surveys a whole backlog in a session that lasts as long as that does.

    ``print_line`` gets a line when Spark is started, which takes seconds. ``verbose`` lets Spark
    print errors in its own words, too. Raises what a task raised, and DrainerError for what else
    goes wrong on Spark.
    """
    print_line(f"starting Spark on {shown_master(place.master)}")
    # What fails is printed by drainer, and would be a second time with Java's stack.
    log = "error" if verbose else "off"
    name = f"drainer inspect {backlog.topic}"
    with session_on(place, name, print_line=print_line, log=log) as session:
        print_line(f"reading {backlog.offsets:,} offsets on Spark")
        return survey_on_spark(session, settings, place.tasks, backlog, request)


def survey_on_spark(
    session: Session,
    settings: ClientSettings,
    tasks: int | None,
    backlog: Backlog,
    request: InspectRequest,
) -> Survey:
    """Reads and splits a whole backlog in tasks, by default as many as pay.

    Raises what a task raised, and DrainerError for what else goes wrong on Spark.
    """
    begun_s = time.monotonic()
    ranges = cut_evenly(backlog_ranges(backlog), tasks or _tasks(backlog.offsets, session.slots()))
    whole, times = Survey(request.handler), request.range.times

    def survey() -> list[Survey]:  # in a thread of its own, as the name of its jobs is
        session.name_jobs(f"drainer inspect {backlog.topic}")
        shipped = None if request.handler is None else ship(session, request.handler)
        task = partial(_survey_ranges, settings, shipped, request.skip, times, ranges)
        count = len(ranges)
        found = session.spark.range(0, count, 1, count).mapInArrow(task, SURVEYS)
        # The driver would have to hold them all: a survey has up to about 1 MB.
        merged = found.repartition(isqrt(count)).mapInArrow(_merged, SURVEYS)
        return [pickle.loads(row[0]) for row in merged.collect()]

    if ranges:
        with spark_failures():
            for found in interruptible(survey):
                whole.merge(found)
    whole.tasks, whole.read_s = len(ranges), time.monotonic() - begun_s
    return whole


def _tasks(offsets: int, cores: int) -> int:
    pay = min(max(cores, offsets // OFFSETS), cores * TASKS_PER_CORE)
    return max(1, min(pay, offsets // FEWEST_OFFSETS))


def _survey_ranges(
    settings: ClientSettings,
    shipped: Shipped | None,
    skip: Sequence[str],
    times: TimeRange | None,
    ranges: Sequence[OffsetRange],
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Reads and surveys the ranges of a task, by their numbers. Raises ``Carried``."""
    with carrying():
        survey = Survey(None if shipped is None else shipped.load(), skip, times)
        for range_ in (ranges[number.as_py()] for batch in numbers for number in batch[0]):
            origin, start, end = range_.origin, range_.start, range_.end
            for batch in read_range(settings, origin, start, end, reader=READER):
                # A batch knows the sizes of its records by some of them, and here each counts.
                messages = [KafkaMessage(origin, r, len(r.key() or b"")) for r in batch.records]
                survey.take(origin.partition, messages, 0)
            survey.take(origin.partition, (), end - start)
            survey.end_window()
        yield _batch(survey)


def _merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    whole = Survey(None)
    for survey in (value for batch in batches for value in batch[0]):
        whole.merge(pickle.loads(survey.as_py()))
    yield _batch(whole)


def _batch(survey: Survey) -> pa.RecordBatch:
    return batch_of([(pickle.dumps(survey),)], SURVEYS)
