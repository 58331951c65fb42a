"""What is overload, what were the clients, and what nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.limits.search.overload import Thresholds, judge
from drainer.limits.search.point import Judgement, Point, Signals, Verdict

POINT = Point(1024, 10, 1_000.0, consumer_groups=5, partitions=40)
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


def judged(**signals: Any) -> Judgement:
    return judge(POINT, replace(CALM, **signals), BASELINE_MS, Thresholds())


def test_calm_brokers_are_safe_and_figures_say_why() -> None:
    assert judged() == Judgement(SAFE, ("round trip 3 ms (2 ms without load)",))
    assert judged(handlers_idle=0.45).why[0] == "request handlers idle 45%"


@pytest.mark.parametrize("clients_busy", [0.3, 1.0])
@pytest.mark.parametrize(
    ("signals", "why"),
    [
        ({"handlers_idle": 0.14}, "request handlers idle 14%, under 20%"),
        ({"handlers_idle": 0.196}, "request handlers idle 19.6%, under 20%"),
        ({"isr_changing": 0.6}, "in-sync replicas changing 60% of the time, over 50%"),
        (
            {"handlers_idle": 0.9, "throttled": 0.3},
            "brokers throttled clients 30% of the time, over 5%",
        ),
    ],
)
def test_what_brokers_say_is_overload_whatever_clients_look_like(
    signals: dict[str, float], why: str, clients_busy: float
) -> None:
    assert judged(**signals, clients_busy=clients_busy) == Judgement(OVERLOADED, (why,))


def test_without_jmx_late_answers_are_overload() -> None:
    found = judged(round_trip_ms=25.0)

    assert found == Judgement(OVERLOADED, ("round trip 25 ms, over 22 ms (2 ms without load)",))


def test_a_round_trip_that_is_still_short_is_not_late_however_many_times_as_long() -> None:
    assert judged(round_trip_ms=19.0).verdict is SAFE


def test_a_round_trip_is_late_by_the_factor_when_it_is_long_without_load() -> None:
    slow = replace(CALM, round_trip_ms=240.0)

    assert judge(POINT, slow, 50.0, Thresholds()).verdict is SAFE
    assert judge(POINT, replace(slow, round_trip_ms=260.0), 50.0, Thresholds()).verdict is (
        OVERLOADED
    )


def test_without_jmx_consumers_that_fall_behind_are_overload() -> None:
    assert judged(falling_behind=0.12) == Judgement(
        OVERLOADED, ("consumers fall behind by 12% of what is sent, over 5%",)
    )


def test_with_jmx_a_long_round_trip_alone_is_told_and_no_overload() -> None:
    found = judged(handlers_idle=0.5, round_trip_ms=80.0)

    assert found.verdict is SAFE
    assert "round trip 80 ms (2 ms without load)" in found.why


def test_idle_handlers_behind_a_network_that_is_full_are_no_alibi() -> None:
    found = judged(handlers_idle=0.6, round_trip_ms=900.0, sent_per_s=7_000.0)

    assert found.verdict is OVERLOADED
    assert "7,000 of 10,000 messages/s were sent" in found.why
    assert "request handlers idle 60%" in found.why


@pytest.mark.parametrize("idle", [None, 0.7])
@pytest.mark.parametrize("busy", [0.3, 0.99])
def test_a_rate_that_was_not_reached_while_brokers_look_fine_was_the_clients(
    idle: float | None, busy: float
) -> None:
    assert judged(handlers_idle=idle, sent_per_s=9_000.0, clients_busy=busy).verdict is CLIENTS


def test_messages_that_wait_while_the_round_trip_is_low_wait_for_clients() -> None:
    assert judged(queue_ms=900.0).verdict is CLIENTS


def test_with_jmx_consumers_that_fall_behind_calm_brokers_are_clients() -> None:
    assert judged(handlers_idle=0.8, falling_behind=0.3).verdict is CLIENTS


@pytest.mark.parametrize(
    "signals",
    [{"round_trip_ms": 90.0}, {"falling_behind": 0.4}, {"errors": 90_000}, {"sent_per_s": 0.0}],
)
def test_busy_clients_are_no_witnesses_of_brokers(signals: dict[str, Any]) -> None:
    found = judged(**signals, clients_busy=0.97)

    assert found.verdict is CLIENTS
    assert found.why[0] == "a client is busy 97% of a core"


@pytest.mark.parametrize("idle", [None, 0.5])
def test_busy_clients_that_did_it_all_are_safe(idle: float | None) -> None:
    assert judged(handlers_idle=idle, clients_busy=0.97).verdict is SAFE


@pytest.mark.parametrize("idle", [None, 0.5])
@pytest.mark.parametrize("round_trip_ms", [0.0, nan])
def test_brokers_that_acknowledge_nothing_are_overloaded(
    idle: float | None, round_trip_ms: float
) -> None:
    found = judged(handlers_idle=idle, sent_per_s=0.0, round_trip_ms=round_trip_ms)

    assert found.verdict is OVERLOADED
    assert found.why[0] == "no message was acknowledged"


def test_messages_that_fail_are_overload_unless_they_are_few() -> None:
    assert judged(errors=3).verdict is SAFE
    assert judged(errors=5_000).verdict is OVERLOADED
    assert judged(handlers_idle=0.5, errors=5_000).verdict is OVERLOADED


def test_a_window_cut_short_shows_overload_but_never_safety() -> None:
    assert judged(window_s=1.0).verdict is UNCLEAR
    assert judged(window_s=1.0, handlers_idle=0.02).verdict is OVERLOADED


@pytest.mark.parametrize(
    "name", ["sent_per_s", "round_trip_ms", "throttled", "falling_behind", "clients_busy"]
)
def test_what_was_not_measured_is_never_safe(name: str) -> None:
    assert judged(**{name: nan}).verdict is UNCLEAR


shares = st.floats(0, 1)


@given(
    st.builds(
        Signals,
        window_s=st.floats(0, 60),
        sent_per_s=st.floats(0, 20_000),
        round_trip_ms=st.floats(0, 5_000),
        throttled=shares,
        falling_behind=shares,
        handlers_idle=st.none() | shares,
        isr_changing=st.none() | shares,
        clients_busy=st.floats(0, 1.2),
        queue_ms=st.floats(0, 60_000),
        errors=st.integers(0, 100_000),
    )
)
def test_safe_is_only_what_was_sent_in_full_to_brokers_that_had_room(signals: Signals) -> None:
    found = judge(POINT, signals, BASELINE_MS, Thresholds())

    assert found.why
    if found.verdict is SAFE:
        assert signals.sent_per_s >= 0.95 * POINT.messages_per_s
        assert signals.throttled <= 0.05
        assert signals.falling_behind <= 0.05
        assert signals.window_s >= 5
        assert signals.handlers_idle is None or signals.handlers_idle >= 0.2
        assert signals.handlers_idle is not None or signals.round_trip_ms <= 22
    if found.verdict is CLIENTS:
        assert signals.handlers_idle is None or signals.handlers_idle >= 0.2
