"""Drains from a notebook or a job, on a session that exists and stays as it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from drainer.api import (
    AnyHandler,
    Client,
    client_settings,
    config_file,
    done,
    handler_of,
    noting_hints,
)
from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import PlanRefused
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.model.option import Concurrency
from drainer.model.order import Order
from drainer.model.settings import NEW_DRAIN, FailureSettings, LocalSettings
from drainer.model.status import Summary
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.operations.drain import Callbacks
from drainer.operations.drain import drain as run_drain
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.spark.engine import on_spark, spark_settings
from drainer.spark.session.session import Session
from drainer.spark.session.settings import SparkSettings
from drainer.spark.session.start import interruptible
from drainer.store.place import absolute, parse_place
from drainer.store.plan_file import SavedPlan, plan_at
from drainer.view.live import progress_view
from drainer.view.preview import preview_page
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain. Its tables are DataFrames of the session that it ran on."""

    summary: Summary
    session: SparkSession = field(repr=False)

    def partitions(self) -> DataFrame:
        """Return a row per partition: where its backlog began and ended, up to where it is finished
        and committed, and how many offsets are left."""
        rows = [
            (number, part.start, part.end, part.watermark, part.committed, part.to_go)
            for number, part in self.summary.partitions.items()
        ]
        columns = ("start", "end", "watermark", "committed", "to_go")
        schema = ", ".join(["partition int", *(f"{name} bigint" for name in columns)])
        return self.session.createDataFrame(rows, schema)

    def counts(self) -> DataFrame:
        """Return the account: a row for messages, and one for sub-messages."""
        columns = ("read", "done", "dead", "skipped", "failed", "pending")
        accounts = {"messages": self.summary.messages, "sub_messages": self.summary.sub_messages}
        rows = [(of, *attrgetter(*columns)(counts)) for of, counts in accounts.items()]
        schema = ", ".join(["of string", *(f"{name} bigint" for name in columns)])
        return self.session.createDataFrame(rows, schema)

    def failures(self) -> DataFrame:
        """Return the errors of the handler in this run with their counts, the most frequent
        first."""
        rows = list(self.summary.last.failures.errors)
        return self.session.createDataFrame(rows, "error string, count bigint")


@noting_hints()
def drain(
    spark: SparkSession,
    *,
    topic: str,
    group: str,
    handler: AnyHandler,
    plan: str | Path,
    client: Client,
    partitions: Sequence[int] = (),
    from_: str = "committed",
    until: str = "end",
    commit: bool = True,
    order: Order = Order.SUB_KEY,
    concurrency: int | Concurrency = 100,
    options: Mapping[str, str] | None = None,
    failures: FailureSettings | None = None,
    payloads: PayloadSettings = BY_HANDLER,
    conf: Mapping[str, str] | None = None,
    check: bool = True,
) -> Drained:
    """Drain a backlog on a session as ``drainer run`` does, without a prompt.

    If the plan is one of this topic and group and unfinished, the drain resumes from it. An
    interrupt stops the drain safely, and a second one stops it at once. A notebook shows the
    preview, the progress and the account. Elsewhere the account goes to stdout, and the rest to
    stderr.

    Args:
        handler: a class, or a reference as for ``--handler``. A class that the notebook defines
            travels to the executors. The command can't resume its plan, but this function can.
        plan: the file of the offset plan, or its URI in an object store.
        client: librdkafka's properties, ``bootstrap.servers`` among them, or the file that has
            them. The plan keeps the name of the file, and no property.
        commit: False drains a range again, and leaves the group and its consumers alone.
        options: options of the handler.
        failures: settings that replace those of a plan that is resumed.
        payloads: as for ``drainer.drain``; a plan that is resumed keeps its own.
        conf: drainer's settings on Spark, such as ``{"drainer.state": "s3://drains/orders"}``.
            A cluster needs the state.
        check: whether an end before all is done raises its cause.

    Raises:
        UsageError: if an argument makes no sense, or a setting of the session breaks a law.
        Refused: if the drain would not be safe. Nothing was touched.
        DrainerError: with ``check``, what stopped the drain; resume with the plan.
    """
    session = Session.of(spark)
    place = parse_place(str(plan))
    connection = client_settings(client)
    request = Request(
        topic,
        group,
        handler_of(handler, payloads, connection.extras),
        tuple(partitions),
        from_,
        until,
        order,
        place,
        client_config=config_file(client),
        failures=failures or NEW_DRAIN,
        commits=commit,
    )
    resumes = ResumeRequest(failures, client_config=request.client_config)
    running = LocalSettings(concurrency=concurrency, options=dict(options or {}))
    settings = spark_settings(place, session.master, conf or {})
    file = plan_at(absolute(place), settings.state)
    summary = _drain(connection, file, request, resumes, running, settings, spark)
    return Drained(done(summary) if check else summary, spark)


def _drain(
    client: ClientSettings,
    file: SavedPlan,
    request: Request,
    resumes: ResumeRequest,
    running: LocalSettings,
    settings: SparkSettings,
    spark: SparkSession,
) -> Summary:
    terminal, stops = Terminal(), _StopRequests()

    def run() -> Summary:
        with Cluster.connect(client) as cluster:
            prepared = _prepare(cluster, file, request, resumes, running)
            prepared = on_spark(prepared, settings, spark)
            terminal.preview(preview_page(prepared.action))
            callbacks = Callbacks(view.update, terminal.print_line)
            runtime = replace(THIS_PROCESS, stop_signals=stops.listening)
            return run_drain(cluster, prepared, running, callbacks, runtime=runtime)

    # The drain runs in another thread, since this one may have an event loop.
    with progress_view(terminal) as view:
        summary = interruptible(run, interrupted=stops.press)
    show_summary(terminal, summary)
    return summary


def _prepare(
    cluster: Cluster,
    file: SavedPlan,
    request: Request,
    resumes: ResumeRequest,
    running: LocalSettings,
) -> Prepared:
    if file.exists and not (loaded := file.load()).plan.account.complete:
        plan = loaded.plan
        drains = plan.terms.topic, plan.terms.group, plan.terms.commits
        if drains != (request.topic, request.group, request.commits):
            commits = "" if plan.terms.commits else ", without commits"
            raise PlanRefused(
                f"{file.path} is the plan of another drain: topic {plan.terms.topic}, group"
                f" {plan.terms.group}{commits}",
                hint="Name another file.",
            )
        return prepare_resume(
            *(cluster, file, loaded, running, resumes),
            load=lambda _, payloads, __: request.handler.fresh(payloads),
        )
    return prepare(cluster, request.configured(running.options), running)


class _StopRequests:
    """Passes interrupts of the thread that waits for a drain on to the drain, as signals.

    They must reach the drain at once, also while it waits for slots: on an interrupt, PySpark
    cancels all jobs, and the drain must not take that for a failure.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pressed = False
        self._request: Callable[[], object] | None = None

    @contextmanager
    def listening(
        self,
        loop: asyncio.AbstractEventLoop,
        on_signal: Callable[[str], None],
        _: Callable[[], None],
    ) -> Iterator[None]:
        """Pass interrupts on for as long as the block lasts, as ``Runtime.stop_signals`` does."""
        with self._lock:
            self._request = partial(loop.call_soon_threadsafe, on_signal, "SIGINT")
            if self._pressed:
                self._request()
        try:
            yield
        finally:
            with self._lock:
                self._request = None

    def press(self) -> None:
        """Pass an interrupt on, at once or when the drain listens."""
        with self._lock:
            self._pressed = True
            if self._request is not None:
                self._request()
