"""What was fetched and waits for the drain: a line of batches for each partition, in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from drainer.kafka.record import Batch


class BatchQueue:
    """Carries batches from one thread that puts to one that takes; needs no lock for that.

    Each counter is written by one thread only, and a partition that the drain passes over does not
    stand before the others.
    """

    def __init__(self, partitions: Iterable[int]) -> None:
        self._lines: dict[int, deque[Batch]] = {p: deque() for p in partitions}
        self._turns = deque(self._lines)
        self._put = dict.fromkeys(self._lines, 0)
        self._taken = dict.fromkeys(self._lines, 0)
        self._all_put = self._all_taken = 0

    def put(self, batch: Batch) -> bool:
        """Queues a batch; whether it is the first in its partition's line."""
        partition = batch.origin.partition
        line = self._lines[partition]
        self._all_put += batch.bytes
        self._put[partition] += batch.bytes
        line.append(batch)
        # Looked at after it was put there: a drain that saw the line empty before is told.
        return len(line) == 1

    def take(self, passed_over: Callable[[int], bool]) -> Batch | None:
        """The next batch of the next partition that has one and is not passed over."""
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            self._turns.rotate(-1)
            line = self._lines[partition]
            if line and not passed_over(partition):
                batch = line.popleft()
                self._all_taken += batch.bytes
                self._taken[partition] += batch.bytes
                return batch
        return None

    def holds(self, partition: int) -> bool:
        """Whether anything of a partition waits."""
        return bool(self._lines[partition])

    def bytes_of(self, partition: int) -> int:
        """What waits of a partition."""
        return self._put[partition] - self._taken[partition]

    @property
    def bytes(self) -> int:
        """What waits in all."""
        return self._all_put - self._all_taken
