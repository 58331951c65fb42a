"""Whether a running drain will make its deadline, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

BUSY = 0.95  # of the workers in the handler: then it is the handler that binds
AT_RATE = 0.9  # of the rate that was asked for: then it is that
LANE_BINDS = 0.8  # of the time that is left until the end: then it is the hottest lane
SURE_AFTER_S = 5.0  # nobody is warned before: the first speed is that of a start
SURE_FOR_S = 2.0  # for so long it must look late


class Reason(Enum):
    """Why a drain is too slow, the first that holds."""

    PASSED = "the deadline has passed"
    OUTAGE = "the downstream or the broker is failing"
    LANE = "the hottest lane"
    RATE = "--rate"
    CONCURRENCY = "concurrency"
    RETRIES = "retries"
    FETCH = "the fetch"
    CPU = "this process"


@dataclass(frozen=True, slots=True)
class Speed:
    """What is looked at in a moment of a drain. Rates are sub-messages per second.

    ``eta_s`` is when all of it ends, the hottest lane too; None when nothing is known yet.
    ``hottest`` is how many wait in the longest lane.
    """

    elapsed_s: float
    left_s: float
    eta_s: float | None
    rate_now: float
    running: int
    concurrency: int
    ready: int
    hottest: int
    waiting_retries: int
    in_trouble: bool
    all_read: bool
    asked_rate: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether the deadline will be met: by ``margin_s``, or missed by as much below zero.

    ``margin_s`` is None while nothing is known. ``reason`` is given when it will be missed;
    ``lane_s`` is what the hottest lane still takes then, one after the other, and
    ``concurrency`` how many at once would make it, where that is the reason.
    """

    left_s: float
    margin_s: float | None
    reason: Reason | None = None
    lane_s: float | None = None
    concurrency: int | None = None

    @property
    def late(self) -> bool:
        return self.reason is not None


def lane_time_s(running: int, rate: float, waiting: int) -> float | None:
    """What ``waiting`` sub-messages of one lane take, one after the other, when so many that are in
    the handler make that rate (Little's law); None when nothing moves."""
    return waiting * running / rate if rate > 0 else None


def outlook(pace: Speed) -> Outlook:
    """The outlook in this moment."""
    left_s = pace.left_s
    lane_s = lane_time_s(pace.running, pace.rate_now, pace.hottest)
    if pace.eta_s is None:
        stuck = left_s <= 0
        return Outlook(left_s, None, Reason.PASSED if stuck else None)
    margin_s = left_s - pace.eta_s
    if margin_s >= 0:
        return Outlook(left_s, margin_s)
    reason = _reason(pace, pace.eta_s, lane_s)
    enough = None
    if reason is Reason.CONCURRENCY and left_s > 0:
        enough = max(pace.concurrency + 1, round(pace.concurrency * pace.eta_s / left_s * 1.1))
    return Outlook(left_s, margin_s, reason, lane_s, enough)


def _reason(pace: Speed, ends_s: float, lane_s: float | None) -> Reason:
    signs = (
        (Reason.PASSED, pace.left_s <= 0),
        (Reason.OUTAGE, pace.in_trouble),
        (Reason.LANE, lane_s is not None and lane_s >= LANE_BINDS * ends_s),
        (
            Reason.RATE,
            pace.asked_rate is not None and pace.rate_now >= AT_RATE * pace.asked_rate,
        ),
        (Reason.CONCURRENCY, pace.running >= BUSY * pace.concurrency),
        (Reason.RETRIES, pace.waiting_retries >= max(1, pace.concurrency - pace.running)),
        (Reason.CPU, pace.ready > pace.concurrency),
        (Reason.LANE, pace.hottest > 0 or pace.all_read),
    )
    return next((reason for reason, holds in signs if holds), Reason.FETCH)


class Warner:
    """Says once that a deadline will be missed: when that is sure enough, and not before."""

    def __init__(self) -> None:
        self._late_since_s: float | None = None
        self.warned = False

    def look(self, elapsed_s: float, seen: Outlook) -> bool:
        """Whether to warn now."""
        if not seen.late:
            self._late_since_s = None
            return False
        if self._late_since_s is None:
            self._late_since_s = elapsed_s
        sure = elapsed_s >= SURE_AFTER_S and elapsed_s - self._late_since_s >= SURE_FOR_S
        if self.warned or not (sure or seen.left_s <= 0):
            return False
        self.warned = True
        return True
