"""The in-process engine: one event loop, one fetch thread, and workers that live as long as it.

It ends when everything is finished, a person interrupts, the handler fails, or something outside
makes it unsafe to go on. Whatever it was, what is finished is in the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from drainer.core.claims import Absent
from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import look_ahead
from drainer.core.ledger import Ledger
from drainer.core.order import Order
from drainer.core.plan import ALL, OffsetPlan
from drainer.engine.bundles import Bundles
from drainer.engine.capping import cap_status
from drainer.engine.checkpointer import Checkpointer, PlanStore
from drainer.engine.coroutines import AsyncWorkers
from drainer.engine.failures import Failures
from drainer.engine.latencies import Latencies
from drainer.engine.limiter import Limiter
from drainer.engine.loop import event_loop
from drainer.engine.meter import Meter
from drainer.engine.outcome import (
    concluded,
    judged_before,
    last_offsets,
    partition_results,
    reason_told,
)
from drainer.engine.ports import Ports
from drainer.engine.pump import Pump
from drainer.engine.settings import LocalSettings
from drainer.engine.shutdown import Shutdown
from drainer.engine.status import Status, Summary
from drainer.engine.tasks import spawn
from drainer.engine.threads import ThreadWorkers
from drainer.engine.watchdog import Watchdog
from drainer.engine.workers import Starter, Workers
from drainer.errors import DrainerError, HandleFailed, RecordsDeleted, Signalled
from drainer.handler import Context
from drainer.loader import LoadedHandler, describe
from drainer.policy.concurrency import Concurrency
from drainer.policy.rules.rule_filter import RuleFilter

STATUS_INTERVAL_S = 0.5
WATCH_INTERVAL_S = 0.05  # how soon trouble in the fetch thread or the lock is seen


class LocalDrain:
    """One run of a drain in this process, from a plan on disk to a summary.

    ``observe`` is shown the status about twice a second. ``give_up`` is called, from another
    thread, when a handler blocks the event loop and a second signal asks to stop at once: nothing
    but ending the process helps then. What finished is in the journal.
    """

    def __init__(
        self,
        plan: OffsetPlan,
        file: PlanStore,
        handler: LoadedHandler,
        settings: LocalSettings,
        ports: Ports,
        observe: Callable[[Status], None],
        give_up: Callable[[], None] = lambda: None,
        elsewhere: Absent | None = None,
    ) -> None:
        self._plan = plan
        self._file = file
        self._handler = handler
        self._settings = settings
        self._ports = ports
        self._runtime = ports.runtime
        self._observe = observe
        self._give_up = give_up
        progress = plan.claims[ALL]
        self.dispatcher = Dispatcher(
            {n: Ledger(p.start, p.end, progress[n]) for n, p in plan.partitions.items()},
            Order(plan.order),
            plan.parked,
            handler.selects,
            RuleFilter(plan.rules, plan.ruled),
            elsewhere,
            plan.elsewhere(),
            plan.parked_lanes,
        )
        self._begin_no_more: Callable[[], None] = lambda: None
        self._limiter: Limiter | None = None  # when the concurrency is not fixed
        self._hears_signals = False  # before that, Ctrl-C is a KeyboardInterrupt
        self._asked: Signalled | None = None
        self._hung_up = False  # and nobody asked but by that
        self._cut_off: RecordsDeleted | None = None  # what keeps the rest from being read

    def run(self) -> Summary:
        """Drains until it ends, one way or another.

        Raises Refused when the handler can't be opened. Everything else that stops it is told in
        the summary; an error that nobody thought of is raised after the plan was saved.
        """
        runtime = self._runtime
        with runtime.interpreter(), event_loop(runtime.new_event_loop) as loop:
            return self.run_on(loop)

    def run_on(self, loop: asyncio.AbstractEventLoop) -> Summary:
        """The same on a loop that goes on to live."""
        main = loop.create_task(self._run())
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as error:
                pressed = isinstance(error, KeyboardInterrupt) and not self._hears_signals
                if main.done() or pressed:
                    raise
                # asyncio lets these through from any task: the drain is not over by that.
                self._unheard(loop, {"exception": error, "task": main})

    def stop(self, cause: DrainerError) -> None:
        """Brings it to rest, from the loop's thread, as if something outside had."""
        self._end(cause)

    async def _run(self) -> Summary:
        loop = self._loop = asyncio.get_running_loop()
        settings, dispatcher, clock = self._settings, self.dispatcher, self._runtime.monotonic
        concurrency = Concurrency.of(settings.concurrency)
        most = concurrency.most_for(threads=not self._handler.is_async)
        first = min(concurrency.first, most)
        self._ended: asyncio.Future[BaseException | None] = loop.create_future()
        self._forced = asyncio.Event()
        loop.set_exception_handler(self._unheard)
        await self._handler.open(
            Context(
                topic=self._plan.topic,
                group=self._plan.group,
                drain_id=self._plan.drain_id,
                concurrency=most,
                options=dict(settings.options or {}),
                write_to=self._ports.write_to,
            ),
            self._runtime.blocking_call,
        )
        self._latencies = Latencies(clock)
        self._meter = Meter(
            dispatcher,
            self._latencies,
            concurrency=first,
            buffer_bytes=settings.buffer_bytes,
            plan_path=str(self._file.path),
            clock=clock,
        )
        self._failures = failures = Failures(
            dispatcher,
            self._plan.failures,
            self._ports.dead_letters,
            use=lambda starter: self._workers.use(self._before(starter)),  # they come next
            wake=lambda: self._workers.wake(),  # noqa: PLW0108
            changed=self._end_if_over,
            halt=self._end,
            runtime=self._runtime,
            before=judged_before(self._plan),
        )
        self._checkpointer = Checkpointer(
            self._plan,
            self._file,
            dispatcher,
            self._latencies,
            self._ports.committer,
            settings.plan_interval_s,
            self._ports.lock,
            failed=self._end,
            runtime=self._runtime,
            journal_interval_s=settings.journal_interval_s,
        )
        make_workers: Callable[..., Workers] = partial(ThreadWorkers, runtime=self._runtime)
        if self._handler.is_async:
            make_workers = partial(AsyncWorkers, held=self._checkpointer.keep_up, clock=clock)
        bundling = self._handler.bundling
        self._bundles: Bundles | None = None
        if bundling is not None:
            self._bundles = Bundles(
                bundling, dispatcher, failures, self._wake, lambda: self._pump.awaits, clock
            )
        heard_by = self._bundles or failures
        self._workers: Workers = make_workers(
            self._before(failures.starter),
            cast(Any, self._handler.handle_bundle if bundling else self._handler.handle),
            first,
            self._plan.failures.timeout_s,
            failed=heard_by.failed,
            late=heard_by,
            broken=self._end,
            idle=self._idle,
            note=self._latencies.note,
        )
        self._begin_no_more = self._workers.begin_no_more
        self._source = self._ports.open_source(dispatcher, self._notified)
        self._pump = Pump(
            self._source.next_batch,
            dispatcher,
            self._handler.split,
            settings.buffer_bytes // 2,  # the rest is for what is fetched and not yet split
            self._look_ahead(first),
            moved=self._fed,
            failed=self._end,
            clock=clock,
        )
        if concurrency.is_auto:
            bundles = self._bundles
            self._limiter = Limiter(
                concurrency.search(first, most),
                dispatcher,
                lambda: failures.failed_attempts,
                lambda: self._workers.idle,
                self._limit,
                calls=None if bundles is None else lambda: bundles.calls,
                threads=not self._handler.is_async,
                clock=clock,
            )
        ending = Shutdown(
            dispatcher,
            self._source,
            self._pump,
            failures,
            self._workers,
            self._checkpointer,
            self._ports,
            self._handler,
            settings.grace_s,
            self._forced,
            asked=lambda: self._asked,
        )
        self._watchdog = Watchdog()
        with self._runtime.stop_signals(loop, self._signalled, self._give_up), self._watchdog:
            self._hears_signals = True
            try:
                self._checkpointer.start()
                self._workers.start()
                self._source.start()
            except BaseException:
                await ending.stop_at_once()
                raise
            self._end_if_over()  # a plan may have nothing left
            watch = spawn(self._watch(), "watch", self._end)
            limiting = None
            if self._limiter is not None:
                limiting = spawn(self._limiter.run(), "limiter", self._end)
            cause = await asyncio.shield(self._ended)
            if limiting is not None:
                limiting.cancel()
            cause = await ending.stop(cause)
            watch.cancel()
            return await self._summary(cause)

    async def _summary(self, cause: BaseException | None) -> Summary:
        self._observe(self._status())
        committed = await last_offsets(
            self._checkpointer.plan,
            self._ports.read_committed,
            self._runtime.blocking_call,
            ask=not self._forced.is_set(),
        )
        messages, subs = self.dispatcher.counts()
        # What died in former runs of a redrive is among its letters again.
        gave_up = self.dispatcher.given_up if self._plan.redrive else subs.given_up
        lost = bool(self._plan.lost) and not self._plan.redrive
        status, code, told = concluded(cause, messages, subs, gave_up=gave_up, lost=lost)
        watermarks = {n: ledger.watermark for n, ledger in self.dispatcher.ledgers.items()}
        return Summary(
            status=status,
            exit_code=code,
            elapsed_s=self._meter.elapsed_s,
            messages=messages,
            sub_messages=subs,
            partitions=partition_results(self._checkpointer.plan, watermarks, committed),
            plan=str(self._file.path),
            sub_messages_per_s=self._meter.rate_average,
            cause=told,
            failures=self._failures.status(),
            parked=self.dispatcher.parked_lanes,
            latency=self._latencies.overall(),
            auto=None if self._limiter is None else self._limiter.status(),
            blocked_by=self._watchdog.blocked_by,
            rules=self._meter.rules(),
            read_cap=cap_status(self._ports.read_pace, self._meter.elapsed_s, over=True),
            write_cap=cap_status(self._ports.write_pace, self._meter.elapsed_s, over=True),
        )

    def _status(self) -> Status:
        status = self._meter.status(
            self._checkpointer.plan,
            plan_age_s=self._runtime.monotonic() - self._checkpointer.written_at,
            stopping=reason_told(self._ended),
            failures=self._failures.status(),
            trouble=self._source.trouble or self._checkpointer.trouble or self._failures.trouble,
            auto=None if self._limiter is None else self._limiter.status(),
        )
        return replace(
            status,
            blocked_by=self._watchdog.blocked_by,
            read_cap=cap_status(self._ports.read_pace, status.elapsed_s),
            write_cap=cap_status(self._ports.write_pace, status.elapsed_s),
        )

    def _limit(self, most: int) -> None:
        self._meter.concurrency = most
        self._pump.ready_lanes = self._look_ahead(most)
        self._workers.limit(most)
        self._pump.poke()

    async def _watch(self) -> None:
        """Looks after what lives in other threads, and shows the status."""
        due = 0.0
        while True:
            for trouble in (self._source.failure, self._ports.lock.lost):
                if isinstance(trouble, RecordsDeleted):
                    self._finish_what_came(trouble)
                elif trouble is not None:
                    self._end(trouble)
            # Another drain may hold the lock by now: it should find no one at work.
            self._failures.pause(self._ports.lock.unsure_since_s is not None)
            self._pump.poke()
            if self._runtime.monotonic() >= due:
                self._observe(self._status())
                due = self._runtime.monotonic() + STATUS_INTERVAL_S
            await asyncio.sleep(WATCH_INTERVAL_S)

    def _notified(self) -> None:
        # From the source's thread; the loop may be closed when the source is the last to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pump.poke)

    def _look_ahead(self, calls: int) -> int:
        bundling = self._handler.bundling
        return look_ahead(calls * (bundling.lanes if bundling else 1))

    def _before(self, starter: Starter) -> Starter:
        return self._bundles.before(starter) if self._bundles else starter

    def _wake(self) -> None:
        if not self._ended.done():
            self._workers.wake()

    def _idle(self) -> None:
        # A worker found nothing to do: there may be room to deliver more, or nothing is left.
        self._end_if_over()
        if self._failures.holding_back:  # asked of each worker
            self._failures.idle()
        self._pump.poke()

    def _fed(self) -> None:
        self._workers.wake()
        if self._failures.holding_back:
            self._failures.idle()
        self._end_if_over()

    def _end_if_over(self) -> None:
        dispatcher = self.dispatcher
        if dispatcher.lanes.running:
            return
        if dispatcher.complete:
            self._end(None)
        elif (dispatcher.leaves_something or self._failures.late or self._cut_off) and not (
            dispatcher.lanes.ready or self._failures.waiting or self._pump.awaits
        ):
            self._end(self._cut_off or self._failures.left_over())

    def _finish_what_came(self, cut_off: RecordsDeleted) -> None:
        # What was read may be gone from the log by the time of a resume.
        self._cut_off = cut_off
        self._pump.cut_off()
        self._fed()

    def _end(self, cause: BaseException | None) -> None:
        if not self._ended.done():
            self._ended.set_result(cause)
            if cause is not None:
                self._begin_no_more()  # not one, before anyone is told

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Of a callback or a task that nobody waited for; without an exception it is only a remark.
        error = context.get("exception")
        if isinstance(error, BaseException):
            if "task" in context or "future" in context:
                error = HandleFailed(
                    f"a task of the handler failed: {describe(error)}",
                    hint="raise errors in handle() itself, and await in it what it starts: a"
                    " sub-message counts as done when it returns",
                    cause=error,
                )
            self._end(error)

    def _signalled(self, name: str) -> None:
        asked = Signalled(f"interrupted by {name}")
        # Supervisors send SIGHUP beside another signal, in any order: that is not asking twice.
        if name != "SIGHUP":
            stopping = self._ended.done() and self._ended.result() is not None
            if not self._hung_up and (stopping or self._asked is not None):
                self._forced.set()
            self._hung_up = False
        elif self._asked is not None:
            return
        else:
            self._hung_up = True
        self._asked = asked  # a drain that is only writing down its end is let finish, once
        self._end(asked)
