"""Workers for an async handler: coroutines on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any

from drainer.engine.failures import Failures
from drainer.engine.loop import CANCEL_S, spawn
from drainer.engine.ports import CallInput, Events, LeaseOver, TimedOut
from drainer.engine.workers import Calls, Workers, watch_interval_s
from drainer.errors import HandleFailed
from drainer.host.calls import ensure_done
from drainer.host.forks import FORKS, end_if_forked
from drainer.message import SubMessage, keys_repr

SLICE_S = 0.01  # Handlers that never wait may keep the event loop to themselves for this long.
# An attempt is cancelled up to this many times, with the handler's timeout between two times.
CANCELS_MOST = 3


class AsyncWorkers(Workers):
    """Workers that are coroutines. A worker stays on its lane while that is the best choice.

    ``limit`` makes more of them, or lets some rest once they have finished their current call. A
    handler that takes longer than its timeout is cancelled.

    Attributes:
        surplus: how many workers are above the limit, and are yet to rest.
    """

    def __init__(self, calls: Calls, failures: Failures, events: Events) -> None:
        super().__init__(calls, failures, events)
        self._gaps: list[int] = []  # By worker, the attempts from one measurement to the next.
        self._abandoned = False
        self._over = False  # Whether nothing waits for the workers any more.
        self.surplus = 0
        self._next: Callable[[CallInput], CallInput | None] = self._source.finish_and_take
        self._resting: list[asyncio.Future[None]] = []  # They wake the workers above the limit.
        self._current: list[SubMessage | None] = []  # By worker.
        self._overdue: dict[int, int] = {}  # How often each worker was cancelled for its attempt.
        self._sleepers: deque[asyncio.Future[None]] = deque()  # They wake the idle workers.
        self._late = False  # Whether this turn of the loop has lasted long enough.
        self._slice_end = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._failed = failures.failed
        self._lanes = failures.lanes
        self._take: Callable[[], CallInput | None] = self._source.take
        self._finish: Callable[[CallInput], object] = self._source.finish

    def use_timeout(self, timeout_s: float) -> None:
        """Change the timeout, for calls in flight too."""
        self._timeout_s = timeout_s

    def pause(self, paused: bool) -> None:
        """Do nothing, because workers take sub-messages themselves: none is handed out ahead."""

    kept_back = 0

    def calls(self) -> int:
        """Return how many calls run, including those that nothing waits for any longer."""
        if self._over:  # Some handlers swallow a cancellation, and go on while the loop runs.
            return sum(not task.done() for task in self._tasks)
        at_work = len(self._tasks) - len(self._sleepers) - len(self._resting)
        return min(at_work, self._lanes.running)

    @property
    def idle(self) -> int:
        """Number of workers without work. A worker that waits for the event loop is at work."""
        return len(self._sleepers)

    def limit(self, most: int) -> None:
        """Set how many workers may work. Surplus workers finish their call, and then rest."""
        if self._stopping:
            return
        self._concurrency = most
        too_many = len(self._tasks) - len(self._resting) - most
        self.surplus = max(0, too_many)
        for _ in range(min(self.surplus, len(self._sleepers))):
            _wake(self._sleepers.popleft())
        for _ in range(min(-too_many, len(self._resting))):
            _wake(self._resting.pop())
        for number in range(len(self._tasks), len(self._resting) + most):
            self._current.append(None)
            self._gaps.append(0)
            self._tasks.append(spawn(self._work(number), f"worker-{number}", self._events.halt))
        self._choose_next()

    def wake(self) -> None:
        """Wake as many workers as there are ready lanes."""
        for _ in range(min(self._source.ready, len(self._sleepers))):
            _wake(self._sleepers.popleft())

    def start_no_more(self) -> None:
        """Give nothing more to the handler."""
        self._stopping = True
        self._next = self._finish_only

    async def drain(self) -> None:
        """Return when no call is in flight any longer."""
        for sleeper in (*self._sleepers, *self._resting):
            _wake(sleeper)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._watch_no_more()
        self._over = True

    async def abandon(self) -> None:
        """End now. What is in the handler stays unfinished."""
        self._abandoned = True
        self._watch_no_more()
        # A handler that swallows the cancellation returns as if all were well, whatever it did.
        self._next = self._finish = _forget
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # Some handlers swallow a cancellation, and continue.
            await asyncio.wait(self._tasks, timeout=CANCEL_S)
        self._over = True

    def _choose_next(self) -> None:
        # While there is a surplus, a worker looks whether it has to rest before it takes another
        # sub-message.
        if not (self._stopping or self._abandoned):
            self._next = self._finish_only if self.surplus else self._source.finish_and_take

    async def _rest(self, number: int) -> None:
        if not self.surplus:  # What else is due on the loop comes first.
            await asyncio.sleep(0)
            return
        self.surplus -= 1
        self._choose_next()
        self._current[number] = None
        resting = self._loop.create_future()
        self._resting.append(resting)
        await resting  # At least one worker does not rest, and notices when all is done.

    def _finish_only(self, sub: SubMessage) -> SubMessage | None:
        self._finish(sub)
        return None

    def _new_turn(self) -> None:
        self._late = False
        self._slice_end = self._clock() + SLICE_S

    def _measured(self, number: int, handled: int, started_s: float, spent_s: float) -> int:
        """Record how long a worker's call took, and the processor time in it.

        Return the count of calls at which the worker measures again. Because this reads the clock
        anyway, it also checks whether the workers' slice of the event loop is over.
        """
        if number in self._overdue:  # The handler was cancelled, and swallowed that.
            return handled
        now_s = self._clock()
        # All workers share one slice of the loop, because there may be a thousand of them.
        if now_s > self._slice_end:
            self._events.on_busy_loop(now_s)
            if not self._late:
                self._late = True
                self._loop.call_soon(self._new_turn)
        gap = self._gaps[number] = self._record_latency(
            now_s - started_s, self._gaps[number], spent_s
        )
        return handled + gap

    async def _watch(self) -> None:
        # Looking at all workers now and then costs less than a timer for each sub-message.
        known: list[tuple[SubMessage | None, int, float]] = []
        while True:
            await asyncio.sleep(watch_interval_s(self._timeout_s))
            now = self._clock()
            timeout_s = self._timeout_s or inf
            known += [(None, 0, 0.0)] * (len(self._current) - len(known))
            for number, sub in enumerate(self._current):
                seen, attempt, since = known[number]
                if sub is not seen or (sub is not None and sub.attempt != attempt):
                    known[number] = (sub, 0 if sub is None else sub.attempt, now)
                elif sub is not None and now - since >= timeout_s:
                    # If the handler goes on, it is cancelled again after another timeout.
                    known[number] = (sub, attempt, now)
                    times = self._overdue[number] = self._overdue.get(number, 0) + 1
                    if times > CANCELS_MOST:
                        self._events.halt(_not_to_be_cancelled(sub, times - 1))
                    self._tasks[number].cancel()

    async def _cancelled(self, number: int) -> TimedOut:
        """Let an overdue worker go on after its cancellation, and return the error of its attempt.

        It does not matter whether the handler let the cancellation through or swallowed it.
        """
        del self._overdue[number]
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        while self._tasks[number].uncancel():
            pass
        return TimedOut(self._timeout_s)

    async def _work(self, number: int) -> None:
        handle, current, overdue = self._handle, self._current, self._overdue
        clock, uptime, lease = self._clock, self._uptime, self._lease
        thread_time, forks = self._runtime.thread_time, len(FORKS)
        handled = measure_at = 0  # Counted in calls that returned.
        while not self._stopping:
            if self.surplus or self._late:
                await self._rest(number)
                continue
            sub = self._take()
            if sub is None:
                current[number] = None
                sleeper = self._loop.create_future()
                self._sleepers.append(sleeper)
                self._events.on_idle()
                await sleeper
                continue
            while sub is not None:
                current[number] = sub
                try:
                    if uptime() >= lease.sure_until_s:
                        raise LeaseOver
                    started_s = None if handled < measure_at else clock()
                    call = handle(sub) if started_s is None else _Timed(handle(sub), thread_time)
                    result = await call
                    end_if_forked(forks)
                    if started_s is not None:
                        measure_at = self._measured(number, handled, started_s, call.spent_s)
                    if result is not None:
                        ensure_done(result)
                    if overdue and number in overdue:  # The handler swallowed its cancellation.
                        raise await self._cancelled(number)
                except BaseException as raised:
                    end_if_forked(forks)
                    if self._abandoned:
                        raise
                    current[number] = None
                    late = overdue and number in overdue
                    self._failed(sub, await self._cancelled(number) if late else raised)
                    break
                handled += 1
                if self._late:
                    current[number] = None
                    self._finish(sub)  # The worker holds no other sub-message while it yields.
                    self.wake()
                    break
                sub = self._next(sub)
                if self._sleepers and self._lanes.ready:
                    self.wake()


CALLS_HANDLER = AsyncWorkers._work.__code__  # noqa: SLF001


class _Timed:
    """A call to await, which measures the processor time of its steps in ``spent_s``. Tasks that it
    starts, and callbacks of the event loop, are not in it."""

    __slots__ = ("_steps", "_thread_time", "spent_s")

    def __init__(self, call: Awaitable[object], thread_time: Callable[[], float]) -> None:
        self._steps, self._thread_time, self.spent_s = call.__await__(), thread_time, 0.0

    def __await__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._step(self._steps.__next__)

    def throw(self, *error: Any) -> Any:
        return self._step(self._steps.throw, *error)

    def _step(self, step: Callable[..., Any], *error: Any) -> Any:
        started_s = self._thread_time()
        try:
            return step(*error)
        finally:
            self.spent_s += self._thread_time() - started_s


def _not_to_be_cancelled(sub: SubMessage, times: int) -> HandleFailed:
    return HandleFailed(
        f"handle ignored {times} cancellations after --tune timeout, for sub-message {sub}"
        f" ({keys_repr(sub)})",
        hint="Don't catch asyncio.CancelledError in the handler, then resume.",
    )


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _forget(_: SubMessage) -> SubMessage | None:
    """Leave a sub-message unfinished, though its call has returned."""
    return None
