"""Whether a running drain will make its deadline, and if not, why: each status has the outlook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from drainer.engine.meter import lane_time_s
from drainer.engine.status import DeadlineStatus, Outlook, Reason, Status

BUSY = 0.95  # of the workers in the handler: then it is the handler that binds
AT_RATE = 0.9  # of the rate that was asked for: then it is that
LANE_BINDS = 0.8  # of the time that is left until the end: then it is the hottest lane
SURE_AFTER_S = 5.0  # no warning comes before: the first speed is that of a start
SURE_FOR_S = 2.0  # for so long it must look late


class DeadlineWatch:
    """Stands before who observes a drain. ``rate`` is the one that was asked for."""

    def __init__(
        self,
        deadline: datetime,
        rate: float | None,
        observe: Callable[[Status], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._deadline = deadline
        self._rate = rate
        self._observe = observe
        self._now = now
        self._late_since_s: float | None = None
        self._warning: Outlook | None = None  # the first that was sure enough

    def __call__(self, status: Status) -> None:
        left_s = (self._deadline - self._now()).total_seconds()
        seen = outlook(status, left_s, self._rate)
        elapsed_s = status.elapsed_s
        if not seen.late:
            self._late_since_s = None
        elif self._late_since_s is None:
            self._late_since_s = elapsed_s
        if self._late_since_s is not None and self._warning is None:
            sure = elapsed_s >= SURE_AFTER_S and elapsed_s - self._late_since_s >= SURE_FOR_S
            self._warning = seen if sure or left_s <= 0 else None
        self._observe(replace(status, deadline=DeadlineStatus(self._deadline, seen, self._warning)))


def outlook(status: Status, left_s: float, rate: float | None) -> Outlook:
    """The outlook in this moment, with so many seconds left."""
    if all(part.complete for part in status.partitions):
        return Outlook(left_s, left_s)
    if status.eta_s is None:
        return Outlook(left_s, None, Reason.PASSED if left_s <= 0 else None)
    margin_s = left_s - status.eta_s
    if margin_s >= 0:
        return Outlook(left_s, margin_s)
    hottest = max((waiting for _, waiting in status.hottest), default=0)
    lane_s = lane_time_s(status.running, status.rate_now, hottest)
    all_read = all(part.position >= part.end for part in status.partitions)
    free = status.concurrency - status.running
    signs = (
        (Reason.PASSED, left_s <= 0),
        (Reason.OUTAGE, status.trouble is not None),
        (Reason.LANE, lane_s is not None and lane_s >= LANE_BINDS * status.eta_s),
        (Reason.RATE, rate is not None and status.rate_now >= AT_RATE * rate),
        (Reason.CONCURRENCY, status.running >= BUSY * status.concurrency),
        (Reason.RETRIES, status.failures.waiting >= max(1, free)),
        (Reason.CPU, status.lanes_ready > status.concurrency),
        (Reason.LANE, hottest > 0 or all_read),
    )
    reason = next((reason for reason, holds in signs if holds), Reason.FETCH)
    enough = None
    if reason is Reason.CONCURRENCY and left_s > 0:
        enough = max(
            status.concurrency + 1, round(status.concurrency * status.eta_s / left_s * 1.1)
        )
    return Outlook(left_s, margin_s, reason, lane_s, enough)
