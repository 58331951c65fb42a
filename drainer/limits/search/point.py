"""Traffic as a point in a space, and what a trial of one showed.

The points that don't overload a cluster form a region; its boundary is what is looked for. After
"Finding Kafka's throughput limit in Dropbox infrastructure" (Dropbox Jetstream, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import isfinite, nan
from typing import Any, TypeVar

from drainer.core import fields


@dataclass(frozen=True, slots=True)
class Point:
    """Traffic that is tried.

    ``pace`` is the messages/s of one producer, the same for all of them: their number sets the
    rate. ``compressibility`` is the share of a payload that compresses to nothing, 0 for random.
    """

    message_bytes: int
    producers: int
    pace: float
    consumer_groups: int
    partitions: int
    compression: str = "none"
    compressibility: float = 0.0

    @property
    def messages_per_s(self) -> float:
        return self.producers * self.pace

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Point:
        """Raises KeyError, TypeError or ValueError when the body is no point."""
        return cls(
            message_bytes=above_zero(fields.whole(body["message_bytes"])),
            producers=not_negative(fields.whole(body["producers"])),
            pace=above_zero(fields.number_of(body["pace"])),
            consumer_groups=not_negative(fields.whole(body["consumer_groups"])),
            partitions=above_zero(fields.whole(body["partitions"])),
            compression=fields.text(body["compression"]),
            compressibility=not_negative(fields.number_of(body["compressibility"])),
        )


class Verdict(StrEnum):
    """What a trial tells of its point."""

    SAFE = "safe"
    OVERLOADED = "overloaded"
    CLIENTS = "clients"  # were the bottleneck: it tells nothing of the brokers
    UNCLEAR = "unclear"  # was disturbed, or cut short


@dataclass(frozen=True, slots=True)
class Signals:
    """What was seen in the steady window of a trial.

    None where nobody could look; NaN where somebody should have, but nothing was measured.

    Attributes:
        window_s: how long it was observed.
        sent_per_s: messages/s that the brokers acknowledged, of all producers.
        round_trip_ms: of produce requests, the median over the window.
        throttled: share of the window in which brokers throttled clients.
        falling_behind: messages/s by which the slowest consumer group falls behind, as a share of
            those sent.
        handlers_idle: share of their time that request handler threads are idle, of the busiest
            broker (JMX).
        isr_changing: share of the window in which the in-sync replicas changed.
        clients_busy: processor time of the busiest process of clients, as a share of one core.
        queue_ms: how long messages waited in producers before they were sent, median.
        errors: messages that were refused or timed out.
    """

    window_s: float
    sent_per_s: float
    round_trip_ms: float
    throttled: float
    falling_behind: float
    handlers_idle: float | None
    isr_changing: float | None
    clients_busy: float
    queue_ms: float
    errors: int = 0

    def as_json(self) -> dict[str, Any]:
        """What was not measured (NaN) is null."""
        return {
            name: None if value is None or not isfinite(value) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Signals:
        """Raises KeyError, TypeError or ValueError when the body is not what was seen."""
        return cls(
            window_s=fields.number_of(body["window_s"]),
            sent_per_s=_measured(body["sent_per_s"]),
            round_trip_ms=_measured(body["round_trip_ms"]),
            throttled=_measured(body["throttled"]),
            falling_behind=_measured(body["falling_behind"]),
            handlers_idle=fields.optional(fields.number_of, body["handlers_idle"]),
            isr_changing=fields.optional(fields.number_of, body["isr_changing"]),
            clients_busy=_measured(body["clients_busy"]),
            queue_ms=_measured(body["queue_ms"]),
            errors=not_negative(fields.whole(body["errors"])),
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the signals that decided, in words for people."""

    verdict: Verdict
    why: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict.value, "why": list(self.why)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Judgement:
        """Raises KeyError, TypeError or ValueError when the body is no judgement."""
        return cls(Verdict(body["verdict"]), fields.texts(body["why"]))


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was tried. ``at`` is seconds since the epoch."""

    point: Point
    signals: Signals
    judgement: Judgement
    at: float

    def as_json(self) -> dict[str, Any]:
        return {
            "point": self.point.as_json(),
            "signals": self.signals.as_json(),
            "judgement": self.judgement.as_json(),
            "at": self.at,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Trial:
        """Raises KeyError, TypeError or ValueError when the body is no trial."""
        return cls(
            point=Point.from_json(body["point"]),
            signals=Signals.from_json(body["signals"]),
            judgement=Judgement.from_json(body["judgement"]),
            at=fields.number_of(body["at"]),
        )


Number = TypeVar("Number", int, float)


def _measured(value: object) -> float:
    return nan if value is None else not_negative(fields.number_of(value))


def above_zero(value: Number) -> Number:
    """Raises ValueError unless it is more than zero."""
    if value <= 0:
        raise ValueError(f"{value!r} is not above zero")
    return value


def not_negative(value: Number) -> Number:
    """Raises ValueError when it is less than zero."""
    if value < 0:
        raise ValueError(f"{value!r} is below zero")
    return value
