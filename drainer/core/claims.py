"""Claims: shares of the sub-keys, each with its own progress.

A sub-key's place is a number that depends on the key alone, so tasks that never talk to each other
agree whose it is. Where sub-messages connect some, the drain's joins say so beside (``Joins``).
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
from drainer.core.progress import Outcome, Partial, Progress, RangeSet, fate_of, join_fates
from drainer.message import Barrier, Message, SubMessage

ALL = "all"  # the selector of the claim that every sub-key falls in

_SELECTOR = re.compile(r"(\d{1,9})/(\d{1,9})(?:@(\d{1,9}))?", re.ASCII)
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


def joins_of(selectors: Iterable[str]) -> set[int]:
    """The numbers of joins that claims name. Raises ValueError for what is no claim."""
    return {claim.joins for claim in map(Claim.parse, selectors) if claim.joins}


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
        if isinstance(sub, Barrier):
            return None
        moved = self._moved[joins]
        if self._lane_of is not None:
            place = place_of(self._lane_of(sub))
        elif sub.keys is None:
            place = place_of(sub.key)
        else:
            numbers = {moved.get(place, place % of) for place in map(place_of, sub.keys)}
            return numbers.pop() if len(numbers) == 1 else None
        return moved.get(place, place % of)


class Elsewhere:
    """What claims other than "all" have finished.

    A sub-message is a claim's when all of its lanes are.
    """

    def __init__(self, claims: Claims, places: Places) -> None:
        self._claims = {selector: claim for selector, claim in claims.items() if selector != ALL}
        self._places = places
        # By partition; then by division (of 2/8@3 the 8 and the 3) and number.
        self._said: dict[int, dict[tuple[int, int], dict[int, tuple[Progress, RangeSet]]]] = {}
        self._partial: dict[int, dict[int, list[Partial]]] = {}
        self._fates: dict[int, dict[Outcome, RangeSet]] = {}
        for selector, by_partition in self._claims.items():
            claim = Claim.parse(selector)
            for partition, progress in by_partition.items():
                divisions = self._said.setdefault(partition, {})
                said = progress, RangeSet(progress.finished)
                divisions.setdefault((claim.of, claim.joins), {})[claim.number] = said
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
        return done

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
