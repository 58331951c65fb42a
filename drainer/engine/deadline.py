"""Watches a drain for its deadline: each status that is shown tells the outlook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from drainer.engine.status import DeadlineStatus, Status
from drainer.policy.outlook import Outlook, Speed, Warner, outlook


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
        self._warner = Warner()
        self._warning: Outlook | None = None

    def __call__(self, status: Status) -> None:
        left_s = (self._deadline - self._now()).total_seconds()
        if all(part.complete for part in status.partitions):
            seen = Outlook(left_s, left_s)
        else:
            seen = outlook(_pace(status, left_s, self._rate))
            if self._warner.look(status.elapsed_s, seen):
                self._warning = seen
        self._observe(replace(status, deadline=DeadlineStatus(self._deadline, seen, self._warning)))


def _pace(status: Status, left_s: float, rate: float | None) -> Speed:
    failures = status.failures
    return Speed(
        elapsed_s=status.elapsed_s,
        left_s=left_s,
        eta_s=status.eta_s,
        rate_now=status.rate_now,
        running=status.running,
        concurrency=status.concurrency,
        ready=status.lanes_ready,
        hottest=max((waiting for _, waiting in status.hottest), default=0),
        waiting_retries=failures.waiting,
        in_trouble=status.trouble is not None,
        all_read=all(part.position >= part.end for part in status.partitions),
        asked_rate=rate,
    )
