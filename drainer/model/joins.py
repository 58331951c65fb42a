"""Joins: which sub-keys sub-messages with several of them connect, and whose they are then.

Lanes that nothing connects stay apart. Those that are connected go to one shard together, so each
sub-message is one shard's, with all of its lanes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from struct import error, iter_unpack, pack

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
        """Of places that are connected; the least one first."""
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
