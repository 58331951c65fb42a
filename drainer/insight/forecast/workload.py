"""The workload of a backlog: a sample of it, split, repeated to the size of the whole or a part.

Only the keys of a sample are kept, as small numbers, so that a million sub-messages fit anywhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice, repeat
from typing import cast

from drainer.core.batches import FOLD_MOST, Batching, BatchOf
from drainer.message import Barrier, Message, Origin, SubMessage
from drainer.model.order import Order

RECURS = 3  # a key seen so often in a sample is in the rest of the backlog too; others are not
TURN_MESSAGES = 2000  # of a partition, before another one has its turn
NO_KEY = "no key"
FOLDS = True  # the payload of a drawn sub-message that is folded into the one before it

LaneNumbers = (
    int | tuple[int, ...] | None
)  # of a sub-message: its sub-key, several of them, a barrier


@dataclass(frozen=True, slots=True)
class Shape:
    """One message of a sample: its key, its bytes, and the lanes of its sub-messages.

    ``folds`` has the indexes of those that the handler folds into the one before it on its sub-key.
    """

    key: int
    size: int
    lanes: tuple[LaneNumbers, ...]
    folds: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Neighbours of one partition, and how many messages of the backlog they stand for."""

    partition: int
    shapes: Sequence[Shape]
    messages: float


@dataclass(frozen=True, slots=True)
class Hottest:
    """The longest lane: its key, and how many sub-messages of the backlog it has.

    ``calls`` is the least number of calls that they take, one after the other.
    """

    key: Hashable
    sub_messages: float
    calls: float


class Workload:
    """A sampled backlog. Stretches of one partition come in the order of their offsets.

    A key that recurs in the sample keeps its share of the backlog. One that doesn't is another one
    each time that its stretch is drawn again: what is rare in a sample is rare in the backlog, and
    has no long lane.
    """

    def __init__(self, stretches: Iterable[Neighbours], keys: Keys) -> None:
        self.stretches = tuple(each for each in stretches if each.shapes)
        self._keys = keys
        self._ids = len(keys.of)
        self._folds = any(shape.folds for each in self.stretches for shape in each.shapes)
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

    def hottest(self, order: Order, batching: Batching | None = None) -> Hottest | None:
        """The lane that takes the most calls for the whole backlog; None when there is none."""
        if order is Order.NONE:
            return Hottest(NO_KEY, 1.0, 1.0) if self.sub_messages else None
        lanes, folded = self._lanes(order)
        run = batching.most if batching is not None and batching.of is BatchOf.LANE else 1

        def calls(number: int) -> float:
            folds = folded.get(number, 0.0)
            return (lanes[number] - folds + folds / FOLD_MOST) / run

        number = max(lanes, key=calls, default=None)
        if number is None:
            return None
        key = f"partition {number}" if order is Order.PARTITION else self._keys.of[number]
        return Hottest(key, lanes[number], max(1.0, calls(number)))

    def draw(self, messages: int) -> Iterator[tuple[Message, list[SubMessage]]]:
        """Draw so many messages that are like the backlog; all of it when that was sampled.

        Each stretch has its share, in its place, and is drawn again as often as it takes.
        Partitions take turns.
        """
        share = messages / max(1, self.messages)
        counts = _shared_out([each.messages * share for each in self.stretches], messages)
        by_partition: dict[int, list[tuple[Neighbours, int]]] = {}
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
        self, number: int, parts: Sequence[tuple[Neighbours, int]]
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
                    message.key = key  # type: ignore[assignment]
                    message.size = shape.size
                    offset += 1
                    subs = _sub_messages(shape, rare_sub_keys, shift)
                    for index in shape.folds:
                        subs[index].payload = FOLDS
                    yield message, subs
                left -= len(stretch.shapes)
                drawn += 1 if left > 0 else 0

    def _rare(self, counts: Counter[int]) -> frozenset[int]:
        if self.whole:
            return frozenset()
        return frozenset(key for key, count in counts.items() if count < RECURS)

    def _lanes(self, order: Order) -> tuple[dict[int, float], dict[int, float]]:
        """Sub-messages of the backlog by lane, and how many of them may be folded."""
        counts = self._message_keys if order is Order.KEY else self._sub_keys
        rare = frozenset() if order is Order.PARTITION else self._rare(counts)
        found: dict[int, float] = {}
        folded: dict[int, float] = {}
        last: dict[int, LaneNumbers] = {}
        for stretch in self.stretches:
            share = stretch.messages / len(stretch.shapes)
            for shape in stretch.shapes:
                for index, number in _lane_numbers(shape, order, stretch.partition):
                    times = 1 if number in rare else share
                    found[number] = found.get(number, 0.0) + times
                    if self._folds:
                        lanes = shape.lanes[index]
                        # Only neighbours: in a lane of messages others may stand between them.
                        if index in shape.folds and last.get(number) == lanes:
                            folded[number] = folded.get(number, 0.0) + times
                        last[number] = lanes
        return found, folded


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

    def shape(
        self, message: Message, subs: Iterable[SubMessage], folds: Set[int] = frozenset()
    ) -> Shape:
        """The shape of a message, for a workload."""
        number = self.number
        return Shape(
            # Of message keys only those of messages are compared, so they may share the numbers.
            number(message.key),
            message.size,
            tuple([self._lanes(sub) for sub in subs]),
            folds,
        )

    def _lanes(self, sub: SubMessage) -> LaneNumbers:
        if isinstance(sub, Barrier):
            return None
        if sub.keys is None:
            return self.number(sub.key)
        return tuple(self.number(key) for key in sub.keys)


def _sub_messages(shape: Shape, rare: frozenset[int], shift: int) -> list[SubMessage]:
    lanes = shape.lanes
    if not shift:
        return [_sub_message(each) for each in lanes]
    return [
        SubMessage(each + shift if each in rare else each)
        if type(each) is int
        else _sub_message(_shifted(each, rare, shift))
        for each in lanes
    ]


def as_sampled(earlier: SubMessage, later: SubMessage) -> SubMessage | None:
    """The ``coalesce`` of drawn sub-messages: it folds as the handler's did in the sample."""
    return later if later.payload is FOLDS else None


def _sub_message(lanes: LaneNumbers) -> SubMessage:
    if type(lanes) is int:
        return SubMessage(lanes)
    if lanes is None:
        return Barrier()
    return SubMessage(keys=cast(tuple[int, ...], lanes))


def _shifted(lanes: LaneNumbers, rare: frozenset[int], shift: int) -> LaneNumbers:
    if not isinstance(lanes, tuple):
        return lanes
    return tuple(each + shift if each in rare else each for each in lanes)


def _lane_numbers(shape: Shape, order: Order, partition: int) -> Iterator[tuple[int, int]]:
    """The index of each sub-message of a message, and its lane; several of one with several
    sub-keys."""
    if order is not Order.SUB_KEY:
        lane = shape.key if order is Order.KEY else partition
        yield from zip(range(len(shape.lanes)), repeat(lane), strict=False)
        return
    for index, lanes in enumerate(shape.lanes):
        if type(lanes) is int:
            yield index, lanes
        elif lanes is not None:
            yield from zip(repeat(index), cast(tuple[int, ...], lanes), strict=False)


def _shared_out(shares: Sequence[float], total: int) -> list[int]:
    # Whole numbers with this sum, each next to its share.
    counts, behind, given = [], 0.0, 0
    for number, share in enumerate(shares):
        behind += share
        until = total if number == len(shares) - 1 else min(total, round(behind))
        counts.append(until - given)
        given = until
    return counts
