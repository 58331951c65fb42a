"""Overload, busy clients, and trials without a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.limits.search.trial import Point, Signals, Verdict, judge

POINT = Point(1024, 10, 1_000.0)
BASELINE_MS = 2.0
CALM = Signals(
    window_s=30.0,
    sent_per_s=10_000.0,
    round_trip_ms=3.0,
    throttled=0.0,
    falling_behind=0.0,
    handlers_idle=None,
    isr_changing=0.0,
    clients_busy=0.3,
    queue_ms=5.0,
)
SAFE, OVERLOADED = Verdict.SAFE, Verdict.OVERLOADED
CLIENTS, UNCLEAR = Verdict.CLIENTS, Verdict.UNCLEAR


def judged(**signals: Any) -> tuple[Verdict, tuple[str, ...]]:
    return judge(POINT, replace(CALM, **signals), BASELINE_MS)


LATE = "round trip 25 ms, over 22 ms (2 ms without load)"
BEHIND = "consumers fall behind by 12% of what is sent, over 5%"


@pytest.mark.parametrize(
    ("signals", "verdict", "why"),
    [
        ({}, SAFE, "round trip 3 ms (2 ms without load)"),
        # Metrics of the brokers.
        ({"handlers_idle": 0.45}, SAFE, "request handlers idle 45%"),
        ({"handlers_idle": 0.196}, OVERLOADED, "request handlers idle 19.6%, under 20%"),
        ({"isr_changing": 0.6}, OVERLOADED, "in-sync replicas changing 60% of the time, over 50%"),
        ({"throttled": 0.3}, OVERLOADED, "brokers throttled clients 30% of the time, over 5%"),
        # Without JMX clients are the witnesses.
        ({"round_trip_ms": 25.0}, OVERLOADED, LATE),
        ({"round_trip_ms": 19.0}, SAFE, "round trip 19 ms"),  # many times as long, and still short
        ({"falling_behind": 0.12}, OVERLOADED, BEHIND),
        ({"queue_ms": 900.0}, CLIENTS, "messages wait 900 ms in producers"),
        ({"sent_per_s": 9_000.0}, CLIENTS, "9,000 of 10,000 messages/s were sent"),
        # With it they are reported, and idle handlers are no alibi of a network that is full.
        ({"handlers_idle": 0.5, "round_trip_ms": 80.0}, SAFE, "round trip 80 ms"),
        ({"handlers_idle": 0.8, "falling_behind": 0.12}, CLIENTS, BEHIND),
        ({"handlers_idle": 0.7, "sent_per_s": 9_000.0}, CLIENTS, "9,000 of 10,000"),
        (
            {"handlers_idle": 0.6, "round_trip_ms": 900.0, "sent_per_s": 7_000.0},
            OVERLOADED,
            "7,000 of 10,000 messages/s were sent",
        ),
        ({"errors": 3}, SAFE, "round trip"),
        ({"errors": 5_000}, OVERLOADED, "5,000 messages were refused or timed out"),
        ({"sent_per_s": 0.0, "round_trip_ms": None}, OVERLOADED, "no message was acknowledged"),
        ({"sent_per_s": 0.0, "handlers_idle": 0.5}, OVERLOADED, "no message was acknowledged"),
        # A window cut short shows overload, but never safety.
        ({"window_s": 1.0}, UNCLEAR, "observed for 1 s only, under 5 s"),
        ({"round_trip_ms": None}, UNCLEAR, "round trip: not measured"),
        ({"falling_behind": None}, UNCLEAR, "consumers: not measured"),
        ({"window_s": 1.0, "handlers_idle": 0.02}, OVERLOADED, "request handlers idle 2%"),
    ],
)
def test_each_signal_decides_with_its_figure(
    signals: dict[str, Any], verdict: Verdict, why: str
) -> None:
    found, reasons = judged(**signals)

    assert found is verdict
    assert why in "; ".join(reasons)


@pytest.mark.parametrize(
    ("signals", "verdict"),
    [
        ({"handlers_idle": 0.14}, OVERLOADED),
        ({"throttled": 0.3, "handlers_idle": 0.9}, OVERLOADED),
        ({"round_trip_ms": 90.0}, CLIENTS),
        ({"falling_behind": 0.4}, CLIENTS),
        ({"errors": 90_000}, CLIENTS),
        ({"sent_per_s": 9_000.0, "handlers_idle": 0.7}, CLIENTS),
        ({}, SAFE),
    ],
)
def test_busy_clients_decide_nothing_but_metrics_of_brokers_and_a_reached_rate_do(
    signals: dict[str, Any], verdict: Verdict
) -> None:
    found, reasons = judged(**signals, clients_busy=0.97)

    assert found is verdict
    assert (reasons[0] == "a client is busy 97% of a core") == (verdict is CLIENTS)


def test_a_round_trip_is_late_by_the_factor_when_it_is_long_without_load() -> None:
    def at(round_trip_ms: float) -> Verdict:
        slow = replace(CALM, round_trip_ms=round_trip_ms)
        return judge(POINT, slow, 50.0)[0]

    assert (at(240.0), at(260.0)) == (SAFE, OVERLOADED)


shares = st.floats(0, 1)


@given(
    st.builds(
        Signals,
        window_s=st.floats(0, 60),
        sent_per_s=st.floats(0, 20_000),
        round_trip_ms=st.none() | st.floats(0, 5_000),
        throttled=shares,
        falling_behind=st.none() | shares,
        handlers_idle=st.none() | shares,
        isr_changing=st.none() | shares,
        clients_busy=st.floats(0, 1.2),
        queue_ms=st.floats(0, 60_000),
        errors=st.integers(0, 100_000),
    )
)
def test_safe_is_only_what_was_sent_in_full_to_brokers_that_had_room(signals: Signals) -> None:
    verdict, why = judge(POINT, signals, BASELINE_MS)

    assert why
    if verdict is SAFE:
        assert signals.sent_per_s >= 0.95 * POINT.messages_per_s
        assert signals.throttled <= 0.05
        assert signals.falling_behind is not None
        assert signals.falling_behind <= 0.05
        assert signals.window_s >= 5
        if signals.handlers_idle is None:
            assert signals.round_trip_ms is not None
            assert signals.round_trip_ms <= 22
        else:
            assert signals.handlers_idle >= 0.2
    if verdict is CLIENTS:
        assert signals.handlers_idle is None or signals.handlers_idle >= 0.2
