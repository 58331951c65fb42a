"""``inspect`` and ``estimate`` from a notebook: they show their page, and give DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from drainer.cli.connecting import connect
from drainer.engine.preview import EngineName
from drainer.insight.estimate import Estimate, Question, make_estimate, most_at_once
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.on_spark import Cores
from drainer.insight.inspection import SAMPLE_MESSAGES, Inspection, InspectRequest
from drainer.insight.inspection import inspect as look_at_backlog
from drainer.insight.measurement import backlog_of, look_at
from drainer.insight.on_spark import survey_on_spark
from drainer.insight.survey import Survey
from drainer.insight.view.estimate import estimate_page
from drainer.insight.view.inspect import inspection_page
from drainer.kafka.backlog import Backlog
from drainer.model.settings import LocalSettings
from drainer.operations.start import Request
from drainer.spark.api import (
    AnyHandler,
    Client,
    client_of,
    context_of,
    handler_of,
    noting_hints,
)
from drainer.spark.session import interruptible
from drainer.spark.settings import WAVE_BYTES
from drainer.view.terminal import Terminal


@dataclass(frozen=True, slots=True)
class Inspected:
    """A backlog as it was found; its tables are DataFrames of the session that read it."""

    inspection: Inspection
    session: SparkSession = field(repr=False)

    def partitions(self) -> DataFrame:
        """A row a partition of the backlog, with messages and bytes as far as they are known."""
        names = ("partition", "start", "end", "committed", "lost", "messages", "bytes", "age_s")
        rows = [tuple(getattr(p, name) for name in names) for p in self.inspection.partitions]
        kinds = ("int", *["bigint"] * 6, "double")
        schema = ", ".join(map(" ".join, zip(names, kinds, strict=True)))
        return self.session.createDataFrame(rows, schema)

    def hottest(self) -> DataFrame:
        """The sub-keys with the most sub-messages, with 95% bounds; empty without a handler."""
        skew = self.inspection.skew
        rows = [(s.name, s.count, s.share, s.low, s.high) for s in (skew.hottest if skew else ())]
        schema = "sub_key string, count bigint, share double, low double, high double"
        return self.session.createDataFrame(rows, schema)


@dataclass(frozen=True, slots=True)
class Estimated:
    """How long a drain would take; its tables are DataFrames of the session."""

    estimate: Estimate
    session: SparkSession = field(repr=False)

    def concurrencies(self) -> DataFrame:
        """A row a concurrency: how long the drain would take, and what binds."""
        rows = [(each.concurrency, each.seconds, each.bound) for each in self.estimate.table]
        return self.session.createDataFrame(rows, "concurrency int, seconds double, bound string")


@noting_hints()
def inspect(
    spark: SparkSession,
    *,
    topic: str,
    group: str,
    client: Client,
    handler: AnyHandler | None = None,
    partitions: Sequence[int] = (),
    from_: str = "committed",
    until: str = "end",
    full: bool = False,
    tasks: int | None = None,
) -> Inspected:
    """Looks at a backlog as ``drainer inspect`` does; ``full`` reads all of it, in tasks.

    ``client`` and ``handler`` are as for ``drainer.spark.drain``. Raises UsageError or Refused.
    """
    look = InspectRequest(
        topic,
        group,
        None if handler is None else handler_of(handler),
        tuple(partitions),
        from_,
        until,
        None if full else SAMPLE_MESSAGES,
    )
    settings = client_of(client)
    context = context_of(spark)

    def survey_all(backlog: Backlog) -> Survey:
        return interruptible(partial(survey_on_spark, context, backlog, settings, look, tasks))

    with connect(settings) as cluster:
        found = look_at_backlog(cluster, look, survey_all=survey_all if full else None)
    Terminal().present(inspection_page(found))
    return Inspected(found, spark)


@noting_hints()
def estimate(
    spark: SparkSession,
    *,
    topic: str,
    group: str,
    handler: AnyHandler,
    client: Client,
    latency: str,
    partitions: Sequence[int] = (),
    from_: str = "committed",
    until: str = "end",
    concurrency: int = 100,
) -> Estimated:
    """Says how long a drain in this session would take, as ``drainer estimate --latency`` does.

    ``client`` and ``handler`` are as for ``drainer.spark.drain``. Raises UsageError or Refused.
    """
    client_config = None if not isinstance(client, str | Path) else Path(client)
    request = Request(
        topic,
        group,
        handler_of(handler),
        tuple(partitions),
        from_,
        until,
        client_config=client_config,
    )
    running = LocalSettings(concurrency=concurrency)
    question = Question(
        Distribution.parse(latency),
        f"latency={latency!r}",
        running=running,
        engine=EngineName.SPARK,
        cores=Cores(context_of(spark).defaultParallelism, WAVE_BYTES, session=True),
    )
    terminal = Terminal()
    with connect(client_of(client)) as cluster:
        backlog = backlog_of(cluster, request)
        measured = look_at(
            cluster, backlog, request, most_at_once(request, running), terminal.print_line
        )
    found = make_estimate(backlog, measured, request, question, terminal.print_line)
    terminal.present(estimate_page(found))
    return Estimated(found, spark)
