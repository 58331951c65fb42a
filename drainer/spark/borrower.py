"""The engine in a task: it makes as many calls at once as the driver lends it at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from drainer.engine.limiter import work_done
from drainer.engine.local import LocalDrain
from drainer.engine.ports import Held, Ports
from drainer.model.failures import FailureSettings
from drainer.spark.lending import Borrowed
from drainer.spark.state import Lent


class BorrowingDrain(LocalDrain):
    """Obeys the newest of what ``lent`` gives; until something is lent to ``name``, nothing starts.
    ``failures`` gives the settings that it is to decide by, when they are others than its plan's.

    ``obeyed`` is called when it does so: no more calls are in flight than were lent. ``use_share``
    is given the task's share of all that is lent, for what is shared out by it.
    """

    def __init__(
        self,
        held: Held,
        ports: Ports,
        name: str,
        lent: Callable[[], Lent],
        failures: Callable[[], FailureSettings | None],
        obeyed: Callable[[], None],
        use_share: Callable[[float], None],
    ) -> None:
        super().__init__(held, ports)
        self._name = name
        self._lent = lent
        self._obeyed = obeyed
        self._use_share = use_share
        self._failures_now = failures
        self._base = held.plan.terms.failures  # of which it has its share of the rate
        self._share = 0.0
        self._held_back = False
        self._seen = self._told = self._calls = 0

    async def prepare(self) -> None:
        await super().prepare()
        self._failures.pause(paused=True)

    def pause(self, paused: bool) -> None:
        self._held_back = paused
        super().pause(paused or not self._calls)

    async def look(self) -> None:
        lent = self._lent()
        if lent.number != self._seen:
            self._seen, self._calls = lent.number, lent.calls.get(self._name, 0)
            self._share = self._calls / max(1, lent.total)
            self._use_share(self._share)
            if self._calls:
                self.limit(self._calls)
        await self._obey_settings()
        self.pause(self._held_back)
        await super().look()
        if self._told != self._seen and self.in_flight <= self._calls:
            self._told = self._seen
            self._obeyed()

    async def _obey_settings(self) -> None:
        self._base = self._failures_now() or self._base
        rate = self._base.rate
        if rate is not None and self._share:  # else it begins nothing, at whatever rate
            rate *= self._share
        failures = replace(self._base, rate=rate)
        if failures != self._settings.failures:
            await self.change(replace(self._settings, failures=failures))

    def borrowed(self) -> Borrowed:
        """What it tells the driver of that."""
        done, calls, failed = work_done(self.dispatcher, self._failures)
        return Borrowed(self._seen, self.in_flight, self.dispatcher.ready, done, calls, failed)
