"""The history of a running drain: some of its statuses, evenly spread, in bounded memory.

A drain that takes two weeks gives two million statuses. When too many are kept, every other one is
dropped, and from then on half as many of the new ones are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import pairwise

from drainer.model.status import Status

# A line of a chart has at most this many points, because more could not be told apart on a page.
POINTS_MOST = 400
TROUBLES_MOST = 100
HOTTEST_MOST = 10
_HOTTEST_KEPT = 200  # If there are more lanes than this, only the deepest ones are kept.
_LEAST_S = 0.45  # Statuses are about half a second apart. Only the last one may come sooner.


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The state of a drain at one moment. It stands for the time since the point before it.

    Attributes:
        ends_s: the moment, in seconds since the run began.
        finished, dead, failed: how many sub-messages ended in this way, over all runs of the drain.
        skipped: how many sub-messages the handler skipped, without those that rules skipped.
        failures, retries, timeouts: how many attempts of this run failed, were retries, or took too
            long.
        running_s: the seconds that all sub-messages of this run were in the handler, added up. The
            rate between two points is the mean number of sub-messages in the handler.
        to_go: how many offsets lie between the watermark and the end.
        latency_s: p50, p95 and p99; None until an attempt returned.
    """

    ends_s: float
    finished: int
    dead: int
    failed: int
    skipped: int
    failures: int
    retries: int
    timeouts: int
    running_s: float
    lanes: int
    lanes_ready: int
    concurrency: int
    to_go: int
    latency_s: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Trouble that a drain waited out, as its statuses reported it."""

    begins_s: float
    ends_s: float
    text: str


class History:
    """The course of one run of a drain. The caller adds each status.

    Attributes:
        troubles_more: how many troubles were not kept.
        last: the status that was added last.
    """

    def __init__(self, points_most: int = POINTS_MOST) -> None:
        self._most = max(4, points_most)
        self._seen = 0  # How many statuses were added so far.
        self._each = 1  # One status in every ``_each`` is kept.
        self._kept: list[HistoryPoint] = []
        self._newest: HistoryPoint | None = None  # The last point, if it is not kept.
        self._deepest: dict[str, int] = {}
        self._troubles: list[Trouble] = []
        self._running_s = 0.0
        self.troubles_more = 0
        self.last: Status | None = None

    @property
    def points(self) -> tuple[HistoryPoint, ...]:
        """All points in order. The first one is the state before anything ran."""
        if self._newest is None:
            return tuple(self._kept)
        short = self._newest.ends_s - self._kept[-1].ends_s < _LEAST_S and len(self._kept) > 1
        return (*(self._kept[:-1] if short else self._kept), self._newest)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        return tuple(self._troubles)

    @property
    def hottest(self) -> list[tuple[str, int]]:
        """The deepest lanes, each with the greatest depth that a status had of it."""
        return nlargest(HOTTEST_MOST, self._deepest.items(), key=lambda item: item[1])

    def add(self, status: Status) -> None:
        self._add_trouble(status)
        for key, depth in status.limits.hottest:
            self._deepest[key] = max(depth, self._deepest.get(key, 0))
        if len(self._deepest) > _HOTTEST_KEPT:
            self._deepest = dict(self.hottest)
        since_s = 0.0 if self.last is None else status.timing.elapsed_s - self.last.timing.elapsed_s
        self._running_s += status.limits.in_flight * max(0.0, since_s)
        self.last = status
        new = self._point(status)
        # The first status is always kept, because rates count from it.
        if self._seen % self._each == 0:
            self._kept.append(new)
            if len(self._kept) >= self._most:
                self._kept = self._kept[::2]
                self._each *= 2
        self._newest = None if self._kept[-1] is new else new
        self._seen += 1

    def _point(self, status: Status) -> HistoryPoint:
        failures, latency = status.failures, status.timing.latency_recent
        return HistoryPoint(
            ends_s=status.timing.elapsed_s,
            finished=status.progress.sub_messages.finished,
            dead=status.progress.sub_messages.dead,
            failed=status.progress.sub_messages.failed,
            skipped=status.progress.sub_messages.skipped - status.rules.without_call,
            failures=failures.failures,
            retries=failures.retries,
            timeouts=failures.timeouts,
            running_s=self._running_s,
            lanes=status.limits.lanes,
            lanes_ready=status.limits.lanes_ready,
            concurrency=status.limits.concurrency,
            to_go=sum(part.left for part in status.progress.partitions),
            latency_s=None if latency is None else (latency.p50_s, latency.p95_s, latency.p99_s),
        )

    def _add_trouble(self, status: Status) -> None:
        before = None if self.last is None else self.last.health.trouble
        known = self._troubles[-1] if self._troubles else None
        if before is not None and known is not None and known.text == before:
            self._troubles[-1] = replace(known, ends_s=status.timing.elapsed_s)
        if status.health.trouble is None or status.health.trouble == before:
            return
        if len(self._troubles) < TROUBLES_MOST:
            now_s = status.timing.elapsed_s
            self._troubles.append(Trouble(now_s, now_s, status.health.trouble))
        else:
            self.troubles_more += 1


def rates(points: Sequence[HistoryPoint], counts: Iterable[float]) -> list[float]:
    """Return how fast a count rose up to each point, per second. The first point has no rate."""
    return [
        (count - before_count) / max(point.ends_s - before.ends_s, 1e-9)
        for (before, point), (before_count, count) in zip(
            pairwise(points), pairwise(counts), strict=True
        )
    ]
