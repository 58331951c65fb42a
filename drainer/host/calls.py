"""Calls of code that blocks, and what a handler's call may return."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from contextvars import copy_context
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Protocol, TypeVar

from drainer.handler import Fatal
from drainer.host.forks import call_alone

T = TypeVar("T")


class BlockingCall(Protocol):
    """Call a function that blocks, and return the future of its result."""

    def __call__(self, function: Callable[..., T], /, *args: object) -> asyncio.Future[T]: ...


def in_a_thread(function: Callable[..., T], *args: object) -> concurrent.futures.Future[T]:
    """Call a function in a thread of its own, with the context variables of this thread."""
    answer, context = concurrent.futures.Future[T](), copy_context()
    answer.set_running_or_notify_cancel()  # Whoever gives up the answer does not end the call.

    def call() -> None:
        try:
            answer.set_result(context.run(call_alone, function, *args))
        except BaseException as error:
            answer.set_exception(error)

    name = getattr(function, "__qualname__", "call")
    threading.Thread(target=call, name=f"call-{name}", daemon=True).start()
    return answer


def blocking_call(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a function in a thread of its own, and return the future of its result.

    ``asyncio.to_thread`` does the same on threads that the interpreter joins before it exits: one
    call that hangs in a dead broker or in a handler would keep the whole process.
    """
    return asyncio.wrap_future(in_a_thread(function, *args))


def has_running_loop() -> bool:
    """Return whether an event loop runs in this thread, as in a cell of a notebook.

    A thread can run only one event loop at a time.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def ensure_done(result: object) -> None:
    """Raise Fatal if a handler returned something that is still to be done, such as a coroutine
    that it forgot to await, a generator, or a future. No retry can make such a call right."""
    if result is None or not (
        isawaitable(result)
        or isgenerator(result)
        or isasyncgen(result)
        or isinstance(result, concurrent.futures.Future)
    ):
        return
    if iscoroutine(result):
        result.close()
    raise Fatal(
        f"handle returned a {type(result).__name__} that nothing awaits: declare handle as"
        " `async def` without `yield`, and await every task in it"
    )
