"""The limiter: measures a drain whose concurrency is ``auto``, and sets its workers' limit."""

from __future__ import annotations

import asyncio
from typing import Protocol

from drainer.core.dispatch import Dispatcher
from drainer.engine.failures import Failures
from drainer.model.progress import Outcome
from drainer.model.status import AutoStatus
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample


class Limited(Protocol):
    """What has its workers limited: a drain in this process."""

    @property
    def idle(self) -> int:
        """Workers that find nothing to do."""

    def limit(self, most: int) -> None: ...

    def measured(self) -> tuple[float, int, int, int, float]:
        """Return the time, sub-messages done, failed attempts, calls that ended well, and the
        processor seconds that were used or waited for."""


class Limiter:
    """Checks several times a second what was done meanwhile; it costs no sub-message."""

    def __init__(self, search: ConcurrencyLimit, limited: Limited) -> None:
        self.search = search
        self._limited = limited
        self._last = limited.measured()
        self._running = 0

    async def run(self) -> None:
        """Search until it is cancelled."""
        while True:
            await asyncio.sleep(self.search.look_s)
            self.check()

    def check(self) -> None:
        now, limit = self._limited.measured(), self.search.limit
        seconds, done, failed, calls, busy_s = (
            after - before for before, after in zip(self._last, now, strict=True)
        )
        before, self._running = self._running, limit - self._limited.idle
        self._last = now
        if seconds <= 0:
            return
        in_flight, busy = (before + self._running) / 2, busy_s / seconds
        found = self.search.observe(
            LoadSample(seconds, int(done), int(failed), in_flight, busy, int(calls))
        )
        if found != limit:
            self._limited.limit(found)


def auto_status(search: ConcurrencyLimit) -> AutoStatus:
    return AutoStatus(search.limit, search.most, search.found, search.searching, search.why)


def work_done(dispatcher: Dispatcher, failures: Failures) -> tuple[int, int, int]:
    """Sub-messages that calls of the handler have done, those calls, and attempts that failed."""
    ledgers = dispatcher.ledgers.values()
    done = sum(each.subs_done + each.subs_otherwise[Outcome.SKIPPED] for each in ledgers)
    # No worker had a part in what rules took out.
    done -= sum(dispatcher.rule_filter.skipped_by.values())
    calls = failures.calls
    return done, done if calls is None else calls, failures.failed_attempts
