"""Claims: shares of the sub-messages, each with its own progress.

A shard is a share of the sub-keys. A sub-key's place is a number that depends on the key alone, so
tasks that never talk to each other agree whose it is. Where sub-messages connect some, the drain's
joins say so beside (``Joins``). A class is what an expression selects (``Selection``).
What several claims say is finished is finished, whoever goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from struct import pack
from zlib import crc32

from drainer.core.identity import SubKeys
from drainer.core.joins import Joins
from drainer.core.order import LANE_OF, Order
from drainer.core.progress import (
    Outcome,
    Partial,
    Progress,
    Range,
    RangeSet,
    fate_of,
    join_fates,
    split_no_more,
)
from drainer.message import Barrier, Message, SubMessage, Unsplit
from drainer.policy.rules.selection import Selection

ALL = "all"  # the selector of the claim that every sub-message falls in
_WHERE = "where "  # before the expression of a class

_SELECTOR = re.compile(r"(\d{1,9})/(\d{1,9})(?:@(\d{1,9}))?", re.ASCII)
CLASS_MAP_BITS = 8 * 1024 * 1024
_LONG = 0xFFFF_FFFF_FFFF_FFFF
_NONE_PLACE = crc32(b"none")

Claims = Mapping[str, Mapping[int, Progress]]  # by selector and partition


def place_of(key: Hashable) -> int:
    """The place of a sub-key, of the types that ``identify`` lets through: 32 bits.

    It is the same in every process.
    """
    match key:
        case str():
            return crc32(key.encode("utf-8", "surrogatepass"))
        case bytes():
            return crc32(key)
        case int():
            # Python's hash of an int is the same everywhere; mixed, as ids that rise in steps would
            # all fall in one claim.
            return crc32(pack("<Q", hash(key) & _LONG))
        case tuple():
            return crc32(pack(f"<{len(key)}I", *map(place_of, key)), len(key))
        case None:
            return _NONE_PLACE
    raise TypeError(f"{type(key).__name__} is not a type of sub-keys")


@dataclass(frozen=True, slots=True)
class Claim:
    """The sub-keys whose place modulo ``of`` is ``number``, but for those that ``joins`` moves.

    Its text is ``"2/8"``, or ``"2/8@3"`` with the third joins of the plan; ``"0/1"`` has them all.
    """

    number: int
    of: int
    joins: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"claim {self.number} of {self.of} is none of 0 to {self.of - 1}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}" + (f"@{self.joins}" if self.joins else "")

    @classmethod
    def parse(cls, text: str) -> Claim:
        """Raises ValueError when the text is not one that a claim has."""
        match = _SELECTOR.fullmatch(text)
        claim = match and cls(int(match[1]), int(match[2]), int(match[3] or 0))
        if claim is None or str(claim) != text:  # 02/8 and 2/8 would be two with the same sub-keys
            raise ValueError(f"{text!r} is not a claim, as 2/8 is")
        return claim


def class_selector(where: str) -> str:
    """What the claim of a class is called."""
    return _WHERE + where


def class_of(selector: str) -> str | None:
    """The expression of a class; None when it is the selector of another claim."""
    return selector.removeprefix(_WHERE) if selector.startswith(_WHERE) else None


def joins_of(selectors: Iterable[str]) -> set[int]:
    """The numbers of joins that claims name. Raises ValueError for what is no claim."""
    claims = (Claim.parse(each) for each in selectors if class_of(each) is None)
    return {claim.joins for claim in claims if claim.joins}


class Places:
    """Where sub-messages fall by the order of a drain; ``subs`` are those that a message gave.

    ``joins`` are those that claims may name, by number.
    """

    def __init__(self, order: Order, joins: Mapping[int, Joins] | None = None) -> None:
        self._lane_of = LANE_OF.get(order)  # None: its sub-keys
        self._moved: dict[int, Mapping[int, int]] = {0: {}} | {
            n: each.shards for n, each in (joins or {}).items()
        }

    def number(self, sub: SubMessage, of: int, joins: int = 0) -> int | None:
        """Which of the ``of`` claims has the sub-message and all of its lanes; None when none."""
        if of == 1:
            return 0
        moved = self._moved[joins]
        if isinstance(sub, Unsplit):  # any would do, in every process the same
            place = place_of(sub.message.key)
        elif isinstance(sub, Barrier):
            return None
        elif self._lane_of is not None:
            place = place_of(self._lane_of(sub))
        elif sub.keys is None:
            place = place_of(sub.key)
        else:
            numbers = {moved.get(place, place % of) for place in map(place_of, sub.keys)}
            return numbers.pop() if len(numbers) == 1 else None
        return moved.get(place, place % of)


class ClassMap:
    """Where in a backlog messages of a class lie, in a fixed size: which stretches of offsets have
    one, as far as was looked. It may err only towards yes."""

    def __init__(self, ranges: Mapping[int, Range]) -> None:
        """``ranges`` are the offsets ``[start, end)`` by partition."""
        total = sum(end - start for start, end in ranges.values())
        self._stride = max(1, -(-total // CLASS_MAP_BITS))
        self._starts: dict[int, int] = {}  # where the bits of a partition begin
        self._first = {number: start for number, (start, _) in ranges.items()}
        self._until = dict(self._first)
        bits = 0
        for number, (start, end) in ranges.items():
            self._starts[number] = bits
            bits += (end - start) // self._stride + 1
        self._bits = bytearray(bits // 8 + 1)

    def look(self, partition: int, offset: int, holds: bool) -> None:
        """Notes what was seen of a message; they come in order."""
        self._until[partition] = offset + 1
        if holds:
            at = self._at(partition, offset)
            self._bits[at >> 3] |= 1 << (at & 7)

    def may_hold(self, partition: int, offset: int) -> bool:
        if not self._first[partition] <= offset < self._until[partition]:
            return True
        at = self._at(partition, offset)
        return bool(self._bits[at >> 3] >> (at & 7) & 1)

    def _at(self, partition: int, offset: int) -> int:
        return self._starts[partition] + (offset - self._first[partition]) // self._stride


@dataclass(frozen=True, slots=True)
class _Class:
    """What one class has finished of a partition."""

    selection: Selection
    progress: Progress
    finished: RangeSet
    where: ClassMap | None

    def bits(self, message: Message, subs: Sequence[SubMessage]) -> int:
        offset = message.offset
        found = _finished_bits(self.progress, self.finished, offset)
        if not found or (
            self.where is not None and not self.where.may_hold(message.origin.partition, offset)
        ):
            return 0
        return found & self.selection.bits(subs)


class Elsewhere:
    """What claims other than "all" have finished.

    A sub-message is a shard's when all of its lanes are. ``maps`` tell where classes lie, by
    selector, as far as this process has seen that.
    """

    def __init__(
        self, claims: Claims, places: Places, maps: Mapping[str, ClassMap] | None = None
    ) -> None:
        self._claims = {selector: claim for selector, claim in claims.items() if selector != ALL}
        self._places = places
        self.classes: dict[int, list[_Class]] = {}  # by partition
        # By partition; then by division (of 2/8@3 the 8 and the 3) and number.
        self._said: dict[int, dict[tuple[int, int], dict[int, tuple[Progress, RangeSet]]]] = {}
        self._partial: dict[int, dict[int, list[Partial]]] = {}
        self._fates: dict[int, dict[Outcome, RangeSet]] = {}
        for selector, by_partition in self._claims.items():
            where = class_of(selector)
            selection = None if where is None else Selection(where)
            for partition, progress in by_partition.items():
                divisions = self._said.setdefault(partition, {})
                said = progress, RangeSet(progress.finished)
                if selection is None:
                    claim = Claim.parse(selector)
                    divisions.setdefault((claim.of, claim.joins), {})[claim.number] = said
                else:
                    found = _Class(selection, *said, (maps or {}).get(selector))
                    self.classes.setdefault(partition, []).append(found)
                parts = self._partial.setdefault(partition, {})
                for offset, part in progress.partial.items():
                    parts.setdefault(offset, []).append(part)
        for partition in self._said:
            fates = join_fates(claim[partition].fates for claim in self._claims.values())
            self._fates[partition] = {outcome: RangeSet(at) for outcome, at in fates.items()}

    def finished(self, message: Message, subs: Sequence[SubMessage]) -> int:
        """A bit for each sub-message that a claim has finished.

        Raises SplitFailed when a claim saw the message split into others.
        """
        partition, offset = message.origin.partition, message.offset
        if offset in self._fates.get(partition, {}).get(Outcome.UNSPLIT, ()):
            return (1 << len(subs)) - 1
        if subs and isinstance(subs[0], Unsplit):
            return self._whole(message, subs[0])
        for known in self._partial.get(partition, {}).get(offset, ()):
            keys = [sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs]
            known.insist_same(message, keys)
        done = 0
        for division, by_number in self._said.get(partition, {}).items():
            bits: dict[int, int] = {}
            for index, sub in enumerate(subs):
                number = self._places.number(sub, *division)
                if number is None or number not in by_number:
                    continue
                if number not in bits:
                    bits[number] = _finished_bits(*by_number[number], offset)
                done |= bits[number] & 1 << index
        for each in self.classes.get(partition, ()):
            done |= each.bits(message, subs)
        return done

    def _whole(self, message: Message, unit: Unsplit) -> int:
        """Whether a message that ``split`` rejects now is finished: 1 or 0.

        Raises SplitFailed when a claim has gone past what it split into.
        """
        partition, offset = message.origin.partition, message.offset
        said = {
            of == 1
            for (of, _), by_number in self._said.get(partition, {}).items()
            if any(_finished_bits(*each, offset) == -1 for each in by_number.values())
        }
        if True in said:
            return 1
        passed = (
            _finished_bits(c.progress, c.finished, offset) for c in self.classes.get(partition, ())
        )
        if said or any(passed) or self._partial.get(partition, {}).get(offset):
            raise split_no_more(message, unit.why)
        return 0

    def fate(self, message: Message) -> Outcome:
        """The worst with which a claim has finished a sub-message of it."""
        return fate_of(message.offset, self._fates.get(message.origin.partition, {}))

    def highest(self, partition: int) -> int:
        """From this offset on they say nothing."""
        claims = (claim[partition] for claim in self._claims.values() if partition in claim)
        return max(map(end_of, claims), default=0)

    def needed(self, watermarks: Mapping[int, int]) -> Claims:
        """The claims that say something above these watermarks, by partition."""
        return {
            selector: claim
            for selector, claim in self._claims.items()
            if any(end_of(progress) > watermarks[n] for n, progress in claim.items())
        }


def _finished_bits(progress: Progress, finished: RangeSet, offset: int) -> int:
    # Of a message's sub-messages that are a claim's; -1 for all.
    if offset < progress.watermark or offset in finished:
        return -1
    part = progress.partial.get(offset)
    return 0 if part is None else part.bits


def end_of(progress: Progress) -> int:
    """From this offset on the progress says nothing."""
    ends = (end for _, end in progress.finished[-1:])
    return max(chain((progress.watermark,), ends, (offset + 1 for offset in progress.partial)))
