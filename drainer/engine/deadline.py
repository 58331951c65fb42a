"""Whether a running drain will make its deadline."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from drainer.engine.status import DeadlineStatus, Status

SURE_AFTER_S = 5.0  # no warning comes before: the first speed is that of a start
SURE_FOR_S = 2.0  # for so long it must look late


class DeadlineWatch:
    """Adds the deadline to each status of a run, one after the other."""

    def __init__(self) -> None:
        self._late_since_s: float | None = None

    def judge(self, status: Status, deadline: datetime | None, now: datetime) -> Status:
        """The status with the deadline's, if there is one."""
        if deadline is None:
            self._late_since_s = None
            return status
        left_s = (deadline - now).total_seconds()
        eta_s = 0.0 if all(part.complete for part in status.partitions) else status.eta_s
        if eta_s is None and left_s <= 0:
            eta_s = 0.0
        found = DeadlineStatus(deadline, left_s, None if eta_s is None else left_s - eta_s)
        if not found.late:
            self._late_since_s = None
        else:
            if self._late_since_s is None:
                self._late_since_s = status.elapsed_s
            for_s = status.elapsed_s - self._late_since_s
            sure = status.elapsed_s >= SURE_AFTER_S and for_s >= SURE_FOR_S
            found = replace(found, missed=sure or left_s <= 0)
        return replace(status, deadline=found)
