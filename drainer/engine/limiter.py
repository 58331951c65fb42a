"""The limiter: measures a drain whose concurrency is ``auto``, and sets its workers' limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import process_time, thread_time

from drainer.core.dispatch import Dispatcher
from drainer.core.progress import Outcome
from drainer.engine.failures import Failures
from drainer.engine.status import AutoStatus
from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.policy.concurrency_trial import Interval


class Limiter:
    """Looks several times a second at what was done since the last time; it costs no sub-message.

    Args:
        failures: knows how many attempts have failed, and how many calls of the handler have ended
            well when it takes several sub-messages in one.
        idle: how many workers find nothing to do.
        use: called with each new limit.
        threads: whether the handler runs on threads, and so all of the process is its processor
            time; of an async one it is that of the event loop's thread, whose task this is.
    """

    def __init__(
        self,
        knee: ConcurrencyLimit,
        dispatcher: Dispatcher,
        failures: Failures,
        idle: Callable[[], int],
        use: Callable[[int], None],
        *,
        threads: bool,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._search = knee
        self._dispatcher = dispatcher
        self._failures = failures
        self._idle = idle
        self._use = use
        self._threads = threads
        self._found: int | None = None
        self._last = self._now()

    def status(self) -> AutoStatus:
        knee = self._search
        return AutoStatus(
            limit=knee.limit,
            most=knee.most,
            settled=self._found,
            searching=knee.settled is None,
            why=knee.why,
            best_per_s=knee.best_per_s,
        )

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await asyncio.sleep(self._search.look_s)
            self.look()

    def look(self) -> None:
        before, now = self._last, self._now()
        self._last = now
        seconds = now[0] - before[0]
        if seconds <= 0:
            return
        limit = self._search.limit
        self._search.hear(
            Interval(
                seconds=seconds,
                done=now[1] - before[1],
                failed=now[2] - before[2],
                in_flight=(before[3] + now[3]) / 2,
                busy=(now[4] - before[4]) / seconds,
                calls=None if self._failures.calls is None else now[5] - before[5],
            )
        )
        self._found = self._search.settled or self._found
        if self._search.limit != limit:
            self._use(self._search.limit)

    def _now(self) -> tuple[float, int, int, int, float, int]:
        ledgers = self._dispatcher.ledgers.values()
        done = sum(each.subs_done + each.subs_otherwise[Outcome.SKIPPED] for each in ledgers)
        # No worker had a part in what rules took out.
        done -= sum(self._dispatcher.rule_filter.skipped_by.values())
        running = self._search.limit - self._idle()
        busy_s = process_time() if self._threads else thread_time()
        failures = self._failures
        return self._clock(), done, failures.failed_attempts, running, busy_s, failures.calls or 0
