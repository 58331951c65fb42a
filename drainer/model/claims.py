"""Claims: shares of the sub-messages, each with its own progress.

A shard is a share of the sub-keys by their hash. The hash depends on the sub-key alone, so that all
tasks agree on the shard of a sub-key without talking to each other. A priority class has the
sub-messages that an expression selects. A sub-message is finished if any claim has finished it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from struct import pack
from typing import TypeVar
from zlib import crc32

from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.order import LANE_OF, Order, lane_of
from drainer.model.progress import Progress

ALL = "all"  # The selector of the claim that has every sub-message.
_WHERE = "where "  # The selector of a class begins with this, and its expression follows.

# The number of a partition or of a shard has this many bits. Kafka has no topic with a million
# partitions, and no drain has a million shards.
_BITS = 20
_LOW = (1 << _BITS) - 1
_SELECTOR = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
_LONG = 0xFFFF_FFFF_FFFF_FFFF
_NONE_HASH = crc32(b"none")

Claims = Mapping[str, Mapping[int, Progress]]  # Progress by selector and partition.
Claim = TypeVar("Claim", bound=Mapping[int, Progress])


def key_hash(key: Hashable) -> int:
    """Hash a sub-key to 32 bits. Equal sub-keys have the same hash in every process."""
    match key:
        case str():
            return crc32(key.encode("utf-8", "surrogatepass"))
        case bytes():
            return crc32(key)
        case int():
            # Python's hash of an int is the same everywhere. It is mixed by the checksum, because
            # ids that rise in steps would otherwise all be in one shard.
            return crc32(pack("<Q", hash(key) & _LONG))
        case tuple():
            return crc32(pack(f"<{len(key)}I", *map(key_hash, key)), len(key))
        case None:
            return _NONE_HASH
    raise TypeError(f"{type(key).__name__} is not a type of sub-keys")


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """The sub-keys whose hash modulo ``of`` is ``number``.

    Its text is the selector of its claim, such as ``"2/8"``. ``"0/1"`` has all sub-keys.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"shard {self.number} of {self.of} is none of 0 to {self.of - 1}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard of a selector such as 2/8. Raises ValueError for any other text."""
        match = _SELECTOR.fullmatch(text)
        shard = match and cls(int(match[1]), int(match[2]))
        # Without this check, 02/8 and 2/8 would be two claims to the same sub-keys.
        if shard is None or str(shard) != text:
            raise ValueError(f"{text!r} is not the selector of a shard, as 2/8 is")
        return shard


WHOLE = Shard(0, 1)


class Stream(int):
    """The sub-messages of one partition that are in one shard. A task has a ledger for each stream.

    A stream is a number, so that it can stand for a partition. A drain in one process has no
    shards, so its streams are its partitions: ``Stream(5)`` equals 5.
    """

    __slots__ = ()

    def __new__(cls, partition: int, shard: Shard = WHOLE) -> Stream:
        of = (shard.of - 1) << 2 * _BITS
        return super().__new__(cls, of | shard.number << _BITS | partition)

    @property
    def partition(self) -> int:
        return self & _LOW

    @property
    def shard(self) -> Shard:
        return Shard(self >> _BITS & _LOW, (self >> 2 * _BITS) + 1)


def claims_of(streams: Mapping[int, Progress]) -> dict[str, dict[int, Progress]]:
    """Return the progress of streams as the claims of their shards."""
    claims: dict[str, dict[int, Progress]] = {}
    for number, progress in streams.items():
        stream = Stream(number)
        claims.setdefault(str(stream.shard), {})[stream.partition] = progress
    return claims


def ahead_of(claims: Mapping[str, Claim], base: Mapping[int, Progress]) -> dict[str, Claim]:
    """Return the claims that have finished something above the watermarks of ``base``."""
    return {
        selector: claim
        for selector, claim in claims.items()
        if any(progress.end > base[n].watermark for n, progress in claim.items())
    }


def streams_of(claims: Claims) -> dict[int, Progress]:
    """Return the claims of shards as the progress of streams."""
    return {
        Stream(number, Shard.parse(selector)): progress
        for selector, claim in claims.items()
        for number, progress in claim.items()
    }


def class_selector(where: str) -> str:
    """Return the selector of a priority class, by its expression."""
    return _WHERE + where


def class_of(selector: str) -> str | None:
    """Return the expression of a class by its selector; None if another claim has the selector."""
    return selector.removeprefix(_WHERE) if selector.startswith(_WHERE) else None


class ShardMap:
    """Finds the shards of sub-messages, by the order that a drain keeps."""

    def __init__(self, order: Order) -> None:
        self._lane_of = LANE_OF.get(order)  # None if each sub-key has a lane.

    def shard_of(self, sub: SubMessage, of: int) -> int | None:
        """Return the number of the shard, of ``of`` shards, that has all lanes of a sub-message.

        Returns None if its lanes are in several shards, and for a barrier.
        """
        if of == 1:
            return 0
        if isinstance(sub, Unsplit):  # Any shard would do, if all processes choose the same one.
            hashed = key_hash(sub.message.key)
        elif isinstance(sub, Barrier):
            return None
        elif self._lane_of is not None:
            hashed = key_hash(self._lane_of(sub))
        elif sub.keys is None:
            hashed = key_hash(lane_of(sub))
        else:
            numbers = {key_hash(key) % of for key in sub.keys}
            return numbers.pop() if len(numbers) == 1 else None
        return hashed % of
