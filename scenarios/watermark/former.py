"""The former order of lanes, to compare with: always the longest lane first, whatever its age."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from drainer.core.lanes import Lanes
from drainer.message import SubMessage


class LongestFirst(Lanes):
    """Lanes that only know plain sub-messages, and take from the longest lane.

    Lanes lie in buckets of 1, 2 to 3, 4 to 7 waiting sub-messages, and so on. In each bucket, the
    lane that is ready for the longest time goes first.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._queues: dict[Hashable, deque[SubMessage]] = {}
        self._busy: set[Hashable] = set()
        self._by_length: list[deque[Hashable]] = [deque() for _ in range(40)]
        self._rank_of: dict[Hashable, int] = {}  # Of the lanes that are ready.
        self._highest = 0  # No bucket above this has a lane.

    @property
    def ready(self) -> int:
        return len(self._rank_of)

    def push(self, sub: SubMessage, key: Hashable) -> None:
        queue = self._queues.setdefault(key, deque())
        queue.append(sub)
        if key not in self._busy:
            self._file(key)

    def push_each(self, subs: Sequence[SubMessage]) -> None:
        for sub in subs:
            self.push(sub, sub.key)

    def take(self) -> SubMessage | None:
        while self._highest >= 0:
            rank, bucket = self._highest, self._by_length[self._highest]
            while bucket:
                key = bucket.popleft()
                if self._rank_of.get(key) == rank:
                    del self._rank_of[key]
                    self.running += 1
                    self._busy.add(key)
                    return self._queues[key].popleft()
            self._highest -= 1
        self._highest = 0
        return None

    def finish(self, sub: SubMessage) -> None:
        self.running -= 1
        self._busy.remove(sub.key)
        if self._queues[sub.key]:
            self._file(sub.key)
        else:
            del self._queues[sub.key]

    def finish_and_take(self, sub: SubMessage) -> SubMessage | None:
        queue = self._queues[sub.key]
        if queue and len(queue).bit_length() - 1 >= self._highest:
            return queue.popleft()
        self.finish(sub)
        return self.take()

    def _file(self, key: Hashable) -> None:
        rank = len(self._queues[key]).bit_length() - 1
        if self._rank_of.get(key) != rank:
            self._rank_of[key] = rank
            self._by_length[rank].append(key)
            self._highest = max(self._highest, rank)
