"""Sub-messages that wait for their next attempt: each holds its lane, and no worker."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from drainer.message import SubMessage


class Retries:
    """By when they are due; of those due at once, the one that came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SubMessage]] = []
        self._ties = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def due_s(self) -> float | None:
        """When the first of them is due."""
        return self._heap[0][0] if self._heap else None

    def push(self, sub: SubMessage, at_s: float) -> None:
        heappush(self._heap, (at_s, next(self._ties), sub))

    def pop(self) -> SubMessage:
        """The first of them, due or not."""
        return heappop(self._heap)[2]

    def pop_due(self, now_s: float) -> list[SubMessage]:
        due: list[SubMessage] = []
        while self._heap and self._heap[0][0] <= now_s:
            due.append(self.pop())
        return due
