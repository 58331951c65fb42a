"""The bounds of a drain: the real lanes, played on a virtual clock, come close to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from random import Random

import pytest

from drainer.core.batches import Batching, BatchOf
from drainer.insight.bounds import (
    BARRIERS,
    CONCURRENCY,
    CPU,
    HANDLE,
    LANE,
    RATE,
    READ_CAP,
    WRITE_CAP,
    Costs,
    Setting,
    forecast,
)
from drainer.insight.distribution import Distribution
from drainer.insight.workload import Keys, Neighbours, Shape, Workload
from drainer.message import Barrier, Message, SubMessage
from drainer.model.order import Order
from scenarios.hot_row.clock import Played, play

from .messages import message_at

CONSTANT, TWO_MODES, LOG_NORMAL = map(
    Distribution.parse, ("10ms", "p95=5ms,p95.01=100ms", "p50=8ms,p99=120ms")
)
TEN_MS = Setting(CONSTANT)
FOLDING = replace(TEN_MS, batching=Batching(lambda earlier, later: later))
COUNT = 6_000

Split = tuple[Message, list[SubMessage]]


def with_a_hot_key(
    share: float = 0.0,
    keys: int = 10**9,
    *,
    every: int = 0,
    partitions: int = 1,
    number: int = COUNT,
) -> Iterator[Split]:
    """One sub-message a message, in partitions that take turns; each n-th one is a barrier."""
    chance = Random(1)
    for n in range(number):
        offset, partition = divmod(n, partitions)
        key = "hot" if chance.random() < share else chance.randrange(keys)
        barrier = every and offset % every == every - 1
        yield message_at(offset, partition, b"one"), [Barrier() if barrier else SubMessage(key)]


def workload_of(messages: Iterator[Split], times: int = 1, parts: int = 1) -> Workload:
    """A workload that stands for so many times the messages; in parts of each partition."""
    keys, shapes = Keys(), dict[int, list[Shape]]()
    for message, subs in messages:
        shapes.setdefault(message.partition, []).append(keys.shape(message, subs))
    return Workload(
        [
            Neighbours(partition, each[part::parts], times * len(each[part::parts]))
            for partition, each in shapes.items()
            for part in range(parts)
        ],
        keys,
    )


def played(
    messages: Iterator[Split], concurrency: int, latency: Distribution, **how: object
) -> Played:
    """Play a drain whose calls have the latency, each part of it with its due share of them."""
    ranks = [(number + 0.5) / 10_007 for number in range(10_007)]
    Random(1).shuffle(ranks)
    latency_s = map(latency.quantile, cycle(ranks)).__next__
    return play(messages, concurrency, latency_s, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("latency", "concurrency"), [(CONSTANT, 10), (TWO_MODES, 10), (TWO_MODES, 50), (LOG_NORMAL, 50)]
)
def test_without_barriers_no_drain_is_faster_and_the_real_lanes_take_hardly_longer(
    latency: Distribution, concurrency: int
) -> None:
    setting = Setting(latency)
    for share in (0.0, 0.004, 0.2):
        found = forecast(workload_of(with_a_hot_key(share)), setting, Order.SUB_KEY, concurrency)
        took_s = played(with_a_hot_key(share), concurrency, latency).seconds
        assert found.bound == (LANE if share * concurrency > 1 else CONCURRENCY)
        # In the end the last calls run alone, and those of a lane of some hundred are by chance.
        assert 0.9 * found.seconds < took_s
        assert took_s < 1.1 * found.seconds + latency.overhang_s(concurrency)


@pytest.mark.parametrize(
    ("latency", "concurrency"), [(CONSTANT, 10), (TWO_MODES, 100), (LOG_NORMAL, 100)]
)
@pytest.mark.parametrize("every", [50, 330, 1_250])
def test_with_barriers_it_is_near(latency: Distribution, concurrency: int, every: int) -> None:
    workload = workload_of(with_a_hot_key(every=every))
    found = forecast(workload, Setting(latency), Order.SUB_KEY, concurrency)
    took_s = played(with_a_hot_key(every=every), concurrency, latency).seconds
    assert 0.8 < found.seconds / took_s < 1.2


def test_partitions_fill_the_gaps_that_barriers_leave_in_others() -> None:
    for partitions in (4, 16):
        made = with_a_hot_key(every=100, partitions=partitions)
        found = forecast(workload_of(made), Setting(TWO_MODES), Order.SUB_KEY, 100)
        took_s = played(with_a_hot_key(every=100, partitions=partitions), 100, TWO_MODES).seconds
        assert 0.8 < found.seconds / took_s < 1.05


def test_a_hot_key_keeps_its_share_and_rare_ones_stay_distinct() -> None:
    sampled = workload_of(with_a_hot_key(0.05, number=5_000), times=200, parts=10)
    found = sampled.hottest(Order.SUB_KEY)
    assert found is not None
    assert found.key == "hot"
    assert found.sub_messages == pytest.approx(50_000, rel=0.1)
    lanes = sampled.lanes(Order.SUB_KEY)
    assert len(lanes) == 2
    assert lanes[1.0, 0.0] == pytest.approx(950_000, rel=0.01)


def test_it_names_the_limit() -> None:
    workload = workload_of(with_a_hot_key(number=2_000))
    barriers = workload_of(with_a_hot_key(number=2_000, every=100))
    slow = Setting(CONSTANT, Costs(sub_message_s=0.01))
    assert forecast(workload, TEN_MS, Order.SUB_KEY, 10).bound == CONCURRENCY
    assert forecast(workload, TEN_MS, Order.KEY, 10).bound == LANE
    assert forecast(workload, slow, Order.SUB_KEY, 1000).bound == CPU
    assert forecast(workload, Setting(CONSTANT, rate=50.0), Order.SUB_KEY, 1000).bound == RATE
    assert forecast(barriers, TEN_MS, Order.SUB_KEY, 100).bound == BARRIERS
    assert forecast(barriers, TEN_MS, Order.PARTITION, 100).bound == LANE


def test_it_takes_as_long_as_reading_or_writing_at_the_cap() -> None:
    subs = [SubMessage(n) for n in range(400)]
    made = ((message_at(n, 0, b"k"), subs[2 * n : 2 * n + 2]) for n in range(200))
    workload = workload_of(made, times=100)
    for setting, bound, messages in (
        (replace(TEN_MS, read_cap=1_000.0), READ_CAP, 20_000),
        (replace(TEN_MS, read_cap=10_000.0, write_cap=1_000.0), WRITE_CAP, 40_000),
    ):
        found = forecast(workload, setting, Order.SUB_KEY, 1_000)
        assert found.bound == bound
        assert found.seconds == pytest.approx(messages / 1_000, rel=0.01)


def test_what_the_handler_computes_is_done_one_at_a_time_on_one_core() -> None:
    computes = Setting(Distribution.constant(0.015), Costs(sub_message_s=0.0101), handle_s=0.01)
    even, hot = (workload_of(with_a_hot_key(share, number=2_000)) for share in (0.0, 0.9))
    found = forecast(even, computes, Order.SUB_KEY, 1_000)
    assert found.bound == HANDLE
    assert found.seconds == pytest.approx(20.2, rel=0.01)
    assert forecast(even, computes, Order.SUB_KEY, 1).seconds == pytest.approx(30, rel=0.01)
    alone = forecast(hot, computes, Order.SUB_KEY, 1_000)
    assert (alone.bound, alone.seconds) == (LANE, alone.serial_s)


def folding(keys_of: Sequence[object], folds: set[object]) -> Workload:
    """A sub-message of each sub-key; those of some are folded into the one before on theirs."""
    keys, seen, shapes = Keys(), set[object](), []
    for n, key in enumerate(keys_of):
        found = {0} if key in folds and key in seen else set[int]()
        shapes.append(keys.shape(message_at(n, 0, b"one"), [SubMessage(key)], found))
        seen.add(key)
    return Workload([Neighbours(0, shapes, len(shapes))], keys)


def test_a_hot_row_that_is_folded_is_no_serial_bound() -> None:
    apart = forecast(folding(["hot"] * 10_000, set()), FOLDING, Order.SUB_KEY, 10)
    folded = forecast(folding(["hot"] * 10_000, {"hot"}), FOLDING, Order.SUB_KEY, 10)
    assert apart.serial_s == pytest.approx(100.0)
    assert apart.seconds >= 100
    assert apart.folded == 0
    assert folded.serial_s == pytest.approx(0.1)  # ten calls of a thousand each
    assert folded.seconds < 0.3
    assert folded.folded + folded.calls == pytest.approx(10_000, abs=2)


def test_which_sub_key_folds_makes_the_difference() -> None:
    keys = ["hot", "warm"] * 1_000
    for folds in ("hot", "warm"):
        found = forecast(folding(keys, {folds}), FOLDING, Order.SUB_KEY, 10)
        assert found.hottest is not None
        assert {found.hottest.key, folds} == {"hot", "warm"}
        assert found.seconds == found.serial_s == pytest.approx(10)


def test_in_the_lane_of_a_partition_only_neighbours_fold() -> None:
    found = forecast(folding(["a", "b"] * 1_000, {"a", "b"}), FOLDING, Order.PARTITION, 10)
    assert (found.bound, found.folded) == (LANE, 0)
    assert found.serial_s == pytest.approx(20)


@pytest.mark.parametrize(
    ("concurrency", "share", "keys"),
    [(10, 0.0, 500), (100, 0.38, 500), (10, 0.38, 2_500), (100, 0.0, 2_500)],
)
def test_as_many_fold_as_gather_in_the_lanes(concurrency: int, share: float, keys: int) -> None:
    made = [subs[0].key for _, subs in with_a_hot_key(share, keys, number=10_000)]
    found = forecast(folding(made, set(made)), FOLDING, Order.SUB_KEY, concurrency)
    calls = played(
        with_a_hot_key(share, keys, number=10_000),
        concurrency,
        CONSTANT,
        batching=FOLDING.batching,
    ).calls
    assert 0.8 < found.calls / calls < 1.2


def test_a_call_takes_the_heads_of_many_lanes_or_a_run_of_one() -> None:
    even, hot = (workload_of(with_a_hot_key(share, number=4_000)) for share in (0.0, 1.0))
    lanes = replace(TEN_MS, batching=Batching(most=10))
    run = replace(TEN_MS, batching=Batching(most=10, of=BatchOf.LANE))
    for workload, setting, calls in ((even, lanes, 400), (even, run, 4_000), (hot, run, 400)):
        found = forecast(workload, setting, Order.SUB_KEY, 2)
        assert found.calls == pytest.approx(calls)
    assert forecast(hot, lanes, Order.SUB_KEY, 2).serial_s == pytest.approx(40)
    costs = replace(run, costs=Costs(sub_message_s=0.5, together_s=0.125))
    assert forecast(hot, costs, Order.SUB_KEY, 2).bounds[CPU] == 400 * 0.5 + 3_600 * 0.125
