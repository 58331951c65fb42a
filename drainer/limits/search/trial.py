"""A trial: its traffic, what was measured during it, and whether the brokers were overloaded.

Traffic is a point in a space of message size, producers and rate. The points that do not overload a
cluster form a region, and a search looks for the boundary of that region. The method is that of
"Finding Kafka's throughput limit in Dropbox infrastructure" (Dropbox Jetstream, 2019). As there,
brokers are overloaded if their request handler threads are idle for less than a fifth of the time,
or if the in-sync replicas keep changing. Without JMX, the clients' measurements decide.
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

Reasons = tuple[str, ...]  # Phrases for people. Each gives a reason for a verdict.

# Request handlers (JMX) that are idle for a smaller share of their time are overloaded.
HANDLERS_IDLE_LEAST = 0.20
# In-sync replicas may be changing, or incomplete, for at most this share of the window.
ISR_CHANGING_MOST = 0.5
# Brokers may throttle clients in at most this share of the samples. They throttle clients that
# exceed a Kafka quota, so a quota also counts as a limit of the brokers.
THROTTLED_MOST = 0.05
# A round trip is late if it is longer than the unloaded one by both this factor and this time.
ROUND_TRIP_FACTOR = 5.0
ROUND_TRIP_OVER_MS = 20.0
# The slowest consumer group may fall behind by at most this share of the messages that are sent.
FALLING_BEHIND_MOST = 0.05
# At most this share of the messages may be refused or time out.
ERRORS_MOST = 0.001
# The rate may fall short of the requested one by at most this share.
PACE_SHORTFALL_MOST = 0.05
# If a client process uses a larger share of a core, it measures its own delays, not the brokers'.
CLIENTS_BUSY_MOST = 0.90
# Messages that wait longer than this in their producers are held up by the clients.
QUEUE_MS_MOST = 200.0
# A shorter window can show that brokers are overloaded, but not that they are safe.
WINDOW_S_LEAST = 5.0


@dataclass(frozen=True, slots=True)
class Point:
    """The traffic of a trial. Each of the producers sends ``pace`` messages/s."""

    message_bytes: Positive
    producers: Positive
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
    CLIENTS = "clients"  # The clients were the bottleneck, so the trial says nothing of brokers.
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
    # The share of the time in which the busiest broker's request handler threads are idle (JMX).
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
    why: Reasons
    at: float


class End(StrEnum):
    """The reason why a search has ended."""

    OPEN = "open"  # It has not ended.
    NARROW = "narrow"  # The boundary is known as precisely as the settings require.
    # The boundary is known less precisely, because no more trials are allowed, or because no level
    # lies between the safe one and the overloaded one.
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


def judge(point: Point, signals: Signals, baseline_round_trip_ms: float) -> tuple[Verdict, Reasons]:
    """Return the verdict on a trial, and the reasons for it.

    ``baseline_round_trip_ms`` is the round trip of brokers without load.

    Three metrics of the brokers decide, however busy the clients are: request handlers that are not
    idle, in-sync replicas that change, and throttling. When the clients themselves are busy, their
    other measurements say nothing about the brokers.

    Without JMX, late answers and consumers that fall behind count as overload. With JMX, late
    answers count as overload only if the requested rate was not reached or consumers fell behind:
    request handlers may be idle although the network or a disk is overloaded.

    A trial that did not reach its rate is never safe. If the brokers look fine, the clients were
    the bottleneck.
    """
    has_jmx = signals.handlers_idle is not None
    idle = (f"request handlers idle {_percent(signals.handlers_idle)}",) if has_jmx else ()
    unloaded = f"({_ms(baseline_round_trip_ms)} without load)"
    trip_ms = signals.round_trip_ms
    answered = () if trip_ms is None else (f"round trip {_ms(trip_ms)} {unloaded}",)
    short, behind, failed = _short(point, signals), _behind(signals), _failed(signals)
    late = _late(signals, baseline_round_trip_ms)
    verdict: Verdict | None = None
    reasons: Reasons = ()
    if overload := _broker_reasons(signals):
        verdict, reasons = Verdict.OVERLOADED, overload
    elif signals.clients_busy > CLIENTS_BUSY_MOST:
        # A process that waits for processor time measures its own delays, not those of the brokers.
        if found := short + behind + failed + (() if has_jmx else late):
            busy = f"a client is busy {_percent(signals.clients_busy)} of a core"
            verdict, reasons = Verdict.CLIENTS, (busy, *found)
    elif failed:
        verdict, reasons = Verdict.OVERLOADED, failed + late + short
    elif has_jmx:
        if missing := short + behind:
            verdict = Verdict.OVERLOADED if late else Verdict.CLIENTS
            reasons = late + missing + idle
    elif late or behind:
        verdict, reasons = Verdict.OVERLOADED, late + behind + short
    elif found := short + _queued(signals):
        verdict, reasons = Verdict.CLIENTS, found + answered
    if verdict is None:
        unknown = _unknown(signals)
        verdict = Verdict.UNCLEAR if unknown else Verdict.SAFE
        reasons = unknown or idle + answered
    return verdict, reasons


def _broker_reasons(seen: Signals) -> Reasons:
    found = []
    idle = seen.handlers_idle
    if idle is not None and idle < HANDLERS_IDLE_LEAST:
        least = _percent(HANDLERS_IDLE_LEAST)
        found.append(f"request handlers idle {_percent(idle)}, under {least}")
    for share, most, what in (
        (seen.isr_changing, ISR_CHANGING_MOST, "in-sync replicas changing"),
        (seen.throttled, THROTTLED_MOST, "brokers throttled clients"),
    ):
        if share is not None and share > most:
            found.append(f"{what} {_percent(share)} of the time, over {_percent(most)}")
    return tuple(found)


def _short(point: Point, seen: Signals) -> Reasons:
    wanted, sent = point.messages_per_s, seen.sent_per_s
    reason = f"{sent:,.0f} of {wanted:,.0f} messages/s were sent"
    return (reason,) if sent < (1 - PACE_SHORTFALL_MOST) * wanted else ()


def _late(seen: Signals, baseline_ms: float) -> Reasons:
    if seen.sent_per_s <= 0:
        return ("no message was acknowledged",)
    most = max(baseline_ms * ROUND_TRIP_FACTOR, baseline_ms + ROUND_TRIP_OVER_MS)
    if seen.round_trip_ms is None or seen.round_trip_ms <= most:
        return ()
    unloaded = f"({_ms(baseline_ms)} without load)"
    return (f"round trip {_ms(seen.round_trip_ms)}, over {_ms(most)} {unloaded}",)


def _behind(seen: Signals) -> Reasons:
    if seen.falling_behind is None or seen.falling_behind <= FALLING_BEHIND_MOST:
        return ()
    share, most = _percent(seen.falling_behind), _percent(FALLING_BEHIND_MOST)
    return (f"consumers fall behind by {share} of what is sent, over {most}",)


def _failed(seen: Signals) -> Reasons:
    handed_in = seen.errors + seen.sent_per_s * seen.window_s
    reason = f"{seen.errors:,} messages were refused or timed out"
    return (reason,) if seen.errors > ERRORS_MOST * handed_in else ()


def _queued(seen: Signals) -> Reasons:
    reason = f"messages wait {_ms(seen.queue_ms)} in producers"
    return (reason,) if seen.queue_ms > QUEUE_MS_MOST else ()


def _unknown(seen: Signals) -> Reasons:
    """Describe each missing measurement that a trial needs to be called safe."""
    if seen.window_s < WINDOW_S_LEAST:
        return (f"observed for {seen.window_s:.3g} s only, under {WINDOW_S_LEAST:g} s",)
    found = []
    if seen.falling_behind is None:
        found.append("consumers: not measured")
    if seen.round_trip_ms is None and seen.handlers_idle is None:
        found.append("round trip: not measured")
    return tuple(found)


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.3g}%"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
