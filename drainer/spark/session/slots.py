"""The slots that Spark has for a drain's tasks, as executors come and go."""

from __future__ import annotations

import sys
from dataclasses import dataclass

READERS = 8  # One slot in eight reads ahead. With fewer slots, whichever is free first reads.
# Tasks may wait for this long until Spark has started another executor.
HOPE_S = 60.0
# If no executor came, tasks wait for one again only after this time.
HOPE_AGAIN_S = 600.0
GROW_TO = 64  # the slots that a cluster will have, if no setting says how many


@dataclass(slots=True)
class Slots:
    """The number of slots that Spark has; the driver updates it now and then.

    Attributes:
        count: the number of tasks of any kind that can run at once.
        wanted: the maximum number of tasks that handle at once; None for most of the slots.
        grows: whether Spark starts executors for tasks that wait.
        to_come: about how many slots there will be.
    """

    count: int
    wanted: int | None = None
    grows: bool = False
    to_come: int = 0
    _since_s: float | None = None  # when tasks began to wait for a slot, at this count
    _hopes: bool = True

    @property
    def handling(self) -> int:
        """The number of tasks that may call the handler at once."""
        if self.wanted is None:
            return max(1, self.count - self.count // READERS)
        return max(1, min(self.wanted, self.count)) if self.grows else self.wanted

    @property
    def most(self) -> int:
        """About the highest number of slots that there may be."""
        return max(self.count, self.wanted or self.to_come)

    def look(self, count: int, busy: int, now_s: float) -> None:
        """Note how many slots there are now, and how many tasks are running or waiting."""
        if count != self.count:
            self.count, self._since_s, self._hopes = count, None, True
        elif busy > self.handling:
            self._since_s = now_s if self._since_s is None else self._since_s
            self._hopes = now_s - self._since_s <= HOPE_S
        elif self._since_s is not None and now_s - self._since_s > HOPE_AGAIN_S:
            self._since_s, self._hopes = None, True

    def room(self, busy: int) -> int:
        """Return the number of tasks that may begin beside the ``busy`` ones.

        One task may begin for each free slot. If Spark starts executors for waiting tasks, as many
        more tasks may wait as there are slots, until ``HOPE_S`` have passed without an executor.
        """
        most = self.handling
        if self.grows and self._hopes:
            most = max(most, min(2 * self.count, self.wanted or sys.maxsize))
        return most - busy
