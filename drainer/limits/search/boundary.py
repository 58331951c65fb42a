"""The boundary of what brokers tolerate, for each message size, and what a drain may use of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil, inf
from statistics import median
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drainer.errors import LimitsRefused
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
from drainer.model.rate_cap import CapCurve, CapPoint

FORMAT = 4
TRIALS_MOST = 20  # of one search, by default
LEVELS = 16_384  # of traffic, evenly apart, up to what is tried at first
PRODUCERS_LEAST = 20  # that make it: below what so many send, each sends less
# At first: more than most brokers tolerate that also have readers (Dropbox's: 60 MB/s with five
# groups). What tolerates it is tried with twice as much.
MB_PER_S_A_BROKER = 200.0

_AGAIN = "Measure them again with `drainer limits --out FILE`."


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Settings of a measurement; it is only resumed with the same."""

    message_bytes: tuple[Positive, ...]  # the sizes of messages, each with a boundary of its own
    # That all producers together never exceed (10^6 bytes); None for 200 a broker, and as much more
    # as the brokers tolerate.
    max_mb_per_s: AboveZero | None = None
    max_producers: Positive = 256
    consumer_groups: AtLeastZero = 5
    topics: Positive = 1  # over which it is spread
    partitions: Positive = 10  # of each test topic, for each broker
    old_topic: str = ""  # whose old messages are read meanwhile, as a drain does; empty for none
    old_groups: Positive = 1  # how many times, each as fast as the new ones are sent
    payload: str = "random"  # ``random``, ``constant``, or the path of a file that it is cut from
    compression: str = "none"  # of the producers, by librdkafka's name
    # How far the boundary may lie from what was found, on either side of it, as a share of it.
    precision: AboveZero = 0.05
    # Of the boundary, that a drain may use; 0.8, as a fifth of the brokers may be out.
    safe_share: Annotated[float, Meta(gt=0, le=1)] = 0.8
    trials: Positive = TRIALS_MOST
    warm_up_s: Amount = 10.0
    window_s: AboveZero = 30.0
    jmx: bool = False  # whether brokers were measured over JMX

    def __post_init__(self) -> None:
        if not self.message_bytes or len(set(self.message_bytes)) < len(self.message_bytes):
            raise ValueError(f"{list(self.message_bytes)} are not sizes, each once")

    @property
    def swept(self) -> tuple[int, int]:
        """Settings that may have several values in one measurement."""
        return self.consumer_groups, self.partitions

    def differences(self, other: LimitSettings) -> list[str]:
        """Settings in which another differs, as in ``consumer_groups was 5, and is 7``."""
        names = [each.name for each in fields(self)]
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return [f"{name} was {was}, and is {now}" for name, was, now in pairs if was != now]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The highest rate of messages of one size that the brokers tolerate.

    Attributes:
        messages_per_s: that the brokers acknowledged at the safe end, which counts as the
            boundary; 0 when no traffic was safe.
        read_per_s: messages/s that groups read meanwhile: those of old messages if there were any,
            as a drain does, else all together; without groups what was sent.
        low: messages/s that the boundary is above, with 95% probability that it is also below
            ``high``.
        high: messages/s that it is below; None when it may be anywhere above.
        why: the signals that decided at the overloaded end, in words, or why clients could do no
            more.
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
        """Whether the brokers may tolerate any more."""
        return self.high is None and (self.messages_per_s > 0 or self.end is End.CLIENTS)


@dataclass(frozen=True, slots=True)
class MeasuredLimits:
    """Results of the measurement of a cluster, or as far as that got.

    ``at`` is when it began, in seconds since the epoch; ``baseline`` holds by message size the
    round trip in ms of brokers without load.
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
        """Bytes/s that ``max_producers`` together send."""
        most = self.settings.max_mb_per_s
        return 1e6 * (MB_PER_S_A_BROKER * self.brokers if most is None else most)

    def point(self, message_bytes: int, level: int) -> Point:
        """The traffic of this level, of as many producers as it takes at their full pace."""
        most = self.settings.max_producers
        producers = max(min(PRODUCERS_LEAST, most), ceil(level * most / LEVELS))
        pace = self.bytes_per_s_most * level / LEVELS / producers / message_bytes
        old_groups = self.settings.old_groups if self.settings.old_topic else 0
        return Point(message_bytes, producers, pace, old_groups)

    def level(self, point: Point) -> int:
        """The level whose traffic it is."""
        return round(point.bytes_per_s / self.bytes_per_s_most * LEVELS)

    def with_boundary(self, message_bytes: int, found: Found) -> MeasuredLimits:
        """Add the boundary of this size as its search found it."""
        tried = [(t.verdict, self.level(t.point), t) for t in self.trials_of(message_bytes)]
        safe = [t for *at, t in tried if at == [Verdict.SAFE, found.safe]]
        against = [t for *at, t in tried if at == [Verdict.OVERLOADED, found.overloaded]]
        if found.end is End.CLIENTS:
            against = [t for verdict, _, t in tried if verdict is Verdict.CLIENTS]
        sent = median([trial.signals.sent_per_s for trial in safe]) if safe else 0.0

        def rate(level: float) -> float:
            # Of what was sent at the safe level, which may be a little less than it should be.
            return sent * (level / found.safe) if safe else level * full

        full = self.point(message_bytes, 1).messages_per_s
        reads = [trial.signals.read_per_s for trial in safe]
        if self.settings.old_topic:
            reads = [(trial.signals.old_bytes_per_s or 0.0) / message_bytes for trial in safe]
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
        """Number of sizes that have no boundary yet."""
        return len(self.settings.message_bytes) - len(self.boundaries)

    def boundary(self, message_bytes: int) -> Boundary | None:
        """The boundary of this size; None when it is not known yet."""
        return next((b for b in self.boundaries if b.message_bytes == message_bytes), None)

    def trials_of(self, message_bytes: int) -> tuple[Trial, ...]:
        """Trials of this size, in their order."""
        return tuple(t for t in self.trials if t.point.message_bytes == message_bytes)

    def mb_per_s_a_broker(self, boundary: Boundary) -> float:
        """Rate of the producers, shared out over brokers; copies and readers not counted."""
        return boundary.bytes_per_s / self.brokers / 1e6


Kept = Annotated[tuple[MeasuredLimits, ...], Meta(min_length=1)]


def cap_curve(measured: Sequence[MeasuredLimits]) -> CapCurve:
    """The cap of a drain: of several measurements, the least for each size.

    Raises LimitsRefused when no boundary is known.
    """
    boundaries = [boundary for limits in measured for boundary in limits.boundaries]
    if not boundaries:
        raise LimitsRefused("these limits have no boundary yet", hint=_AGAIN)
    points = []
    for size in sorted({each.message_bytes for each in boundaries}):
        same = [each for each in boundaries if each.message_bytes == size]
        write, read = (each.messages_per_s for each in same), (each.read_per_s for each in same)
        points.append(CapPoint(size, min(write), min(read)))
    first = measured[0]
    return CapCurve(first.cluster_id, first.at, first.settings.safe_share, tuple(points))


def as_json(measured: Sequence[MeasuredLimits]) -> dict[str, Any]:
    """The form in which measurements are kept."""
    return {
        "drainer_limits": FORMAT,
        "measured": msgspec.json.decode(msgspec.json.encode(measured)),
    }


def from_json(body: object) -> tuple[MeasuredLimits, ...]:
    """Raises LimitsRefused when the body is something else, newer or damaged."""
    if not isinstance(body, dict) or "drainer_limits" not in body:
        raise LimitsRefused("it is JSON, but not a limits file", hint=_AGAIN)
    version = body["drainer_limits"]
    if version != FORMAT or type(version) is not int:
        raise LimitsRefused(
            f"it has version {version!r} of the format; this drainer reads {FORMAT}",
            hint=f"Use the drainer that wrote it. {_AGAIN}",
        )
    try:
        found = msgspec.convert(body.get("measured"), Kept, str_keys=True)
        if as_json(found) != body:  # also what has a default has to be there
            raise ValueError("it has not just the fields that it should")
    except (msgspec.ValidationError, ValueError) as error:
        raise LimitsRefused(
            f"the limits are damaged: a field is missing or wrong: {error!r}", hint=_AGAIN
        ) from None
    return found
