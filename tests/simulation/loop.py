"""An event loop in virtual time: when nothing is ready, it is at once as late as the next timer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from simulation.world import World

CLOSINGS = 3  # a coroutine that swallows the first GeneratorExit stops at its next await


async def work(seconds: float = 0.001) -> None:
    """A call of a handler that takes so long."""
    await asyncio.sleep(seconds)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready in the order in which it became so; there are no threads and no files."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector = self

    def time(self) -> float:
        return self._world.now_s

    def select(self, timeout: float | None) -> list[Any]:
        """Called by asyncio once in each turn."""
        self._world.turn()
        self._world.ensure(timeout is not None, "nothing will ever happen any more")
        if timeout:
            self._world.wait(timeout)
        return []

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """No thread waits in ``select``."""

    def bury(self) -> None:
        """Drops what still runs, as the end of a process does: nothing of it is seen any more."""
        self.set_exception_handler(lambda _loop, _context: None)
        for task in asyncio.all_tasks(self):
            work: Any = task.get_coro()
            for _ in range(CLOSINGS):
                with suppress(BaseException):
                    work.close()
                    break
        self.close()
