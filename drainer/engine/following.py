"""Following: moves the end of a backlog with its log, until the drain is as near as requested."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drainer.core.dispatch import Dispatcher
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.ports import MovingLog
from drainer.engine.runtime import Runtime
from drainer.errors import BrokerUnreachable
from drainer.model.listed import name_lost
from drainer.model.option import Lag
from drainer.model.status import LagStatus

LOOK_S = 0.5  # The log is looked at this often.
# The lag in time is told by no more than this many looks, with this many ends of partitions in all.
LOOKS_MOST, ENDS_MOST = 1_000, 100_000


class LagWatch:
    """Tells how far a drain is behind its log.

    The lag in time does not depend on the timestamps of records, because producers choose them. It
    is the time since the log ended where the watermarks are now.

    ``ends`` are the ends of the backlog, which hold until the log is looked at.
    """

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends
        # Looks as times and ends that the watermarks have not all reached, the oldest first.
        self._looks: deque[tuple[float, Mapping[int, int]]] = deque()
        self._reached_s: float | None = None

    def observe(self, now_s: float, ends: Mapping[int, int]) -> None:
        """Note where the log ends now, by partition."""
        self._ends = ends
        self._looks.append((now_s, ends))
        if len(self._looks) > max(2, min(LOOKS_MOST, ENDS_MOST // max(1, len(ends)))):
            # Drop every second look but the newest. The lag in time is then half as precise.
            self._looks = deque([*self._looks][::-2][::-1])

    def lag(self, now_s: float, watermarks: Mapping[int, int]) -> LagStatus:
        """Return the lag of a drain with these watermarks."""
        while self._looks and all(watermarks[n] >= end for n, end in self._looks[0][1].items()):
            self._reached_s, _ = self._looks.popleft()
        behind = sum(max(0, end - watermarks[n]) for n, end in self._ends.items())
        return LagStatus(behind, None if self._reached_s is None else now_s - self._reached_s)


@dataclass(eq=False)
class Following:
    """Moves the end of a drain's backlog with the log.

    The order keeps the plan true: the plan on disk has the new end before a message beyond the old
    one is read, so that no journal has more than its plan.

    Attributes:
        until: returns the lag at which the end stops moving; None if it never does.
        has_work: returns whether any sub-message that was read can still finish in this run. Those
            of parked lanes can't, so they hold the watermark back, and the lag with it.
        lag: the lag of the drain; None once the end is final.
    """

    log: MovingLog
    dispatcher: Dispatcher
    checkpointer: Checkpointer
    runtime: Runtime
    until: Callable[[], Lag | None]
    has_work: Callable[[], bool]
    ended: Callable[[], None]
    print_line: Callable[[str], None]

    def __post_init__(self) -> None:
        self._watch = LagWatch({n: each.end for n, each in self.dispatcher.ledgers.items()})
        self.lag: LagStatus | None = self._tell_lag()

    async def run(self) -> None:
        """Move the end until the drain is near enough. Raises errors of drainer."""
        while True:
            if await self._is_near():
                break
            await asyncio.sleep(LOOK_S)
        self.lag = None
        self.dispatcher.freeze()
        self.log.finish()
        self.ended()

    async def _is_near(self) -> bool:
        """Look at the log once, and return whether the drain is as near to its end as requested."""
        # Taken before the request, so that the lag in time is never told too small.
        looked_s = self.runtime.monotonic()
        try:
            found = await self.runtime.blocking_call(self.log.ends)
        except BrokerUnreachable:  # The next commit reports that.
            self._tell_lag()
            return False
        ledgers = self.dispatcher.ledgers
        joined = {n: part for n, part in found.items() if n not in ledgers}
        moved = {n: p for n, p in found.items() if n in joined or p.end > ledgers[n].end}
        if moved:
            self.dispatcher.extend(moved)
            await self.checkpointer.move_ends(moved)
            if lost := {n: part.lost for n, part in joined.items() if part.lost}:
                self.print_line(
                    "warning: retention deleted records of partitions that were added to the topic,"
                    f" before the drain read them, so they are lost: {name_lost(lost)}"
                )
            self.log.read_to(moved)
        self._watch.observe(looked_s, {n: part.end for n, part in found.items()})
        lag = self._tell_lag()
        until = self.until()
        if until is None:
            return False
        if not moved and not self.has_work() and self.dispatcher.delivered:
            return True
        if until.messages is not None:
            return lag.messages <= until.messages
        return lag.seconds is not None and lag.seconds <= (until.seconds or 0.0)

    def _tell_lag(self) -> LagStatus:
        self.lag = lag = self._watch.lag(self.runtime.monotonic(), self.dispatcher.watermarks)
        return lag
