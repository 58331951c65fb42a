"""Traffic as a point in a space, and what a trial of one showed.

The points that don't overload a cluster form a region; its boundary is what is looked for. After
"Finding Kafka's throughput limit in Dropbox infrastructure" (Dropbox Jetstream, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


class Verdict(StrEnum):
    """What a trial tells of its point."""

    SAFE = "safe"
    OVERLOADED = "overloaded"
    CLIENTS = "clients"  # were the bottleneck: it tells nothing of the brokers
    UNCLEAR = "unclear"  # was disturbed, or cut short


@dataclass(frozen=True, slots=True)
class Signals:
    """What was seen in the steady window of a trial; None where nobody could look.

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


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the signals that decided, in words for people."""

    verdict: Verdict
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was tried. ``at`` is seconds since the epoch."""

    point: Point
    signals: Signals
    judgement: Judgement
    at: float
