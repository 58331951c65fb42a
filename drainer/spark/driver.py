"""The driver of a drain on Spark, which drains slice by slice until the backlog is empty.

The drain ends as it does in one process: when everything is finished, when a person interrupts it,
when the handler fails, or when it is no longer safe to go on. In each case the plan has what is
finished.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Settings
from drainer.engine.lifecycle import Lifecycle
from drainer.engine.loop import event_loop, spawn
from drainer.engine.meter import auto_status
from drainer.engine.outcome import Ending, given_up_before, not_closed
from drainer.errors import (
    DrainerError,
    Interrupted,
    LockLost,
    Refused,
    Signalled,
    chain_errors,
    handling_nothing,
    raised_as,
)
from drainer.host.calls import blocking_call
from drainer.kafka.lock import GroupLock
from drainer.model.account import clock
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.status import FailureStatus, HealthStatus, Status, Summary
from drainer.operations.engine import LocalContext
from drainer.spark.assign.aggregation import Aggregation
from drainer.spark.assign.control import ControlChannel, QuotaAllocator
from drainer.spark.assign.query import Queries
from drainer.spark.assign.slicing import typical_bytes
from drainer.spark.assign.status import repeat_words
from drainer.spark.assign.task_monitor import QUIET_S, TaskMonitor
from drainer.spark.assign.work import SliceRunner, of_one_task
from drainer.spark.session.failure import SparkBroke, spark_failures
from drainer.spark.session.session import Slots
from drainer.spark.session.settings import STARTING, SparkSettings
from drainer.spark.session.shipping import Shipped, ship
from drainer.spark.session.start import ANSWER_S, drain_session, interruptible
from drainer.spark.state.state import State, state_beside
from drainer.spark.task.python_worker import HandlerSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drainer.spark.session.start import Starting

LEAVE_S = 5.0  # After the grace, tasks have this long to report that they have stopped.
LOOK_S = 0.1
CLOSE_S = 10.0  # Workers have this long to close their handlers.
OPENING = "the handler is being opened in Spark's tasks"
NOT_BEGUN = "Spark is still starting its tasks"
ON_A_CLUSTER = (
    "; if that lasts, other jobs have its slots, or no executor got the memory and cores that it"
    " needs"
)


def run_on_spark(
    context: LocalContext, settings: SparkSettings, spark: SparkSession | Starting | None
) -> Summary:
    """Drain until the drain ends, on the given session of Spark or else on a new one.

    Raises Refused if Spark can't be started, and what ``Lifecycle.run`` raises.
    """
    drain_id = context.plan.terms.drain_id
    starting = drain_session(settings, spark, drain_id, context.print_line)
    with ExitStack() as opened:
        with handling_nothing(STARTING):
            # Nothing is handled yet, so an error of Spark is a reason to refuse the drain.
            with raised_as(Refused, SparkBroke), spark_failures():
                session, slots = opened.enter_context(starting)
                shipped = interruptible(partial(ship, session, context.handler))
            if session.ui is not None:
                context.print_line(f"Spark's UI is at {session.ui}")
            loop = opened.enter_context(event_loop())
            queries = Queries(session, f"drainer {drain_id}")
            run = SparkRun(context, settings, queries, slots, shipped)
            life = Lifecycle(context, run, run.checkpointer, run.ending)
        return loop.run_until_complete(life.run())


@dataclass(eq=False)
class SparkRun:
    """One run of a drain on a session of Spark, as the ``Work`` of a ``Lifecycle``."""

    context: LocalContext
    settings: SparkSettings
    queries: Queries
    slots: Slots
    shipped: Shipped

    look_s = LOOK_S

    def __post_init__(self) -> None:
        context, settings, slots = self.context, self.settings, self.slots
        plan, running = context.plan, context.running
        self.ending = Ending()
        self._at_rest = False  # Whether all tasks have ended and reported all that they did.
        uri = settings.state or state_beside(context.file.path)
        context.file.allow_state(uri)
        self._state = State.open(uri, plan.terms.drain_id)
        epoch = plan.account.generation
        lock, threads = context.lock, not context.handler.is_async
        self._channel = ControlChannel(self._state, epoch, settings.lease, lambda: lock.confirmed_s)
        concurrency = Concurrency.of(running.concurrency)
        self._quota = QuotaAllocator(concurrency, self._channel, threads=threads)
        tasks = min(slots.handling, self._quota.most)
        self._handler = self._handler_spec(uri, tasks)
        self._aggregation = Aggregation(plan, uri, epoch)
        self._monitor = TaskMonitor(
            self._aggregation,
            given_up_before(context),
            concurrency=self._quota.total,
            buffer_bytes=of_one_task(running, tasks).buffer_bytes * tasks,
            plan_path=str(context.file.path),
            folds=context.handler.folds,
            # Reports of a task that works well may come this late.
            quiet_s=QUIET_S + 2 * self._state.journal_interval_s,
        )
        self.checkpointer = Checkpointer(
            context, self._aggregation, self._monitor.overall, self.ending.end
        )
        self._work = SliceRunner(
            plan,
            self.queries,
            self._handler,
            slots,
            settings.slice_bytes,
            typical_bytes(context.cluster.settings, plan),
            self._state,
            self._monitor,
            self.checkpointer,
            self._quota,
            Settings(running, plan.terms.failures),
            self.ending.end,
        )
        self._working: asyncio.Task[None] | None = None
        # ``_kept`` has the slices whose reports are in the state. ``_kept_to`` is the number of the
        # last slice that was added to it.
        self._kept: set[int] = set()
        self._kept_to = 0
        self._reports_due_s = self._slots_due_s = 0.0
        self.ending.at_once.append(self._work.stop)

    def _handler_spec(self, uri: str, tasks: int) -> HandlerSpec:
        context, plan = self.context, self.context.plan
        return HandlerSpec(
            shipped=self.shipped,
            client=context.cluster.settings,
            terms=plan.terms,
            epoch=plan.account.generation,  # The generation rises from run to run.
            state=uri,
            lease=self.settings.lease,
            concurrency=self._quota.most,
            options=context.options,
            share=1 / tasks,
        )

    async def start(self) -> None:
        """Begin to read and to handle, once a task has opened the handler and reached Kafka.

        Raises Refused if the tasks can't work, or the error that stopped the drain. In both cases
        nothing was handled.
        """
        await blocking_call(self._channel.begin)
        try:
            # If this process ends now, for whatever reason, tasks may still be at work.
            self.context.lock.linger(True)
            if self._work.begin():
                await self._reads()
            self._work.is_patient = True
            self._monitor.start()
            # The plan must name the state before a task records anything there.
            await self.checkpointer.save(commit=False)
        except BaseException:
            await self._leave_tasks()
            raise
        self.checkpointer.start()
        self._working = spawn(self._work.run(), "slices", self.ending.end)

    async def _reads(self) -> None:
        """Return when a task reads the first slice."""
        epoch, begun_s = self._handler.epoch, monotonic()
        report_s = ANSWER_S
        while True:
            self.context.control.ensure_wanted()
            reading, is_ending = self._work.reading, self.ending.has_come
            has_read = reading is not None and reading.done()
            if await blocking_call(self._state.is_reading, epoch):
                return
            if is_ending:
                cause = self.ending.cause or Interrupted("it was stopped")
                if isinstance(cause, Signalled):
                    what = "while Spark's tasks were checked; nothing was handled"
                    cause = Signalled(f"{cause} {what}")
                raise cause
            if reading is not None and has_read:
                try:
                    with raised_as(Refused, Interrupted):
                        await reading
                except LockLost:
                    if await blocking_call(self._state.epoch) != epoch:
                        raise
                    what = "the driver writes to {}, but a task can't see it"
                    raise self._state.not_shared(what) from None
                raise self._state.not_shared("tasks write to {}, but this process can't see it")
            if monotonic() > begun_s + report_s:
                opening, _ = await blocking_call(self._state.handlers, epoch)
                why = "" if self.settings.is_local else ON_A_CLUSTER
                doing = OPENING if opening else NOT_BEGUN
                self.context.print_line(f"{doing} ({report_s:g}s){'' if opening else why}")
                report_s *= 2
            await asyncio.sleep(self._state.look_s)

    async def _leave_tasks(self) -> None:
        """End the tasks of the first slice. Once they write no more, remove what they wrote."""
        self._work.stop()
        with suppress(DrainerError):
            await blocking_call(partial(self._channel.send, stop="nothing is drained"))
        await self._work.cancel()
        with suppress(DrainerError):
            await self._close_handlers(None)
        await self._remove_state()

    async def _remove_state(self) -> None:
        await blocking_call(self._channel.end)
        with suppress(DrainerError):
            await blocking_call(self._state.remove, self.context.file.path)

    def pause(self, paused: bool) -> None:
        self._quota.pause(paused)

    async def check(self) -> None:
        if monotonic() >= self._reports_due_s:
            self._reports_due_s = monotonic() + self._state.journal_interval_s
            await self._work.read_reports()
            await self._print_repeats()
        await self._quota.look()
        self._monitor.concurrency = self._quota.total
        self._channel.totals = self._monitor.totals()
        self._work.check_limit()
        if monotonic() >= self._slots_due_s:
            self._slots_due_s = monotonic() + self.queries.session.slots_s
            with suppress(DrainerError):  # If Spark is gone, the jobs that run raise an error.
                before, count = self.slots.count, await blocking_call(self.queries.slots)
                self.slots.look(count, self._aggregation.busy, monotonic())
                if count < before and not self.slots.grows:
                    self._print_event(f"Spark lost executors: {count} of {before} slots are left")
        await self._forget_slices()

    async def _print_repeats(self) -> None:
        while self._monitor.repeats:
            lost, host, shard, finished = self._monitor.repeats.popleft()
            failed = await blocking_call(self._state.has_ended, lost)
            self._print_event(repeat_words(host, shard, finished=finished, failed=failed))

    def _print_event(self, what: str) -> None:
        self.context.print_line(f"{clock(self.context.runtime.now())}  {what}")

    async def change(self, settings: Settings) -> None:
        before, self._work.settings = self._work.settings, settings
        concurrency = Concurrency.of(settings.running.concurrency)
        if concurrency != Concurrency.of(before.running.concurrency):
            self._quota.use(concurrency)
        if settings.failures != before.failures:
            with suppress(DrainerError):  # The next beat sends them again.
                await blocking_call(partial(self._channel.send, failures=settings.failures))

    async def _forget_slices(self) -> None:
        """Remove the reports that are in the plan by now. Otherwise the state would grow for as
        long as the drain lasts."""
        reference = self.checkpointer.written.account.state
        if reference is None:
            return
        self._kept.update(range(self._kept_to + 1, reference.next))
        self._kept_to = reference.next - 1
        epoch = self._handler.epoch
        for number in [each for each in self._kept if reference.has_taken(epoch, each)]:
            try:
                await blocking_call(self._state.remove_slice, epoch, number)
            except DrainerError:
                return  # The next check tries again.
            self._kept.remove(number)

    async def wind_down(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        if isinstance(cause, Refused) and self._monitor.tasks_most:
            # A refusal means that nothing was handled, but tasks may have handled something.
            hint = cause.hint or "Resume with the plan."
            cause = Interrupted(str(cause), hint=hint, cause=cause)
        self._work.stop()
        reason = "the drain is over" if cause is None else f"the drain is stopping: {cause}"
        at_rest = await self._bring_to_rest(reason)
        try:
            await self._work.read_reports()
            if at_rest and not self._aggregation.unbalanced:
                await self._work.end_slices()
        except DrainerError:
            at_rest = False  # The last reports stay in the state, for a resume.
        self._at_rest = at_rest and not self._aggregation.unbalanced
        if self._at_rest:  # Otherwise tasks may still report, so the plan must refer to the state.
            self._aggregation.end()
        return cause

    async def close(self, cause: BaseException | None) -> BaseException | None:
        if not self._at_rest:
            return cause
        try:
            return await self._close_handlers(cause)
        except DrainerError as error:  # It is not raised, since the plan has yet to be saved.
            return chain_errors(cause, error)

    async def forget(self) -> None:
        if self._at_rest:
            await self._remove_state()

    async def _bring_to_rest(self, reason: str) -> bool:
        """Stop all tasks; return whether all have ended and reported all that they did."""
        reported = True
        try:
            await blocking_call(partial(self._channel.send, stop=reason))
        except DrainerError:
            await self._work.cancel()  # Spark ends the tasks.
            reported = await self._are_cut()
        await self._work.cancel(reading=True)
        # Each task takes the grace that it began with, which may be longer than the new one.
        grace_s = max(self.context.running.grace_s, self._work.settings.running.grace_s)
        at_rest = await self.ending.within(self._work.rest(), grace_s + LEAVE_S)
        if self._working is not None:
            self._working.cancel()
        await self._work.cancel()
        return at_rest and reported

    async def _are_cut(self) -> bool:
        """Return whether all tasks have ended because something removed the state.

        Without the driver's beats, the tasks' leases end and their calls are cut off. This waits
        for that time.
        """
        with suppress(DrainerError):
            if await blocking_call(self._state.epoch) is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.lease.wait_s):
                        await self.ending.forced.wait()
                return not self.ending.forced.is_set()
        return False

    async def _close_handlers(self, cause: BaseException | None) -> BaseException | None:
        state, epoch = self._state, self._handler.epoch
        return await close_handlers(state, epoch, self.context.lock, self.ending.forced, cause)

    def failure_status(self) -> FailureStatus:
        found = self._monitor.failures(self._work.settings.failures)
        return replace(found, parked_lanes=len(self._work.parked))

    @property
    def running(self) -> int:
        return self._monitor.running

    def measure(self, plan: OffsetPlan) -> None:
        self._monitor.measure(plan)

    def status(self, plan: OffsetPlan) -> Status:
        status = self._monitor.status(plan, ahead=self._work.reads)
        auto = None if self._quota.search is None else auto_status(self._quota.search)
        return replace(
            self._work.complete_status(status),
            limits=replace(status.limits, auto=auto),
            health=HealthStatus(self._monitor.trouble or self._work.trouble),
        )

    def sum_up(self, summary: Summary) -> Summary:
        return replace(
            summary,
            engine="spark",
            engine_counts={"slices": self._monitor.slices, "tasks": self._monitor.tasks_most},
            left_alone=None if self.context.plan.terms.redrive is None else self._work.left_alone,
        )


async def close_handlers(
    state: State, epoch: int, lock: GroupLock, forced: asyncio.Event, cause: BaseException | None
) -> BaseException | None:
    """Wait until the workers have closed their handlers, which they do when the drain is over.

    Return the cause, with the error of a handler that failed to close. If a worker may still be in
    a call, the lock stays in place after the end of this process.
    """
    until_s = monotonic() + CLOSE_S
    while True:
        still_open, failed = await blocking_call(state.handlers, epoch)
        if not still_open or monotonic() > until_s or forced.is_set():
            break
        await asyncio.sleep(LOOK_S)
    lock.linger(still_open > 0)
    return chain_errors(cause, not_closed(failed[0])) if failed else cause
