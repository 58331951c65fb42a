"""The limiter: measures a drain whose concurrency is ``auto``, and sets its workers' limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from drainer.model.status import AutoStatus
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample

if TYPE_CHECKING:
    from drainer.engine.pipeline import Pipeline


class Limiter:
    """Checks several times a second what was done meanwhile; it costs no sub-message."""

    def __init__(self, search: ConcurrencyLimit, pipeline: Pipeline) -> None:
        self.search = search
        self._pipeline = pipeline
        self._last = pipeline.measured()
        self._running = 0

    async def run(self) -> None:
        """Search until it is cancelled."""
        while True:
            await asyncio.sleep(self.search.look_s)
            self.check()

    def check(self) -> None:
        now, limit = self._pipeline.measured(), self.search.limit
        seconds, done, failed, calls, busy_s = (
            after - before for before, after in zip(self._last, now, strict=True)
        )
        before, self._running = self._running, limit - self._pipeline.idle
        self._last = now
        if seconds <= 0:
            return
        in_flight, busy = (before + self._running) / 2, busy_s / seconds
        found = self.search.observe(
            LoadSample(seconds, int(done), int(failed), in_flight, busy, int(calls))
        )
        if found != limit:
            self._pipeline.limit(found)


def auto_status(search: ConcurrencyLimit) -> AutoStatus:
    return AutoStatus(search.limit, search.most, search.found, search.searching, search.why)
