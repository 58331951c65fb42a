"""Traffic as a point in a space, the trial of a point, and the findings of a search.

The points that don't overload a cluster form a region; its boundary is what is looked for. After
"Finding Kafka's throughput limit in Dropbox infrastructure" (Dropbox Jetstream, 2019).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

AtLeastZero = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
AboveZero = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True, slots=True)
class Point:
    """Traffic that is tried.

    ``pace`` is the messages/s of one producer, the same for all of them. Each of the
    ``old_groups`` reads old messages as fast as new ones are sent, in bytes/s.
    """

    message_bytes: Positive
    producers: AtLeastZero
    pace: AboveZero
    old_groups: AtLeastZero = 0

    @property
    def messages_per_s(self) -> float:
        return self.producers * self.pace

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes

    @property
    def old_bytes_per_s(self) -> float:
        """Bytes/s of old messages that are to be read."""
        return self.old_groups * self.bytes_per_s


class Verdict(StrEnum):
    """The result of a trial of a point."""

    SAFE = "safe"
    OVERLOADED = "overloaded"
    CLIENTS = "clients"  # were the bottleneck: nothing is known of the brokers
    UNCLEAR = "unclear"  # was disturbed, or cut short


@dataclass(frozen=True, slots=True)
class Signals:
    """Measurements in the steady window of a trial; None where it could not be measured."""

    window_s: float
    sent_per_s: float  # messages/s that the brokers acknowledged, of all producers
    round_trip_ms: float | None  # of produce requests, the median over the window
    throttled: float  # share of the window in which brokers throttled clients
    # Messages/s by which the slowest consumer group falls behind, as a share of those sent.
    falling_behind: float | None
    # Share of their time that request handler threads are idle, of the busiest broker (JMX).
    handlers_idle: float | None
    isr_changing: float | None  # share of the window in which the in-sync replicas changed
    clients_busy: float  # processor time of the busiest process of clients, as a share of one core
    queue_ms: float  # how long messages waited in producers before they were sent, median
    errors: int = 0
    old_bytes_per_s: float | None = None
    read_per_s: float = 0.0  # messages/s that all consumer groups together read of the new ones

    def __post_init__(self) -> None:
        if any(value is not None and value < 0 for value in astuple(self)):
            raise ValueError("a signal is below zero")


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was tried, and the verdict with the signals that decided, in words.

    ``at`` is when, in seconds since the epoch.
    """

    point: Point
    signals: Signals
    verdict: Verdict
    why: tuple[str, ...]
    at: float


class End(StrEnum):
    """The reason why a search ended, or that it has not."""

    OPEN = "open"  # it has not
    NARROW = "narrow"  # the boundary is known as narrowly as the settings require
    WIDE = "wide"  # wider than that: no more trials are allowed, or no traffic lies between
    MOST = "most"  # the most is not overloaded: the boundary lies above it
    CLIENTS = "clients"  # these clients can't do more: the boundary lies above what they could
    NONE = "none"  # not even one producer is safe
    UNCLEAR = "unclear"  # trial after trial gave no verdict


@dataclass(frozen=True, slots=True)
class Found:
    """Knowledge of a search, in levels of traffic."""

    safe: int  # does not overload the brokers: what counts as the boundary. It was tried, or is 0.
    overloaded: int | None  # the lowest level above it that did; None when none did
    low: float  # the boundary lies above it with some 95% probability
    high: float | None  # and below it with as much; None when it may lie anywhere above
    trials: int  # that were made, those without a verdict among them
    end: End
