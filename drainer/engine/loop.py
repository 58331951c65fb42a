"""The event loop of a drain, its tasks, and the settings of the interpreter."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with suppress(ImportError):  # uvloop is not on every platform; the standard loop is slower.
    from uvloop import new_event_loop

CANCEL_S = 0.5  # Cancelled tasks and handlers may take this long to end.

# Objects live as long as their message, so the garbage collector would find nothing to free. By
# default, it examines the young objects after every 700 new ones.
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
