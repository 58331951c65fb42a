"""The schedule of a drain on Spark: which shards are handled when, and by which task.

A shard goes through the waves one after the other, so a lane's order holds across them. Shards
don't wait for each other, so nothing waits behind a hot lane: its shard's next part comes later,
and all others go on. What is free is dealt out late, to as many slots as there are by then.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, chain
from typing import NamedTuple

import msgspec

from drainer.core.progress import Range

WAVES_MOST = 4  # on disk, where a lane is hot
DEALS_MOST = 8  # under way at once
HOT = 4  # times what a shard has on average: with four shards a slot, as much as a slot's share
SHARE_MOST = 1.5  # of a slot's share of a wave, for a slot that is free before others
STRETCHES_MOST = 17  # of a wave: eight times messages with barriers; with more it is one task's
JOINS_MOST = 100_000  # sub-keys of a wave; with more it is one task's


class Manifest(msgspec.Struct, frozen=True):
    """What was read of one partition; a slice gives one or several that follow each other.

    Messages with barriers are best in one of their own: all of it is handled by one task, while
    nothing else is.

    Attributes:
        start: offsets ``[start, end)``.
        delivered: those of messages that were not finished before.
        subs: sub-messages by shard; those with lanes in several shards, and barriers, are those of
            a shard behind the last.
        bytes: of chunks, by shard.
        joined: the places of each set of sub-keys that a sub-message has several of, those within
            one shard too. None of a slice that has more than ``JOINS_MOST``.
        barriers: offsets of messages with one.
        undivided: offsets of messages of which several shards need the same sub-message; they are
            in no chunk.
        log_bytes: of keys and values.
        left_alone: by a redrive: why, and how many of the sub-messages.
    """

    partition: int
    start: int
    end: int
    delivered: tuple[Range, ...] = ()
    subs: dict[int, int] = {}
    bytes: dict[int, int] = {}
    joined: tuple[tuple[int, ...], ...] = ()
    barriers: tuple[int, ...] = ()
    undivided: tuple[int, ...] = ()
    log_bytes: int = 0
    left_alone: dict[str, int] = {}


class Part(NamedTuple):
    """What one shard has of one stretch of a wave; a wave without barriers is one stretch."""

    wave: int
    shard: int
    subs: int
    stretch: int = 0


@dataclass(frozen=True, slots=True)
class Deal:
    """Parts for the tasks of one job.

    Attributes:
        number: rises from deal to deal.
        shards: how many there are; the one behind the last has lanes of several.
        tasks: parts by task.
        ranges: offsets by wave and partition.
        joined: the task by place, of lanes that leave their shard.
        shared: the parts that these come from: a task with a joined lane has some of them.
        alone: whether it is one task's while nothing else is handled.
    """

    number: int
    shards: int
    tasks: tuple[tuple[Part, ...], ...]
    ranges: Mapping[int, Mapping[int, Range]]
    joined: Mapping[int, int]
    shared: tuple[Part, ...]
    alone: bool = False

    def held(self) -> tuple[dict[int, Part], ...]:
        """By task, the parts that it has lanes of, by shard."""
        held = [{part.shard: part for part in parts} for parts in self.tasks]
        shared = {part.shard: part for part in self.shared}
        for place, task in self.joined.items():
            for shard in (place % self.shards, self.shards):
                held[task][shard] = shared[shard]
        return tuple(held)


class _Stretch:
    """Offsets that are dealt shard by shard, but for ``gang``: shards that begin together."""

    def __init__(
        self,
        wave: int,
        number: int,
        manifests: Sequence[Manifest],
        shards: int,
        *,
        alone: bool,
    ) -> None:
        self.wave = wave
        self.number = number
        self.ranges: dict[int, Range] = {}
        for each in manifests:
            start, end = self.ranges.get(each.partition, (each.start, each.end))
            self.ranges[each.partition] = min(start, each.start), max(end, each.end)
        subs: dict[int, int] = defaultdict(int)
        for manifest in manifests:
            for shard, count in manifest.subs.items():
                subs[shard] += count
        self.joins: list[list[int]] = []
        if not alone and subs.get(shards):
            places = sum(len(places) for each in manifests for places in each.joined)
            known = all(each.joined for each in manifests if each.subs.get(shards))
            if known and places <= JOINS_MOST:
                self.joins = _components(chain.from_iterable(m.joined for m in manifests), shards)
            alone = not self.joins
        self.alone = alone
        together = (place % shards for places in self.joins for place in places)
        self.gang = frozenset(range(shards + 1) if alone else together)
        if self.joins:
            self.gang |= {shards}
        self.parts = {
            shard: Part(wave, shard, subs.get(shard, 0), number)
            for shard in sorted({shard for shard, count in subs.items() if count} | self.gang)
        }
        self.subs = sum(subs.values())
        self.undealt = len(self.parts)


class _Held(NamedTuple):
    """Shards whose parts end together: when these tasks are done with these shards."""

    shards: tuple[int, ...]
    left: set[tuple[int, int]]


class Schedule:
    """The parts of a drain's waves, from when they are read until they are done.

    Has one owner, and takes no locks.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._chains: list[deque[_Stretch]] = [deque() for _ in range(shards + 1)]
        self._under_way: set[int] = set()  # shards
        self._deals: dict[int, list[_Held]] = {}
        self._dealt = 0
        self._waves: dict[int, int] = {}  # those under way: parts that are not done
        self._most = 0  # sub-messages of a wave
        self._stretches: list[_Stretch] = []  # with parts that are not dealt

    def add(self, wave: int, manifests: Sequence[Manifest]) -> None:
        """Takes the next wave, as it was read; parts without sub-messages are done."""
        stretches = [
            _Stretch(wave, number, own, self._shards, alone=bool(number % 2) or whole)
            for number, own, whole in _stretched(manifests)
        ]
        for stretch in stretches:
            for shard in stretch.parts:
                self._chains[shard].append(stretch)
        if parts := sum(len(stretch.parts) for stretch in stretches):
            self._waves[wave] = parts
        self._most = max(self._most, sum(stretch.subs for stretch in stretches))
        self._stretches += [stretch for stretch in stretches if stretch.parts]

    def deal(self, slots: int, *, urgent: bool, least: int = 1) -> Deal | None:
        """Deals what can begin to the slots that are free; None when that is better done later.

        It is done when half of the slots are free, or one is and a hot shard waits. When it is
        ``urgent``, slots have been free for long. ``least`` sub-messages are worth a task of their
        own.
        """
        ready = self._ready()
        if slots < 1 or len(self._deals) >= DEALS_MOST or not ready:
            return None
        busy = sum(
            len({task for each in held for task, _ in each.left}) for held in self._deals.values()
        )
        stretches = [self._chains[shard][0] for shard in ready]
        hot = any(map(self._is_hot, ready, stretches))
        if slots < busy and not (urgent or hot):
            return None
        # One at most, for the shard behind the last is in each.
        gang = next((s for n, s in zip(ready, stretches, strict=True) if n in s.gang), None)
        parts = [s.parts[shard] for shard, s in zip(ready, stretches, strict=True)]
        if gang is None:
            most = SHARE_MOST * self._most * slots / (slots + busy)
            parts = self._first(parts, most)
        return self._deal_out(parts, gang, slots, least)

    def done(self, deal: int, task: int, shard: int) -> None:
        """Notes that a task has no more to do for a shard; saying so again changes nothing."""
        for held in [each for each in self._deals.get(deal, ()) if (task, shard) in each.left]:
            held.left.remove((task, shard))
            if not held.left:
                self._release(deal, held)

    def position(self, shard: int, partition: int) -> int | None:
        """Where the first part of a shard begins that is not done; None when all that was added
        is."""
        for stretch in self._chains[shard]:
            if partition in stretch.ranges:
                return stretch.ranges[partition][0]
        return None

    @property
    def waves(self) -> tuple[int, ...]:
        """Those that are not done, the oldest first."""
        return tuple(self._waves)

    def undealt(self, wave: int) -> bool:
        """Whether rows of a wave are still to be dealt."""
        return any(stretch.wave == wave for stretch in self._stretches)

    @property
    def wants_to_read(self) -> bool:
        """Whether the next wave should be read: no more than one is left to do, but for shards
        that a hot lane holds up."""
        if len(self._waves) >= WAVES_MOST:
            return False
        left = 0
        for shard, stretches in enumerate(self._chains):
            for stretch in stretches:
                if self._is_hot(shard, stretch):
                    break
                left += stretch.parts[shard].subs
        return left <= self._most

    def _release(self, deal: int, held: _Held) -> None:
        self._deals[deal].remove(held)
        if not self._deals[deal]:
            del self._deals[deal]
        for shard in held.shards:
            self._under_way.remove(shard)
            wave = self._chains[shard].popleft().wave
            self._waves[wave] -= 1
            if not self._waves[wave]:
                del self._waves[wave]

    def _first(self, parts: list[Part], most: float) -> list[Part]:
        """Of these, about so many sub-messages as are the most, the older ones; and what is hot."""
        hot, others = list[Part](), list[Part]()
        for part in sorted(parts):
            is_hot = self._is_hot(part.shard, self._chains[part.shard][0])
            (hot if is_hot else others).append(part)
        before = accumulate((part.subs for part in others), initial=0)
        return [*hot, *(part for part, subs in zip(others, before, strict=False) if subs < most)]

    def _is_hot(self, shard: int, stretch: _Stretch) -> bool:
        return stretch.parts[shard].subs * self._shards > HOT * stretch.subs

    def _ready(self) -> list[int]:
        """Shards whose next part can begin."""
        found, gangs = [], dict[int, bool]()
        for shard, stretches in enumerate(self._chains):
            if not stretches or shard in self._under_way:
                continue
            stretch = stretches[0]
            if shard in stretch.gang:
                key = id(stretch)
                if key not in gangs:
                    gangs[key] = all(
                        self._chains[each][0] is stretch and each not in self._under_way
                        for each in stretch.gang
                    )
                if not gangs[key]:
                    continue
            found.append(shard)
        return found

    def _deal_out(
        self, parts: Sequence[Part], gang: _Stretch | None, slots: int, least: int
    ) -> Deal:
        alone = gang is not None and gang.alone
        joins, shared = [], list[Part]()
        if gang is not None and not alone:
            joins = gang.joins
            shared = [part for part in parts if part.shard in gang.gang]
        whole = parts if alone else [p for p in parts if p.subs and p.shard != self._shards]
        worth = sum(part.subs for part in parts) // max(1, least)
        tasks = 1 if alone else max(1, min(slots, len(whole) + len(joins), worth))
        # The longest first to the least loaded task (LPT: Graham 1969). How much waits in joined
        # lanes is not known; it is at least their share of what joins them.
        between = next((part.subs for part in shared if part.shard == self._shards), 0)
        per_place = between / max(1, sum(map(len, joins)))
        weights = [*(part.subs for part in whole), *(per_place * len(each) for each in joins)]
        loads = [(0.0, task) for task in range(tasks)]
        dealt: list[list[Part]] = [[] for _ in loads]
        joined: dict[int, int] = {}
        for number in sorted(range(len(weights)), key=lambda n: -weights[n]):
            load, task = loads[0]
            heapreplace(loads, (load + weights[number], task))
            if number < len(whole):
                dealt[task].append(whole[number])
            else:
                joined.update(dict.fromkeys(joins[number - len(whole)], task))
        self._dealt += 1
        stretches = {part.wave: self._chains[part.shard][0] for part in parts}
        deal = Deal(
            number=self._dealt,
            shards=self._shards,
            tasks=tuple(map(tuple, dealt)),
            ranges={wave: stretch.ranges for wave, stretch in stretches.items()},
            joined=joined,
            shared=tuple(shared),
            alone=alone,
        )
        left: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for task, held in enumerate(deal.held()):
            for shard in held:
                left[shard].add((task, shard))
        for place, task in joined.items():  # a lane goes on when what joins it is done
            left[place % self._shards].add((task, self._shards))
        if alone:
            self._deals[deal.number] = [
                _Held(tuple(left), set[tuple[int, int]]().union(*left.values()))
            ]
        else:
            self._deals[deal.number] = [_Held((shard,), each) for shard, each in left.items()]
        self._under_way.update(left)
        for part in parts:
            self._chains[part.shard][0].undealt -= 1
        self._stretches = [stretch for stretch in self._stretches if stretch.undealt]
        return deal


def _stretched(manifests: Sequence[Manifest]) -> list[tuple[int, list[Manifest], bool]]:
    """A wave in stretches by number, the odd ones of manifests with barriers, over all partitions
    side by side; and whether all of it is to be one task's."""
    stretches: dict[int, list[Manifest]] = defaultdict(list)
    at: dict[int, int] = {}
    for manifest in sorted(manifests, key=lambda each: (each.partition, each.start)):
        number = at.get(manifest.partition, 0)
        number += bool(manifest.barriers) != number % 2
        at[manifest.partition] = number
        stretches[number].append(manifest)
    if max(stretches, default=0) >= STRETCHES_MOST:
        return [(0, list(manifests), True)]
    return [(number, own, False) for number, own in sorted(stretches.items())]


def _components(joined: Iterable[Sequence[int]], shards: int) -> list[list[int]]:
    """Places that are connected, of several shards."""
    roots: dict[int, int] = {}

    def root(place: int) -> int:
        roots.setdefault(place, place)
        while (above := roots[place]) != place:
            roots[place] = roots[above]
            place = above
        return place

    for places in joined:
        for place in places:
            roots[root(place)] = root(places[0])
    components: dict[int, list[int]] = defaultdict(list)
    for place in roots:
        components[root(place)].append(place)
    return [
        places for places in components.values() if len({place % shards for place in places}) > 1
    ]
