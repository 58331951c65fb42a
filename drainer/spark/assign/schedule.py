"""The schedule of a drain on Spark: which shards are handled when, and by which task.

A shard goes through the waves one after the other, so a lane's order holds across them. Shards
don't wait for each other, so nothing waits behind a hot lane: its shard's next part comes later,
and all others go on. What is ready is assigned late, to as many slots as there are by then.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, takewhile
from typing import NamedTuple

from drainer.spark.state.sharding import Sharding

WAVES_MOST = 4  # on disk, where a lane is hot
HOT = 4  # times what a shard has on average
SHARE_MOST = 1.5  # of a slot's share of a wave, for a slot that is free before others


class Part(NamedTuple):
    """Part of one shard in one wave."""

    wave: int
    shard: int
    subs: int


@dataclass(slots=True)
class _Wave:
    """One that is under way."""

    streams: Sharding
    subs: Mapping[int, int]  # by shard
    hot: float  # a shard that has more
    left: int  # parts


class Schedule:
    """The parts of a drain's waves, from when they are read until they are done.

    Has one owner, and takes no locks.
    """

    def __init__(self) -> None:
        self._waves: dict[int, _Wave] = {}  # the oldest first
        self._chains: defaultdict[int, deque[int]] = defaultdict(deque)  # waves, by shard
        self._under_way: set[int] = set()  # shards
        self._most = 0  # sub-messages of a wave

    def add(self, wave: int, subs: Mapping[int, int], streams: Sharding) -> None:
        """Takes the next wave, as it was read: how many sub-messages each shard has of it.

        One that is divided otherwise than the wave before begins when all before it is done, for
        lanes are in other shards then.
        """
        subs = {shard: count for shard, count in sorted(subs.items()) if count}
        total = sum(subs.values())
        self._most = max(self._most, total)
        if subs:
            hot = HOT * total / streams.shards
            self._waves[wave] = _Wave(streams, subs, hot, len(subs))
        for shard in subs:
            self._chains[shard].append(wave)

    def dispatch(
        self, slots: int, busy: int, *, urgent: bool, least: int = 1
    ) -> list[list[Part]] | None:
        """Assign what can begin to tasks for the slots that are free, beside those that are
        ``busy``; None when that is better done later.

        It is done when half of the slots are free, or one is and a hot shard waits. When it is
        ``urgent``, slots have been free for long. ``least`` sub-messages are worth a task of their
        own.
        """
        ready = self._ready()
        if slots < 1 or not ready:
            return None
        if slots < busy and not (urgent or any(map(self._is_hot, ready))):
            return None
        most = SHARE_MOST * self._most * slots / (slots + busy)
        return self._assigned(self._first(ready, most), slots, least)

    def done(self, shard: int) -> None:
        """Note that the part of a shard that is under way is done."""
        self._under_way.remove(shard)
        number = self._chains[shard].popleft()
        self._waves[number].left -= 1
        if not self._waves[number].left:
            del self._waves[number]

    @property
    def waves(self) -> tuple[int, ...]:
        """Waves that are not done, the oldest first."""
        return tuple(self._waves)

    @property
    def wants_to_read(self) -> bool:
        """Whether the next wave should be read: no more than one is left to do, but for shards
        that a hot lane holds up."""
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
        """The hot parts, and the oldest others up to about ``most`` sub-messages."""
        hot, others = list[Part](), list[Part]()
        for part in sorted(parts):
            (hot if self._is_hot(part) else others).append(part)
        before = accumulate((part.subs for part in others), initial=0)
        return [*hot, *(part for part, subs in zip(others, before, strict=False) if subs < most)]

    def _is_hot(self, part: Part) -> bool:
        return part.subs > self._waves[part.wave].hot

    def _ready(self) -> list[Part]:
        """Parts that can begin: of the oldest wave, and of those after it that are divided as it
        is."""
        if not self._waves:
            return []
        streams = next(iter(self._waves.values())).streams
        begun = {
            number
            for number, _ in takewhile(lambda each: each[1].streams == streams, self._waves.items())
        }
        return [
            Part(chain[0], shard, self._waves[chain[0]].subs[shard])
            for shard, chain in self._chains.items()
            if chain and chain[0] in begun and shard not in self._under_way
        ]

    def _assigned(self, parts: Sequence[Part], slots: int, least: int) -> list[list[Part]]:
        worth = sum(part.subs for part in parts) // max(1, least)
        tasks: list[list[Part]] = [[] for _ in range(max(1, min(slots, len(parts), worth)))]
        # The longest first to the least loaded task (LPT: Graham 1969).
        loads = [(0, task) for task in range(len(tasks))]
        for part in sorted(parts, key=lambda part: -part.subs):
            load, task = loads[0]
            heapreplace(loads, (load + part.subs, task))
            tasks[task].append(part)
        self._under_way.update(part.shard for part in parts)
        return tasks
