"""The boundaries of what brokers tolerate, by message size, and a drain's limits based on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from statistics import median
from typing import Any

import orjson

from drainer.errors import LimitsRefused, raised_as
from drainer.limits.search.settings import MB_PER_S_A_BROKER, LimitSettings
from drainer.limits.search.trial import (
    AboveZero,
    Amount,
    AtLeastZero,
    End,
    Found,
    Point,
    Positive,
    Trial,
    Verdict,
)
from drainer.model.codec import convert, encode
from drainer.model.formats import LIMITS
from drainer.model.rate_cap import CapCurve, CapPoint

# Level n is the rate ``bytes_per_s_most`` * n / LEVELS. A search begins with the levels up to
# LEVELS. If it widens, it tries higher ones, too.
LEVELS = 16_384
# A level has at least this many producers. At low levels, they send more slowly.
PRODUCERS_LEAST = 20

_AGAIN = "Measure them again with `drainer limits --out FILE`."
_ON = "Repeat the same `drainer limits` command: it goes on after the trials so far."


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The highest rate of messages of one size that the brokers tolerate.

    Attributes:
        messages_per_s: the rate that brokers acknowledged at the highest safe level. It counts as
            the boundary, and is 0 when no traffic was safe.
        read_per_s: the rate at which all consumer groups together read at that level. Without
            groups, it is ``messages_per_s``.
        low, high: the boundary lies between these rates with a probability of about 95%. ``high``
            is None when the boundary may lie anywhere above ``low``.
        why: why the lowest level above the boundary was overloaded, or why the clients could send
            no more.
    """

    message_bytes: Positive
    messages_per_s: Amount
    read_per_s: Amount
    low: Amount
    high: float | None
    trials: AtLeastZero
    end: End
    why: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.messages_per_s <= (inf if self.high is None else self.high):
            raise ValueError(f"the boundary of {self.message_bytes} is not within its interval")

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes

    @property
    def is_open(self) -> bool:
        """Whether the brokers may tolerate any rate above this one."""
        return self.high is None and (self.messages_per_s > 0 or self.end is End.CLIENTS)


@dataclass(frozen=True, slots=True)
class MeasuredLimits:
    """The measurement of a cluster, which may not be complete.

    ``at`` is its beginning, in seconds since the epoch. ``baseline`` has the round trip of brokers
    without load, in milliseconds by message size.
    """

    cluster_id: str
    brokers: Positive
    at: float
    settings: LimitSettings
    baseline: Mapping[int, AboveZero] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    boundaries: tuple[Boundary, ...] = ()

    def __post_init__(self) -> None:
        sizes = [each.message_bytes for each in self.boundaries]
        if len(set(sizes)) < len(sizes) or not set(sizes) <= set(self.settings.message_bytes):
            raise ValueError(f"there are boundaries for {sizes}")

    @property
    def bytes_per_s_most(self) -> float:
        """The rate of all producers together at the level LEVELS."""
        most = self.settings.max_mb_per_s
        return 1e6 * (MB_PER_S_A_BROKER * self.brokers if most is None else most)

    def point(self, message_bytes: int, level: int) -> Point:
        """Return the traffic of a level: as many producers as it takes at their full pace.

        Low levels have PRODUCERS_LEAST producers, which send more slowly.
        """
        most = self.settings.max_producers
        producers = max(min(PRODUCERS_LEAST, most), ceil(level * most / LEVELS))
        pace = self.bytes_per_s_most * level / LEVELS / producers / message_bytes
        return Point(message_bytes, producers, pace)

    def level(self, point: Point) -> int:
        """Return the level whose traffic this is."""
        return round(point.bytes_per_s / self.bytes_per_s_most * LEVELS)

    def with_boundary(self, message_bytes: int, found: Found) -> MeasuredLimits:
        """Add the boundary of a message size, from the result of its search."""
        tried = [(t.verdict, self.level(t.point), t) for t in self.trials_of(message_bytes)]
        safe = [t for *at, t in tried if at == [Verdict.SAFE, found.safe]]
        against = [t for *at, t in tried if at == [Verdict.OVERLOADED, found.overloaded]]
        if found.end is End.CLIENTS:
            against = [t for verdict, _, t in tried if verdict is Verdict.CLIENTS]
        sent = median([trial.signals.sent_per_s for trial in safe]) if safe else 0.0

        def rate(level: float) -> float:
            # Producers may send a little less than a level requires. So the rate of any level is
            # derived from the rate that was measured at the safe level.
            return sent * (level / found.safe) if safe else level * full

        full = self.point(message_bytes, 1).messages_per_s
        reads = [trial.signals.read_per_s for trial in safe]
        boundary = Boundary(
            message_bytes=message_bytes,
            messages_per_s=sent,
            read_per_s=(median(reads) or sent) if reads else 0.0,
            low=rate(found.low),
            high=None if found.high is None else rate(found.high),
            trials=found.trials,
            end=found.end,
            why=against[-1].why if against else (),
        )
        return replace(self, boundaries=(*self.boundaries, boundary))

    @property
    def missing(self) -> int:
        """The number of message sizes whose boundary is not known yet."""
        return len(self.settings.message_bytes) - len(self.boundaries)

    def boundary(self, message_bytes: int) -> Boundary | None:
        """Return the boundary of a message size; None when it is not known yet."""
        return next((b for b in self.boundaries if b.message_bytes == message_bytes), None)

    def trials_of(self, message_bytes: int) -> tuple[Trial, ...]:
        """Return the trials of a message size, in the order in which they were made."""
        return tuple(t for t in self.trials if t.point.message_bytes == message_bytes)

    def mb_per_s_a_broker(self, boundary: Boundary) -> float:
        """Return the producers' rate per broker; replication and readers come on top."""
        return boundary.bytes_per_s / self.brokers / 1e6


def cap_curve(measured: MeasuredLimits) -> CapCurve:
    """Return the limits of a drain by a measurement. Raises LimitsRefused without a boundary."""
    if not measured.boundaries:
        raise LimitsRefused("these limits have no boundary yet", hint=_ON)
    rising = sorted(measured.boundaries, key=lambda each: each.message_bytes)
    points = [CapPoint(e.message_bytes, e.messages_per_s, e.read_per_s) for e in rising]
    share = measured.settings.safe_share
    return CapCurve(measured.cluster_id, measured.at, share, tuple(points))


def as_json(measured: MeasuredLimits) -> dict[str, Any]:
    """Return the measurement in the form of its file."""
    return {"drainer_limits": LIMITS.version, **orjson.loads(encode(measured))}


def from_json(body: object) -> MeasuredLimits:
    """Read a measurement from what ``as_json`` returned.

    Raises LimitsRefused when the body is something else, of another version, or damaged.
    """
    if not isinstance(body, dict) or "drainer_limits" not in body:
        raise LimitsRefused("it is JSON, but not a limits file", hint=_AGAIN)
    about = "the limits are damaged: a field is missing or wrong: "
    with raised_as(LimitsRefused, ValueError, about=about, hint=_AGAIN):
        LIMITS.ensure_read(f"{LIMITS.family}/{body['drainer_limits']}", LimitsRefused, _AGAIN)
        found = convert(body, MeasuredLimits)
        if as_json(found) != body:  # Even a field with a default must be in the file.
            raise ValueError("the fields are not those of a limits file")
    return found
