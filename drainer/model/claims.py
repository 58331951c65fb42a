"""Claims: shares of the sub-messages, each with its own progress.

A shard is a share of the sub-keys by their hash, which depends on the key alone: tasks that share
nothing agree which shard has it. A priority class is what an expression selects. Finished is what
any claim has finished, whoever resumes from there.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from struct import pack
from zlib import crc32

from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.order import LANE_OF, Order
from drainer.model.progress import Progress

ALL = "all"  # the selector of the claim that every sub-message falls in
_WHERE = "where "  # before the expression of a class

_BITS = 20  # Kafka has no topic with a million partitions, and no drain has a million shards.
_LOW = (1 << _BITS) - 1
_SELECTOR = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
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
        """Return the shard of a selector. Raises ValueError if the text is not one, as 2/8 is."""
        match = _SELECTOR.fullmatch(text)
        shard = match and cls(int(match[1]), int(match[2]))
        # 02/8 and 2/8 would be two claims to the same sub-keys.
        if shard is None or str(shard) != text:
            raise ValueError(f"{text!r} is not the selector of a shard, as 2/8 is")
        return shard


WHOLE = Shard(0, 1)


class Stream(int):
    """The sub-messages of one partition that are in one shard: what a task has a ledger for.

    It is a number, so that it can stand wherever a drain in one process, which has no shards, has
    a partition: ``Stream(5)`` equals 5.
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
    """Return the progress of streams as claims, by the selector of the shard and by partition."""
    claims: dict[str, dict[int, Progress]] = {}
    for number, progress in streams.items():
        stream = Stream(number)
        claims.setdefault(str(stream.shard), {})[stream.partition] = progress
    return claims


def streams_of(claims: Claims) -> dict[int, Progress]:
    """Return the progress of the claims of shards by stream."""
    return {
        Stream(number, Shard.parse(selector)): progress
        for selector, claim in claims.items()
        for number, progress in claim.items()
    }


def class_selector(where: str) -> str:
    """Name the claim of a class."""
    return _WHERE + where


def class_of(selector: str) -> str | None:
    """The expression of a class; None when it is the selector of another claim."""
    return selector.removeprefix(_WHERE) if selector.startswith(_WHERE) else None


class ShardMap:
    """The shard of each sub-message, by the order of a drain."""

    def __init__(self, order: Order) -> None:
        self._lane_of = LANE_OF.get(order)  # None: its sub-keys

    def shard_of(self, sub: SubMessage, of: int) -> int | None:
        """Number, below ``of``, of the shard with all lanes of a sub-message; None without one."""
        if of == 1:
            return 0
        if isinstance(sub, Unsplit):  # any would do, in every process the same
            hashed = key_hash(sub.message.key)
        elif isinstance(sub, Barrier):
            return None
        elif self._lane_of is not None:
            hashed = key_hash(self._lane_of(sub))
        elif sub.keys is None:
            hashed = key_hash(sub.key)
        else:
            numbers = {key_hash(key) % of for key in sub.keys}
            return numbers.pop() if len(numbers) == 1 else None
        return hashed % of
