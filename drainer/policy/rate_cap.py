"""What the brokers tolerate of a drain's messages, and a flow that is held to it smoothly."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

from drainer.core.codec import JsonRecord
from drainer.errors import LimitsRefused

BURST_S = 0.2  # of the cap may come at once: threads and event loops are not on time
HALF_LIFE = 100  # messages, of what the mean size is made of: soon right when it changes
BINDS_S = 1.0  # a cap that held something back so long ago still binds


@dataclass(frozen=True, slots=True)
class Cap:
    """What a drain may use at a mean size of its messages."""

    message_bytes: float
    messages_per_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes


@dataclass(frozen=True, slots=True)
class CapPoint:
    """What the brokers tolerated of one size: written and, at the same time, read."""

    message_bytes: int
    messages_per_s: float
    read_per_s: float


@dataclass(frozen=True, slots=True)
class CapCurve(JsonRecord):
    """Safe messages/s by message size, from what was measured of a cluster: for writing."""

    cluster_id: str  # of the cluster that was measured; "" of a bound that somebody chose
    measured_at: float  # when that began, in seconds since the epoch
    safe_share: float  # of what was measured, that a drain may use
    points: tuple[CapPoint, ...]  # what was measured, by rising size; one at least

    def __post_init__(self) -> None:
        sizes = [point.message_bytes for point in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] <= 0:
            raise ValueError(f"a curve of caps has rising sizes above 0, not {sizes}")
        least = min(min(each.messages_per_s, each.read_per_s) for each in self.points)
        if least < 0 or not 0 < self.safe_share <= 1:
            raise ValueError("a curve of caps has rates from 0 on, and a share of them up to 1")

    @classmethod
    def bound(cls, bytes_per_s: float) -> CapCurve:
        """So many bytes/s at every size, chosen, not measured."""
        return cls("", 0.0, 1.0, (CapPoint(1, bytes_per_s, bytes_per_s),))

    @property
    def reading(self) -> CapCurve:
        """The curve for reading."""
        points = (replace(each, messages_per_s=each.read_per_s) for each in self.points)
        return replace(self, points=tuple(points))

    def cap(self, message_bytes: float) -> Cap:
        """What is safe at this mean size of a message.

        Between two sizes messages/s are interpolated on log-log axes. Below the smallest its
        messages/s hold, above the largest its bytes/s. Raises LimitsRefused when nothing was safe
        there.
        """
        if message_bytes <= 0:
            raise ValueError(f"{message_bytes!r} bytes are not a message")
        sizes = [point.message_bytes for point in self.points]
        place = bisect_left(sizes, message_bytes)
        measured = place < len(sizes) and sizes[place] == message_bytes
        used = self.points[place if measured else max(0, place - 1) : place + 1]
        for point in used:
            if point.messages_per_s <= 0:
                raise LimitsRefused(
                    f"no traffic was safe with messages of {point.message_bytes:,} bytes",
                    hint="Measure again with `drainer limits` when the cluster has less load.",
                )
        return Cap(message_bytes, self.safe_share * _rate(used, message_bytes))


def _rate(used: Sequence[CapPoint], message_bytes: float) -> float:
    """Messages/s at this size, from the sizes beside it."""
    first, last = used[0], used[-1]
    if len(used) == 2:
        share = log(message_bytes / first.message_bytes) / log(
            last.message_bytes / first.message_bytes
        )
        return exp((1 - share) * log(first.messages_per_s) + share * log(last.messages_per_s))
    return first.messages_per_s * min(1.0, first.message_bytes / message_bytes)


class RateLimiter:
    """A token bucket, filled at the rate of the cap at the mean size of what flows, which moves.

    ``share`` of the cap is meant, when others flow beside this one. It counts in time: so many
    messages take so many seconds of the flow, and the next may come when those are over. Sizes at
    which nothing was safe have the cap of those before them.

    One thread asks it and tells it; others may read its figures, and set its share.
    """

    def __init__(self, curve: CapCurve, share: float = 1.0, message_bytes: float = 1.0) -> None:
        """``message_bytes`` is the mean size until something has flowed.

        Raises LimitsRefused when the curve allows for nothing at that size.
        """
        self._curve = curve
        self.share = share
        self._messages = self._bytes = 0.0  # that the mean is made of
        self._free_s = float("-inf")
        self._held_s = float("-inf")
        self.cap = curve.cap(message_bytes)
        self.flowed = self.flowed_bytes = 0

    @property
    def messages_per_s(self) -> float:
        """What may flow now."""
        return self.share * self.cap.messages_per_s

    @property
    def bytes_per_s(self) -> float:
        """The same in bytes of keys and values."""
        return self.share * self.cap.bytes_per_s

    @property
    def overall(self) -> Cap:
        """The cap at the mean size of all that has flowed."""
        return self._at(max(1.0, self.flowed_bytes / self.flowed)) if self.flowed else self.cap

    def binds(self, now_s: float) -> bool:
        """Whether it has held anything back lately."""
        return now_s - self._held_s < BINDS_S

    def allowed(self, now_s: float) -> int:
        """How many messages may come now, of the size that they had so far."""
        credit_s = min(BURST_S, now_s - self._free_s)
        if credit_s < 0:
            self._held_s = now_s
            return 0
        return max(1, int(credit_s * self.messages_per_s))

    def next_s(self, now_s: float, messages: int = 1) -> float:
        """How long until so many may come, or all that a burst has."""
        burst = min(messages / self.messages_per_s, BURST_S)
        return max(0.0, self._free_s + burst - now_s)

    def came(self, now_s: float, messages: int, size: int) -> None:
        """So many came, with so many bytes of keys and values."""
        if not messages:
            return
        self._measure(messages, size)
        self._free_s = max(self._free_s, now_s - BURST_S) + messages / self.messages_per_s

    def book(self, now_s: float, size: int, most_s: float) -> float:
        """After how many seconds one of this size may go; nothing is booked above ``most_s``."""
        wait_s = self._free_s - now_s
        if wait_s > 0:
            self._held_s = now_s
        if wait_s <= most_s:
            self.came(now_s, 1, size)
        return max(0.0, wait_s)

    def _measure(self, messages: int, size: int) -> None:
        kept = 0.5 ** (messages / HALF_LIFE)
        self._messages = self._messages * kept + messages
        self._bytes = self._bytes * kept + size
        self.flowed += messages
        self.flowed_bytes += size
        mean = max(1.0, self._bytes / self._messages)
        if abs(mean - self.cap.message_bytes) > 0.01 * self.cap.message_bytes:
            self.cap = self._at(mean)

    def _at(self, message_bytes: float) -> Cap:
        try:
            return self._curve.cap(message_bytes)
        except LimitsRefused:  # nothing was safe at that size
            return self.cap
