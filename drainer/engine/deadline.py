"""Whether a running drain will make its deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from drainer.engine.status import DeadlineStatus, Status

SURE_AFTER_S = 5.0  # no warning comes before: the first speed is that of a start
SURE_FOR_S = 2.0  # for so long it must look late


class DeadlineWatch:
    """Stands before who observes a drain, and adds the deadline to each status."""

    def __init__(
        self,
        deadline: datetime,
        observe: Callable[[Status], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._deadline = deadline
        self._observe = observe
        self._now = now
        self._late_since_s: float | None = None

    def __call__(self, status: Status) -> None:
        left_s = (self._deadline - self._now()).total_seconds()
        eta_s = 0.0 if all(part.complete for part in status.partitions) else status.eta_s
        if eta_s is None and left_s <= 0:
            eta_s = 0.0
        found = DeadlineStatus(self._deadline, left_s, None if eta_s is None else left_s - eta_s)
        if not found.late:
            self._late_since_s = None
        else:
            if self._late_since_s is None:
                self._late_since_s = status.elapsed_s
            for_s = status.elapsed_s - self._late_since_s
            sure = status.elapsed_s >= SURE_AFTER_S and for_s >= SURE_FOR_S
            found = replace(found, missed=sure or left_s <= 0)
        self._observe(replace(status, deadline=found))
