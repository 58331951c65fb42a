"""What the messages of a backlog are like, without looking into them: sizes, ages, keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from drainer.insight.statistics.sketch import Distinct, Heavy, Mean, Quantiles, Share, ratio
from drainer.message import Message

SHOWN = 10
NO_KEY = "no key"
LONGEST_KEY = 256  # bytes of a message key that are shown; its checksum stands for the rest


@dataclass(frozen=True, slots=True)
class Bin:
    """The share of messages with ``low <= value < high``; the last one has its high, too."""

    low: float
    high: float
    share: float

    def as_json(self) -> dict[str, float]:
        return {"low": self.low, "high": self.high, "share": self.share}


@dataclass(frozen=True, slots=True)
class Spread:
    """How a figure of messages is spread."""

    p50: float
    p99: float
    most: float
    bins: tuple[Bin, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "p50": self.p50,
            "p99": self.p99,
            "max": self.most,
            "bins": [part.as_json() for part in self.bins],
        }


@dataclass(frozen=True, slots=True)
class Ages:
    """How old messages are, in seconds."""

    p50: float
    p99: float
    most: float

    def as_json(self) -> dict[str, float]:
        return {"p50": self.p50, "p99": self.p99, "max": self.most}


@dataclass(frozen=True, slots=True)
class Contents:
    """What was found of the messages that were read.

    Attributes:
        messages: how many.
        bytes: their keys and values.
        mean_bytes: of one message.
        tombstones: messages without a value.
        undated: messages without a timestamp.
        sizes: in bytes; None when there is no message.
        ages: in seconds; None when no message has a timestamp.
        message_keys: how many different ones came.
        hottest_keys: those with the most messages.
    """

    messages: int
    bytes: int
    mean_bytes: Mean
    tombstones: int
    undated: int
    sizes: Spread | None
    ages: Ages | None
    message_keys: Distinct
    hottest_keys: tuple[Share, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "mean_bytes": self.mean_bytes.as_json(),
            "tombstones": self.tombstones,
            "undated": self.undated,
            "sizes": self.sizes.as_json() if self.sizes else None,
            "ages_s": self.ages.as_json() if self.ages else None,
            "message_keys": self.message_keys.as_json(),
            "hottest_keys": [share.as_json() for share in self.hottest_keys],
        }


class MessageTotals:
    """What can be summed up of messages; several of them make one."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.tombstones = self.undated = 0
        self._sizes, self._times = Quantiles(), Quantiles()
        self._binary = Counter[int]()  # sizes by their bit length

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            size = message.size
            self._sizes.add(size)
            self._binary[size.bit_length()] += 1
            self.bytes += size
            self.tombstones += message.value is None
            timestamp = message.timestamp
            if timestamp is None:
                self.undated += 1
            else:
                self._times.add(timestamp)
        self.messages += len(messages)

    def merge(self, other: MessageTotals) -> None:
        """Those of the other are in these from now on."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.tombstones += other.tombstones
        self.undated += other.undated
        self._sizes.merge(other._sizes)
        self._times.merge(other._times)
        self._binary.update(other._binary)

    @property
    def sizes(self) -> Spread | None:
        """In bytes; None without a message."""
        if self._sizes.empty:
            return None
        whole = self._binary.total()
        lengths = range(min(self._binary), max(self._binary) + 1)
        bins = tuple(Bin(2**n // 2, 2**n, self._binary[n] / whole) for n in lengths)
        sizes = self._sizes
        return Spread(sizes.quantile(0.5), sizes.quantile(0.99), sizes.most, bins)

    def ages(self, now_ms: int) -> Ages | None:
        """At that time; None when no message has a timestamp."""
        times = self._times
        if times.empty:
            return None

        def age_s(time_ms: float) -> float:
            return max(0.0, (now_ms - time_ms) / 1000)

        return Ages(age_s(times.quantile(0.5)), age_s(times.quantile(0.01)), age_s(times.least))


class ContentsMeter:
    """Takes messages; gives ``Contents``. Memory is bounded. Clusters are those of SkewMeter."""

    def __init__(self) -> None:
        self._keys = Heavy(message_key_text)
        self._totals = MessageTotals()
        self._messages: list[int] = []  # by cluster
        self._bytes: list[int] = []
        self._before = (0, 0)  # messages and bytes of the clusters that have ended

    def take(self, messages: Sequence[Message]) -> None:
        self._keys.add([message.key for message in messages])
        self._totals.take(messages)

    def end_cluster(self) -> None:
        """What comes from now on is of another window."""
        self._keys.end_cluster()
        messages, size = self._before
        totals = self._totals
        self._messages.append(totals.messages - messages)
        self._bytes.append(totals.bytes - size)
        self._before = (totals.messages, totals.bytes)

    def contents(self, fraction: float, now_ms: int) -> Contents:
        """What was found, when ``fraction`` (0 to 1) of the backlog was taken."""
        return contents_of(
            self._totals,
            now_ms,
            mean_bytes=Mean(*ratio(self._bytes, self._messages, fraction)),
            message_keys=self._keys.distinct,
            hottest_keys=self._keys.most(SHOWN, self._messages, fraction),
        )


def contents_of(
    totals: MessageTotals,
    now_ms: int,
    *,
    mean_bytes: Mean,
    message_keys: Distinct,
    hottest_keys: tuple[Share, ...],
) -> Contents:
    """The contents that have these totals, and what was counted beside them."""
    return Contents(
        messages=totals.messages,
        bytes=totals.bytes,
        mean_bytes=mean_bytes,
        tombstones=totals.tombstones,
        undated=totals.undated,
        sizes=totals.sizes,
        ages=totals.ages(now_ms),
        message_keys=message_keys,
        hottest_keys=hottest_keys,
    )


def message_key_text(key: bytes | None) -> str:
    """A message key as it is counted and shown."""
    if key is None:
        return NO_KEY
    text = key[:LONGEST_KEY].decode("utf-8", "backslashreplace")
    return f"{text}…{crc32(key):08x}" if len(key) > LONGEST_KEY else text
