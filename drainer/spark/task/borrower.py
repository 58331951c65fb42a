"""Calls lent to a task: as many at once as the driver grants it at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

from drainer.engine.local import LocalDrain
from drainer.engine.pipeline import Pipeline
from drainer.model.settings import FailureSettings
from drainer.spark.state.records import Borrowed
from drainer.spark.state.state import DriverControl


@dataclass(eq=False)
class Borrower:
    """Limits a drain to what the driver's newest message lends; until something is lent to
    ``name``, it starts nothing. It decides by the settings of that message, else by its plan's,
    ``base``: of these it has its share of the rate.

    ``obeyed`` is called when it does so: no more calls are in flight than were lent. ``use_share``
    is given the task's share of all that is lent, for what is shared out by it.
    """

    name: str
    base: FailureSettings
    _: KW_ONLY
    control: Callable[[], DriverControl]
    obeyed: Callable[[], None]
    use_share: Callable[[float], None]

    def __post_init__(self) -> None:
        self._share = 0.0
        self._seen = self._reported = self.calls = 0

    async def obey(self, pipeline: Pipeline) -> None:
        lent = self.control().lent
        if lent.number != self._seen:
            self._seen, self.calls = lent.number, lent.calls.get(self.name, 0)
            self._share = self.calls / max(1, lent.total)
            self.use_share(self._share)
            if self.calls:
                pipeline.limit(self.calls)
        await self._obey_settings(pipeline)
        if self._reported != self._seen and pipeline.in_flight <= self.calls:
            self._reported = self._seen
            self.obeyed()

    async def _obey_settings(self, pipeline: Pipeline) -> None:
        self.base = self.control().failures or self.base
        rate = self.base.rate
        if rate is not None and self._share:  # else it begins nothing, at whatever rate
            rate *= self._share
        failures = replace(self.base, rate=rate)
        if failures != pipeline.settings.failures:
            await pipeline.change(replace(pipeline.settings, failures=failures))

    def borrowed(self, drain: LocalDrain) -> Borrowed | None:
        """Return what the driver is to know of it; None until the handler is open."""
        if (pipeline := drain.pipeline) is None:
            return Borrowed()
        done, calls, failed = pipeline.work_done
        ready = pipeline.dispatcher.ready
        return Borrowed(self._seen, pipeline.in_flight, ready, done, calls, failed)
