"""The event loop of a drain, its tasks, calls in threads, and the interpreter's setting."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Protocol, TypeVar, cast

from drainer.forks import call_alone

T = TypeVar("T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with suppress(ImportError):  # not on every platform; the standard loop does the same, slower
    from uvloop import new_event_loop

CANCEL_S = 0.5  # how long cancelled tasks and handlers may take

# Objects live as long as their message; the default looks at the young ones every 700 of them.
GC_THRESHOLD = (100_000, 20, 100)
SWITCH_INTERVAL_S = 0.002


@contextmanager
def event_loop(
    new: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
) -> Iterator[asyncio.AbstractEventLoop]:
    """A new loop, closed at the end whatever still runs on it.

    Not asyncio.Runner: on its way out it waits for every task, however long a handler stays.
    """
    loop = new()
    try:
        yield loop
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def hurried_interpreter() -> Iterator[None]:
    """Fewer rounds of the garbage collector, and a quicker hand-over between threads.

    The fetch thread needs the interpreter several times a batch, and a busy event loop gives it
    away only when the switch interval is over.
    """
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(*GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)


def spawn(
    work: Coroutine[object, object, None], name: str, failed: Callable[[BaseException], None]
) -> asyncio.Task[None]:
    """Runs ``work`` as a task; an exception that ends it is passed to ``failed``."""
    task = asyncio.create_task(work, name=name)

    def report(ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            failed(error)

    task.add_done_callback(report)
    return task


class BlockingCall(Protocol):
    """Call a function that blocks, and return the future of its result."""

    def __call__(self, function: Callable[..., T], /, *args: object) -> asyncio.Future[T]: ...


def blocking_call(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a function in a thread of its own, and return the future of its result.

    ``asyncio.to_thread`` does the same on threads that the interpreter joins before it exits: one
    call that hangs in a dead broker or in a handler would keep the whole process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(cast(T, result))
        else:
            future.set_exception(error)

    def call() -> None:
        result, error = None, None
        try:
            result = call_alone(function, *args)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: the result is not needed
            loop.call_soon_threadsafe(finish, result, error)

    name = getattr(function, "__qualname__", "call")
    threading.Thread(target=call, name=f"blocking-{name}", daemon=True).start()
    return future


def ensure_done(result: object) -> None:
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
        f"handle returned a {type(result).__name__} that nothing awaits: declare handle as"
        " `async def` without `yield`, and await every task in it"
    )
