"""Workers: they take sub-messages from the dispatcher and give them to the handler.

Long-lived, and no task or future per sub-message: coroutines on the event loop for an async
handler, threads for a plain one. The dispatcher has one owner, the event loop; threads get their
sub-messages from it and hand them back to it in batches.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from drainer.core.lanes import Lanes
from drainer.engine.tasks import spawn
from drainer.errors import HandleFailed
from drainer.message import SubMessage

SLICE_S = 0.01  # how long handlers that never wait may keep the event loop to themselves
SLICE_CHECK = 15  # sub-messages of a worker between two looks at the clock, less one
CANCEL_S = 0.5  # how long cancelled handlers may take
CANCELS_MOST = 3  # for one attempt, a timeout between two
AHEAD = 32  # sub-messages that wait for a free thread, so that none waits for the event loop

WATCH_SHARE = 0.1  # of the timeout between two looks at who is overdue
WATCH_LEAST_S, WATCH_MOST_S = 0.02, 1.0

Failed = Callable[[SubMessage, BaseException], None]
Broken = Callable[[BaseException], None]


class TimedOut(TimeoutError):
    """An attempt that took longer than it may."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"handle took longer than --timeout {timeout_s:g}s")


class Starter(Protocol):
    """Whom workers ask for work: the dispatcher, or what holds starts back in front of it."""

    @property
    def lanes(self) -> Lanes: ...

    @property
    def ready(self) -> int:
        """How many could start now; no more than lanes are."""

    def take(self) -> SubMessage | None: ...

    def finish(self, sub: SubMessage) -> None: ...

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None: ...


class Late(Protocol):
    """Who is told of threads that go on after their time (engine/failures.py)."""

    def overdue(self, sub: SubMessage) -> None: ...

    def returned(self, sub: SubMessage) -> None: ...

    def stuck(self, since_s: float) -> None: ...


class Workers(Protocol):
    """What an engine asks of its workers, whatever they are made of."""

    def start(self) -> None: ...

    def use(self, starter: Starter) -> None:
        """Whom to ask for work from now on."""

    def wake(self) -> None:
        """Tells that lanes have become ready."""

    def begin_no_more(self) -> None:
        """From here on nothing goes to the handler that is not in it."""

    async def drain(self) -> None:
        """Returns when nothing is in the handler any longer."""

    async def abandon(self) -> None:
        """Ends now; what is in the handler stays unfinished."""


class AsyncWorkers:
    """``concurrency`` coroutines; a worker stays on its lane while that is the best choice.

    A handler that takes longer than ``timeout_s`` (0 for no limit) is cancelled.
    """

    def __init__(
        self,
        starter: Starter,
        handle: Callable[[SubMessage], Any],
        concurrency: int,
        timeout_s: float,
        failed: Failed,
        late: Late,
        broken: Broken,
        idle: Callable[[], None],
    ) -> None:
        self._stopping = False
        self._abandoned = False
        self.use(starter)
        self._timeout_s = timeout_s
        self._current: list[SubMessage | None] = [None] * concurrency  # by worker
        self._overdue: dict[int, int] = {}  # workers that were cancelled for it, and how often
        self._handle = handle
        self._concurrency = concurrency
        self._failed = failed
        self._broken = broken
        self._idle = idle
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._late = False  # this turn of the loop has lasted long enough
        self._slice_end = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._tasks = [
            spawn(self._work(number), f"worker-{number}", self._broken)
            for number in range(self._concurrency)
        ]
        if self._timeout_s:
            self._watcher = spawn(self._watch(), "timeouts", self._broken)

    def use(self, starter: Starter) -> None:
        self._starter = starter
        self._lanes = starter.lanes
        self._take = starter.take
        if not self._stopping:
            self._next: Callable[[SubMessage], SubMessage | None] = starter.finish_and_take
        if not self._abandoned:
            self._finish: Callable[[SubMessage], None] = starter.finish

    def wake(self) -> None:
        for _ in range(min(self._starter.ready, len(self._sleepers))):
            sleeper = self._sleepers.popleft()
            if not sleeper.done():
                sleeper.set_result(None)

    def begin_no_more(self) -> None:
        self._stopping = True
        self._next = self._finish_only

    async def drain(self) -> None:
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._watch_no_more()

    async def abandon(self) -> None:
        self._abandoned = True
        self._watch_no_more()
        # One that swallows the cancellation returns as if all were well: who knows what it did.
        self._next = self._finish = _forget
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # some handlers swallow a cancellation, and go on
            await asyncio.wait(self._tasks, timeout=CANCEL_S)

    def _finish_only(self, sub: SubMessage) -> None:
        self._finish(sub)

    def _new_turn(self) -> None:
        self._late = False
        self._slice_end = monotonic() + SLICE_S

    async def _pause(self) -> None:
        # The slice is the loop's, not the worker's: a thousand workers share it.
        if not self._late:
            self._late = True
            self._loop.call_soon(self._new_turn)
        await asyncio.sleep(0)

    async def _watch(self) -> None:
        # A look at all workers now and then costs less than a timer for each sub-message.
        known: list[tuple[SubMessage | None, int, float]] = [(None, 0, 0.0)] * self._concurrency
        while True:
            await asyncio.sleep(_watch_interval_s(self._timeout_s))
            now = monotonic()
            for number, sub in enumerate(self._current):
                seen, attempt, since = known[number]
                if sub is not seen or (sub is not None and sub.attempt != attempt):
                    known[number] = (sub, 0 if sub is None else sub.attempt, now)
                elif sub is not None and now - since >= self._timeout_s:
                    known[number] = (sub, attempt, now)  # it has as long again to clean up
                    times = self._overdue[number] = self._overdue.get(number, 0) + 1
                    if times > CANCELS_MOST:
                        self._broken(_not_to_be_cancelled(sub, times - 1))
                    self._tasks[number].cancel()

    def _watch_no_more(self) -> None:
        if self._timeout_s:
            self._watcher.cancel()

    async def _cancelled(self, number: int) -> TimedOut:
        """Ends the cancellation of a worker that was overdue, whether it was heard or not."""
        del self._overdue[number]
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        while self._tasks[number].uncancel():
            pass
        return TimedOut(self._timeout_s)

    async def _work(self, number: int) -> None:
        handle, current, overdue = self._handle, self._current, self._overdue
        handled = 0
        while not self._stopping:
            sub = self._take()
            if sub is None:
                current[number] = None
                sleeper = self._loop.create_future()
                self._sleepers.append(sleeper)
                self._idle()
                await sleeper
                continue
            while sub is not None:
                current[number] = sub
                try:
                    result = await handle(sub)
                    if result is not None:
                        _insist_on_done(result)
                    if overdue and number in overdue:  # it swallowed its cancellation
                        raise await self._cancelled(number)
                except BaseException as raised:
                    if self._abandoned:
                        raise
                    current[number] = None
                    late = overdue and number in overdue
                    self._failed(sub, await self._cancelled(number) if late else raised)
                    break
                handled += 1
                if self._late or (not handled & SLICE_CHECK and monotonic() > self._slice_end):
                    current[number] = None
                    self._finish(sub)  # and takes no other one into the pause
                    await self._pause()
                    break
                sub = self._next(sub)
                if self._sleepers and self._lanes.ready:
                    self.wake()


class ThreadWorkers:
    """``concurrency`` threads for a handler that blocks.

    A thread can't be ended from outside. One that takes longer than ``timeout_s`` (0 for no limit)
    keeps its sub-message and its lane until it returns, and another stands in for it meanwhile.
    """

    def __init__(
        self,
        starter: Starter,
        handle: Callable[[SubMessage], Any],
        concurrency: int,
        timeout_s: float,
        failed: Failed,
        late: Late,
        broken: Broken,
        idle: Callable[[], None],
    ) -> None:
        self.use(starter)
        self._handle = handle
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._failed = failed
        self._late = late
        self._broken = broken
        self._idle = idle
        self._begun: dict[int, tuple[SubMessage, float]] = {}  # what each thread is at, since when
        self._overdue: set[SubMessage] = set()
        self._stand_ins = 0  # threads for those that are overdue, as many again at most
        self._stuck_since_s: float | None = None  # all of them are overdue
        self._threads = 0  # ever begun
        self._stopping = False
        self._out = 0  # handed to the threads and not handed back
        self._inbox: SimpleQueue[SubMessage | None] = SimpleQueue()
        self._outbox: deque[tuple[SubMessage, BaseException | None]] = deque()
        self._called = False  # whether the loop was already told to look into the outbox
        self._drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        for _ in range(self._concurrency):
            self._start_one()
        if self._timeout_s:
            self._watcher = spawn(self._watch(), "timeouts", self._broken)

    def use(self, starter: Starter) -> None:
        self._starter = starter

    def wake(self) -> None:
        take = self._starter.take
        most = self._concurrency + min(self._concurrency, AHEAD)
        while self._out < most and not self._stopping:
            sub = take()
            if sub is None:
                self._idle()
                return
            self._out += 1
            self._inbox.put(sub)

    def begin_no_more(self) -> None:
        self._stopping = True
        with suppress(Empty):
            while True:  # what no thread has begun
                if self._inbox.get_nowait() is not None:
                    self._out -= 1
        for _ in range(self._threads):
            self._inbox.put(None)

    async def drain(self) -> None:
        if self._out > 0 or self._overdue:
            await self._drained.wait()
        self._watch_no_more()

    async def abandon(self) -> None:
        """Nobody waits for the threads any more."""
        self._watch_no_more()

    def _start_one(self) -> None:
        number = self._threads
        self._threads += 1
        threading.Thread(
            target=self._work, args=(number,), name=f"worker-{number}", daemon=True
        ).start()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_watch_interval_s(self._timeout_s))
            now = monotonic()
            for sub, since in list(self._begun.values()):
                if now - since > self._timeout_s and sub not in self._overdue:
                    self._overdue.add(sub)
                    self._out -= 1
                    if self._stand_ins < self._concurrency and not self._stopping:
                        self._stand_ins += 1
                        self._start_one()
                    self._late.overdue(sub)
            if len(self._overdue) < self._concurrency + self._stand_ins:
                self._stuck_since_s = None
            else:
                self._stuck_since_s = self._stuck_since_s or now
                self._late.stuck(self._stuck_since_s)

    def _watch_no_more(self) -> None:
        if self._timeout_s:
            self._watcher.cancel()

    def _work(self, number: int) -> None:
        while (sub := self._inbox.get()) is not None:
            error: BaseException | None = None
            self._begun[number] = (sub, monotonic())
            try:
                _insist_on_done(self._handle(sub))
            except BaseException as raised:
                error = raised
            del self._begun[number]
            self._outbox.append((sub, error))
            if not self._called:
                self._called = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: this thread was abandoned
                    return

    def _collect(self) -> None:
        self._called = False
        finish = self._starter.finish
        while self._outbox:
            sub, error = self._outbox.popleft()
            if sub in self._overdue:
                self._overdue.discard(sub)
                if self._stand_ins > len(self._overdue):  # then one thread more than is needed ends
                    self._stand_ins -= 1
                    self._inbox.put(None)
                self._late.returned(sub)
            else:
                self._out -= 1
            if error is None:
                finish(sub)
            else:
                self._failed(sub, error)
        if self._stopping and self._out <= 0 and not self._overdue:
            self._drained.set()
        self.wake()


def _watch_interval_s(timeout_s: float) -> float:
    return min(WATCH_MOST_S, max(WATCH_LEAST_S, WATCH_SHARE * timeout_s))


def _not_to_be_cancelled(sub: SubMessage, times: int) -> HandleFailed:
    return HandleFailed(
        f"handle goes on for sub-message {sub} ({sub!r}), though it was cancelled {times} times for"
        " taking longer than --timeout",
        hint="let asyncio.CancelledError pass in the handler, then resume",
    )


def _forget(_: SubMessage) -> None:
    """Takes what a handler is done with for unfinished."""


def _insist_on_done(result: object) -> None:
    # What is given back unfinished may never be done: a forgotten await, a `yield`, a future.
    if result is None or not (
        isawaitable(result)
        or isgenerator(result)
        or isasyncgen(result)
        or isinstance(result, concurrent.futures.Future)
    ):
        return
    if iscoroutine(result):
        result.close()
    raise TypeError(
        f"handle gave back a {type(result).__name__} that nobody waits for: declare it `async def`"
        " without `yield`, and await in it what it starts"
    )
