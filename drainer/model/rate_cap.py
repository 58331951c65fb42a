"""Caps on a drain's messages, by their size: the traffic that the brokers tolerate."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

from drainer.errors import LimitsRefused
from drainer.model.codec import JsonRecord


@dataclass(frozen=True, slots=True)
class Cap:
    """Most that a drain may use at a mean size of its messages."""

    message_bytes: float
    messages_per_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes


BINDING_FROM = 0.9  # of a cap, on average over a run


@dataclass(frozen=True, slots=True)
class CapStatus:
    """Section of a status: the traffic that the brokers' limits allow for, read or written.

    It is allowed at the mean size of messages now. ``average_per_s`` is how fast it went on average
    in this run. ``binds`` is set when something waits for the cap.
    """

    messages_per_s: float
    bytes_per_s: float
    message_bytes: float
    average_per_s: float
    binds: bool

    @classmethod
    def of(cls, cap: Cap, flowed: float, elapsed_s: float, *, binds: bool) -> CapStatus:
        """Make the status of a cap under which so many messages have flowed."""
        average_per_s = flowed / elapsed_s if elapsed_s > 0 else 0.0
        return cls(cap.messages_per_s, cap.bytes_per_s, cap.message_bytes, average_per_s, binds)

    @property
    def binding(self) -> bool:
        """Return whether it is what limited the run."""
        return self.average_per_s >= BINDING_FROM * self.messages_per_s


@dataclass(frozen=True, slots=True)
class CapPoint:
    """Traffic of one size that the brokers tolerated: written and, at the same time, read."""

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
        """Make a curve of so many bytes/s at every size, chosen, not measured."""
        return cls("", 0.0, 1.0, (CapPoint(1, bytes_per_s, bytes_per_s),))

    @property
    def reading(self) -> CapCurve:
        """The curve for reading."""
        points = (replace(each, messages_per_s=each.read_per_s) for each in self.points)
        return replace(self, points=tuple(points))

    def cap(self, message_bytes: float) -> Cap:
        """Return the cap that is safe at this mean size of a message.

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
