"""The schedule of a drain on Spark: what is read next, and when each shard is handled where.

A backlog is read in waves. A shard goes through the waves one after the other, so that each lane
keeps its order. Shards don't wait for each other: if a hot lane delays a shard, the other shards go
on to the next wave. A part is assigned to a task as late as possible, because the number of slots
may still change.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, takewhile
from typing import NamedTuple

from drainer.kafka.spans import Span
from drainer.model.claims import Shard
from drainer.model.ranges import Range, cut

FIRST_BYTES = 8 * 1024 * 1024
GROWTH = 4  # A wave is this many times as large as the wave before it.
# A slice is worth a task of its own if it takes this much processor time. Smaller slices cost too
# much: where two slices of a partition meet, both tasks read the same batch of a producer, and the
# first task also reads a part of the next batch.
SLICE_S = 4.0
FIRST_SLICE_BYTES = 4 * 1024 * 1024
SLICE_BYTES_LEAST, SLICE_BYTES_MOST = 1024 * 1024, 16 * 1024 * 1024
# At most this many waves are on disk at once. More than two are needed only if a lane is hot.
WAVES_MOST = 4
HOT = 4  # A shard is hot if it has this many times the average of its wave.
# A slot that is free before others gets at most this many times its share of a wave.
SHARE_MOST = 1.5


class Part(NamedTuple):
    """The part of a wave that belongs to one shard. It has ``subs`` sub-messages."""

    wave: int
    shard: Shard
    subs: int


@dataclass(slots=True)
class _Wave:
    """A wave that is not done.

    Attributes:
        of: the number of shards that the wave is divided into.
        subs: the number of sub-messages by shard.
        hot: a shard with more sub-messages than this is hot.
        left: the number of parts that are not done.
    """

    of: int
    subs: Mapping[Shard, int]
    hot: float
    left: int


class Schedule:
    """The parts of a drain's waves, from the time they are read until they are done.

    A schedule takes no locks, so only one thread may use it.
    """

    def __init__(self) -> None:
        self._waves: dict[int, _Wave] = {}  # The waves by number, the oldest first.
        # By shard, the waves in which it has a part that is not done.
        self._chains: defaultdict[Shard, deque[int]] = defaultdict(deque)
        self._under_way: set[Shard] = set()
        self._most = 0  # The number of sub-messages of the largest wave.

    def add(self, wave: int, subs: Mapping[Shard, int]) -> None:
        """Add the next wave, with the number of its sub-messages by shard.

        If the number of shards differs from that of the wave before, its lanes are in different
        shards. So it begins only when all earlier waves are done.
        """
        subs = {shard: count for shard, count in sorted(subs.items()) if count}
        total = sum(subs.values())
        self._most = max(self._most, total)
        if subs:
            of = next(iter(subs)).of
            self._waves[wave] = _Wave(of, subs, HOT * total / of, len(subs))
        for shard in subs:
            self._chains[shard].append(wave)

    def dispatch(
        self, slots: int, busy: int, *, urgent: bool, least: int = 1
    ) -> list[list[Part]] | None:
        """Assign parts that can begin to tasks for the free slots; None if it is better to wait.

        It is better to wait until half of the slots are free, unless a hot shard is waiting.

        Args:
            slots: the number of free slots.
            busy: the number of slots that have a task.
            urgent: whether slots have been free for so long that parts must be assigned now.
            least: the number of sub-messages that is worth a task of its own.
        """
        ready = self._ready()
        if slots < 1 or not ready:
            return None
        if slots < busy and not (urgent or any(map(self._is_hot, ready))):
            return None
        most = SHARE_MOST * self._most * slots / (slots + busy)
        return self._assigned(self._first(ready, most), slots, least)

    def done(self, shard: Shard) -> None:
        """Note that the part of this shard which was assigned last is done."""
        self._under_way.remove(shard)
        number = self._chains[shard].popleft()
        self._waves[number].left -= 1
        if not self._waves[number].left:
            del self._waves[number]

    @property
    def waves(self) -> tuple[int, ...]:
        """The numbers of the waves that are not done, the oldest first."""
        return tuple(self._waves)

    @property
    def wants_to_read(self) -> bool:
        """Whether the next wave should be read.

        It should be read if no more than one wave is left to handle. A hot part does not count,
        and neither do the parts that wait for it, which are those of its shard in later waves.
        """
        if len(self._waves) >= WAVES_MOST:
            return False
        left = 0
        for shard, chain in self._chains.items():
            for number in chain:
                wave = self._waves[number]
                if wave.subs[shard] > wave.hot:
                    break
                left += wave.subs[shard]
        return left <= self._most

    def _first(self, parts: list[Part], most: float) -> list[Part]:
        """Return all hot parts, and the oldest other parts, up to about ``most`` sub-messages."""
        hot, others = list[Part](), list[Part]()
        for part in sorted(parts):
            (hot if self._is_hot(part) else others).append(part)
        before = accumulate((part.subs for part in others), initial=0)
        return [*hot, *(part for part, subs in zip(others, before, strict=False) if subs < most)]

    def _is_hot(self, part: Part) -> bool:
        return part.subs > self._waves[part.wave].hot

    def _ready(self) -> list[Part]:
        """Return the parts that can begin.

        They are in the oldest wave, or in following waves with the same number of shards.
        """
        if not self._waves:
            return []
        of = next(iter(self._waves.values())).of
        begun = {
            number for number, _ in takewhile(lambda each: each[1].of == of, self._waves.items())
        }
        return [
            Part(chain[0], shard, self._waves[chain[0]].subs[shard])
            for shard, chain in self._chains.items()
            if chain and chain[0] in begun and shard not in self._under_way
        ]

    def _assigned(self, parts: Sequence[Part], slots: int, least: int) -> list[list[Part]]:
        worth = sum(part.subs for part in parts) // max(1, least)
        tasks: list[list[Part]] = [[] for _ in range(max(1, min(slots, len(parts), worth)))]
        # The largest part goes first, to the task with the least work (LPT: Graham 1969).
        loads = [(0, task) for task in range(len(tasks))]
        for part in sorted(parts, key=lambda part: -part.subs):
            load, task = loads[0]
            heapreplace(loads, (load + part.subs, task))
            tasks[task].append(part)
        self._under_way.update(part.shard for part in parts)
        return tasks


class Waves:
    """Cuts what is left of a backlog into waves, so that all partitions end with the last wave.

    The first waves are small, so that the tasks don't wait long for the first one. Then larger and
    larger waves are read, while the tasks are busy with the wave before.

    Args:
        lefts: by partition, the offsets ``[start, end)`` that are left.
        wave_bytes: the maximum size of a wave.
        bytes_per_offset: a first guess of the size of a message, which ``took`` improves.
    """

    def __init__(
        self, lefts: Mapping[int, Range], wave_bytes: int, bytes_per_offset: float
    ) -> None:
        self._lefts = {n: left for n, left in sorted(lefts.items()) if left[0] < left[1]}
        self._most_bytes = wave_bytes
        self._wave_bytes = min(FIRST_BYTES, wave_bytes)
        self._bytes_per_offset = max(bytes_per_offset, 1.0)
        self._slice_bytes = float(FIRST_SLICE_BYTES)
        self._guessed = True

    @property
    def left(self) -> int:
        """The number of offsets that are in no wave yet."""
        return sum(end - start for start, end in self._lefts.values())

    @property
    def about(self) -> int:
        """The estimated number of waves that are still to be read."""
        left, size, waves = self.left * self._bytes_per_offset, self._wave_bytes, 0
        while left > 0 and size < self._most_bytes:
            left, size, waves = left - size, min(self._most_bytes, size * GROWTH), waves + 1
        return waves + max(0, math.ceil(left / size))

    def next(self) -> dict[int, Range]:
        """Return the offsets of the next wave, by partition. It is empty if nothing is left."""
        offsets = max(1, int(self._wave_bytes / self._bytes_per_offset))
        share = min(1.0, offsets / max(1, self.left))
        return {
            n: (start, min(end, start + max(1, round((end - start) * share))))
            for n, (start, end) in self._lefts.items()
        }

    def took(self, ranges: Mapping[int, Range], read_bytes: int, processor_s: float) -> None:
        """Note that a wave was read, with the size and the processor time of all its slices.

        The guess of the bytes per offset moves half of the way to the size that was found.
        """
        offsets = sum(end - start for start, end in ranges.values())
        if read_bytes and offsets:
            found = max(1.0, read_bytes / offsets)
            known = found if self._guessed else self._bytes_per_offset
            self._bytes_per_offset, self._guessed = (known + found) / 2, False
        if read_bytes and processor_s:
            worth = SLICE_S * read_bytes / processor_s
            self._slice_bytes = min(max(worth, SLICE_BYTES_LEAST), SLICE_BYTES_MOST)
        self._wave_bytes = min(self._most_bytes, self._wave_bytes * GROWTH)
        for number, (_, end) in ranges.items():
            self._lefts[number] = (end, self._lefts[number][1])
        self._lefts = {n: left for n, left in self._lefts.items() if left[0] < left[1]}

    def stop(self, partitions: Iterable[int]) -> None:
        """Read no more of these partitions."""
        for number in partitions:
            self._lefts.pop(number, None)

    def slices(self, ranges: Mapping[int, Range], readers: int) -> list[Span]:
        """Cut a wave into slices, for roughly ``readers`` readers at most.

        A large part of one partition makes several slices.
        """
        offsets = max(1, sum(end - start for start, end in ranges.values()))
        worth = math.ceil(offsets * self._bytes_per_offset / self._slice_bytes)
        tasks = min(readers, worth)
        return [
            Span(number, *bounds)
            for number, (start, end) in ranges.items()
            for bounds in cut((start, end), max(1, round(tasks * (end - start) / offsets)))
        ]
