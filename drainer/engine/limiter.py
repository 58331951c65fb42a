"""The limiter: measures a drain whose concurrency is ``auto``, and sets its workers' limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from drainer.core.dispatch import Dispatcher
from drainer.engine.failures import Failures
from drainer.model.progress import Outcome
from drainer.model.status import AutoStatus
from drainer.policy.concurrency_limit import ConcurrencyLimit, Interval


@dataclass(eq=False)
class Limiter:
    """Looks several times a second at what was done meanwhile; it costs no sub-message."""

    search: ConcurrencyLimit
    work: Callable[[], tuple[int, int, int]]
    idle: Callable[[], int]
    use: Callable[[int], None]
    _: KW_ONLY
    busy_s: Callable[[], float]  # gives the processor seconds that were used or waited for
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._last = self._now()
        self._running = 0

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await asyncio.sleep(self.search.look_s)
            self.look()

    def look(self) -> None:
        now, limit = self._now(), self.search.limit
        seconds, done, failed, calls, busy_s = (
            after - before for before, after in zip(self._last, now, strict=True)
        )
        before, self._running = self._running, limit - self.idle()
        self._last = now
        if seconds <= 0:
            return
        in_flight, busy = (before + self._running) / 2, busy_s / seconds
        found = self.search.hear(
            Interval(seconds, int(done), int(failed), in_flight, busy, int(calls))
        )
        if found != limit:
            self.use(found)

    def _now(self) -> tuple[float, int, int, int, float]:
        done, calls, failed = self.work()
        return self.clock(), done, failed, calls, self.busy_s()


def auto_status(search: ConcurrencyLimit) -> AutoStatus:
    return AutoStatus(search.limit, search.most, search.settled, search.searching, search.why)


def work_done(dispatcher: Dispatcher, failures: Failures) -> tuple[int, int, int]:
    """Sub-messages that calls of the handler have done, those calls, and attempts that failed."""
    ledgers = dispatcher.ledgers.values()
    done = sum(each.subs_done + each.subs_otherwise[Outcome.SKIPPED] for each in ledgers)
    # No worker had a part in what rules took out.
    done -= sum(dispatcher.rule_filter.skipped_by.values())
    calls = failures.calls
    return done, done if calls is None else calls, failures.failed_attempts
