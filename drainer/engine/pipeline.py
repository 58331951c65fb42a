"""The pipeline of a drain in this process, on one event loop.

Messages go from the source through the pump to the workers. ``Failures`` decides what follows a
failed call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import look_ahead
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Settings
from drainer.engine.coroutines import AsyncWorkers
from drainer.engine.divert import diverting
from drainer.engine.failures import Failures
from drainer.engine.following import Following
from drainer.engine.loop import spawn
from drainer.engine.meter import Latencies, LocalSampler, auto_status
from drainer.engine.outcome import STUCK_HINT, Ending, given_up_before, left_over, not_closed
from drainer.engine.ports import DeadLetters, DrainContext, Ports, Quota
from drainer.engine.pump import Pump
from drainer.engine.threads import ThreadWorkers
from drainer.engine.watchdog import Watchdog
from drainer.engine.workers import Calls
from drainer.errors import RecordsDeleted, Refused, ThreadsOverdue, chain_errors
from drainer.model.listed import counted
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Outcome
from drainer.model.status import FailureStatus, HealthStatus, Status, Summary
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample
from drainer.policy.failures import FailurePolicy
from drainer.text.mask import describe


@dataclass(eq=False)
class Pipeline:
    """The parts that move the sub-messages of one drain. They report ``Events`` to this object."""

    context: DrainContext
    ports: Ports
    dispatcher: Dispatcher
    ending: Ending
    watchdog: Watchdog

    look_s = 0.05  # Trouble in the fetch thread or with the lock is noticed within this time.

    def __post_init__(self) -> None:
        context, ports = self.context, self.ports
        self._handler = diverting(context.handler, context.plan.terms.failures.divert)
        self._runtime = context.runtime
        self._loop = asyncio.get_running_loop()
        self.settings = Settings(context.running, context.plan.terms.failures)
        self._processor = partial(self._runtime.processor, not self._handler.is_async)
        self._is_paused = False
        self._may_call = ports.quota is None  # Whether the quota, if there is one, grants any call.
        self._letters: dict[str, DeadLetters] = {}  # By topic.
        # The error that keeps the rest of the backlog from being read.
        self._cut_off: RecordsDeleted | None = None
        # The search for the best concurrency; None if the concurrency is fixed.
        self._search: ConcurrencyLimit | None = None
        self._limiting: asyncio.Task[None] | None = None
        self._moving: asyncio.Task[None] | None = None  # Moves the end of the backlog.
        latencies = Latencies(self._runtime.monotonic)
        self.checkpointer = Checkpointer(
            context, self.dispatcher, latencies.overall, self.ending.end
        )
        self._following: Following | None = None
        if ports.log is not None:
            self._following = Following(
                *(ports.log, self.dispatcher, self.checkpointer, self._runtime),
                until=lambda: self.settings.running.until_lag,
                has_work=lambda: self._has_work,
                ended=self._end_if_over,
                print_line=context.print_line,
            )
        self._source = ports.open_source(self.dispatcher, self._notified)
        self._pump = Pump(
            self._source.next_batch,
            self.dispatcher,
            self._handler.split,
            is_split=self.ports.is_split,
            # The other half of the buffer is for messages that are fetched and not yet split.
            capacity_bytes=self.context.running.buffer_bytes // 2,
            events=self,
            clock=self._runtime.monotonic,
        )
        self._failures = self._failures_of()
        self._workers = self._workers_of(latencies)
        self._meter = LocalSampler(
            self.dispatcher,
            latencies,
            concurrency=self._first_and_most()[0],
            buffer_bytes=self.context.running.buffer_bytes,
            plan_path=str(self.context.file.path),
            clock=self._runtime.monotonic,
            processor=self._processor,
            folds=self._handler.folds,
        )
        self.ending.at_once.append(self.start_no_more)

    def _failures_of(self) -> Failures:
        failures, random = self.context.plan.terms.failures, self._runtime.random()
        return Failures(
            self.dispatcher,
            FailurePolicy(failures, random, given_up_before(self.context)),
            self._open_letters(failures.letters_topic),
            self._handler.batching,
            self._handler.is_outage,
            events=self,
            runtime=self._runtime,
        )

    def _workers_of(self, latencies: Latencies) -> AsyncWorkers | ThreadWorkers:
        handler = self._handler
        calls = Calls(
            handle=handler.handle_batch if handler.batching else handler.handle,
            timeout_s=self.context.plan.terms.failures.timeout_s,
            lease=self.context.lock,
            record_latency=latencies.record,
            runtime=self._runtime,
        )
        kind = AsyncWorkers if handler.is_async else ThreadWorkers
        return kind(calls, self._failures, self)

    # --- its life ---

    async def start(self) -> None:
        try:
            self._failures.hear(self.ports.totals())
            self.checkpointer.start()
            self.limit(self._meter.concurrency)
            self._workers.watch()
            self._source.start()
        except BaseException:
            self.ending.forced.set()
            await self.wind_down(None, 0.0)
            await self.ending.within(self.checkpointer.stop())
            await self.close(None)
            raise
        if self._following is not None:
            self._moving = spawn(self._following.run(), "following", self.ending.end)
        self._end_if_over()  # A plan may have nothing left to do.
        self._begin_search()

    def pause(self, paused: bool) -> None:
        self._is_paused = paused
        paused = paused or not self._may_call
        self._failures.pause(paused)
        self._workers.pause(paused)

    async def check(self) -> None:
        trouble = self._source.failure
        if isinstance(trouble, RecordsDeleted):
            # What was read is still drained, because a resume may no longer find it in the log.
            self._cut_off = trouble
            self._pump.cut_off = True
            self.on_moved()
        elif trouble is not None:
            self.ending.end(trouble)
        self._failures.hear(self.ports.totals())
        busy = max(0, self._meter.concurrency - self._workers.idle)
        # If a run ends before its workers begin, none of them is idle, but none is busy either.
        over = self.ending.has_come and not self.running
        self._meter.sample(self.running, 0 if over else busy)
        self._decide_rejected()
        self._pump.poke()
        if self.ports.quota is not None:
            await self._obey(self.ports.quota)

    async def _obey(self, quota: Quota) -> None:
        """Apply the driver's newest grant."""
        calls, failures = quota.take()
        self._may_call = calls > 0
        if self._may_call and calls != self._meter.concurrency:
            self.limit(calls)
        if failures != self.settings.failures:
            await self.change(replace(self.settings, failures=failures))
        self.pause(self._is_paused)
        quota.obeyed(self.in_flight, self.dispatcher.ready, self.work_done)

    async def change(self, settings: Settings) -> None:
        before = self.settings
        if settings.running.until_lag != before.running.until_lag and self._has_final_end:
            raise Refused(
                "the end of this drain is final, as its lag was small enough: another until-lag"
                " would have no effect",
                hint="Once it has ended, resume it with --follow or --until-lag to drain what was"
                " added since.",
            )
        self.settings = settings
        concurrency = Concurrency.of(settings.running.concurrency)
        if concurrency != Concurrency.of(before.running.concurrency):
            if self._limiting is not None:
                self._limiting.cancel()
            first, most = self._first_and_most()
            now = self._meter.concurrency  # A new search begins with this number.
            self.limit(min(now, most) if concurrency.is_auto else first)
            self._begin_search()
        if settings.failures != before.failures:
            self._workers.use_timeout(settings.failures.timeout_s)
            self._failures.change(
                settings.failures, self._open_letters(settings.failures.letters_topic)
            )
        self._pump.poke()

    def start_no_more(self) -> None:
        """Begin no more calls. Calls in flight go on."""
        self._workers.start_no_more()

    async def wind_down(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        for task in (self._limiting, self._moving):
            if task is not None:
                task.cancel()
        self._pump.stop()
        self._failures.stop()
        self.start_no_more()
        within, in_thread = self.ending.within, self._runtime.blocking_call
        stopped = in_thread(self._source.stop)
        if not (grace_s and await within(self._workers.drain(), grace_s)):
            await self._workers.abandon()
            if self.context.waits_after(cause):
                cause = await self._calls_return(cause)
        if isinstance(cause, ThreadsOverdue) and self.dispatcher.complete:
            cause = None  # The threads came back after all.
        for letters in self._letters.values():
            wait_s = 0.0 if self.ending.forced.is_set() else grace_s
            await within(in_thread(letters.close, wait_s))
        await within(stopped)
        return cause

    async def _calls_return(self, cause: BaseException | None) -> BaseException | None:
        """Wait for calls that can't be ended, because another pass will repeat them.

        Return the cause, with an error if they did not return in time. Then no pass follows.
        """
        until_s = self._runtime.monotonic() + self.context.running.grace_s
        while (running := self.calls()) and not self.ending.forced.is_set():
            if self._runtime.monotonic() >= until_s:
                late = f"{counted(running, 'call')} did not return in time"
                return chain_errors(cause, ThreadsOverdue(late, hint=STUCK_HINT))
            await asyncio.sleep(self.look_s)
        return cause

    async def close(self, cause: BaseException | None) -> BaseException | None:
        try:
            await self.ending.within(self._handler.close(self._runtime.blocking_call))
        except Exception as error:
            return chain_errors(cause, not_closed(describe(error), error))
        return cause

    async def forget(self) -> None:
        """Do nothing, because the journal was removed with the last write of the plan."""

    # --- events ---

    def halt(self, cause: BaseException) -> None:
        self.ending.end(cause)

    def on_moved(self) -> None:
        self._decide_rejected()
        self._workers.wake()
        if self._failures.checks:
            self._failures.schedule()
        self._end_if_over()

    def on_idle(self) -> None:
        self._end_if_over()
        if self._failures.checks:  # Without checks, nothing waits for the clock.
            self._failures.schedule()
        self._decide_rejected()
        self._pump.poke()

    def on_busy_loop(self, now_s: float) -> None:
        self.checkpointer.flush_if_due(now_s)

    @property
    def awaits_more(self) -> bool:
        return self._pump.awaits

    def _notified(self) -> None:
        # The source's thread calls this. The loop may be closed, if the source is the last to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pump.poke)

    def _decide_rejected(self) -> None:
        if self.dispatcher.rejected:  # The call reports events, so it would recurse if it ran here.
            self._loop.call_soon(self._failures.decide_rejected)

    def _end_if_over(self) -> None:
        dispatcher, late = self.dispatcher, self._failures.late
        if dispatcher.lanes.running > len(late):
            return
        leaves = dispatcher.leaves_something or dispatcher.deferred or late or self._cut_off
        if dispatcher.complete:
            self.ending.end(None)
        elif leaves and not (self._has_work or self._pump.awaits or self._follows):
            self.ending.end(self._cut_off or left_over(dispatcher, len(late)))

    @property
    def _follows(self) -> bool:
        """Whether the end of the backlog may still move, so that there will be more to read."""
        is_moving = self._following is not None and not self._has_final_end
        return is_moving and self._cut_off is None and self._pump.has_room

    @property
    def _has_final_end(self) -> bool:
        """Whether the end of the backlog has followed the log, and no longer does."""
        return self._following is not None and self._following.lag is None

    @property
    def _has_work(self) -> bool:
        """Whether anything that was read goes on, or will begin, in this run."""
        lanes, failures = self.dispatcher.lanes, self._failures
        return lanes.running > len(failures.late) or bool(lanes.ready or failures.waiting)

    # --- how many calls at once ---

    def calls(self) -> int:
        """Return how many calls are in flight. Any thread may call this."""
        return self._workers.calls()

    @property
    def in_flight(self) -> int:
        """The number of calls in flight, and of those above the limit that may still begin."""
        surplus = self._workers.surplus
        return max(self.calls(), self._meter.concurrency + surplus if surplus else 0)

    @property
    def work_done(self) -> tuple[int, int, int]:
        """The numbers of sub-messages that were handled, of their calls, and of failed attempts."""
        ledgers = self.dispatcher.ledgers.values()
        done = sum(each.subs_done + each.subs_otherwise[Outcome.SKIPPED] for each in ledgers)
        # The handler was not called for what rules skipped.
        done -= self.dispatcher.unhandled().without_call
        calls = self._failures.calls
        return done, done if calls is None else calls, self._failures.errors.attempts

    def limit(self, most: int) -> None:
        """Set how many calls may be made at once from now on, which is at least one."""
        batching = self._handler.batching
        self._meter.concurrency = most
        lanes = most * (batching.lanes if batching else 1)
        self.dispatcher.lanes.adjust(workers=lanes)
        self._pump.ready_lanes = look_ahead(lanes)
        self._workers.limit(most)
        self._pump.poke()

    def _first_and_most(self) -> tuple[int, int]:
        concurrency = Concurrency.of(self.settings.running.concurrency)
        most = concurrency.most_for(threads=not self._handler.is_async)
        return min(concurrency.first, most), most

    def _begin_search(self) -> None:
        """Begin to search for the best concurrency, unless it is fixed."""
        self._search = self._limiting = None
        if Concurrency.of(self.settings.running.concurrency).is_auto:
            _, most = self._first_and_most()
            self._search = self._runtime.search(self._meter.concurrency, most)
            self._limiting = spawn(self._limit_by(self._search), "limiter", self.ending.end)

    async def _limit_by(self, search: ConcurrencyLimit) -> None:
        """Set the limit by what was done since the last look, several times a second.

        This adds no time per sub-message.
        """
        last, running = self._measured(), 0
        while True:
            await asyncio.sleep(search.look_s)
            now, limit = self._measured(), search.limit
            seconds, done, failed, calls, busy_s = (
                after - before for before, after in zip(last, now, strict=True)
            )
            before, running, last = running, limit - self._workers.idle, now
            if seconds > 0:
                load = ((before + running) / 2, busy_s / seconds)
                sample = LoadSample(seconds, int(done), int(failed), *load, int(calls))
                if (found := search.observe(sample)) != limit:
                    self.limit(found)

    def _measured(self) -> tuple[float, int, int, int, float]:
        """Return the time, the numbers of sub-messages done, of failed attempts and of calls that
        ended well, and the processor seconds that were used or waited for."""
        done, calls, failed = self.work_done
        return self._runtime.monotonic(), done, failed, calls, sum(self._processor())

    def _open_letters(self, topic: str | None) -> DeadLetters | None:
        if topic is None:
            return None
        assert self.ports.open_letters is not None, "dead letters without a place for them"
        if topic not in self._letters:
            self._letters[topic] = self.ports.open_letters(topic)
        return self._letters[topic]

    # --- how it stands ---

    def failure_status(self) -> FailureStatus:
        return self._failures.status()

    @property
    def running(self) -> int:
        """The number of sub-messages in the handler now."""
        if self._handler.batching is None:
            return self.calls()
        return max(0, self.dispatcher.lanes.running - self._workers.kept_back)

    @property
    def _at_work(self) -> tuple[int, int]:
        """The number of sub-messages in the handler, and of busy workers, as they are shown."""
        if self._is_paused or self.ending.has_come:
            # While nothing new begins, people wait for the exact numbers to fall to zero.
            return self.running, self.calls()
        return self._meter.in_flight, self._meter.busy

    def measure(self, plan: OffsetPlan) -> None:
        self._meter.measure(self._at_work[0], is_held_up=self._failures.hold_up)

    def status(self, plan: OffsetPlan) -> Status:
        status = self._meter.status(plan, *self._at_work)
        status = self.dispatcher.complete_status(status, plan, self.settings.failures)
        status = self.ports.complete_status(status, False)
        auto = None if self._search is None else auto_status(self._search)
        progress = status.progress
        if self._following is not None:
            progress = replace(progress, lag=self._following.lag)
        if progress.eta_s is not None:
            eta_s = max(progress.eta_s, self._failures.last_retry_in_s)
            progress = replace(progress, eta_s=eta_s)
        return replace(
            status,
            progress=progress,
            limits=replace(status.limits, auto=auto),
            health=HealthStatus(
                trouble=self._failures.trouble or self._source.trouble,
                blocked_by=self.watchdog.blocked_by,
                is_blocked=self.watchdog.is_blocked,
            ),
        )

    def sum_up(self, summary: Summary) -> Summary:
        last = self.ports.complete_status(summary.last, True)
        return replace(summary, last=last, unread=self.dispatcher.unread())
