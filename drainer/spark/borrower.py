"""The engine in a task: it makes as many calls at once as the driver lends it at the moment."""

from __future__ import annotations

from collections.abc import Callable

from drainer.engine.limiter import work_done
from drainer.engine.local import LocalDrain
from drainer.engine.ports import Held, Ports
from drainer.spark.lending import Borrowed
from drainer.spark.state import Lent


class BorrowingDrain(LocalDrain):
    """Obeys the newest of what ``lent`` gives; until something is lent to ``name``, nothing starts.

    ``obeyed`` is called when it does so: no more calls are in flight than were lent. ``use_share``
    is given the task's share of all that is lent, for what is shared out by it.
    """

    def __init__(
        self,
        held: Held,
        ports: Ports,
        name: str,
        lent: Callable[[], Lent],
        obeyed: Callable[[], None],
        use_share: Callable[[float], None],
    ) -> None:
        super().__init__(held, ports)
        self._name = name
        self._lent = lent
        self._obeyed = obeyed
        self._use_share = use_share
        self._rate = held.plan.failures.rate
        self._seen = self._told = self._calls = 0

    async def prepare(self) -> None:
        await super().prepare()
        self._failures.pause(paused=True)

    async def look(self, *, paused: bool) -> None:
        lent = self._lent()
        if lent.number != self._seen:
            self._seen, self._calls = lent.number, lent.calls.get(self._name, 0)
            share = self._calls / max(1, lent.total)
            self._use_share(share)
            if self._calls:
                self.limit(self._calls)
                if self._rate is not None:
                    self.set_rate(self._rate * share)
        await super().look(paused=paused or not self._calls)
        if self._told != self._seen and self.in_flight <= self._calls:
            self._told = self._seen
            self._obeyed()

    def borrowed(self) -> Borrowed:
        """What it tells the driver of that."""
        done, calls, failed = work_done(self.dispatcher, self._failures)
        return Borrowed(self._seen, self.in_flight, self.dispatcher.ready, done, calls, failed)
