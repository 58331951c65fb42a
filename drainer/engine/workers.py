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

from drainer.core.dispatch import Dispatcher
from drainer.engine.tasks import spawn
from drainer.message import SubMessage

SLICE_S = 0.01  # how long handlers that never wait may keep the event loop to themselves
SLICE_CHECK = 15  # sub-messages of a worker between two looks at the clock, less one
CANCEL_S = 0.5  # how long cancelled handlers may take
AHEAD = 32  # sub-messages that wait for a free thread, so that none waits for the event loop

Failed = Callable[[SubMessage, BaseException], None]
Broken = Callable[[BaseException], None]


class Workers(Protocol):
    """What an engine asks of its workers, whatever they are made of."""

    def start(self) -> None: ...

    def wake(self) -> None:
        """Tells that lanes have become ready."""

    def begin_no_more(self) -> None:
        """From here on nothing goes to the handler that is not in it."""

    async def drain(self) -> None:
        """Returns when nothing is in the handler any longer."""

    async def abandon(self) -> None:
        """Ends now; what is in the handler stays unfinished."""


class AsyncWorkers:
    """``concurrency`` coroutines; a worker stays on its lane while that is the best choice."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        handle: Callable[[SubMessage], Any],
        concurrency: int,
        failed: Failed,
        broken: Broken,
        idle: Callable[[], None],
    ) -> None:
        self._lanes = dispatcher.lanes
        self._take = dispatcher.take
        self._next: Callable[[SubMessage], SubMessage | None] = dispatcher.finish_and_take
        self._finish: Callable[[SubMessage], None] = dispatcher.finish
        self._handle = handle
        self._concurrency = concurrency
        self._failed = failed
        self._broken = broken
        self._idle = idle
        self._stopping = False
        self._abandoned = False
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._late = False  # this turn of the loop has lasted long enough
        self._slice_end = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._tasks = [
            spawn(self._work(), f"worker-{number}", self._broken)
            for number in range(self._concurrency)
        ]

    def wake(self) -> None:
        for _ in range(min(self._lanes.ready, len(self._sleepers))):
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

    async def abandon(self) -> None:
        self._abandoned = True
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

    async def _work(self) -> None:
        handle = self._handle
        handled = 0
        while not self._stopping:
            sub = self._take()
            if sub is None:
                sleeper = self._loop.create_future()
                self._sleepers.append(sleeper)
                self._idle()
                await sleeper
                continue
            while sub is not None:
                try:
                    result = await handle(sub)
                    if result is not None:
                        _insist_on_done(result)
                except BaseException as error:
                    if self._abandoned:
                        raise
                    self._failed(sub, error)
                    break
                handled += 1
                if self._late or (not handled & SLICE_CHECK and monotonic() > self._slice_end):
                    self._finish(sub)  # and takes no other one into the pause
                    await self._pause()
                    break
                sub = self._next(sub)
                if self._sleepers and self._lanes.ready:
                    self.wake()


class ThreadWorkers:
    """``concurrency`` threads for a handler that blocks."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        handle: Callable[[SubMessage], Any],
        concurrency: int,
        failed: Failed,
        broken: Broken,
        idle: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._handle = handle
        self._concurrency = concurrency
        self._failed = failed
        self._idle = idle
        self._stopping = False
        self._out = 0  # handed to the threads and not handed back
        self._inbox: SimpleQueue[SubMessage | None] = SimpleQueue()
        self._outbox: deque[tuple[SubMessage, BaseException | None]] = deque()
        self._called = False  # whether the loop was already told to look into the outbox
        self._drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        for number in range(self._concurrency):
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True).start()

    def wake(self) -> None:
        take = self._dispatcher.take
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
        for _ in range(self._concurrency):
            self._inbox.put(None)

    async def drain(self) -> None:
        if self._out > 0:
            await self._drained.wait()

    async def abandon(self) -> None:
        """A thread can't be ended from outside; nobody waits for it any more."""

    def _work(self) -> None:
        while (sub := self._inbox.get()) is not None:
            error: BaseException | None = None
            try:
                _insist_on_done(self._handle(sub))
            except BaseException as raised:
                error = raised
            self._outbox.append((sub, error))
            if not self._called:
                self._called = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: this thread was abandoned
                    return

    def _collect(self) -> None:
        self._called = False
        finish = self._dispatcher.finish
        while self._outbox:
            sub, error = self._outbox.popleft()
            self._out -= 1
            if error is None:
                finish(sub)
            else:
                self._failed(sub, error)
        if self._stopping and self._out <= 0:
            self._drained.set()
        self.wake()


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
