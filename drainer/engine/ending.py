"""The end of a drain: what anything reports that makes it end, and how long that may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

AT_ONCE_S = 0.5  # what a second Ctrl-C leaves to each step of the end


class Ending:
    """Why a drain ends: by the first cause that is reported, on its event loop.

    Attributes:
        has_come: whether it is ending.
        cause: what it ends by; None when all is done.
        forced: set when a person wants to wait no longer.
        takes_signals: whether signals come as requests to stop; before that, Ctrl-C is a
            KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.cause: BaseException | None = None
        self.forced = asyncio.Event()
        self.takes_signals = False
        self._come = asyncio.Event()
        self._at_once: list[Callable[[], None]] = []

    def call_at_once(self, stop: Callable[[], None]) -> None:
        """Have ``stop`` called first of all when a cause comes: not one call begins after that."""
        self._at_once.append(stop)

    def end(self, cause: BaseException | None) -> None:
        """Report a cause; None when all is done."""
        if self.has_come:
            return
        self.has_come, self.cause = True, cause
        self._come.set()
        for stop in self._at_once if cause is not None else ():
            stop()

    async def wait(self) -> BaseException | None:
        """Return the cause once there is one, or all is done."""
        await self._come.wait()
        return self.cause

    async def within(self, work: Awaitable[object], most_s: float | None = None) -> bool:
        """Wait for ``work`` that long at most, and no longer than a moment once ``forced`` is set.

        Whether it has ended; else it is cancelled. Raises what it raised.
        """
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self.forced.wait())
        await asyncio.wait((task, forced), timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        if forced.done():
            await asyncio.wait((task,), timeout=AT_ONCE_S)
        forced.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True
