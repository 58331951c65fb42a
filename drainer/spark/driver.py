"""The engine on Spark: the driver's side of a drain, wave by wave, until the backlog is empty.

It ends as the in-process engine does: when everything is finished, a person interrupts, the
handler fails, or something outside makes it unsafe to go on. Whatever it was, what is finished
is in the plan.
"""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from time import monotonic

from drainer.blocking import blocking_call
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Settings
from drainer.engine.ending import Ending
from drainer.engine.lifecycle import Lifecycle
from drainer.engine.limiter import auto_status
from drainer.engine.loop import event_loop, spawn
from drainer.engine.outcome import given_up_before, not_closed
from drainer.errors import DrainerError, Interrupted, Refused, Signalled, chain_errors
from drainer.model.latency import Latency
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.settings import LocalSettings
from drainer.model.status import CapStatus, FailureStatus, HealthStatus, Status, Summary
from drainer.operations.engine import LocalContext
from drainer.policy.failures import Totals
from drainer.spark.aggregation import Aggregation
from drainer.spark.control import ControlChannel, QuotaAllocator
from drainer.spark.failure import refusing
from drainer.spark.jobs import Checking, Jobs, ensure_probes
from drainer.spark.python_worker import HandlerSpec
from drainer.spark.reading import Reader, WaveSettings, typical_bytes
from drainer.spark.session import ANSWER_S, drain_context
from drainer.spark.settings import SparkSettings
from drainer.spark.shipping import Shipped, ship
from drainer.spark.state import State, state_beside
from drainer.spark.task_monitor import TaskMonitor
from drainer.spark.work import WaveRunner, of_one_task, shards_for

LEAVE_S = 5.0  # beyond the grace, for tasks to say that they have stopped
SLOTS_S = 1.0  # between two looks at how many there are
CLOSE_S = 10.0  # for the handlers of all workers to be closed


class SparkDrain:
    """One run of a drain on Spark, from a plan on disk to a summary."""

    look_s = 0.1  # between two looks at what tasks reported

    def __init__(self, context: LocalContext, settings: SparkSettings) -> None:
        self._context = context
        self._plan = context.plan
        self._file = context.file
        self._handler = context.handler
        self._running = context.running
        self._spark = settings
        self.ending = Ending()
        self.ending.call_at_once(self.begin_no_more)
        self._taking = asyncio.Lock()
        self._at_rest = False  # all tasks have ended, and reported all of it

    def run(self) -> Summary:
        """Drains until it ends, one way or another.

        Raises Refused when Spark can't be started; else as ``Lifecycle.run``.
        """
        with ExitStack() as opened:
            try:
                with refusing():
                    starting = drain_context(
                        self._spark, self._plan.terms.drain_id, self._context.print_line
                    )
                    on = opened.enter_context(starting)
            except KeyboardInterrupt:
                raise Signalled(
                    "interrupted while Spark was starting; nothing was handled"
                ) from None
            context, self._slots = on
            self._tasks = min(self._slots.handling, self._most(self._running))
            self._jobs = Jobs(context)
            with event_loop() as loop:
                self._prepare_run(ship(context, self._handler, self._spark.archives))
                life = Lifecycle(self._context, self, self._checkpointer, self.ending)
                return loop.run_until_complete(life.run())

    def _prepare_run(self, shipped: Shipped) -> None:
        plan, running = self._plan, self._running
        self._epoch = plan.account.generation  # which rises from run to run
        uri = self._spark.state or state_beside(self._file.path)
        self._file.named += (uri,)
        self._state = State.open(uri, plan.terms.drain_id)
        times = self._spark.lease
        lock = self._context.lock
        self._channel = ControlChannel(self._state, self._epoch, times, lambda: lock.confirmed_s)
        concurrency = Concurrency.of(running.concurrency)
        threads = not self._handler.is_async
        self._quota = QuotaAllocator(
            concurrency, threads=threads, channel=self._channel, times=times
        )
        spec = HandlerSpec(
            shipped=shipped,
            client=self._context.cluster.settings,
            topic=plan.terms.topic,
            group=plan.terms.group,
            drain_id=plan.terms.drain_id,
            epoch=self._epoch,
            state=uri,
            lease=times,
            concurrency=self._most(running),
            options=dict(running.options or {}),
            limits=plan.terms.limits,
            share=1 / self._tasks,
            redrive=plan.terms.redrive,
        )
        self._aggregation = Aggregation(plan, uri, self._epoch)
        self._checkpointer = Checkpointer(
            self._context, self._aggregation, self.latency, self.ending.end
        )
        self._done_before = self._aggregation.counts()[1].done
        self._kept: set[int] = set()  # deals of which the state has something
        self._kept_to = 0  # the last that was among these
        self._news_due_s = self._slots_due_s = 0.0
        self._terms = WaveSettings(
            handler=spec,
            wave_bytes=self._spark.wave_bytes,
            slots=self._slots,
            shards=self._spark.shards or shards_for(self._slots.most),
            message_bytes=typical_bytes(self._context.cluster.settings, plan),
        )
        self._reader = Reader(plan, self._aggregation.watermarks, self._terms, self._jobs)

    async def _look_at_tasks(self) -> None:
        """Raises Refused when the tasks could not work, or what stopped it meanwhile; nothing was
        handled then. The first wave is read meanwhile."""
        name = f"drainer {self._plan.terms.drain_id}: looking at the tasks"
        checking = Checking(self._terms.handler, self._plan.terms.topic_id)
        await blocking_call(self._channel.begin)
        try:
            # Whatever ends this process: tasks may still be at work then.
            self._context.lock.stays = True
            look = blocking_call(self._jobs.check, checking, max(1, self._slots.count), name)
            self._reader.begin(behind=name)
            first = (look, asyncio.ensure_future(self.ending.wait()))
            found, _ = await asyncio.wait(first, timeout=ANSWER_S, return_when=FIRST_COMPLETED)
            if not found:
                self._context.print_line(await blocking_call(self._jobs.waits_for, name))
                await asyncio.wait(first, return_when=FIRST_COMPLETED)
            if not look.done():
                await blocking_call(self._jobs.cancel, name)
                raise self.ending.cause or Interrupted("it was stopped")
            with refusing():
                await blocking_call(ensure_probes, self._state, look.result())
        except BaseException:
            await self._leave_tasks()
            raise

    async def _leave_tasks(self) -> None:
        """Ends those that were looked at, and removes what they wrote when they write no more."""
        with suppress(DrainerError):
            await blocking_call(self._channel.stop, "nothing is drained")
        await self._reader.cancel()
        with suppress(DrainerError):
            await self._close_handlers(None)
        await self._remove_state()

    async def _remove_state(self) -> None:
        await blocking_call(self._channel.end)
        with suppress(DrainerError):
            await blocking_call(self._state.remove, self._file.path)

    def latency(self) -> Latency | None:
        return self._monitor.overall()

    async def begin(self) -> None:
        await self._look_at_tasks()
        self._monitor = TaskMonitor(
            self._aggregation,
            given_up_before(self._context),
            concurrency=self._quota.total,
            buffer_bytes=of_one_task(self._running, self._tasks).buffer_bytes * self._tasks,
            plan_path=str(self._file.path),
            folds=self._handler.folds,
        )
        checkpointer = self._checkpointer
        # The plan says where tasks write before the first of them does.
        try:
            await checkpointer.save(commit=False)
        except BaseException:
            await self._reader.cancel()
            raise
        checkpointer.start()
        self._work = WaveRunner(
            self._plan,
            self._terms,
            self._jobs,
            self._reader,
            self._state,
            self._aggregation,
            self._monitor,
            checkpointer,
            self.ending.end,
            self._take_news,
            self._quota,
            Settings(self._running, self._plan.terms.failures),
            self._totals,
        )
        self._working = spawn(self._work.run(), "waves", self.ending.end)

    def pause(self, paused: bool) -> None:
        self._quota.pause(paused)

    async def check(self) -> None:
        if monotonic() >= self._news_due_s:
            self._news_due_s = monotonic() + self._state.journal_interval_s
            await self._take_news(sparing=True)
        await self._quota.look()
        self._monitor.concurrency = self._quota.total
        self._channel.totals = self._totals()
        self._work.check_limit()
        if monotonic() >= self._slots_due_s:
            self._slots_due_s = monotonic() + SLOTS_S
            with suppress(DrainerError):  # when Spark is gone, its jobs say so
                count = await blocking_call(self._jobs.slots)
                self._slots.look(count, self._work.busy, monotonic())
        await self._forget_deals()

    async def change(self, settings: Settings) -> None:
        before, self._work.settings = self._work.settings, settings
        concurrency = Concurrency.of(settings.running.concurrency)
        if concurrency != Concurrency.of(before.running.concurrency):
            self._quota.use(concurrency)
        if settings.failures != before.failures:
            self._reader.failures = settings.failures
            with suppress(DrainerError):  # the next beat says it too
                await blocking_call(self._channel.change, settings.failures)

    def _totals(self) -> Totals:
        subs, skipped = self._aggregation.counts()[1], self._aggregation.ruled().skipped_by
        return Totals(
            subs.done - self._done_before,
            self._monitor.given_up,
            subs.finished - sum(skipped.values()),
            self._monitor.began_s,
        )

    async def _forget_deals(self) -> None:
        """Removes what tasks reported of deals that the plan has: it would grow for hours."""
        reference = self._checkpointer.written.account.state
        if reference is None:
            return
        self._kept.update(range(self._kept_to + 1, reference.next))
        self._kept_to = reference.next - 1
        for deal in [each for each in self._kept if reference.has_taken(self._epoch, each)]:
            try:
                await blocking_call(self._state.remove_deal, self._epoch, deal)
            except DrainerError:
                return  # once more, soon
            self._kept.remove(deal)

    async def _take_news(self, *, sparing: bool = False) -> None:
        async with self._taking:
            for attempt, head in await blocking_call(partial(self._state.news, sparing=sparing)):
                deal, task = attempt.deal, attempt.task
                for claim in self._aggregation.take(deal, task, head):
                    self._work.part_done(deal, task, claim)
                self._monitor.take(attempt, head.status)
                if head.status is not None:
                    self._quota.reported(attempt.borrower, head.status.borrowed)

    def begin_no_more(self) -> None:
        self._reader.stop()

    async def wind_down(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        if isinstance(cause, Refused) and self._monitor.waves:
            # As its readers of the first wave could and those of a later one can't.
            hint = cause.hint or "Resume with the plan."
            cause = Interrupted(str(cause), hint=hint, cause=cause)
        self._reader.stop()
        reason = "the drain is over" if cause is None else f"the drain is stopping: {cause}"
        at_rest = await self._bring_to_rest(reason)
        try:
            await self._take_news()
            if at_rest and not self._aggregation.unbalanced:
                await self._work.end_deals()
        except DrainerError:
            at_rest = False  # what they reported last is still there, for a resume
        self._at_rest = at_rest and not self._aggregation.unbalanced
        if self._at_rest:  # else they may report more, which the plan is to know it has not
            self._aggregation.end()
        return cause

    async def close(self, cause: BaseException | None) -> BaseException | None:
        if not self._at_rest:
            return cause
        try:
            return await self._close_handlers(cause)
        except DrainerError as error:  # all the same the plan is to be saved, and committed
            return chain_errors(cause, error)

    async def forget(self) -> None:
        if self._at_rest:
            await self._remove_state()

    async def _bring_to_rest(self, reason: str) -> bool:
        """Whether all tasks have reported that they are; else they may still be at work."""
        reported = True
        try:
            await blocking_call(self._channel.stop, reason)
        except DrainerError:
            await self._work.cancel()  # Spark ends them
            reported = await self._are_cut()
        await self._reader.cancel()
        # Tasks know no cause, and take all of it: of two the one that they began with.
        grace_s = max(self._running.grace_s, self._work.settings.running.grace_s)
        stopping = asyncio.create_task(self._work.rest())
        forced = asyncio.create_task(self.ending.forced.wait())
        await asyncio.wait(
            (stopping, forced), timeout=grace_s + LEAVE_S, return_when=asyncio.FIRST_COMPLETED
        )
        forced.cancel()
        at_rest = stopping.done()
        stopping.cancel()
        self._working.cancel()
        await self._work.cancel()
        return at_rest and reported

    async def _are_cut(self) -> bool:
        """Whether no task can be at work, or report anything, for their state was removed: without
        beats the last call is cut off soon."""
        with suppress(DrainerError):
            if await blocking_call(self._state.epoch) is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._spark.lease.wait_s):
                        await self.ending.forced.wait()
                return not self.ending.forced.is_set()
        return False

    async def _close_handlers(self, cause: BaseException | None) -> BaseException | None:
        """Waits for the workers to close their handlers, which they do once the drain is over."""
        until_s = monotonic() + CLOSE_S
        while True:
            still_open, failed = await blocking_call(self._state.handlers, self._epoch)
            if not still_open or monotonic() > until_s or self.ending.forced.is_set():
                break
            await asyncio.sleep(self.look_s)
        self._context.lock.stays = still_open > 0  # a call may go on there, until it is cut
        if failed:
            return chain_errors(cause, not_closed(failed[0]))
        return cause

    def failure_status(self) -> FailureStatus:
        topic = self._work.settings.failures.dead_letter_topic
        parked = len(self._work.parked)
        return replace(self._monitor.failures(), dead_letter_topic=topic, parked_lanes=parked)

    def status(self, plan: OffsetPlan) -> Status:
        status = self._monitor.status(plan, ahead=self._reader.reads)
        return replace(
            status,
            limits=replace(
                status.limits,
                auto=None if self._quota.search is None else auto_status(self._quota.search),
                read_cap=self._read_cap(status.timing.elapsed_s),
            ),
            health=HealthStatus(
                self._reader.trouble or self._monitor.trouble or self._slots.trouble
            ),
        )

    def sum_up(self, summary: Summary) -> Summary:
        return replace(
            summary,
            engine="spark",
            engine_counts={"waves": self._monitor.waves, "tasks": self._monitor.tasks_most},
            ignored_letters=None
            if self._plan.terms.redrive is None
            else self._work.ignored_letters,
        )

    def _read_cap(self, elapsed_s: float) -> CapStatus | None:
        return self._reader.cap(elapsed_s, waited_for=not self._work.handles)

    def _most(self, settings: LocalSettings) -> int:
        concurrency = Concurrency.of(settings.concurrency)
        return concurrency.most_for(threads=not self._handler.is_async)
