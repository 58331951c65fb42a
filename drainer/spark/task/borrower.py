"""Calls lent to a task: as many at once as the driver grants it at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

from drainer.engine.local import LocalDrain
from drainer.engine.ports import Grant
from drainer.model.settings import FailureSettings
from drainer.spark.state.records import Borrowed
from drainer.spark.state.state import DriverControl


@dataclass(eq=False)
class Borrower:
    """The quota of a task: what the driver's newest message lends to ``name``, nothing at first.

    Attributes:
        base: the settings of failures for all tasks; those of the newest message that has some.
        report: called once no more calls are in flight than were lent.
        use_share: given the task's share of all that is lent, for what is shared out by it.
    """

    name: str
    base: FailureSettings
    _: KW_ONLY
    control: Callable[[], DriverControl]
    report: Callable[[], None]
    use_share: Callable[[float], None]

    def __post_init__(self) -> None:
        self._share = 0.0
        self._seen = self._reported = self._calls = 0

    def take(self) -> Grant:
        """Return what the driver's newest message lends."""
        control = self.control()
        self.base = control.failures or self.base
        if control.lent.number != self._seen:
            self._seen = control.lent.number
            self._calls = control.lent.calls.get(self.name, 0)
            self._share = self._calls / max(1, control.lent.total)
            self.use_share(self._share)
        rate = self.base.rate
        if rate is not None and self._share:  # Without a share nothing begins, at whatever rate.
            rate *= self._share
        return Grant(self._calls, replace(self.base, rate=rate))

    def obeyed(self, in_flight: int) -> None:
        """Report once that no more calls are in flight than were lent."""
        if self._reported != self._seen and in_flight <= self._calls:
            self._reported = self._seen
            self.report()

    def borrowed(self, drain: LocalDrain) -> Borrowed | None:
        """Return what the driver is to know of it; None until the handler is open."""
        if (pipeline := drain.pipeline) is None:
            return Borrowed()
        done, calls, failed = pipeline.work_done
        ready = pipeline.dispatcher.ready
        return Borrowed(self._seen, pipeline.in_flight, ready, done, calls, failed)
