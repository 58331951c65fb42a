"""Threads in virtual time: greenlets, of which one runs at a time, until it waits for something."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count, islice
from queue import Empty
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from simulation.world import Killed, World

T = TypeVar("T")
Waiters = dict[Any, int]


class Threads:
    """The threads of one simulated process; they live as long as its event loop, of which there is
    one for each pass.

    ``pause_s`` gives the time that a call beside the event loop takes to begin.
    """

    def __init__(
        self, world: World, loop: asyncio.AbstractEventLoop, pause_s: Callable[[], float]
    ) -> None:
        self._world = world
        self.loop = loop
        self._pause_s = pause_s
        self._main = getcurrent()
        self._tickets = count()
        self._waiting: Waiters = {}  # with its ticket: a late waking must not end the next wait

    @property
    def inside(self) -> bool:
        """Whether the caller is one of them."""
        return getcurrent() is not self._main

    def start(self, work: Callable[[], object]) -> None:
        def live() -> None:
            with suppress(Killed):
                work()

        self.loop.call_soon(greenlet(live, parent=self._main).switch)

    def sleep(self, seconds: float) -> None:
        self.wait({}, seconds)

    def wait(self, waiters: Waiters, timeout: float | None) -> None:
        """Until ``wake`` is called for those waiters, or the timeout is over."""
        if not self._world.alive:
            raise Killed
        if not self.inside:  # before or after its event loop, a process has no other threads
            self._world.wait(timeout or 0.0)
            return
        me, ticket = getcurrent(), next(self._tickets)
        waiters[me] = ticket
        timer = timeout is not None and self.loop.call_later(timeout, self._switch, me, ticket)
        self._waiting[me] = ticket
        try:
            self._main.switch()
        finally:
            self._waiting.pop(me, None)
            waiters.pop(me, None)
            if timer:
                timer.cancel()

    def wake(self, waiters: Waiters, most: int | None = None) -> None:
        if self.loop.is_closed():
            return
        for me in list(islice(waiters, most)):
            self.loop.call_soon(self._switch, me, waiters.pop(me))

    def wake_all(self) -> None:
        """Let all that wait go on, though nothing that they wait for has happened."""
        for me, ticket in self._waiting.items():
            self.loop.call_soon(self._switch, me, ticket)

    def blocking_call(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Stands in for ``drainer.host.calls.blocking_call``."""
        future: asyncio.Future[T] = self.loop.create_future()

        def resolve_once(resolve: Callable[[], None]) -> None:
            if not future.done():
                resolve()

        def call() -> None:
            self.sleep(self._pause_s())
            try:
                result = function(*args)
            except Killed:
                raise
            except BaseException as error:
                raised = error
                self.loop.call_soon(resolve_once, lambda: future.set_exception(raised))
            else:
                self.loop.call_soon(resolve_once, lambda: future.set_result(result))

        self.start(call)
        return future

    def kill(self) -> None:
        """Ends them all, wherever they wait."""
        for each in list(self._waiting):
            with suppress(Killed):
                each.throw(Killed)

    def _switch(self, me: Any, ticket: int) -> None:
        if self._waiting.get(me) == ticket:
            me.switch()


class Threading:
    """Makes what ``threading`` and ``queue`` make, but for locks: no thread ever waits for one."""

    def __init__(self, threads: Callable[[], Threads]) -> None:
        self.event: Any = _event_of(threads)
        self.thread: Any = _thread_of(threads, self.event)
        self.queue: Any = _queue_of(threads)


def _event_of(threads: Callable[[], Threads]) -> Any:
    class Event:
        def __init__(self) -> None:
            self._set = False
            self._waiters: Waiters = {}

        def is_set(self) -> bool:
            return self._set

        def set(self) -> None:
            self._set = True
            if self._waiters:
                threads().wake(self._waiters)

        def clear(self) -> None:
            self._set = False

        def wait(self, timeout: float | None = None) -> bool:
            if not self._set:
                threads().wait(self._waiters, timeout)
            return self._set

    return Event


def _thread_of(threads: Callable[[], Threads], event: Any) -> Any:
    class Thread:
        def __init__(
            self,
            target: Callable[..., object],
            name: str = "",
            args: Iterable[object] = (),
            daemon: bool | None = None,
        ) -> None:
            self.name = name
            self.ident: int | None = None
            self._target, self._args = target, tuple(args)
            self._over = event()

        def start(self) -> None:
            self.ident = id(self)
            threads().start(self._run)

        def join(self, timeout: float | None = None) -> None:
            self._over.wait(timeout)

        def is_alive(self) -> bool:
            return self.ident is not None and not self._over.is_set()

        def _run(self) -> None:
            self._target(*self._args)
            self._over.set()

    return Thread


def _queue_of(threads: Callable[[], Threads]) -> Any:
    class SimpleQueue:
        def __init__(self) -> None:
            self._items: deque[Any] = deque()
            self._waiters: Waiters = {}

        def put(self, item: object) -> None:
            self._items.append(item)
            if self._waiters:
                threads().wake(self._waiters, 1)

        def get(self) -> Any:
            while not self._items:
                threads().wait(self._waiters, None)
            return self._items.popleft()

        def get_nowait(self) -> Any:
            if not self._items:
                raise Empty
            return self._items.popleft()

    return SimpleQueue
