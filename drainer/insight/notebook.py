"""``inspect`` and ``estimate`` from a notebook: they show their page, and give DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from drainer.api import AnyHandler, Client, client_settings
from drainer.engine.preview import EngineName
from drainer.insight import api
from drainer.insight.estimate import Estimate, Question
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.on_spark import Cores
from drainer.insight.inspection import SAMPLE_MESSAGES, Inspection
from drainer.insight.on_spark import survey_on_spark
from drainer.insight.view.estimate import estimate_page
from drainer.insight.view.inspect import inspection_page
from drainer.model.settings import LocalSettings
from drainer.spark.session.session import Session
from drainer.spark.session.settings import WAVE_BYTES
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
    """The estimate of a drain; its tables are DataFrames of the session."""

    estimate: Estimate
    session: SparkSession = field(repr=False)

    def concurrencies(self) -> DataFrame:
        """A row a concurrency: how long the drain would take, and what binds."""
        rows = [(each.concurrency, each.seconds, each.bound) for each in self.estimate.table]
        return self.session.createDataFrame(rows, "concurrency int, seconds double, bound string")


def inspect(  # noqa: PLR0913
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
    """Inspect a backlog as ``drainer.inspect`` does, and show the page; ``full`` reads all of it,
    in tasks."""
    survey_all = partial(survey_on_spark, Session.of(spark), client_settings(client), tasks)
    found = api.inspect(
        topic=topic,
        group=group,
        client=client,
        handler=handler,
        partitions=partitions,
        from_=from_,
        until=until,
        messages=None if full else SAMPLE_MESSAGES,
        survey_all=survey_all if full else None,
    )
    Terminal().present(inspection_page(found))
    return Inspected(found, spark)


def estimate(  # noqa: PLR0913
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
    """Estimate a drain in this session as ``drainer.estimate`` does, and show the page."""
    question = Question(
        Distribution.parse(latency),
        f"latency={latency!r}",
        running=LocalSettings(concurrency=concurrency),
        engine=EngineName.SPARK,
        cores=Cores(Session.of(spark).slots(), WAVE_BYTES, session=True),
    )
    terminal = Terminal()
    found = api.estimate(
        topic=topic,
        group=group,
        handler=handler,
        client=client,
        latency=question,
        partitions=partitions,
        from_=from_,
        until=until,
        on_message=terminal.print_line,
    )
    terminal.present(estimate_page(found))
    return Estimated(found, spark)
