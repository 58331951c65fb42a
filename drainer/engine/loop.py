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
with suppress(ImportError):  # uvloop is not on every platform; the standard loop is slower.
    from uvloop import new_event_loop

CANCEL_S = 0.5  # Cancelled tasks and handlers may take so long to end.

# Objects live as long as their message, so the garbage collector would look at them in vain. By
# default, it looks at the young ones each time that 700 more were made.
GC_THRESHOLD = (100_000, 20, 100)
SWITCH_INTERVAL_S = 0.002


@contextmanager
def event_loop(
    new: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
) -> Iterator[asyncio.AbstractEventLoop]:
    """Make a new loop, and close it at the end whatever still runs on it.

    ``asyncio.Runner`` would wait for every task at its end, however long a handler stays.
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
    """Collect garbage less often, and hand the interpreter over between threads sooner.

    The fetch thread needs the interpreter several times for each batch, and a busy event loop hands
    it over only when the switch interval is over.
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
    """Run ``work`` as a task; an exception that ends it is passed to ``failed``."""
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
        with suppress(RuntimeError):  # The loop is closed: nobody needs the result.
            loop.call_soon_threadsafe(finish, result, error)

    name = getattr(function, "__qualname__", "call")
    threading.Thread(target=call, name=f"blocking-{name}", daemon=True).start()
    return future


def ensure_done(result: object) -> None:
    """Raise TypeError if a handler returned something that is still to be done, such as a coroutine
    that it forgot to await, a generator, or a future."""
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
