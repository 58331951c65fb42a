"""The boundary of what brokers tolerate, for each message size, and what a drain may use of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drainer.errors import LimitsRefused
from drainer.limits.search.trial import (
    AboveZero,
    Amount,
    Count,
    End,
    Found,
    Point,
    Positive,
    Trial,
    Verdict,
)
from drainer.policy.rate_cap import CapCurve, CapPoint

FORMAT = 3
TRIALS_MOST = 14  # of one search, unless said otherwise
# At first: more than most brokers tolerate that also have readers (Dropbox's: 60 MB/s with five
# groups). What tolerates it is tried with twice as much.
MB_PER_S_A_BROKER = 200.0

_AGAIN = "Measure them again with `drainer limits --out FILE`."


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """What a measurement was asked to do; it is only resumed with the same.

    Attributes:
        message_bytes: the sizes of messages, each with a boundary of its own.
        max_mb_per_s: that all producers together never exceed (10^6 bytes); None for 200 a broker,
            and as much more as the brokers tolerate.
        max_producers: over so many it is shared out evenly.
        consumer_groups: that read all that is sent.
        topics: over which it is spread.
        partitions: of each test topic, for each broker.
        old_topic: whose old messages are read meanwhile, as a drain does; empty for none.
        old_groups: how many times, each as fast as the new ones are sent.
        precision: width of the range that is good enough, as a share of its safe end.
        safe_share: of the boundary, that a drain may use; 0.8, as a fifth of the brokers may be
            out.
        warm_up_s: of each trial, before it is observed.
        window_s: for how long it is observed.
        jmx: whether brokers were asked over JMX.
    """

    message_bytes: tuple[Positive, ...]
    max_mb_per_s: AboveZero | None = None
    max_producers: Positive = 256
    consumer_groups: Count = 5
    topics: Positive = 1
    partitions: Positive = 10
    old_topic: str = ""
    old_groups: Positive = 1
    precision: AboveZero = 0.05
    safe_share: Annotated[float, Meta(gt=0, le=1)] = 0.8
    trials: Positive = TRIALS_MOST
    warm_up_s: Amount = 10.0
    window_s: AboveZero = 30.0
    jmx: bool = False

    def __post_init__(self) -> None:
        if not self.message_bytes or len(set(self.message_bytes)) < len(self.message_bytes):
            raise ValueError(f"{list(self.message_bytes)} are not sizes, each once")

    def differences(self, other: LimitSettings) -> list[str]:
        """In which another differs, as in ``consumer_groups was 5, and is 7``."""
        both = ((each.name, getattr(self, each.name), getattr(other, each.name)) for each in _NAMES)
        return [f"{name} was {was}, and is {now}" for name, was, now in both if was != now]


_NAMES = fields(LimitSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """How much the brokers tolerate of messages of one size.

    Attributes:
        producers: at the safe end, which counts as the boundary; 0 when no traffic was safe.
        overloaded_producers: the least that overloaded the brokers; None when none did.
        messages_per_s: that the brokers acknowledged at the safe end.
        low: messages/s that the boundary is above, with some 95% probability.
        high: and below; None when it may be anywhere above.
        trials: that it took.
        end: why the search ended.
        why: the signals that decided at the overloaded end, in words, or why clients could do no
            more.
    """

    message_bytes: Positive
    producers: Count
    overloaded_producers: int | None
    messages_per_s: Amount
    low: Amount
    high: float | None
    trials: Count
    end: End
    why: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.high is not None and self.high < self.low:
            raise ValueError(f"the boundary of {self.message_bytes} is above and below {self.low}")

    @classmethod
    def of(cls, message_bytes: int, pace: float, found: Found, trials: Sequence[Trial]) -> Boundary:
        """What a search found; ``pace`` is that of a producer, ``trials`` are all of this size."""

        def that(verdict: Verdict, producers: int | None) -> list[Trial]:
            return [t for t in trials if (t.verdict, t.point.producers) == (verdict, producers)]

        sent = [trial.signals.sent_per_s for trial in that(Verdict.SAFE, found.safe)]
        against = that(Verdict.OVERLOADED, found.overloaded)
        if found.end is End.CLIENTS:
            against = [trial for trial in trials if trial.verdict is Verdict.CLIENTS]
        return cls(
            message_bytes=message_bytes,
            producers=found.safe,
            overloaded_producers=found.overloaded,
            messages_per_s=median(sent) if sent else 0.0,
            low=found.low * pace,
            high=None if found.high is None else found.high * pace,
            trials=found.trials,
            end=found.end,
            why=against[-1].why if against else (),
        )

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes

    @property
    def is_lower_bound(self) -> bool:
        """Whether the brokers tolerate more than could be tried."""
        return self.end in (End.MOST, End.CLIENTS)

    @property
    def is_open(self) -> bool:
        """Whether the brokers may tolerate any more."""
        return self.is_lower_bound or (self.high is None and self.messages_per_s > 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """All that was measured of a cluster, or as far as that got.

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
        """That ``max_producers`` together send."""
        most = self.settings.max_mb_per_s
        return 1e6 * (MB_PER_S_A_BROKER * self.brokers if most is None else most)

    def point(self, message_bytes: int, producers: int) -> Point:
        """The traffic of so many producers."""
        pace = self.bytes_per_s_most / self.settings.max_producers / message_bytes
        old_groups = self.settings.old_groups if self.settings.old_topic else 0
        return Point(message_bytes, producers, pace, old_groups)

    @property
    def complete(self) -> bool:
        """Whether there is a boundary for each size that was asked for."""
        return len(self.boundaries) == len(self.settings.message_bytes)

    def boundary(self, message_bytes: int) -> Boundary | None:
        """The one of this size; None when it is not known yet."""
        return next((b for b in self.boundaries if b.message_bytes == message_bytes), None)

    def trials_of(self, message_bytes: int) -> tuple[Trial, ...]:
        """Those of this size, in their order."""
        return tuple(t for t in self.trials if t.point.message_bytes == message_bytes)

    def mb_per_s_a_broker(self, boundary: Boundary) -> float:
        """What producers may send, shared out over brokers; copies and readers not counted."""
        return boundary.bytes_per_s / self.brokers / 1e6

    def curve(self) -> CapCurve:
        """What caps a drain. Raises LimitsRefused when no boundary is known."""
        if not self.boundaries:
            raise LimitsRefused("these limits have no boundary yet", hint=_AGAIN)
        points = (
            CapPoint(each.message_bytes, each.messages_per_s)
            for each in sorted(self.boundaries, key=lambda each: each.message_bytes)
        )
        return CapCurve(self.cluster_id, self.at, self.settings.safe_share, tuple(points))

    def as_json(self) -> dict[str, Any]:
        return {"drainer_limits": FORMAT, **msgspec.json.decode(msgspec.json.encode(self))}

    @classmethod
    def from_json(cls, body: object) -> Limits:
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
            found = msgspec.convert(body, cls, str_keys=True)
            if found.as_json() != body:  # also what has a default has to be there
                raise ValueError("it has not just the fields that it should")
        except (msgspec.ValidationError, ValueError) as error:
            raise LimitsRefused(
                f"the limits are damaged: a field is missing or wrong: {error!r}", hint=_AGAIN
            ) from None
        return found
