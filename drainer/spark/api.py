"""Drains on Spark: the function for notebooks, and the engine that previews show and drains use.

The command imports this module for its preview, so PySpark, which takes half a second, is imported
only when a drain begins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.api import (
    AnyHandler,
    Client,
    Partitions,
    client_settings,
    config_file,
    done,
    handler_of,
    noting_hints,
    of_types,
    partitions_of,
)
from drainer.engine.control import Control, Stop
from drainer.engine.preview import SPARK, ShownEngine
from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import UsageError, handling_nothing
from drainer.kafka.cluster import Cluster
from drainer.model.option import Concurrency
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings
from drainer.model.shown import Shown
from drainer.model.status import Summary
from drainer.model.terms import BY_HANDLER, PayloadSettings
from drainer.operations.drain import Callbacks
from drainer.operations.drain import drain as run_drain
from drainer.operations.engine import LocalContext
from drainer.operations.resume import ResumeRequest, prepare_resume
from drainer.operations.start import Prepared, Request, prepare
from drainer.spark.session.settings import (
    STARTING,
    STATE,
    SparkSettings,
    java_for_spark,
    shown_master,
    with_retries,
)
from drainer.spark.state.state import state_beside
from drainer.spark.task.chunk import why_whole
from drainer.store.place import PlanPlace, absolute, is_in_topic, parse_place, place_for
from drainer.store.plan_file import plan_at
from drainer.store.saved_plan import SavedPlan
from drainer.view.background import InBackground
from drainer.view.live import progress_view
from drainer.view.preview import preview_page
from drainer.view.program import ProgramTerminal
from drainer.view.summary import show_summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from drainer.spark.session.start import Starting
else:
    SparkSession = Any  # For the types of arguments; Session.of() looks at it.


@dataclass(frozen=True, slots=True)
class Drained(Shown):
    """The result of a drain: its summary, and tables as DataFrames of the session it ran on.

    ``print`` and notebooks show the summary.
    """

    summary: Summary
    session: SparkSession = field(repr=False)

    def __str__(self) -> str:
        return str(self.summary)

    def partitions(self) -> DataFrame:
        """Return a row for each partition.

        It has the bounds of the backlog, the offsets up to which it is finished and committed, and
        how many offsets are left.
        """
        rows = [
            (number, part.start, part.end, part.watermark, part.committed, part.to_go)
            for number, part in self.summary.partitions.items()
        ]
        columns = ("start", "end", "watermark", "committed", "to_go")
        schema = ", ".join(["partition int", *(f"{name} bigint" for name in columns)])
        return self.session.createDataFrame(rows, schema)

    def counts(self) -> DataFrame:
        """Return the account: a row for messages, and a row for sub-messages."""
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
@of_types()
def drain(
    spark: SparkSession,
    *,
    topic: str,
    group: str,
    handler: AnyHandler,
    plan: str | Path,
    client: Client,
    partitions: Partitions = (),
    from_: str = "committed",
    until: str = "end",
    commit: bool = True,
    order: Order = Order.SUB_KEY,
    concurrency: int | str | Concurrency = 100,
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
        plan: the place of the offset plan, as ``--plan`` takes it.
        client: librdkafka's properties, ``bootstrap.servers`` among them, or the file that has
            them. The plan keeps the name of the file, and no property.
        commit: False drains a range again, and leaves the group and its consumers alone.
        options: options of the handler.
        failures: settings that replace those of a plan that is resumed.
        payloads: as for ``drainer.drain``. A plan that is resumed keeps its own.
        conf: drainer's settings on Spark, such as ``{"drainer.state": "s3://drains/orders"}``.
            On a cluster, ``drainer.state`` is required.
        check: whether to raise the error that ends the drain before all is done.

    Raises:
        UsageError: if an argument makes no sense, or a drain can't work with a setting of the
            session.
        Refused: if the drain would not be safe. Nothing was touched.
        DrainerError: with ``check``, the error that ended the drain. Its plan can be resumed.
    """
    from drainer.spark.session.session import Session  # noqa: PLC0415 - with PySpark
    from drainer.spark.session.start import interruptible  # noqa: PLC0415 - with PySpark

    session = Session.of(spark)
    place = place_for(parse_place(str(plan)), topic, group, commits=commit)
    connection = client_settings(client)
    loaded = handler_of(handler, payloads, connection.extras)
    request = Request(
        *(topic, group, loaded, partitions_of(partitions), from_, until, order, place),
        client_config=config_file(client),
        failures=failures or DEFAULT_FAILURES,
        commits=commit,
    )
    resumes = ResumeRequest(failures, client_config=request.client_config, engine=SPARK)
    running = LocalSettings(concurrency=concurrency, options=dict(options or {}))
    settings = spark_settings(place, session.master, conf or {})
    file = plan_at(absolute(place), settings.state, lambda: connection)
    terminal, control = ProgramTerminal(), Control()
    stops = _StopRequests(control)

    def run() -> Summary:
        with Cluster.connect(connection) as cluster:
            prepared = on_spark(_prepare(cluster, file, request, resumes, running), settings, spark)
            terminal.preview(preview_page(prepared.action))
            callbacks = Callbacks(view.update, view.print_line)
            runtime = replace(THIS_PROCESS, stop_signals=stops.listening)
            return run_drain(
                *(cluster, prepared, running, callbacks), control=control, runtime=runtime
            )

    # The drain runs in another thread, since this one may have an event loop.
    with InBackground(progress_view(terminal), terminal.print_line) as view:
        summary = interruptible(run, interrupted=stops.press)
    show_summary(terminal, summary)
    return Drained(done(summary) if check else summary, spark)


def _prepare(
    cluster: Cluster,
    file: SavedPlan,
    request: Request,
    resumes: ResumeRequest,
    running: LocalSettings,
) -> Prepared:
    file.ensure_free()
    if file.exists and not (loaded := file.load()).plan.account.complete:
        terms, wanted = loaded.plan.terms, (request.topic, request.group, request.commits)
        if (terms.topic, terms.group, terms.commits) == wanted:
            return prepare_resume(
                *(cluster, file, loaded, running, resumes),
                load=lambda _, payloads, __: request.handler.fresh(payloads),
            )
    # This refuses to set the unfinished plan of another drain aside.
    return prepare(cluster, request.configured(running.options), running)


class _StopRequests:
    """Passes interrupts on to a drain, as signals, from the thread that waits for it.

    On an interrupt, PySpark cancels all jobs. So the drain must learn of the interrupt at once,
    even while it waits for slots, or it would take the cancelled jobs for a failure.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._pressed = False
        self._request: Callable[[], object] | None = None

    @contextmanager
    def listening(
        self, loop: asyncio.AbstractEventLoop, on_signal: Callable[[str], None], _: object
    ) -> Iterator[None]:
        """Pass interrupts on while the block runs. The drain calls this as ``stop_signals``."""
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
        """Pass an interrupt on: at once, or as soon as the drain listens.

        A drain that has not begun waits no longer for its lock or its tasks.
        """
        with self._lock:
            self._pressed = True
            if self._request is not None:
                self._request()
            else:
                self._control.request(Stop(), THIS_PROCESS.user())


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Spark as the engine of a drain, which reads and handles in Spark's tasks.

    ``spark`` is a session that exists already, or one that starts. If it is None, the drain starts
    its own.
    """

    settings: SparkSettings
    spark: SparkSession | Starting | None = None
    # Seconds until the session, its workers and the first slice are ready, measured on local[2].
    start_s = 10.0

    @property
    def session_s(self) -> float:
        """Seconds for which the lock keeps other drains out after this process falls silent."""
        return self.settings.lease.session_s

    @contextmanager
    def beginning(self, plan: OffsetPlan) -> Iterator[SparkEngine]:
        """Begin to start a session of the drain's own beside what the drain does in the block.

        Priority classes come first, in this process, and may take hours. Then this does nothing.
        """
        if self.spark or self.settings.is_remote or plan.account.classes.next is not None:
            yield self
            return
        with ExitStack() as opened:
            with handling_nothing(STARTING):
                from drainer.spark.session.start import beginning  # noqa: PLC0415 - with PySpark

                spark = opened.enter_context(beginning(self.settings, plan.terms.drain_id))
            yield replace(self, spark=spark)

    def __call__(self, context: LocalContext) -> Summary:
        """Drain on Spark until the drain ends. Raises Refused if Spark can't be started."""
        with handling_nothing(STARTING):
            from drainer.spark.driver import run_on_spark  # noqa: PLC0415 - with PySpark

        return run_on_spark(context, self.settings, self.spark)


def spark_settings(
    plan: PlanPlace | None, master: str | None, conf: Mapping[str, str]
) -> SparkSettings:
    """Return the settings of a drain on Spark from what a person typed.

    ``plan`` is the place of its plan. If that is in an object store, all machines can reach it. So
    the state is beside the plan, unless ``conf`` names another place. Raises UsageError.
    """
    if isinstance(plan, str) and not is_in_topic(plan):
        conf = {STATE: state_beside(plan), **conf}
    return SparkSettings.of(master, conf)


def on_spark(
    prepared: Prepared, settings: SparkSettings, session: SparkSession | None = None
) -> Prepared:
    """Return a prepared drain whose engine is Spark: on the given session, or on one of its own.

    Raises Refused if there is no Java for Spark; ExtraMissing if PySpark is not installed.
    """
    if prepared.action.follows:
        raise UsageError(
            "a drain on Spark can't follow its topic: it reads a frozen backlog, slice by slice",
            hint="Drain the backlog on Spark, then follow in this process: run it again with"
            " --follow and --engine process.",
        )
    if not settings.is_remote:
        java_for_spark()
    master = settings.master if session is not None else with_retries(settings.master)
    state, typed = _state(settings, prepared.action.plan_path), settings.shown_conf()
    typed.pop(STATE, None)
    settings = replace(settings, master=master, conf={**settings.conf, STATE: state})
    whole = why_whole(prepared.handler, prepared.plan.terms)
    shown = {
        "state": state,
        "messages": f"shuffled whole, to each task that has a part: {whole}" if whole else "",
        "spark conf": ", ".join(f"{name}={value}" for name, value in typed.items()),
    }
    engine = ShownEngine(
        SPARK,
        f"Spark on {shown_master(settings.master)}",
        {name: text for name, text in shown.items() if text},
    )
    action = replace(prepared.action, engine=engine)
    return replace(prepared, action=action, engine=SparkEngine(settings, session))


def _state(settings: SparkSettings, plan: PlanPlace) -> str:
    """Return the place of the state; a folder by its absolute path, since tasks run elsewhere."""
    if settings.state is None:
        return state_beside(plan)
    return settings.state if "://" in settings.state else str(Path(settings.state).absolute())
