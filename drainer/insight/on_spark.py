"""``drainer inspect --full`` on Spark: tasks survey ranges of a backlog, and theirs make one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from pyspark import SparkContext

from drainer.insight.inspection import InspectRequest
from drainer.insight.retention import READER
from drainer.insight.survey import Survey
from drainer.kafka.backlog import Backlog
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_range
from drainer.model.rules import RuleSettings
from drainer.spark.read.options import OffsetRange, backlog_ranges, cut_evenly
from drainer.spark.session.failure import carrying, spark_failures
from drainer.spark.session.settings import SparkLook
from drainer.spark.session.shipping import Shipped, ship
from drainer.spark.session.start import context_on, interruptible

OFFSETS = 200_000  # of a task, where that makes enough of them: each connects, and reads too far
FEWEST_OFFSETS = 1_000
TASKS_PER_CORE = 16  # at most


def survey_in_session(
    place: SparkLook,
    settings: ClientSettings,
    print_line: Callable[[str], None],
    verbose: bool,
    backlog: Backlog,
    request: InspectRequest,
) -> Survey:
    """Surveys a whole backlog in a context that lasts as long as that does.

    ``print_line`` gets a line when Spark is started, which takes seconds. ``verbose`` lets Spark
    print errors in its own words, too. Raises what a task raised, and DrainerError for what else
    goes wrong on Spark.
    """
    print_line(f"starting Spark on {place.master}")
    # What fails is printed by drainer, and would be a second time with Java's stack.
    log = "error" if verbose else "off"
    name = f"drainer inspect {backlog.topic}"
    with context_on(place, name, print_line=print_line, log=log) as context:
        print_line(f"reading {backlog.offsets:,} offsets on Spark")
        return survey_on_spark(context, settings, place.tasks, backlog, request)


def survey_on_spark(
    context: SparkContext,
    settings: ClientSettings,
    tasks: int | None,
    backlog: Backlog,
    request: InspectRequest,
) -> Survey:
    """Reads and splits a whole backlog in tasks, by default as many as pay.

    Raises what a task raised, and DrainerError for what else goes wrong on Spark.
    """
    begun_s = time.monotonic()
    ranges = cut_evenly(
        backlog_ranges(backlog), tasks or _tasks(backlog.offsets, context.defaultParallelism)
    )
    whole = Survey(request.handler)

    def survey() -> Survey:  # in a thread of its own, as the description is
        context.setJobDescription(f"drainer inspect {backlog.topic}")
        shipped = None if request.handler is None else ship(context, request.handler)
        task = partial(_survey_range, settings, shipped, request.rules)
        found: Survey = context.parallelize(ranges, len(ranges)).map(task).treeReduce(_merged)
        return found

    if ranges:
        with spark_failures():
            whole.merge(interruptible(survey))
    whole.tasks, whole.read_s = len(ranges), time.monotonic() - begun_s
    return whole


def _tasks(offsets: int, cores: int) -> int:
    pay = min(max(cores, offsets // OFFSETS), cores * TASKS_PER_CORE)
    return max(1, min(pay, offsets // FEWEST_OFFSETS))


def _survey_range(
    settings: ClientSettings, shipped: Shipped | None, rules: RuleSettings, range_: OffsetRange
) -> Survey:
    """Reads and surveys the range of a task. Raises ``Carried``."""
    with carrying():
        survey = Survey(None if shipped is None else shipped.load(), rules)
        number = range_.origin.partition
        for batch in read_range(settings, range_.origin, range_.start, range_.end, reader=READER):
            # A batch knows the sizes of its records by some of them, and here each counts.
            messages = [KafkaMessage(batch.origin, r, len(r.key() or b"")) for r in batch.records]
            survey.take(number, messages, 0)
        survey.take(number, (), range_.end - range_.start)
        survey.end_window()
        return survey


def _merged(one: Survey, other: Survey) -> Survey:
    with carrying():
        one.merge(other)
        return one
