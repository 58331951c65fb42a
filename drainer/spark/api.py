"""Drains from a notebook or a job, on the session that is there: nothing of it is changed."""

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
from drainer.spark.engine_choice import resolve_on_spark, spark_settings
from drainer.spark.session.session import Session
from drainer.spark.session.settings import WAVE_BYTES, SparkSettings
from drainer.spark.session.start import interruptible
from drainer.store.place import absolute, parse_place
from drainer.store.plan_file import SavedPlan, plan_at
from drainer.view.live import progress_view
from drainer.view.preview import preview_page
from drainer.view.summary import show_summary
from drainer.view.terminal import Terminal


@dataclass(frozen=True, slots=True)
class Drained:
    """Result of a drain; its tables are DataFrames of the session that it ran on."""

    summary: Summary
    session: SparkSession = field(repr=False)

    def partitions(self) -> DataFrame:
        """A row a partition: where its backlog began and ended, what is finished, what is
        committed, and how many offsets are left."""
        rows = [
            (number, part.start, part.end, part.watermark, part.committed, part.to_go)
            for number, part in self.summary.partitions.items()
        ]
        columns = ("start", "end", "watermark", "committed", "to_go")
        schema = ", ".join(["partition int", *(f"{name} bigint" for name in columns)])
        return self.session.createDataFrame(rows, schema)

    def counts(self) -> DataFrame:
        """The account: a row for messages, and one for sub-messages."""
        columns = ("read", "done", "dead", "skipped", "failed", "pending")
        accounts = {"messages": self.summary.messages, "sub_messages": self.summary.sub_messages}
        rows = [(of, *attrgetter(*columns)(counts)) for of, counts in accounts.items()]
        schema = ", ".join(["of string", *(f"{name} bigint" for name in columns)])
        return self.session.createDataFrame(rows, schema)

    def failures(self) -> DataFrame:
        """Errors of the handler in this run with their counts, the most frequent first."""
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
    tasks: int | None = None,
    wave_bytes: int = WAVE_BYTES,
    state: str | None = None,
    archives: Sequence[str] = (),
    check: bool = True,
) -> Drained:
    """Drains a backlog as ``drainer run`` does, without a prompt.

    A plan of this topic and group that is unfinished is resumed. An interrupt stops the drain
    safely, a second one at once. The preview, the progress and the account are shown in the
    notebook; elsewhere the account goes to stdout, the rest to stderr.

    Args:
        handler: a class, or a reference as ``--handler`` has it. A class of the notebook itself
            travels to the executors; the command can't resume its plan, but this function can.
        plan: the file of the offset plan, or its URI in an object store.
        client: librdkafka's properties, ``bootstrap.servers`` among them, or the file that has
            them. A drain keeps the file's name in its plan, and no property.
        commit: False drains a range again and leaves the group and its consumers alone.
        options: the handler's own.
        failures: those of a plan that is resumed, unless given.
        payloads: as for ``drainer.drain``; those of a plan that is resumed stay.
        tasks, wave_bytes, state, archives: as the options of the command.
        check: whether an end that is not done raises its cause.

    Raises:
        UsageError: for what makes no sense, and for a session with a setting that breaks a law.
        Refused: when the drain would not be safe. Nothing was touched.
        DrainerError: what stopped it, with ``check``; resume with the plan.
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
    on_spark = spark_settings(
        place,
        master=None if session.is_remote else session.master,
        remote=session.master if session.is_remote else None,
        wave_bytes=wave_bytes,
        state=state,
        tasks=tasks,
        archives=tuple(archives),
    )
    file = plan_at(absolute(place), state)
    summary = _drain(connection, file, request, resumes, running, on_spark, spark)
    return Drained(done(summary) if check else summary, spark)


def _drain(
    client: ClientSettings,
    file: SavedPlan,
    request: Request,
    resumes: ResumeRequest,
    running: LocalSettings,
    on_spark: SparkSettings,
    spark: SparkSession,
) -> Summary:
    terminal, stops = Terminal(), _StopRequests()

    def run() -> Summary:
        with Cluster.connect(client) as cluster:
            prepared = _prepare(cluster, file, request, resumes, running)
            prepared = resolve_on_spark(prepared, on_spark, session=spark)
            terminal.preview(preview_page(prepared.action))
            callbacks = Callbacks(view.update, terminal.print_line)
            runtime = replace(THIS_PROCESS, stop_signals=stops.listening)
            return run_drain(cluster, prepared, running, callbacks, runtime=runtime)

    with progress_view(terminal) as view:  # this thread may have an event loop
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
    """Interrupts of the thread that waits for a drain, passed on to it as the signals they are.

    They reach it at once, also while it waits for slots: PySpark cancels all jobs with an
    interrupt, and the drain must not take that for a failure.
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
        """Pass interrupts on, as ``Runtime.stop_signals``."""
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
        """Note an interrupt."""
        with self._lock:
            self._pressed = True
            if self._request is not None:
                self._request()
