"""The rate: no more calls start than it allows, and no wait is longer than it needs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.policy.rate import BURST_S, Rate


def most_at_once(per_s: float) -> float:
    return max(1.0, per_s * BURST_S)


@settings(deadline=None)
@given(
    rates=st.lists(st.floats(0.01, 10_000), min_size=1, max_size=3),
    waits=st.lists(st.sampled_from([0.0, 1e-6, 0.001, 0.003, 0.05, 0.5, 7.0, 1000.0]), max_size=30),
)
def test_in_no_time_does_more_start_than_rates_and_burst(
    rates: list[float], waits: list[float]
) -> None:
    now_s = due = 0.0  # that the rates have given by now
    starts: list[float] = []  # what was due then
    rate = Rate(rates[0], now_s)
    for number, wait_s in enumerate(waits):
        due += rate.per_s * wait_s
        now_s += wait_s
        for _ in range(min(8, rate.allowed(now_s))):
            rate.start(now_s)
            starts.append(due)
        rate.change(rates[number % len(rates)], now_s)
    burst = most_at_once(max(rates))
    for number, first in enumerate(starts):
        for count, last in enumerate(starts[number:], start=1):
            assert count <= last - first + burst + 1e-3


@settings(deadline=None)
@given(per_s=st.floats(0.01, 10_000), idle_s=st.floats(0, 10), step=st.floats(0, 1))
def test_the_next_may_start_at_the_time_that_was_given(
    per_s: float, idle_s: float, step: float
) -> None:
    rate = Rate(per_s, 0.0)
    while rate.allowed(idle_s):
        rate.start(idle_s)
    from_s = idle_s + step / per_s
    next_s = rate.next_at_s(from_s)
    assert from_s <= next_s <= idle_s + 1 / per_s + 1e-6, "it counts what has come meanwhile"
    assert rate.allowed(next_s + 1e-9 * (1 + next_s) / min(1, per_s)) >= 1
