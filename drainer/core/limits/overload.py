"""Whether a trial overloaded the brokers, and which signals say so."""

from __future__ import annotations

from dataclasses import dataclass

from drainer.core.limits.point import Judgement, Point, Signals


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as overload; shares are of time unless said otherwise.

    Attributes:
        handlers_idle_least: request handlers idle less than this are overloaded (JMX).
        isr_changing_most: in-sync replicas changing for more than this.
        round_trip_factor: a round trip this many times the unloaded one is overload,
        round_trip_over_ms: if it is also longer by this many ms.
        falling_behind_most: of the messages sent, that the slowest group may leave behind.
        throttled_most: brokers throttling clients for more than this.
        clients_busy_most: of one core, from which on clients are the bottleneck.
        pace_shortfall_most: of the rate that was to be sent, that may be missing.
        queue_ms_most: messages that wait longer in producers are held up.
    """

    handlers_idle_least: float = 0.20
    isr_changing_most: float = 0.5
    round_trip_factor: float = 5.0
    round_trip_over_ms: float = 20.0
    falling_behind_most: float = 0.05
    throttled_most: float = 0.05
    clients_busy_most: float = 0.90
    pace_shortfall_most: float = 0.05
    queue_ms_most: float = 200.0


def judge(
    point: Point,
    signals: Signals,
    baseline_round_trip_ms: float,
    thresholds: Thresholds,
) -> Judgement:
    """The verdict on a trial, and why. ``baseline_round_trip_ms`` is that of unloaded brokers."""
    raise NotImplementedError
