"""The driver's word to its tasks, which hear it from the state."""

from __future__ import annotations

import asyncio

from drainer.blocking import blocking_call
from drainer.spark.attempt import Control
from drainer.spark.state import State


class ControlChannel:
    """Says it for one epoch; every method raises PlanNotWritten or StateLost.

    ``mounted`` is as in ``Control``.
    """

    def __init__(self, state: State, epoch: int, *, mounted: bool) -> None:
        self._state = state
        self._epoch = epoch
        self._mounted = mounted
        self._paused = False
        self._stopped = False
        self._saying = asyncio.Lock()  # what was said last is what they hear last

    async def begin(self) -> None:
        """Tasks of earlier epochs end by it."""
        await self._say()

    async def pause(self, *, paused: bool) -> None:
        """While they pause they begin nothing; a stop is not taken back by it."""
        if paused != self._paused and not self._stopped:
            await self._say(paused=paused)
            self._paused = paused

    async def stop(self, reason: str) -> None:
        """They come to rest."""
        self._stopped = True
        await self._say(stop=reason)

    async def _say(self, *, stop: str | None = None, paused: bool = False) -> None:
        control = Control(self._epoch, stop, paused, self._mounted)
        async with self._saying:
            await blocking_call(self._state.set_control, control)
