"""The schedule of a drain on Spark: when each shard is handled, and by which task.

A shard goes through the waves one after the other, so that each lane keeps its order. Shards don't
wait for each other: if a hot lane delays a shard, all others go on to the next wave. A part is
assigned to a task as late as possible, because the number of slots may change until then.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, takewhile
from typing import NamedTuple

from drainer.model.claims import Shard

# At most this many waves are on disk at once. Several are needed only if a lane is hot.
WAVES_MOST = 4
HOT = 4  # A shard is hot if it has this many times the average of its wave.
# A slot that is free before others gets at most this many times its share of a wave.
SHARE_MOST = 1.5


class Part(NamedTuple):
    """The part of a shard that is in one wave. It has ``subs`` sub-messages."""

    wave: int
    shard: Shard
    subs: int


@dataclass(slots=True)
class _Wave:
    """A wave that is not done.

    Attributes:
        of: the number of shards that the wave is divided into.
        subs: the number of sub-messages by shard.
        hot: the number of sub-messages above which a shard is hot.
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
        self._waves: dict[int, _Wave] = {}  # the oldest first
        self._chains: defaultdict[Shard, deque[int]] = defaultdict(deque)  # waves, by shard
        self._under_way: set[Shard] = set()
        self._most = 0  # sub-messages of the largest wave

    def add(self, wave: int, subs: Mapping[Shard, int]) -> None:
        """Add the next wave, with the number of its sub-messages by shard.

        If a wave has another number of shards than the wave before, its lanes are in other shards.
        It then begins only when all earlier waves are done.
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

        Parts are assigned when half of the slots are free, or when one slot is free and a hot shard
        waits.

        Args:
            slots: the number of free slots.
            busy: the number of slots that have a task.
            urgent: whether slots have been free for so long that parts must be assigned now.
            least: the number of sub-messages for which a task of their own is worthwhile.
        """
        ready = self._ready()
        if slots < 1 or not ready:
            return None
        if slots < busy and not (urgent or any(map(self._is_hot, ready))):
            return None
        most = SHARE_MOST * self._most * slots / (slots + busy)
        return self._assigned(self._first(ready, most), slots, least)

    def done(self, shard: Shard) -> None:
        """Note that the part of a shard that was assigned is done."""
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

        It should if no more than one wave is left to do, apart from shards that a hot lane delays.
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
        """Return all hot parts, and the oldest of the others, up to about ``most`` sub-messages."""
        hot, others = list[Part](), list[Part]()
        for part in sorted(parts):
            (hot if self._is_hot(part) else others).append(part)
        before = accumulate((part.subs for part in others), initial=0)
        return [*hot, *(part for part, subs in zip(others, before, strict=False) if subs < most)]

    def _is_hot(self, part: Part) -> bool:
        return part.subs > self._waves[part.wave].hot

    def _ready(self) -> list[Part]:
        """Return the parts that can begin.

        They belong to the oldest wave and to the following waves that have as many shards as it.
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
