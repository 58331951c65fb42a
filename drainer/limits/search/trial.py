"""The traffic of a trial, what was measured during it, and the result of a search.

Traffic is a point in a space of message size, producers and rate. The points that do not overload a
cluster form a region, and a search looks for the boundary of that region. The method is that of
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
    """Traffic to try: so many producers, each of which sends ``pace`` messages/s."""

    message_bytes: Positive
    producers: AtLeastZero
    pace: AboveZero

    @property
    def messages_per_s(self) -> float:
        return self.producers * self.pace

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.message_bytes


class Verdict(StrEnum):
    """The result of a trial."""

    SAFE = "safe"
    OVERLOADED = "overloaded"
    CLIENTS = "clients"  # The clients were the bottleneck: it says nothing about the brokers.
    UNCLEAR = "unclear"  # Something was not measured, or the window was too short.


@dataclass(frozen=True, slots=True)
class Signals:
    """Measurements over a stretch of time, most often the steady window of a trial.

    A value is None when it could not be measured.
    """

    window_s: float
    # Messages/s of all producers together that the brokers acknowledged.
    sent_per_s: float
    # The median round trip of produce requests.
    round_trip_ms: float | None
    # The share of samples in which brokers throttled a client.
    throttled: float
    # How fast the slowest consumer group falls behind, as a share of the messages that are sent.
    falling_behind: float | None
    # The share of their time that the request handler threads of the busiest broker are idle (JMX).
    handlers_idle: float | None
    # The share of the window in which the set of in-sync replicas changed or was not complete.
    isr_changing: float | None
    # Processor time of the busiest client process, as a share of one core.
    clients_busy: float
    # The median time that a message waits in its producer before it is sent.
    queue_ms: float
    # Messages that were refused or timed out.
    errors: int = 0
    # Messages/s that all consumer groups together read.
    read_per_s: float = 0.0

    def __post_init__(self) -> None:
        if any(value is not None and value < 0 for value in astuple(self)):
            raise ValueError("a signal is below zero")


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: its traffic, what was measured, the verdict, and the reasons for it in words.

    ``at`` is its beginning, in seconds since the epoch.
    """

    point: Point
    signals: Signals
    verdict: Verdict
    why: tuple[str, ...]
    at: float


class End(StrEnum):
    """The reason why a search has ended."""

    OPEN = "open"  # It has not ended.
    NARROW = "narrow"  # The boundary is known as precisely as the settings require.
    # The boundary is known less precisely: no more trials are allowed, or no level lies between.
    WIDE = "wide"
    MOST = "most"  # Even the highest level is safe, so the boundary lies above it.
    CLIENTS = "clients"  # The clients can send no more, so the boundary lies above what they sent.
    NONE = "none"  # Not even the lowest level is safe.
    UNCLEAR = "unclear"  # Several trials in a row gave no verdict.


@dataclass(frozen=True, slots=True)
class Found:
    """What a search knows of the boundary, in levels of traffic."""

    # The level that counts as the boundary. It was tried and is safe, or it is 0.
    safe: int
    # The lowest level above ``safe`` that overloaded the brokers; None when none did.
    overloaded: int | None
    # The boundary lies between these two with a probability of about 95%. ``high`` is None when it
    # may lie anywhere above ``low``.
    low: float
    high: float | None
    # Trials that were made, including those without a verdict.
    trials: int
    end: End
