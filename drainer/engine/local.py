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

from drainer.core.dispatch import Dispatcher
from drainer.core.first import FirstDispatcher
from drainer.core.lanes import look_ahead
from drainer.core.ledger import Ledger
from drainer.core.other_claims import other_claims
from drainer.engine.control import Settings
from drainer.engine.coroutines import AsyncWorkers
from drainer.engine.failures import Failures
from drainer.engine.first import with_class
from drainer.engine.latencies import Latencies
from drainer.engine.lifecycle import Lifecycle
from drainer.engine.limiter import Limiter, auto_status, work_done
from drainer.engine.loop import event_loop, spawn
from drainer.engine.meter import Meter, cap_status
from drainer.engine.outcome import given_up_before, not_closed
from drainer.engine.ports import DeadLetters, Held, Ports
from drainer.engine.pump import Pump
from drainer.engine.threads import ThreadWorkers
from drainer.engine.watchdog import Watchdog
from drainer.errors import HandleFailed, RecordsDeleted, ThreadsOverdue, chain_errors
from drainer.handler import Context
from drainer.mask import describe
from drainer.model.claims import ALL
from drainer.model.concurrency import Concurrency
from drainer.model.latency import Latency
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.status import FailureStatus, HealthStatus, Status, Summary
from drainer.policy.failures import Totals
from drainer.policy.rules.rule_filter import RuleFilter


class LocalDrain:
    """One run of a drain in this process, from a plan on disk to a summary."""

    look_s = 0.05  # how soon trouble in the fetch thread or the lock is seen
    doubtful = False

    def __init__(self, held: Held, ports: Ports) -> None:
        self._held = held
        self._plan = plan = held.plan
        self._handler = held.handler
        self._ports = ports
        self._runtime = held.runtime
        self._in_thread = held.runtime.blocking_call
        self._life = Lifecycle(self, held)
        self.dispatcher = self._dispatcher()
        self.begin_no_more: Callable[[], None] = lambda: None  # until there are workers
        self.calls: Callable[[], int] = lambda: 0  # in the handler; any thread may ask
        self.totals: Callable[[], Totals] = Totals  # of all tasks, where there are others
        self._settings = Settings(held.running, plan.terms.failures)
        self._processor = partial(held.runtime.processor, not held.handler.is_async)
        self._paused = False
        self._letters: dict[str, DeadLetters] = {}  # by topic
        self._limiter: Limiter | None = None  # when the concurrency is not fixed
        self._limiting: asyncio.Task[None] | None = None
        self._cut_off: RecordsDeleted | None = None  # what keeps the rest from being read

    def _dispatcher(self) -> Dispatcher:
        held, plan = self._held, self._plan
        if held.first is not None:
            first = FirstDispatcher(plan, held.first, self._handler.selects)
            held.class_maps[first.claim] = first.found
            return first
        progress = plan.account.claims[ALL]
        return Dispatcher(
            {n: Ledger(p.start, p.end, progress[n]) for n, p in plan.account.partitions.items()},
            Order(plan.terms.order),
            plan.account.parked,
            self._handler.selects,
            RuleFilter(plan.terms.rules, plan.account.ruled, plan.account.joins),
            other_claims(plan, held.class_maps),
            plan.account.parked_lanes,
        )

    @property
    def account(self) -> Dispatcher:
        return self.dispatcher

    def latency(self) -> Latency | None:
        return self._meter.overall()

    def run(self) -> Summary:
        """Drains until it ends, one way or another.

        Raises Refused when the handler can't be opened; else as ``Lifecycle.run``.
        """
        runtime = self._runtime
        with runtime.interpreter(), event_loop(runtime.new_event_loop) as loop:
            return self.run_on(loop)

    def run_on(self, loop: asyncio.AbstractEventLoop) -> Summary:
        """The same on a loop that goes on to live."""
        main = loop.create_task(self.run_here())
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as error:
                pressed = isinstance(error, KeyboardInterrupt) and not self._life.listens
                if main.done() or pressed:
                    raise
                # asyncio lets these through from any task: the drain is not over by that.
                self._unheard(loop, {"exception": error, "task": main})
            except RuntimeError:
                if main.done() or loop.is_closed():
                    raise
                self._life.end(
                    HandleFailed(
                        "the handler stopped drainer's event loop with loop.stop()",
                        hint="Remove that call. To halt the drain, raise drainer.Fatal.",
                    )
                )

    async def run_here(self) -> Summary:
        """The same on the running loop, whose exception handler it replaces."""
        self._watchdog = Watchdog()
        with self._watchdog:
            return await self._life.run()

    async def prepare(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        settings, dispatcher, clock = self._held.running, self.dispatcher, self._runtime.monotonic
        first, most = self._first_and_most(Concurrency.of(settings.concurrency))
        loop.set_exception_handler(self._unheard)
        await self._handler.open(
            Context(
                topic=self._plan.terms.topic,
                group=self._plan.terms.group,
                drain_id=self._plan.terms.drain_id,
                concurrency=most,
                options=dict(settings.options or {}),
                write_to=self._ports.write_to,
            ),
            self._in_thread,
        )
        latencies = Latencies(clock)
        self._meter = Meter(
            dispatcher,
            latencies,
            concurrency=first,
            buffer_bytes=settings.buffer_bytes,
            plan_path=str(self._held.file.path),
            clock=clock,
            processor=self._processor,
            folds=self._handler.folds,
        )
        self._failures = failures = Failures(
            dispatcher,
            self._plan.terms.failures,
            self._open_letters(self._plan.terms.failures.letters_topic),
            bundling := self._handler.bundling,
            self._handler.is_outage,
            wake=lambda: self._workers.wake(),  # noqa: PLW0108
            changed=self._end_if_over,
            awaits=lambda: self._pump.awaits,
            halt=self._life.end,
            runtime=self._runtime,
            given_up=given_up_before(self._held),
            totals=lambda: self.totals(),  # noqa: PLW0108 - it may be set until the first failure
        )
        checkpointer = self._life.keep()
        make_workers: Callable[..., AsyncWorkers | ThreadWorkers]
        make_workers = ThreadWorkers
        if self._handler.is_async:
            make_workers = partial(AsyncWorkers, held=checkpointer.keep_up)
        self._workers = make_workers(
            failures.source,
            cast(Any, self._handler.handle_bundle if bundling else self._handler.handle),
            first,
            self._plan.terms.failures.timeout_s,
            failures,
            broken=self._life.end,
            idle=self._idle,
            note=latencies.note,
            lease=self._held.lock,
            runtime=self._runtime,
        )
        self.begin_no_more = self._workers.begin_no_more
        self.calls = self._workers.calls
        self._source = self._ports.open_source(dispatcher, self._notified)
        self._pump = Pump(
            self._source.next_batch,
            dispatcher,
            self._handler.split,
            self._ports.is_split,
            settings.buffer_bytes // 2,  # the rest is for what is fetched and not yet split
            self._look_ahead(first),
            moved=self._fed,
            failed=self._life.end,
            clock=clock,
        )

    async def begin(self) -> None:
        try:
            self._life.checkpointer.start()
            self._workers.start()
            self._source.start()
        except BaseException:
            self._life.forced.set()
            self.stop()
            await self.rest(None, 0.0)
            await self._life.within(self._life.checkpointer.stop())
            await self.close(None)
            raise
        self._end_if_over()  # a plan may have nothing left
        self._search(Concurrency.of(self._settings.running.concurrency))

    async def change(self, settings: Settings) -> None:
        before, self._settings = self._settings, settings
        concurrency = Concurrency.of(settings.running.concurrency)
        if concurrency != Concurrency.of(before.running.concurrency):
            if self._limiting is not None:
                self._limiting.cancel()
            first, most = self._first_and_most(concurrency)
            now = self._meter.concurrency  # a search goes on from there
            self.limit(min(now, most) if concurrency.is_auto else first)
            self._search(concurrency)
        if settings.failures != before.failures:
            self._workers.use_timeout(settings.failures.timeout_s)
            self._failures.change(
                settings.failures, self._open_letters(settings.failures.letters_topic)
            )
        self._pump.poke()

    def _first_and_most(self, concurrency: Concurrency) -> tuple[int, int]:
        most = concurrency.most_for(threads=not self._handler.is_async)
        return min(concurrency.first, most), most

    def _search(self, concurrency: Concurrency) -> None:
        """Looks for the best concurrency, if it is not fixed."""
        self._limiter = self._limiting = None
        if concurrency.is_auto:
            _, most = self._first_and_most(concurrency)
            self._limiter = Limiter(
                self._runtime.search(self._meter.concurrency, most),
                partial(work_done, self.dispatcher, self._failures),
                lambda: self._workers.idle,
                self.limit,
                busy_s=lambda: sum(self._processor()),
                clock=self._runtime.monotonic,
            )
            self._limiting = spawn(self._limiter.run(), "limiter", self._life.end)

    def _open_letters(self, topic: str | None) -> DeadLetters | None:
        if topic is None:
            return None
        assert self._ports.open_letters is not None, "dead letters without a place for them"
        if topic not in self._letters:
            self._letters[topic] = self._ports.open_letters(topic)
        return self._letters[topic]

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._failures.pause(paused)
        self._workers.pause(paused)

    async def look(self) -> None:
        trouble = self._source.failure
        if isinstance(trouble, RecordsDeleted):
            # What was read may be gone from the log by the time of a resume.
            self._cut_off = trouble
            self._pump.cut_off = True
            self._fed()
        elif trouble is not None:
            self._life.end(trouble)
        self._meter.look(self._running, max(0, self._meter.concurrency - self._workers.idle))
        self._decide_rejected()
        self._pump.poke()

    def stop(self) -> None:
        if self._limiting is not None:
            self._limiting.cancel()
        self._pump.stop()
        self._failures.stop()
        self.begin_no_more()

    async def rest(self, cause: BaseException | None, grace_s: float) -> BaseException | None:
        self._stopped = self._in_thread(self._source.stop)
        if not (grace_s and await self._life.within(self._workers.drain(), grace_s)):
            await self._workers.abandon()
        if isinstance(cause, ThreadsOverdue) and self.dispatcher.complete:
            cause = None  # they came back after all
        for letters in self._letters.values():
            wait_s = 0.0 if self._life.forced.is_set() else grace_s
            await self._life.within(self._in_thread(letters.close, wait_s))
        return cause

    async def close(self, cause: BaseException | None) -> BaseException | None:
        await self._life.within(self._stopped)
        try:
            await self._life.within(self._handler.close(self._in_thread))
        except Exception as error:
            return chain_errors(cause, not_closed(describe(error), error))
        return cause

    async def forget(self) -> None:
        """The journal goes with the last plan."""

    def failure_status(self) -> FailureStatus:
        return self._failures.status()

    @property
    def _running(self) -> int:
        """Sub-messages in the handler now."""
        if self._handler.bundling is None:
            return self.calls()
        return max(0, self.dispatcher.lanes.running - self._workers.kept_back)

    def status(self, plan: OffsetPlan) -> Status:
        # While nothing new begins, what counts is how many are still to end.
        exact = self._paused or self._life.is_ending
        status = self._meter.status(plan, self._running if exact else self._meter.in_flight)
        if isinstance(self.dispatcher, FirstDispatcher) and self._held.first is not None:
            rate = self._settings.failures.rate
            first = self._held.first
            status = with_class(status, plan, self.dispatcher, first, rate, self._held.pause_s)
        return replace(
            status,
            limits=replace(
                status.limits,
                auto=None if self._limiter is None else auto_status(self._limiter.search),
                read_cap=cap_status(self._ports.read_pace, status.timing.elapsed_s),
                write_cap=cap_status(self._ports.write_pace, status.timing.elapsed_s),
            ),
            health=HealthStatus(
                trouble=self._source.trouble or self._failures.trouble,
                blocked_by=self._watchdog.blocked_by,
                is_blocked=self._watchdog.is_blocked,
            ),
        )

    def sum_up(self, summary: Summary) -> Summary:
        last, elapsed_s = summary.last, summary.last.timing.elapsed_s
        limits = replace(
            last.limits,
            read_cap=cap_status(self._ports.read_pace, elapsed_s, over=True),
            write_cap=cap_status(self._ports.write_pace, elapsed_s, over=True),
        )
        return replace(summary, last=replace(last, limits=limits))

    def limit(self, most: int) -> None:
        """Makes so many calls at once from now on, one at least; on the event loop."""
        self._meter.concurrency = most
        self._pump.ready_lanes = self._look_ahead(most)
        self._workers.limit(most)
        self._pump.poke()

    @property
    def in_flight(self) -> int:
        """Calls of the handler, and those above the limit that may still begin."""
        surplus = self._workers.surplus
        return max(self.calls(), self._meter.concurrency + surplus if surplus else 0)

    def _notified(self) -> None:
        # From the source's thread; the loop may be closed when the source is the last to stop.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pump.poke)

    def _look_ahead(self, calls: int) -> int:
        bundling = self._handler.bundling
        return look_ahead(calls * (bundling.lanes if bundling else 1))

    def _idle(self) -> None:
        # A worker found nothing to do: there may be room to deliver more, or nothing is left.
        self._end_if_over()
        if self._failures.holding_back:  # asked of each worker
            self._failures.schedule()
        self._decide_rejected()
        self._pump.poke()

    def _decide_rejected(self) -> None:
        if self.dispatcher.rejected:  # soon: what comes of it may end up here again
            self._loop.call_soon(self._failures.decide_rejected)

    def _fed(self) -> None:
        self._decide_rejected()
        self._workers.wake()
        if self._failures.holding_back:
            self._failures.schedule()
        self._end_if_over()

    def _end_if_over(self) -> None:
        dispatcher = self.dispatcher
        if dispatcher.lanes.running > len(self._failures.late):
            return
        if dispatcher.complete:
            self._life.end(None)
        elif (
            dispatcher.leaves_something or dispatcher.held or self._failures.late or self._cut_off
        ) and not (dispatcher.lanes.ready or self._failures.waiting or self._pump.awaits):
            self._life.end(self._cut_off or self._failures.left_over())

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Of a callback or a task that nothing waited for; without an exception it is only a remark.
        error = context.get("exception")
        if isinstance(error, BaseException):
            if "task" in context or "future" in context:
                error = HandleFailed(
                    f"a task of the handler failed: {describe(error)}",
                    hint="Await every task inside handle(): its return means done.",
                    cause=error,
                )
            self._life.end(error)
