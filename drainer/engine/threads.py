"""Workers for a handler that blocks: threads."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from math import inf
from queue import Empty

from drainer.engine.failures import Failures
from drainer.engine.ports import CallInput, Events, LeaseOver
from drainer.engine.workers import Calls, Workers, watch_interval_s
from drainer.errors import DrainerError
from drainer.host.calls import ensure_done
from drainer.host.forks import call_alone
from drainer.message import SubMessage

# This many calls wait for a free thread, so that no thread waits for the event loop.
AHEAD = 32


class ThreadWorkers(Workers):
    """``concurrency`` threads for a handler that blocks.

    A thread can't be ended from outside. A call that takes longer than its timeout is reported, and
    keeps its lane until it returns.
    """

    def __init__(self, calls: Calls, failures: Failures, events: Events) -> None:
        super().__init__(calls, failures, events)
        # By thread, the input of its call, and since when it runs.
        self._started: dict[int, tuple[SubMessage, float]] = {}
        self._threads = 0  # Threads that were ever started.
        # During a pause, the inputs of calls that were taken back before a thread began them.
        self._kept: list[SubMessage] = []
        # A leave is a list with one entry. In the inbox, it tells the thread that removes the entry
        # to end. If ``limit`` removes the entry first, no thread ends.
        self._leaves: list[list[bool]] = []
        self._out = 0  # The number of calls that were handed to the threads and not handed back.
        self._inbox = self._runtime.queue()
        self._outbox: deque[tuple[SubMessage, BaseException | None]] = deque()
        self._collecting = False  # Whether the loop is about to look into the outbox.
        self._drained = asyncio.Event()

    def calls(self) -> int:
        """Return how many calls run, including those that nothing waits for any longer."""
        return len(self._started)

    @property
    def idle(self) -> int:
        return max(0, self._concurrency - self._out)

    @property
    def surplus(self) -> int:
        """The number of threads that are yet to end. Until then, they may begin further calls."""
        return sum(map(len, self._leaves))

    def limit(self, most: int) -> None:
        if self._stopping:
            return
        more = most - self._concurrency
        self._concurrency = most
        for _ in range(more):
            # If a thread has not left yet, it stays, and no new one is needed.
            if not (self._leaves and _taken(self._leaves.pop())):
                number = self._threads
                self._threads += 1
                self._runtime.thread(
                    target=self._work, args=(number,), name=f"worker-{number}", daemon=True
                ).start()
        # Threads that are to leave do so before anything else begins.
        ahead = self._recalled() if more < 0 else []
        self._let_go(-more)
        for sub in ahead:
            self._inbox.put(sub)
        self.wake()

    def use_timeout(self, timeout_s: float) -> None:
        """Change the timeout. A call that was late by the old one may be in time by the new one."""
        self._timeout_s = timeout_s
        started_by = self._clock() - (timeout_s or inf)
        for sub, started_s in list(self._started.values()):
            if started_s >= started_by:
                self._failures.returned(sub)

    def pause(self, paused: bool) -> None:
        """While ``paused``, keep back the calls that no thread has begun yet."""
        if not paused:
            while self._kept:
                self._inbox.put(self._kept.pop(0))
            return
        self._kept += self._recalled()

    def _recalled(self) -> list[SubMessage]:
        """Take back, in order, the inputs of calls that no thread has begun."""
        leaves: list[list[bool]] = []
        ahead: list[SubMessage] = []
        with suppress(Empty):
            while True:
                found = self._inbox.get_nowait()
                (leaves if found.__class__ is list else ahead).append(found)
        for leave in leaves:
            self._inbox.put(leave)
        return ahead

    @property
    def kept_back(self) -> int:
        """The number of calls that were handed out and that no thread has begun."""
        return max(0, self._out - len(self._started))

    def wake(self) -> None:
        take = self._source.take
        most = self._concurrency + min(self._concurrency, AHEAD)
        while self._out < most and not self._stopping:
            try:
                sub = take()
            except DrainerError as error:
                # ``coalesce`` failed. What other threads do still counts.
                self._events.halt(error)
                return
            if sub is None:
                self._events.on_idle()
                return
            self._out += 1
            self._inbox.put(sub)

    def start_no_more(self) -> None:
        self._stopping = True
        self._out -= len(self._kept) + len(self._recalled())
        self._kept.clear()
        self._let_go(self._threads)

    async def drain(self) -> None:
        if self._out > 0:
            await self._drained.wait()
        self._watch_no_more()

    async def abandon(self) -> None:
        """Stop waiting for the threads."""
        self._watch_no_more()

    def _let_go(self, threads: int) -> None:
        for _ in range(threads):
            self._leaves.append(leave := [True])
            self._inbox.put(leave)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(watch_interval_s(self._timeout_s))
            started_by = self._clock() - (self._timeout_s or inf)
            late = [
                sub for sub, started_s in list(self._started.values()) if started_s < started_by
            ]
            self._failures.overdue(late, stuck=len(late) >= self._concurrency)

    def _work(self, number: int) -> None:
        clock, uptime, lease = self._clock, self._uptime, self._lease
        spent = self._runtime.thread_time
        handled = gap = measure_at = 0  # Counted in calls that returned.
        while True:
            sub = self._inbox.get()
            if sub.__class__ is list:
                if _taken(sub):
                    return
                continue
            error: BaseException | None = None
            started_s = clock()
            self._started[number] = (sub, started_s)
            try:
                if uptime() >= lease.sure_until_s:
                    raise LeaseOver
                spent_s = spent()
                ensure_done(call_alone(self._handle, sub))
                if handled >= measure_at:
                    gap = self._record_latency(clock() - started_s, gap, spent() - spent_s)
                    measure_at = handled + gap
                handled += 1
            except BaseException as raised:
                error = raised
            del self._started[number]
            self._outbox.append((sub, error))
            if not self._collecting:
                self._collecting = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # The loop is closed: this thread was abandoned.
                    return

    def _collect(self) -> None:
        self._collecting = False
        while self._outbox:
            self._end_call(*self._outbox.popleft())
        if self._stopping and self._out <= 0:
            self._drained.set()
        self.wake()

    def _end_call(self, sub: CallInput, error: BaseException | None) -> None:
        self._out -= 1
        if self._failures.late:
            self._failures.returned(sub)
        if error is None:
            self._source.finish(sub)
        else:
            self._failures.failed(sub, error)


def _taken(leave: list[bool]) -> bool:
    """Take a leave; return False if it is taken already. Of two threads, only one can take it."""
    try:
        return leave.pop()
    except IndexError:
        return False
