"""What a backlog is made of: a sample of it, split, drawn on to the size of the whole or a part.

Only the keys of a sample are kept, as small numbers, so that a million sub-messages fit anywhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from drainer.core.order import Order
from drainer.message import Barrier, Message, Origin, SubMessage

RECURS = 3  # a key seen so often in a sample is in the rest of the backlog too; others are not
TURN_MESSAGES = 2000  # of a partition, before another one has its turn
NO_KEY = "no key"

Lanes = int | tuple[int, ...] | None  # of a sub-message: its sub-key, several of them, a barrier


@dataclass(frozen=True, slots=True)
class Shape:
    """One message of a sample: its key, its bytes, and the lanes of its sub-messages."""

    key: int
    size: int
    lanes: tuple[Lanes, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbours of one partition, and how many messages of the backlog they stand for."""

    partition: int
    shapes: Sequence[Shape]
    messages: float


@dataclass(frozen=True, slots=True)
class Hottest:
    """The longest lane: its key, and how many sub-messages of the backlog it has."""

    key: Hashable
    sub_messages: float


class Workload:
    """A sampled backlog. Stretches of one partition come in the order of their offsets.

    A key that recurs in the sample keeps its share of the backlog. One that doesn't is another one
    each time that its stretch is drawn again: what is rare in a sample is rare in the backlog, and
    has no long lane.
    """

    def __init__(self, stretches: Iterable[Stretch], keys: Keys) -> None:
        self.stretches = tuple(each for each in stretches if each.shapes)
        self._keys = keys
        self._ids = len(keys.of)
        self.messages = round(sum(each.messages for each in self.stretches))
        self.sampled_messages = sum(len(each.shapes) for each in self.stretches)
        self._sub_keys: Counter[int] = Counter()
        self._message_keys: Counter[int] = Counter()
        self.sampled_sub_messages = self.barriers = self.several = 0
        sub_messages = 0.0
        for stretch in self.stretches:
            here = 0
            for shape in stretch.shapes:
                here += len(shape.lanes)
                self._message_keys[shape.key] += 1
                for lanes in shape.lanes:
                    if type(lanes) is int:
                        self._sub_keys[lanes] += 1
                    elif lanes is None:
                        self.barriers += 1
                    else:
                        self.several += 1
                        self._sub_keys.update(cast(tuple[int, ...], lanes))
            self.sampled_sub_messages += here
            sub_messages += here * stretch.messages / len(stretch.shapes)
        self.sub_messages = round(sub_messages)

    @property
    def whole(self) -> bool:
        """Whether all of the backlog is in the sample."""
        return self.sampled_messages >= self.messages

    @property
    def fan_out(self) -> float:
        """Sub-messages of a message."""
        return self.sampled_sub_messages / max(1, self.sampled_messages)

    def hottest(self, order: Order) -> Hottest | None:
        """The lane with the most sub-messages in the whole backlog; None when there is none."""
        if order is Order.PARTITION:
            found: dict[Hashable, float] = {}
            for stretch in self.stretches:
                share = stretch.messages / len(stretch.shapes)
                subs = sum(len(shape.lanes) for shape in stretch.shapes) * share
                found[stretch.partition] = found.get(stretch.partition, 0.0) + subs
            key = max(found, key=lambda each: found[each], default=None)
            return None if key is None else Hottest(f"partition {key}", found[key])
        if order is Order.NONE:
            return Hottest(NO_KEY, 1.0) if self.sub_messages else None
        lanes = self._lanes(order)
        if not lanes:
            return None
        number = max(lanes, key=lambda each: lanes[each])
        return Hottest(self._keys.of[number], lanes[number])

    def draw(self, messages: int) -> Iterator[tuple[Message, list[SubMessage]]]:
        """So many messages that are like the backlog; all of it when that is what was sampled.

        Each stretch has its share, in its place, and is drawn again as often as it takes.
        Partitions take turns.
        """
        share = messages / max(1, self.messages)
        counts = _shared_out([each.messages * share for each in self.stretches], messages)
        by_partition: dict[int, list[tuple[Stretch, int]]] = {}
        for stretch, count in zip(self.stretches, counts, strict=True):
            by_partition.setdefault(stretch.partition, []).append((stretch, count))
        streams = deque(self._partition(number, parts) for number, parts in by_partition.items())
        while streams:
            stream = streams.popleft()
            first = next(stream, None)
            if first is not None:
                yield first
                yield from islice(stream, TURN_MESSAGES - 1)
                streams.append(stream)

    def _partition(
        self, number: int, parts: Sequence[tuple[Stretch, int]]
    ) -> Iterator[tuple[Message, list[SubMessage]]]:
        origin = Origin("", "", number)
        rare_sub_keys, rare_keys = self._rare(self._sub_keys), self._rare(self._message_keys)
        offset = drawn = 0
        for stretch, count in parts:
            left = count
            while left > 0:
                shift = drawn * self._ids
                for shape in stretch.shapes[:left]:
                    key = shape.key + shift if shape.key in rare_keys else shape.key
                    message = Message(origin, offset, None, None)
                    message.key = cast(Any, key)
                    message.size = shape.size
                    offset += 1
                    yield message, _sub_messages(shape.lanes, rare_sub_keys, shift)
                left -= len(stretch.shapes)
                drawn += 1 if left > 0 else 0

    def _rare(self, counts: Counter[int]) -> frozenset[int]:
        if self.whole:
            return frozenset()
        return frozenset(key for key, count in counts.items() if count < RECURS)

    def _lanes(self, order: Order) -> dict[int, float]:
        counts = self._message_keys if order is Order.KEY else self._sub_keys
        rare = self._rare(counts)
        found: dict[int, float] = {}
        for stretch in self.stretches:
            share = stretch.messages / len(stretch.shapes)
            for shape in stretch.shapes:
                for number, weight in _weights(shape, order):
                    each = weight if number in rare else weight * share
                    found[number] = found.get(number, 0.0) + each
        return found


class Keys:
    """Numbers for keys, in the order in which they are met."""

    def __init__(self) -> None:
        self.of: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        """Raises TypeError when the key isn't hashable."""
        number = self._numbers.setdefault(key, len(self.of))
        if number == len(self.of):
            self.of.append(key)
        return number

    def shape(self, message: Message, subs: Iterable[SubMessage]) -> Shape:
        """What is kept of a message."""
        number = self.number
        return Shape(
            # Of message keys only those of messages are compared, so they may share the numbers.
            number(message.key),
            message.size,
            tuple([self._lanes(sub) for sub in subs]),
        )

    def _lanes(self, sub: SubMessage) -> Lanes:
        if isinstance(sub, Barrier):
            return None
        if sub.keys is None:
            return self.number(sub.key)
        return tuple(self.number(key) for key in sub.keys)


def _sub_messages(lanes: Sequence[Lanes], rare: frozenset[int], shift: int) -> list[SubMessage]:
    if not shift:
        return [_sub_message(each) for each in lanes]
    return [
        SubMessage(each + shift if each in rare else each)
        if type(each) is int
        else _sub_message(_shifted(each, rare, shift))
        for each in lanes
    ]


def _sub_message(lanes: Lanes) -> SubMessage:
    if type(lanes) is int:
        return SubMessage(lanes)
    if lanes is None:
        return Barrier()
    return SubMessage(keys=cast(tuple[int, ...], lanes))


def _shifted(lanes: Lanes, rare: frozenset[int], shift: int) -> Lanes:
    if not isinstance(lanes, tuple):
        return lanes
    return tuple(each + shift if each in rare else each for each in lanes)


def _weights(shape: Shape, order: Order) -> Iterator[tuple[int, int]]:
    if order is Order.KEY:
        yield shape.key, len(shape.lanes)
        return
    for lanes in shape.lanes:
        if type(lanes) is int:
            yield lanes, 1
        elif lanes is not None:
            for each in cast(tuple[int, ...], lanes):
                yield each, 1


def _shared_out(shares: Sequence[float], total: int) -> list[int]:
    # Whole numbers with this sum, each next to its share.
    counts, behind, given = [], 0.0, 0
    for number, share in enumerate(shares):
        behind += share
        until = total if number == len(shares) - 1 else min(total, round(behind))
        counts.append(until - given)
        given = until
    return counts
