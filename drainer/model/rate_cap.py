"""Caps on the traffic of a drain, by the size of its messages: what the brokers tolerate."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

from drainer.errors import LimitsRefused
from drainer.model.codec import JsonRecord
from drainer.model.listed import size


@dataclass(frozen=True, slots=True)
class Cap:
    """The most messages per second that a drain may read or write, at one mean size of messages."""

    message_bytes: float
    messages_per_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes


BINDING_FROM = 0.9  # A run that used this share of its cap on average was limited by the cap.


@dataclass(frozen=True, slots=True)
class CapStatus:
    """The cap on what a drain reads, or on what it writes.

    Attributes:
        messages_per_s, bytes_per_s: the cap, at the mean size of messages now.
        message_bytes: that mean size.
        average_per_s: the messages per second that were read or written on average in this run.
        binds: whether something waits for the cap.
    """

    messages_per_s: float
    bytes_per_s: float
    message_bytes: float
    average_per_s: float
    binds: bool

    @classmethod
    def of(cls, cap: Cap, flowed: float, elapsed_s: float, *, binds: bool) -> CapStatus:
        """Make the status of a cap under which ``flowed`` messages were read or written."""
        average_per_s = flowed / elapsed_s if elapsed_s > 0 else 0.0
        return cls(cap.messages_per_s, cap.bytes_per_s, cap.message_bytes, average_per_s, binds)

    def limited(self, ahead_per_s: float = 0.0) -> bool:
        """Return whether the cap is what limited the run.

        ``ahead_per_s`` is how many of the messages per second were only read ahead.
        """
        return self.average_per_s - ahead_per_s >= BINDING_FROM * self.messages_per_s


@dataclass(frozen=True, slots=True)
class CapsStatus:
    """Section of a status: the caps that ``--broker-limits`` sets. None means no cap."""

    read_cap: CapStatus | None = None
    write_cap: CapStatus | None = None

    @property
    def read_binds(self) -> bool:
        """Whether reading waits for its cap."""
        return self.read_cap is not None and self.read_cap.binds

    @property
    def write_binds(self) -> bool:
        """Whether the handler waits for the cap on what it writes."""
        return self.write_cap is not None and self.write_cap.binds


@dataclass(frozen=True, slots=True)
class CapPoint:
    """The traffic that the brokers tolerated with messages of one size, measured together."""

    message_bytes: int
    messages_per_s: float  # The messages that were written per second.
    read_per_s: float  # The messages that were read per second meanwhile.


_MOST = 1e40  # Products of larger numbers could overflow; only a damaged plan has them.


@dataclass(frozen=True, slots=True)
class CapCurve(JsonRecord):
    """The messages per second that are safe to write, by the size of the messages.

    Attributes:
        cluster_id: the cluster that was measured; empty for a bound that a person chose.
        measured_at: when the measurement began, in seconds since 1970.
        safe_share: the share of the measured traffic that a drain may use.
        points: what was measured, by rising size. There is at least one.
    """

    cluster_id: str
    measured_at: float
    safe_share: float
    points: tuple[CapPoint, ...]

    def __post_init__(self) -> None:
        sizes = [point.message_bytes for point in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] <= 0:
            raise ValueError(f"a curve of caps has rising sizes above 0, not {sizes}")
        least = min(min(each.messages_per_s, each.read_per_s) for each in self.points)
        most = max(max(each.messages_per_s, each.read_per_s) for each in self.points)
        if least < 0 or not max(most, sizes[-1]) < _MOST or not 0 < self.safe_share <= 1:
            raise ValueError("a curve of caps has rates from 0 on, and a share of them up to 1")

    @classmethod
    def bound(cls, bytes_per_s: float) -> CapCurve:
        """Make a curve that allows the same bytes per second at every size of messages."""
        return cls("", 0.0, 1.0, (CapPoint(1, bytes_per_s, bytes_per_s),))

    def __str__(self) -> str:
        """Return what is safe to read, over all sizes of messages: ``9.5 MiB/s to 48 MiB/s``."""
        read = [self.safe_share * each.read_per_s * each.message_bytes for each in self.points]
        ends = dict.fromkeys(f"{size(round(each))}/s" for each in (min(read), max(read)))
        return " to ".join(ends)

    @property
    def reading(self) -> CapCurve:
        """The messages per second that are safe to read, as a curve."""
        points = (replace(each, messages_per_s=each.read_per_s) for each in self.points)
        return replace(self, points=tuple(points))

    def cap(self, message_bytes: float) -> Cap:
        """Return the cap that is safe at this mean size of messages.

        Between two measured sizes, messages per second are interpolated on logarithmic axes. Below
        the smallest size, the cap has as many messages per second as there. Above the largest, it
        has as many bytes per second as there. Raises LimitsRefused if nothing was safe.
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
    """Return messages per second at this size, by the nearest measured sizes."""
    first, last = used[0], used[-1]
    if len(used) == 2:
        share = log(message_bytes / first.message_bytes) / log(
            last.message_bytes / first.message_bytes
        )
        return exp((1 - share) * log(first.messages_per_s) + share * log(last.messages_per_s))
    return first.messages_per_s * min(1.0, first.message_bytes / message_bytes)
