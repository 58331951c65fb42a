"""Calls that block, made in threads that need not be waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

T = TypeVar("T")


class BlockingCall(Protocol):
    """Call a function that blocks, and return the future of its result."""

    def __call__(self, function: Callable[..., T], /, *args: object) -> asyncio.Future[T]: ...


def blocking_call(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Call a function in a thread of its own, and return the future of its result.

    ``asyncio.to_thread`` does the same on threads that the interpreter joins before it exits: one
    call that hangs in a dead broker or in a handler would hold the whole process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(set_outcome: Callable[[], None]) -> None:
        if not future.done():
            set_outcome()

    def call() -> None:
        try:
            result = function(*args)
        except BaseException as error:
            raised = error
            outcome: Callable[[], None] = lambda: future.set_exception(raised)  # noqa: E731
        else:
            outcome = lambda: future.set_result(result)  # noqa: E731
        with suppress(RuntimeError):  # the loop is closed: the result is not needed
            loop.call_soon_threadsafe(finish, outcome)

    name = getattr(function, "__qualname__", "call")
    threading.Thread(target=call, name=f"blocking-{name}", daemon=True).start()
    return future
