"""Claims: shares of the sub-messages, each with its own progress.

A shard is a share of the sub-keys by their hash, which depends on the key alone: tasks that share
nothing agree which shard has it. Where sub-messages connect sub-keys, the drain's joins move them
(``Joins``). A priority class is what an expression selects. Finished is what any claim has
finished, whoever resumes from there.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from struct import error, iter_unpack, pack
from zlib import crc32

from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.order import LANE_OF, Order
from drainer.model.progress import Progress

JOINS_MOST = 20_000  # places that a plan holds: 160 KB
_JOIN = "<IH"  # place and shard


class Joins:
    """The shards of places that are not in that of their number, by place.

    Its text is base64 of six bytes for each: place and shard, little-endian, by place.
    """

    written = str  # in JSON
    __slots__ = ("_text", "shards")

    def __init__(self, shards: Mapping[int, int]) -> None:
        self.shards = shards
        self._text = ""

    def __len__(self) -> int:
        return len(self.shards)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Joins) and self.shards == other.shards

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        if not self._text:  # a plan is written each second
            each = sorted(self.shards.items())
            self._text = b64encode(b"".join(pack(_JOIN, *join) for join in each)).decode()
        return self._text

    @classmethod
    def parse(cls, text: str) -> Joins:
        """Raises ValueError when it is no text that joins have."""
        try:
            return cls(dict(iter_unpack(_JOIN, b64decode(text, validate=True))))
        except (ValueError, error) as reason:
            raise ValueError(f"these are not joins: {reason}") from None


class Components:
    """Places that sub-messages connect (union-find; Galler and Fischer 1964)."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}  # another place of its set; itself for the least

    def __len__(self) -> int:
        return len(self._above)

    def join(self, places: Iterable[int]) -> None:
        first = None
        for place in places:
            self._above.setdefault(place, place)
            root = self._root(place)
            if first is None:
                first = root
            elif root < first:
                self._above[first] = first = root
            else:
                self._above[root] = first

    def add(self, sets: Iterable[Iterable[int]]) -> None:
        for places in sets:
            self.join(places)

    @property
    def largest(self) -> tuple[int, int]:
        """The least place of the largest set, and how many that has."""
        return max(((each[0], len(each)) for each in self.sets), key=itemgetter(1), default=(0, 0))

    @property
    def sets(self) -> tuple[Sequence[int], ...]:
        """Groups of connected places, the least one first."""
        found: dict[int, list[int]] = {}
        for place in sorted(self._above):
            found.setdefault(self._root(place), []).append(place)
        return tuple(found.values())

    def joins(self, of: int) -> Joins:
        """Each set whole, in the shard of its least place."""
        return Joins(
            {
                place: first % of
                for first, *others in self.sets
                for place in others
                if place % of != first % of
            }
        )

    def _root(self, place: int) -> int:
        above = self._above
        while (next_ := above[place]) != place:
            above[place] = place = above[next_]
        return place


ALL = "all"  # the selector of the claim that every sub-message falls in
_WHERE = "where "  # before the expression of a class

_SELECTOR = re.compile(r"(\d{1,9})/(\d{1,9})(?:@(\d{1,9}))?", re.ASCII)
_LONG = 0xFFFF_FFFF_FFFF_FFFF
_NONE_HASH = crc32(b"none")

Claims = Mapping[str, Mapping[int, Progress]]  # by selector and partition


def key_hash(key: Hashable) -> int:
    """Hash a sub-key of the types that ``identify`` accepts to 32 bits, in every process alike."""
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
            return crc32(pack(f"<{len(key)}I", *map(key_hash, key)), len(key))
        case None:
            return _NONE_HASH
    raise TypeError(f"{type(key).__name__} is not a type of sub-keys")


@dataclass(frozen=True, slots=True)
class Claim:
    """The sub-keys whose hash modulo ``of`` is ``number``, but for those that ``joins`` moves.

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
    """Name the claim of a class."""
    return _WHERE + where


def class_of(selector: str) -> str | None:
    """The expression of a class; None when it is the selector of another claim."""
    return selector.removeprefix(_WHERE) if selector.startswith(_WHERE) else None


def joins_of(selectors: Iterable[str]) -> set[int]:
    """The numbers of joins that claims name. Raises ValueError for what is no claim."""
    claims = (Claim.parse(each) for each in selectors if class_of(each) is None)
    return {claim.joins for claim in claims if claim.joins}


class ShardMap:
    """The shard of each sub-message, by the order of a drain.

    ``joins`` are those that claims may name, by number.
    """

    def __init__(self, order: Order, joins: Mapping[int, Joins] | None = None) -> None:
        self._lane_of = LANE_OF.get(order)  # None: its sub-keys
        self._moved: dict[int, Mapping[int, int]] = {0: {}} | {
            n: each.shards for n, each in (joins or {}).items()
        }

    def shard_of(self, sub: SubMessage, of: int, joins: int = 0) -> int | None:
        """Number, below ``of``, of the shard with all lanes of a sub-message; None without one."""
        if of == 1:
            return 0
        moved = self._moved[joins]
        if isinstance(sub, Unsplit):  # any would do, in every process the same
            hashed = key_hash(sub.message.key)
        elif isinstance(sub, Barrier):
            return None
        elif self._lane_of is not None:
            hashed = key_hash(self._lane_of(sub))
        elif sub.keys is None:
            hashed = key_hash(sub.key)
        else:
            numbers = {moved.get(hashed, hashed % of) for hashed in map(key_hash, sub.keys)}
            return numbers.pop() if len(numbers) == 1 else None
        return moved.get(hashed, hashed % of)
