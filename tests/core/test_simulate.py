"""The simulated drain: never faster than can be, and as fast as the lanes allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.core.batches import Batching
from drainer.insight.forecast.simulate import Costs, Simulated, Simulation
from drainer.message import Message, SubMessage
from drainer.model.order import Order

from .messages import message_at, sub_of

Spec = list[str | list[str] | None]  # sub-keys, several of them, or a barrier

KEYS = st.sampled_from("abcde")
SPECS = st.lists(st.lists(st.one_of(KEYS, st.lists(KEYS, min_size=1, max_size=3)), max_size=4))


def backlog(specs: list[Spec], partitions: int = 1) -> list[tuple[Message, list[SubMessage]]]:
    return [
        (message_at(offset, offset % partitions, b"one"), [sub_of(spec) for spec in message])
        for offset, message in enumerate(specs)
    ]


def drained(
    specs: list[Spec],
    concurrency: int,
    order: Order = Order.SUB_KEY,
    latency_s: Callable[[SubMessage], float] = lambda _: 1.0,
    **more: Any,
) -> Simulated:
    return Simulation(
        backlog(specs), order=order, concurrency=concurrency, latency_s=latency_s, **more
    ).run()


@settings(deadline=None)
@given(SPECS, st.integers(1, 6), st.sampled_from(list(Order)), st.randoms(use_true_random=False))
def test_it_is_never_below_the_lower_bound_and_handles_each_once(
    specs: list[Spec], concurrency: int, order: Order, chance: object
) -> None:
    seen: list[SubMessage] = []
    took_s: list[float] = []

    def latency_s(sub: SubMessage) -> float:
        seen.append(sub)
        took_s.append(0.1 + chance.random())  # type: ignore[attr-defined]
        return took_s[-1]

    found = drained(specs, concurrency, order, latency_s)
    assert found.seconds >= sum(took_s) / concurrency - 1e-9
    assert found.seconds <= sum(took_s) + 1e-9  # somebody is always at work
    assert len(seen) == len({id(sub) for sub in seen}) == sum(map(len, specs))
    if order is Order.SUB_KEY and all(type(spec) is str for message in specs for spec in message):
        lanes_s = Counter[object]()
        for sub, each_s in zip(seen, took_s, strict=True):
            lanes_s[sub.key] += each_s  # type: ignore[assignment]
        longest_s = max(lanes_s.values(), default=0.0)
        assert found.seconds >= longest_s - 1e-9
        assert found.seconds <= sum(took_s) / concurrency + longest_s + 1e-9


def latest(earlier: SubMessage, later: SubMessage) -> SubMessage | None:
    return later


def test_a_call_takes_the_heads_of_many_lanes() -> None:
    specs: list[Spec] = [[f"k{n}"] for n in range(100)]
    found = drained(specs, 2, batching=Batching(most=10))
    assert (found.seconds, found.calls) == (5.0, 10)


def test_a_member_of_a_call_costs_less_than_a_call() -> None:
    costs = Costs(sub_message_s=0.5, together_s=0.125)
    found = drained([["a"] * 5], 1, costs=costs, batching=Batching(latest))
    assert found.seconds == 1.0 + 0.5 + 4 * 0.125


def test_one_processor_bounds_many_workers() -> None:
    specs: list[Spec] = [[f"k{n}"] for n in range(20_000)]
    found = drained(specs, 1000, latency_s=lambda _: 0.01, costs=Costs(sub_message_s=1e-4))
    assert found.seconds == pytest.approx(20_000 * 1e-4, rel=0.05)


def test_the_fetch_bounds_the_drain_that_is_faster_than_it() -> None:
    specs: list[Spec] = [[f"k{n}"] for n in range(5_000)]
    costs = Costs(fetch_s=1e-3, begin_s=0.5)
    found = drained(specs, 100, latency_s=lambda _: 0.001, costs=costs)
    assert found.seconds == pytest.approx(5.5, rel=0.02)


def test_a_full_buffer_hides_what_is_behind_a_hot_lane() -> None:
    hot: list[Spec] = [["hot"]] * 400
    others: list[Spec] = [[f"k{n}"] for n in range(400)]
    wide = drained(hot + others, 10)
    narrow = drained(hot + others, 10, buffer_bytes=20_000)
    assert wide.seconds == 400.0
    assert narrow.seconds > wide.seconds + 5
