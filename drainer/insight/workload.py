"""The workload of a backlog: how its sub-messages are spread over lanes, by a sample.

Only the keys of the sample are kept, and these as small numbers, so that a million sub-messages
need little memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import repeat

from drainer.core.batches import FOLD_MOST, Batching, BatchOf
from drainer.message import Barrier, Message, SubMessage
from drainer.model.order import Order

# A key that was seen at least this often in a sample has the same share of the backlog. A rarer key
# is taken to represent many different keys. Otherwise chance would turn it into a long lane.
RECURS = 3
NO_KEY = "no key"

# The lanes of a sub-message: one for its sub-key, a tuple for several sub-keys, None for a barrier.
LaneNumbers = int | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Shape:
    """One message of a sample: the number of its key, and the lanes of its sub-messages.

    ``folds`` has the indexes of those sub-messages that the handler folds into the one before them
    on their sub-key.
    """

    key: int
    lanes: tuple[LaneNumbers, ...]
    folds: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Successive messages of one partition, and how many messages of the backlog they represent."""

    partition: int
    shapes: Sequence[Shape]
    messages: float


@dataclass(frozen=True, slots=True)
class Hottest:
    """The lane that takes the most calls.

    Attributes:
        sub_messages: how many sub-messages of the backlog are in the lane.
        calls: how many calls they take at least, one after the other.
    """

    key: Hashable
    sub_messages: float
    calls: float


def least_calls(sub_messages: float, folds: float, run: int) -> float:
    """Return the fewest calls that a lane needs if ``folds`` of its sub-messages fold into others.

    ``run`` is the maximum number of operations in a call.
    """
    return max(sub_messages - folds, sub_messages / FOLD_MOST) / run


class Workload:
    """The workload of a backlog that was sampled.

    ``stretches`` has the stretches of each partition in the order of their offsets.

    Attributes:
        messages, sub_messages: how many the whole backlog has.
        sampled_messages: how many messages the sample has.
        fan_out: mean sub-messages per message of the sample.
        partitions: by number, the sub-messages and the barriers of the backlog.
        several: whether some sub-messages have several sub-keys.
        lanes: counts the lanes by size in an order, as ``_count_lanes`` does.
    """

    def __init__(self, stretches: Iterable[Neighbours], keys: Keys) -> None:
        self._stretches = tuple(each for each in stretches if each.shapes)
        self._keys = keys
        self._folds = any(shape.folds for each in self._stretches for shape in each.shapes)
        self._sub_keys = Counter[int]()
        self._message_keys = Counter[int]()
        # These results are kept, because the estimate needs them again for each concurrency.
        self._hottest, self.lanes = cache(self._find_hottest), cache(self._count_lanes)
        self.partitions: dict[int, tuple[float, float]] = {}
        self.several = False
        self.messages = round(sum(each.messages for each in self._stretches))
        self.sampled_messages = sum(len(each.shapes) for each in self._stretches)
        sampled = sum(map(self._count, self._stretches))
        self.fan_out = sampled / max(1, self.sampled_messages)
        self.sub_messages = round(sum(subs for subs, _ in self.partitions.values()))

    def _count(self, stretch: Neighbours) -> int:
        """Count what is in a stretch, and return its number of sub-messages."""
        found = barriers = 0
        for shape in stretch.shapes:
            found += len(shape.lanes)
            self._message_keys[shape.key] += 1
            for lanes in shape.lanes:
                if lanes is None:
                    barriers += 1
                elif isinstance(lanes, int):
                    self._sub_keys[lanes] += 1
                else:
                    self.several = True
                    self._sub_keys.update(lanes)
        share = stretch.messages / len(stretch.shapes)
        subs_before, barriers_before = self.partitions.get(stretch.partition, (0.0, 0.0))
        self.partitions[stretch.partition] = (
            subs_before + found * share,
            barriers_before + barriers * share,
        )
        return found

    @property
    def whole(self) -> bool:
        """Whether the sample has the whole backlog."""
        return self.sampled_messages >= self.messages

    @property
    def barriers(self) -> bool:
        """Whether any partition has barriers."""
        return any(barriers for _, barriers in self.partitions.values())

    def hottest(self, order: Order, batching: Batching | None = None) -> Hottest | None:
        """Return the lane that takes the most calls for the whole backlog; None without lanes."""
        run = batching.most if batching is not None and batching.of is BatchOf.LANE else 1
        return self._hottest(order, run)

    def _find_hottest(self, order: Order, run: int) -> Hottest | None:
        if order is Order.NONE:
            return Hottest(NO_KEY, 1.0, 1.0) if self.sub_messages else None
        found, folded = self._lanes(order)

        def calls(number: int) -> float:
            return least_calls(found[number], folded.get(number, 0.0), run)

        number = max(found, key=calls, default=None)
        if number is None:
            return None
        key = f"partition {number}" if order is Order.PARTITION else self._keys.of[number]
        return Hottest(key, found[number], max(1.0, calls(number)))

    def _count_lanes(self, order: Order) -> Counter[tuple[float, float]]:
        """Count the lanes by size: the number of sub-messages, and of those that may be folded."""
        if order is Order.NONE:
            return Counter({(1.0, 0.0): self.sub_messages})
        found, folded = self._lanes(order)
        rare = self._rare(order)
        often = {number: subs for number, subs in found.items() if number not in rare}
        lanes = Counter((subs, folded.get(number, 0.0)) for number, subs in often.items())
        if (alone := round(self.sub_messages - sum(often.values()))) > 0:
            lanes[1.0, 0.0] += alone
        return lanes

    def _rare(self, order: Order) -> frozenset[int]:
        if self.whole or order is Order.PARTITION:
            return frozenset()
        counts = self._message_keys if order is Order.KEY else self._sub_keys
        return frozenset(key for key, count in counts.items() if count < RECURS)

    def _lanes(self, order: Order) -> tuple[dict[int, float], dict[int, float]]:
        """Return, by lane, the sub-messages of the backlog and how many of them may be folded."""
        rare = self._rare(order)
        found: dict[int, float] = {}
        folded: dict[int, float] = {}
        last: dict[int, LaneNumbers] = {}
        for stretch in self._stretches:
            share = stretch.messages / len(stretch.shapes)
            for shape in stretch.shapes:
                for index, number in _lane_numbers(shape, order, stretch.partition):
                    times = 1 if number in rare else share
                    found[number] = found.get(number, 0.0) + times
                    if self._folds:
                        lanes = shape.lanes[index]
                        # In the lane of a message key or a partition, a sub-message of another
                        # sub-key may lie between two that would fold.
                        if index in shape.folds and last.get(number) == lanes:
                            folded[number] = folded.get(number, 0.0) + times
                        last[number] = lanes
        return found, folded


class Keys:
    """Numbers the keys in the order in which they are first seen. ``of`` has the keys by number."""

    def __init__(self) -> None:
        self.of: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        """Return the number of a key. Raises TypeError when the key isn't hashable."""
        number = self._numbers.setdefault(key, len(self.of))
        if number == len(self.of):
            self.of.append(key)
        return number

    def shape(
        self, message: Message, subs: Iterable[SubMessage], folds: Set[int] = frozenset()
    ) -> Shape:
        """Return the shape of a message with these sub-messages."""
        # A message key and a sub-key may have the same number, because they are never compared.
        return Shape(self.number(message.key), tuple([self._lanes(sub) for sub in subs]), folds)

    def _lanes(self, sub: SubMessage) -> LaneNumbers:
        if isinstance(sub, Barrier):
            return None
        if sub.keys is None:
            return self.number(sub.key) if sub.key is not None else self._own_lane()
        return tuple(self.number(key) for key in sub.keys)

    def _own_lane(self) -> int:
        self.of.append(NO_KEY)
        return len(self.of) - 1


def _lane_numbers(shape: Shape, order: Order, partition: int) -> Iterator[tuple[int, int]]:
    """Yield the index and the lane of each sub-message, once for each of its lanes."""
    if order is not Order.SUB_KEY:
        lane = shape.key if order is Order.KEY else partition
        yield from zip(range(len(shape.lanes)), repeat(lane), strict=False)
        return
    for index, lanes in enumerate(shape.lanes):
        if isinstance(lanes, int):
            yield index, lanes
        elif lanes is not None:
            yield from zip(repeat(index), lanes, strict=False)
