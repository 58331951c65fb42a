"""The rates of a drain: how fast its accounts grow, and how that stands to the brokers' caps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from drainer.core.progress import Counts
from drainer.engine.status import CapStatus
from drainer.policy.outlook import lane_time_s
from drainer.policy.rate_cap import Cap, RateLimiter

WINDOW_S = 5.0  # what "now" means for the rate
ETA_WINDOW_S = 30.0  # calmer: an estimate that jumps is no help


@dataclass(frozen=True, slots=True)
class Moment:
    """Rates are sub-messages per second.

    ``eta_s`` is None until there is something to go by: the work at the rate of the last half
    minute, or the longest lane if that takes longer.
    """

    at_s: float
    elapsed_s: float
    rate_now: float
    rate_average: float
    eta_s: float | None


class Rates:
    """``finished`` sub-messages were so before the run. Look about twice a second."""

    def __init__(self, finished: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._finished_before = finished
        self._started = clock()
        self._samples: deque[tuple[float, int, int]] = deque()

    def look(
        self, messages: Counts, subs: Counts, unread: int, running: int, hottest: int
    ) -> Moment:
        """Takes a sample; ``unread`` are offsets that may hold more messages, ``running`` are in
        the handler, and ``hottest`` wait in the longest lane."""
        now = self._clock()
        rate_now = self._rate(now, WINDOW_S, subs.finished, 1)
        message_rate = self._rate(now, ETA_WINDOW_S, messages.finished, 2)
        self._samples.append((now, subs.finished, messages.finished))
        while self._samples[0][0] < now - ETA_WINDOW_S:
            self._samples.popleft()
        elapsed_s = now - self._started
        eta_s = (unread + messages.pending) / message_rate if message_rate else None
        lane_s = lane_time_s(running, rate_now, hottest)
        if eta_s is not None and lane_s is not None:
            eta_s = max(eta_s, lane_s)  # what waits in one lane goes one by one
        average = (subs.finished - self._finished_before) / max(elapsed_s, 1e-9)
        return Moment(now, elapsed_s, rate_now, average, eta_s)

    def _rate(self, now: float, window_s: float, count: int, column: int) -> float:
        for sample in self._samples:
            if sample[0] >= now - window_s:
                return (count - sample[column]) / max(now - sample[0], 1e-9)
        return 0.0


def cap_status(
    pace: RateLimiter | None, elapsed_s: float, *, over: bool = False
) -> CapStatus | None:
    """Of a flow of this process, or of all that has flowed once it is ``over``; None when it is not
    capped, or nothing has flowed."""
    if pace is None or not pace.flowed:
        return None
    cap = pace.overall if over else pace.cap
    return capped(cap, pace.flowed, elapsed_s, binds=pace.binds(monotonic()))


def capped(cap: Cap, flowed: float, elapsed_s: float, *, binds: bool) -> CapStatus:
    """Of a flow of which so many messages have come."""
    return CapStatus(
        messages_per_s=cap.messages_per_s,
        bytes_per_s=cap.bytes_per_s,
        message_bytes=cap.message_bytes,
        average_per_s=flowed / elapsed_s if elapsed_s > 0 else 0.0,
        binds=binds,
    )
