"""A sampled backlog, drawn on: hot keys keep their share, rare ones stay rare."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from drainer.core.batches import Batching
from drainer.insight.forecast.distribution import Distribution
from drainer.insight.forecast.forecast import (
    CONCURRENCY,
    CPU,
    HANDLE,
    LANE,
    RATE,
    SPARK,
    Forecast,
    Setting,
    forecast,
)
from drainer.insight.forecast.on_spark import (
    FIRST_WAVE_S,
    START_S,
    WAVE_S,
    Cores,
    forecast_on_spark,
)
from drainer.insight.forecast.simulate import Costs, Simulation
from drainer.insight.forecast.workload import Keys, Neighbours, Workload
from drainer.message import Message, SubMessage
from drainer.model.order import Order

from .messages import message_at

TEN_MS = Setting(Distribution.constant(0.01))


def made_of(
    messages: list[tuple[Message, list[SubMessage]]], stand_for: float | None = None, parts: int = 1
) -> Workload:
    """The workload of messages of one partition; ``stand_for`` of the backlog, in ``parts``."""
    keys = Keys()
    shapes = [keys.shape(message, subs) for message, subs in messages]
    size = -(-len(shapes) // parts)
    pieces = [shapes[at : at + size] for at in range(0, len(shapes), size)]
    whole = len(shapes) if stand_for is None else stand_for
    return Workload(
        [Neighbours(0, piece, whole * len(piece) / len(shapes)) for piece in pieces], keys
    )


def with_a_hot_key(
    count: int, share: float, seed: int = 1
) -> list[tuple[Message, list[SubMessage]]]:
    chance = Random(seed)
    keys = ["hot" if chance.random() < share else chance.randrange(10**9) for _ in range(count)]
    return [(message_at(n, 0, b"one"), [SubMessage(key)]) for n, key in enumerate(keys)]


def test_the_forecast_of_a_whole_backlog_is_its_exact_drain() -> None:
    original = with_a_hot_key(3_000, 0.05)
    for order in (Order.SUB_KEY, Order.KEY, Order.PARTITION):
        exact = Simulation(
            with_a_hot_key(3_000, 0.05), order=order, concurrency=50, latency_s=lambda _: 0.01
        ).run()
        found = forecast(made_of(original), TEN_MS, order, 50)
        assert found.seconds == pytest.approx(exact.seconds, rel=1e-9)


def test_a_hot_key_keeps_its_share_and_rare_ones_stay_distinct() -> None:
    workload = made_of(with_a_hot_key(5_000, 0.05), stand_for=1_000_000, parts=10)
    keys = Counter(sub.key for _, subs in workload.draw(50_000) for sub in subs)
    (_, hottest), (_, next_one) = keys.most_common(2)
    assert hottest == pytest.approx(2_500, rel=0.1)
    assert next_one == 1  # though each stretch was drawn ten times
    found = workload.hottest(Order.SUB_KEY)
    assert found is not None
    assert found.key == "hot"
    assert found.sub_messages == pytest.approx(50_000, rel=0.1)


def test_what_is_scaled_is_near_what_is_simulated_as_a_whole() -> None:
    for share, concurrency in ((0.0, 100), (0.05, 10), (0.05, 100)):
        messages = with_a_hot_key(12_000, share)
        exact = forecast(made_of(messages), TEN_MS, Order.SUB_KEY, concurrency)
        sampled = made_of(messages[::3], stand_for=12_000, parts=10)
        scaled = forecast(sampled, TEN_MS, Order.SUB_KEY, concurrency, most=4_000)
        assert scaled.bound == exact.bound == (LANE if share * concurrency > 1 else CONCURRENCY)
        assert scaled.seconds == pytest.approx(exact.seconds, rel=0.08)


def test_it_names_the_limit() -> None:
    workload = made_of(with_a_hot_key(2_000, 0.0))
    slow = Setting(Distribution.constant(0.01), Costs(sub_message_s=0.01))
    limited = Setting(Distribution.constant(0.01), rate=50.0)
    assert forecast(workload, TEN_MS, Order.SUB_KEY, 10).bound == CONCURRENCY
    assert forecast(workload, TEN_MS, Order.KEY, 10).bound == LANE
    assert forecast(workload, slow, Order.SUB_KEY, 1000).bound == CPU
    assert forecast(workload, limited, Order.SUB_KEY, 1000).bound == RATE


def folding(keys_of: list[str], folds: set[str]) -> Workload:
    """A sub-message of each sub-key; those of some are folded into the one before on theirs."""
    keys, seen, shapes = Keys(), set[str](), []
    for n, key in enumerate(keys_of):
        found = {0} if key in folds & seen else set[int]()
        shapes.append(keys.shape(message_at(n, 0, b"one"), [SubMessage(key)], found))
        seen.add(key)
    return Workload([Neighbours(0, shapes, len(shapes))], keys)


FOLDING = replace(TEN_MS, batching=Batching(lambda earlier, later: later))


def test_a_hot_row_that_is_folded_is_no_serial_bound() -> None:
    apart = forecast(folding(["hot"] * 10_000, set()), FOLDING, Order.SUB_KEY, 10)
    folded = forecast(folding(["hot"] * 10_000, {"hot"}), FOLDING, Order.SUB_KEY, 10)
    assert apart.serial_s == pytest.approx(100.0)
    assert apart.seconds >= 100
    assert apart.folded == 0
    assert folded.serial_s == pytest.approx(0.11, rel=0.01)  # one, and 9,999 a thousand at once
    assert folded.seconds < 0.3
    assert folded.folded + folded.calls == 10_000


def test_which_sub_key_folds_makes_the_difference() -> None:
    keys = ["hot", "warm"] * 1_000
    for folds in ("hot", "warm"):
        found = forecast(folding(keys, {folds}), FOLDING, Order.SUB_KEY, 10)
        assert found.hottest is not None
        assert {found.hottest.key, folds} == {"hot", "warm"}
        assert found.serial_s == pytest.approx(10)
        assert found.seconds == pytest.approx(10, rel=0.01)


def test_what_the_handler_computes_is_done_one_at_a_time_on_one_core() -> None:
    computes = Setting(Distribution.constant(0.015), Costs(sub_message_s=0.0101), handle_s=0.01)
    even, hot = made_of(with_a_hot_key(2_000, 0.0)), made_of(with_a_hot_key(2_000, 0.9))
    found = forecast(even, computes, Order.SUB_KEY, 1_000)
    assert found.bound == HANDLE
    assert found.seconds == pytest.approx(20.2, rel=0.01)
    assert forecast(even, computes, Order.SUB_KEY, 1).seconds == pytest.approx(30.2, rel=0.01)
    alone = forecast(hot, computes, Order.SUB_KEY, 1_000)
    assert alone.bound == LANE
    assert alone.serial_s < alone.seconds < 1.1 * alone.serial_s, "the time of a call counts once"


def test_in_the_lane_of_a_partition_only_neighbours_fold() -> None:
    found = forecast(folding(["a", "b"] * 1_000, {"a", "b"}), FOLDING, Order.PARTITION, 10)
    assert found.folded == 0
    assert found.bound == LANE
    assert found.serial_s == pytest.approx(20)


def test_sub_keys_that_recur_now_and_then_are_not_folded_for_being_drawn_again() -> None:
    chance, keys, seen, shapes = Random(1), Keys(), set[int](), []
    for n in range(20_000):
        key = chance.randrange(8_000)
        folds = {0} if key in seen else set[int]()
        shapes.append(keys.shape(message_at(n, 0, b"one"), [SubMessage(key)], folds))
        seen.add(key)
    windows = [shapes[at : at + 250] for at in range(0, 20_000, 250)]
    sampled = Workload([Neighbours(0, window, 250 * 10) for window in windows], keys)
    whole = Workload([Neighbours(0, shapes, 20_000)], keys)
    estimated = forecast(sampled, FOLDING, Order.SUB_KEY, 100)
    true = forecast(whole, FOLDING, Order.SUB_KEY, 100)
    assert estimated.folded / 10 == pytest.approx(true.folded, rel=0.1)
    assert estimated.seconds / 10 == pytest.approx(true.seconds, rel=0.03)


def on_spark(workload: Workload, setting: Setting, cores: int, concurrency: int = 10) -> Forecast:
    return forecast_on_spark(
        *(workload, setting, Order.SUB_KEY, concurrency, 10_000),
        cores=Cores(cores, wave_bytes=100_000),
        message_bytes=1_000,
    )


def test_cores_of_spark_share_what_computes_and_not_what_waits() -> None:
    workload = made_of(with_a_hot_key(1_000, 0.0), stand_for=100_000)
    own_s = START_S + FIRST_WAVE_S + 999 * WAVE_S
    computes = Setting(Distribution.constant(1e-5), Costs(message_s=0.01))
    hot = made_of(with_a_hot_key(1_000, 0.5), stand_for=100_000)

    for each, setting, cores, shared in (
        (workload, computes, 1, 1),
        (workload, computes, 4, 4),
        (workload, TEN_MS, 4, 1),
        (hot, TEN_MS, 4, 1),
    ):
        here_s = forecast(each, setting, Order.SUB_KEY, 10, 10_000).seconds
        there_s = on_spark(each, setting, cores).seconds - own_s
        assert there_s == pytest.approx(here_s / shared, rel=0.05)


def test_a_small_backlog_on_spark_is_bound_by_spark() -> None:
    found = on_spark(made_of(with_a_hot_key(100, 0.0)), TEN_MS, 4)

    assert found.bound == SPARK
    assert found.seconds > START_S
