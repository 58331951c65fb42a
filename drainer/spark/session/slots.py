"""Slots of Spark's for a drain's tasks, as executors come and go."""

from __future__ import annotations

import sys
from dataclasses import dataclass

READERS = 8  # of so many slots one reads ahead; of fewer, whichever is free first
HOPE_S = 60.0  # for an executor to come when tasks wait for one
HOPE_AGAIN_S = 600.0  # after tasks began to wait without success
GROW_TO = 64  # slots of a cluster, if no setting gives their number


@dataclass(slots=True)
class Slots:
    """Slots of Spark; its one owner updates the count now and then."""

    count: int  # how many tasks of any kind can run at once
    # How many are to handle at once, at most; None for most of those that can run.
    wanted: int | None = None
    grows: bool = False  # whether Spark starts executors for tasks that wait
    to_come: int = 0  # how many there are to be, about
    _since_s: float | None = None  # since when tasks wait, at this count
    _hopes: bool = True

    @property
    def handling(self) -> int:
        """Number of tasks that are to handle at once."""
        if self.wanted is None:
            return max(1, self.count - self.count // READERS)
        return max(1, min(self.wanted, self.count)) if self.grows else self.wanted

    @property
    def most(self) -> int:
        """Number of slots that there may be, about."""
        return max(self.count, self.wanted or self.to_come)

    def look(self, count: int, busy: int, now_s: float) -> None:
        """Takes how many there are now, and how many tasks are under way."""
        if count != self.count:
            self.count, self._since_s, self._hopes = count, None, True
        elif busy > self.handling:
            self._since_s = now_s if self._since_s is None else self._since_s
            self._hopes = now_s - self._since_s <= HOPE_S
        elif self._since_s is not None and now_s - self._since_s > HOPE_AGAIN_S:
            self._since_s, self._hopes = None, True

    def room(self, busy: int) -> int:
        """Number of tasks that may begin beside those that are under way: as many as have a slot.

        Where executors come with tasks that wait, as many wait, unless none came for ``HOPE_S``;
        later they do so again.
        """
        most = self.handling
        if self.grows and self._hopes:
            most = max(most, min(2 * self.count, self.wanted or sys.maxsize))
        return most - busy
