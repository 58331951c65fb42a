"""A Spark task that handles a shard of a slice, with the engine that drains in one process.

Chunks that Spark brings take the place of Kafka, and the driver takes the place of the person.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from drainer.core.dispatch import Dispatcher
from drainer.core.merge import TaskRecord
from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, Ports
from drainer.engine.runtime import UNSIGNALLED
from drainer.errors import DrainerError, Interrupted, LanesParked, LockLost, StateLost
from drainer.model.account import ParkedLanes, PartitionPlan
from drainer.model.claims import ALL, Shard, Stream, streams_of
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Progress
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.letters import letter_writers
from drainer.spark.session.failure import carrying, error_as_json
from drainer.spark.state.records import Borrowed, TaskRecords, TaskStatus
from drainer.spark.state.state import Attempt, DriverControl, State, TaskInput, TaskShare
from drainer.spark.task.python_worker import Fence, HandlerSpec, OpenHandler, python_worker
from drainer.spark.task.rows import OUTCOMES, Row, batch_of, rows_of
from drainer.spark.task.source import TaskSource, chunk_batches

# The plan of a task is written only at its end: its records, or its outcomes, are all that anybody
# reads.
NEVER_S = 1e7


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """The function that handles a slice. Spark sends it to the tasks, one for each shard.

    Attributes:
        plan: the plan of the drain, without progress.
        settings: the settings of one task.
        slice: the number of the slice.
        order: the shards that the slice is divided into, in the order in which their tasks begin.
    """

    plan: OffsetPlan
    settings: LocalSettings
    handler: HandlerSpec
    slice: int
    order: tuple[int, ...]

    def handle(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the chunks of a task, and yield its outcome: the function for ``mapInArrow``."""
        context = TaskContext.get()
        assert context is not None
        # Spark starts the tasks of a query in the order of their partitions.
        number = self.order[context.partitionId()]
        attempt = Attempt(self.handler.epoch, self.slice, number, context.taskAttemptId())
        with carrying():
            outcome = self._outcome(attempt, rows_of(batches))
        yield batch_of([(number, pickle.dumps(outcome))], OUTCOMES)

    def _outcome(self, attempt: Attempt, rows: Iterable[Row]) -> TaskOutcome | None:
        """Handle everything that a task is given, and return how that ended; None if it is given
        nothing before the drain ends."""
        state = State.open(self.handler.state, self.handler.terms.drain_id)
        control = state.control(attempt.epoch)
        if control is None or control.stop is None:
            with python_worker().at_work(self.handler) as opened:
                share = _await_share(state, attempt, opened.fence)
                if share.given:
                    return self._drain_share(attempt, share, rows, state, opened)
        for _ in rows:  # Otherwise Spark would end this worker, with its open handler.
            pass
        return None

    def _drain_share(
        self,
        attempt: Attempt,
        share: TaskShare,
        rows: Iterable[Row],
        state: State,
        opened: OpenHandler,
    ) -> TaskOutcome:
        shard, fence = Shard(attempt.task, len(self.order)), opened.fence
        borrower = Borrower(
            attempt.borrower,
            self.plan.terms.failures,
            control=lambda: fence.control,
            # The task reports at once, since others wait for the calls that it gives back.
            report=lambda: report(at_once=True),
            use_share=opened.use_share,
        )
        view = TaskView(borrower)
        starts: dict[int, int] = {Stream(n, shard): each.start for n, each in share.given.items()}
        records = state.begin(attempt, starts, view.status)

        def report(*, at_once: bool = False) -> None:
            with suppress(DrainerError):  # If it can't be written, the next record has it.
                records.beat(at_once=at_once)

        def observe(status: Status) -> None:
            view.observe(status)
            report()

        try:
            earlier = state.await_earlier_attempts(attempt, self.handler.lease)
            records.go_on_from(earlier)
            plan = self._plan_of(shard, share, earlier)
            with letter_writers(self.handler.client, plan) as open_letters:
                context = self._context(plan, records, opened, state.journal_interval_s)
                context = replace(context, observe=observe)
                chunks = chunk_batches(rows, plan, shard, share.given)
                ports = Ports(
                    lambda _, notify: TaskSource(chunks, notify),
                    is_split=True,
                    open_letters=open_letters,
                    totals=lambda: fence.control.totals,
                    quota=borrower,
                )
                dispatcher = context.this_pass.dispatcher(
                    *(plan, context.handler.selects, frozenset(share.behind)),
                    reports_outcomes=True,
                )
                drain = LocalDrain(context, ports, dispatcher)
                fence.guard(attempt, drain.calls)
                fence.await_lease()
                summary = drain.run_on(opened.loop)
            if isinstance(summary.cause, LockLost):
                raise summary.cause  # Another attempt at this task reports the outcome.
            # An interrupted task may be repeated by Spark, for example because it has lost what the
            # task was to read.
            view.end(is_interrupted=isinstance(summary.cause, Interrupted))
            outcome = _outcome(summary, dispatcher, view.status())
            if not view.is_interrupted:  # The driver learns of it at once.
                view.failure = outcome.failure
            return outcome
        finally:
            if fence.leave():
                view.end()
                report(at_once=True)
                records.end()

    def _context(
        self, plan: OffsetPlan, records: TaskRecords, opened: OpenHandler, interval_s: float
    ) -> DrainContext:
        """Return the context of a task's drain. It records every ``interval_s`` what finished."""
        running = replace(self.settings, plan_interval_s=NEVER_S, journal_interval_s=interval_s)
        return DrainContext(
            plan=plan,
            file=records,
            handler=opened.handler.borrowed(),
            control=Control(running),
            lock=opened.fence,
            read_committed=dict,
            runtime=UNSIGNALLED,  # A person stops the driver, and the driver stops the tasks.
        )

    def _plan_of(self, shard: Shard, share: TaskShare, earlier: TaskRecord) -> OffsetPlan:
        """Return the plan of a task, with what earlier attempts finished.

        Its partitions are streams: a stream is the part of a shard that is in one partition.
        """
        found, claim = streams_of(earlier.claims), {}
        given: dict[int, TaskInput] = {Stream(n, shard): e for n, e in share.given.items()}
        for stream, each in given.items():
            begun = Progress(each.start)
            claim[stream] = begun.merge(found[stream]) if stream in found else begun
        account = replace(
            self.plan.account,
            partitions={n: PartitionPlan(e.start, e.end, None, None) for n, e in given.items()},
            claims={ALL: claim},
            parked=share.parked,
        )
        account = account.without_pending().merge({}, earlier.parked, earlier.unhandled)
        return OffsetPlan(self.plan.terms, account)


@dataclass(eq=False)
class Borrower:
    """The quota of a task: the calls that the driver lends it, and its share of the rate.

    Until the driver lends it something, the task starts no calls.

    Attributes:
        name: the name under which the driver lends calls to the task.
        base: the failure settings, unless the driver's message has others.
        control: returns the newest message of the driver.
        report: called when the task obeys new grants: no more calls are in flight than were lent.
        use_share: gets the task's share of all calls that are lent, which is also its share of
            other limits.
    """

    name: str
    base: FailureSettings
    _: KW_ONLY
    control: Callable[[], DriverControl]
    report: Callable[[], None]
    use_share: Callable[[float], None]

    def __post_init__(self) -> None:
        self._share = 0.0
        self._calls = self._seen = 0
        self._reported = 0  # The number of the newest grants that the task has obeyed.
        self.borrowed = Borrowed()  # The report on the calls that the task has borrowed.

    def take(self) -> tuple[int, FailureSettings]:
        """Return the calls and the settings that the driver's newest message grants."""
        control = self.control()
        self.base = control.failures or self.base
        if control.lent.number > self._seen:
            self._seen = control.lent.number
            self._calls = control.lent.calls.get(self.name, 0)
            self._share = self._calls / max(1, control.lent.total)
            self.use_share(self._share)
        if self.base.rate is None or not self._share:  # Without a share no call begins anyway.
            return self._calls, self.base
        return self._calls, replace(self.base, rate=self.base.rate * self._share)

    def obeyed(self, in_flight: int, ready: int, work_done: tuple[int, int, int]) -> None:
        """Note how the task uses the calls. Report if it obeys the newest grants for the first
        time."""
        self.borrowed = Borrowed(self._seen, in_flight, ready, *work_done)
        if self._reported != self._seen and in_flight <= self._calls:
            self._reported = self._seen
            self.report()


class TaskView:
    """The status of a task, as its records have it for the driver."""

    def __init__(self, borrower: Borrower) -> None:
        self._borrower = borrower
        self._is_over = self.is_interrupted = False
        self.failure: dict[str, Any] | None = None  # The error by which the task ended.
        self._status: Status | None = None
        self._observed_s = self._began_s = 0.0

    def observe(self, status: Status) -> None:
        """Take the engine's newest status."""
        if status.timing.latency_recent and status.timing.latency != (
            self._status and self._status.timing.latency
        ):
            # A call has succeeded since the last status. It took no longer than the longest call.
            began_s = self._observed_s - status.timing.latency_recent.percentiles_s[-1]
            self._began_s = max(self._began_s, began_s)
        self._observed_s = time.time()
        self._status = status

    def end(self, *, is_interrupted: bool = False) -> None:
        """Note that the task is over: it has no call in flight, and needs no more of them."""
        self._is_over = True
        self.is_interrupted |= is_interrupted

    def status(self) -> TaskStatus | None:
        """Return the status of the task; None before the engine has one."""
        status = self._status
        if status is None:
            return None
        return TaskStatus(
            host=socket.gethostname(),
            # The driver adds up the busy workers of the tasks.
            limits=replace(status.limits, busy=status.limits.workers_busy),
            failures=replace(status.failures, errors=status.failures.errors[:10]),
            rules=status.rules,
            timing=status.timing,
            trouble=status.health.trouble,
            borrowed=None if self._is_over else self._borrower.borrowed,
            began_s=self._began_s,
            failure=self.failure,
            interrupted=self.is_interrupted,
        )


class TaskOutcome(NamedTuple):
    """How a task ended.

    Attributes:
        failure: the error that ended it, from ``error_as_json``; None if it has done its part.
        parked: the lanes that it leaves parked, which is not a failure.
        parked_lanes: these lanes, with the facts.
        status: the last status of the task.
    """

    failure: dict[str, Any] | None
    parked: list[str]
    parked_lanes: ParkedLanes
    status: TaskStatus | None


def _await_share(state: State, attempt: Attempt, fence: Fence) -> TaskShare:
    """Wait until the driver gives a task its share. It has none if the drain ends before that.

    Raises LockLost if another driver has taken over.
    """
    while not isinstance(fence.lost, Interrupted):
        if fence.lost is not None:
            raise fence.lost
        with suppress(StateLost):  # If it stays out of reach, the driver ends the drain.
            if (share := state.share(attempt.share)) is not None:
                return share
        time.sleep(state.look_s)
    return TaskShare()


def _outcome(summary: Summary, dispatcher: Dispatcher, status: TaskStatus | None) -> TaskOutcome:
    cause = summary.cause
    failed = cause is not None and not isinstance(cause, LanesParked)
    return TaskOutcome(
        error_as_json(cause) if cause is not None and failed else None,
        [] if failed else sorted(dispatcher.left_behind()),
        summary.parked,
        status,
    )
