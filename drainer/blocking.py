"""Calls that block, made in threads that need not be waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar, cast

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
            result = function(*args)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: the result is not needed
            loop.call_soon_threadsafe(finish, result, error)

    name = getattr(function, "__qualname__", "call")
    threading.Thread(target=call, name=f"blocking-{name}", daemon=True).start()
    return future
