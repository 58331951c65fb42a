"""The dispatcher: what is refused, freed and left behind; test_laws.py has the order."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import counts, progress_at
from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.message import (
    Barrier,
    KeySums,
    Message,
    Origin,
    ShippedMessage,
    SubMessage,
)
from drainer.model.account import KEY_LENGTH, NAMED_MOST
from drainer.model.claims import Shard, Stream
from drainer.model.order import Order
from drainer.model.progress import ENDS, Outcome
from drainer.model.ranges import ranges_of

from .messages import (
    deliver,
    finished_subs,
    message_at,
    one_partition,
    subs_of,
    take_all,
    written_and_read,
)


def finish_all(dispatcher: Dispatcher) -> list[str]:
    """Take and finish one after the other; return what was handled."""
    handled = []
    while (sub := dispatcher.take()) is not None:
        handled.append(f"{sub.message.offset}[{sub.index}]")
        dispatcher.finish(sub)
    return handled


# --- what split may give ---


class Undone(SubMessage):
    """A subclass that forgot to call ``super().__init__``."""

    __slots__ = ()

    def __init__(self) -> None:
        pass


class Uncalled(SubMessage):
    """One that is yielded itself: ``yield Uncalled``. To set a field of it would break the class,
    so that no other test may use it."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        pytest.param("doc-1", "gave str instead", id="str"),
        pytest.param(Uncalled, "gave the type Uncalled instead", id="class"),
        pytest.param(SimpleNamespace(key="a", keys=None), "SimpleNamespace", id="look-alike"),
        pytest.param(Undone(), "Undone", id="half-made"),
        pytest.param(SubMessage(("a", ["b"])), "an unstable type: list", id="list-in-tuple"),
        pytest.param(SubMessage(True), "an unstable type: bool", id="bool"),
        pytest.param(SubMessage(1.0), "an unstable type: float", id="float"),
        pytest.param(SubMessage(10**700), "an int that is too long", id="long-int"),
    ],
)
def test_what_is_no_sub_message_or_sub_key_makes_one_unit_of_the_whole_message(
    wrong: Any, reason: str
) -> None:
    dispatcher = one_partition(9)

    dispatcher.deliver(message_at(4), [*subs_of("a"), wrong])

    assert len(dispatcher.lanes) == 0
    assert dispatcher.take() is None
    unit = dispatcher.next_rejected()
    assert unit is not None
    assert re.search(f"orders/0/4.*{reason}|{reason}.*orders/0/4", unit.why)
    assert dispatcher.counts() == (counts(pending=1), counts(pending=1))


# --- memory ---


class Mark:
    """A payload that only the sub-messages of one test have."""


def alive(mark: Mark) -> int:
    return sum(type(o) in (SubMessage, Barrier) and o.payload is mark for o in gc.get_objects())


@pytest.mark.parametrize(
    ("order", "split"),
    [
        pytest.param(Order.SUB_KEY, lambda n, m: [SubMessage(n % 7, m)], id="one-sub-key"),
        pytest.param(
            Order.SUB_KEY, lambda n, m: [SubMessage(payload=m, keys=[n % 3, "x"])], id="many-keys"
        ),
        pytest.param(
            Order.SUB_KEY, lambda n, m: [SubMessage(n, m), Barrier(m)], id="with-barriers"
        ),
        pytest.param(Order.NONE, lambda n, m: [SubMessage(n, m)], id="no-order"),
    ],
)
def test_finished_sub_messages_are_freed_without_the_garbage_collector(
    order: Order, split: Callable[[int, Mark], list[SubMessage]]
) -> None:
    mark = Mark()
    dispatcher = Dispatcher({0: Ledger(0, 500)}, order)
    gc.collect()
    gc.disable()
    try:
        for offset in range(500):
            dispatcher.deliver(message_at(offset), split(offset, mark))
        delivered = alive(mark)
        finish_all(dispatcher)
        dispatcher.changes()
        left = alive(mark)
    finally:
        gc.enable()

    assert dispatcher.complete
    assert delivered >= 500
    assert left == 0


# --- what stays pending ---


def test_parked_lanes_are_named_with_the_place_that_they_wait_at() -> None:
    dispatcher = one_partition(9)
    deliver(dispatcher, 0, "a", SubMessage(keys=["b", "c"]), "a")
    taken = take_all(dispatcher)
    dispatcher.park(taken["0[0]"], "ValueError: no good")
    dispatcher.park_behind(taken["0[1]"], Outcome.DEAD, "KeyError")
    named = dispatcher.parked_lanes
    assert named.total == 3
    assert [(lane.key, lane.place, lane.error) for lane in named.first] == [
        ("'a'", str(taken["0[0]"]), "ValueError: no good"),
        ("'b'", str(taken["0[1]"]), "KeyError"),
        ("'c'", str(taken["0[1]"]), "KeyError"),
    ]
    again = Dispatcher({0: Ledger(0, 9)}, parked=dispatcher.parked, named=named)
    assert again.parked_lanes.first == named.first[1:], "the lane of a is tried again"


def test_more_parked_lanes_than_are_named_are_counted() -> None:
    dispatcher = one_partition(NAMED_MOST + 9)
    for offset in range(NAMED_MOST + 5):
        deliver(dispatcher, offset, f"{offset}" * KEY_LENGTH)
    for sub in take_all(dispatcher).values():
        dispatcher.park(sub, "ValueError")
    named = dispatcher.parked_lanes
    assert (named.total, len(named.first)) == (NAMED_MOST + 5, NAMED_MOST)
    assert max(len(lane.key) for lane in named.first) == KEY_LENGTH


def test_a_lane_is_parked_by_the_text_of_its_key_and_its_type() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9)}, parked=["1"])
    dispatcher.deliver(message_at(0), subs_of(1, "1", b"1"))
    assert set(take_all(dispatcher)) == {"0[1]", "0[2]"}


# --- messages that are one sub-message each ---


def one_by_one(dispatcher: Dispatcher, messages: Sequence[Message]) -> None:
    for message in messages:
        if dispatcher.wants(message):
            dispatcher.deliver(message, [SubMessage(message.key, message.value)])


@given(
    keys=st.lists(st.integers(0, 5), max_size=40),
    holes=st.sets(st.integers(0, 45)),
    finished_before=st.sets(st.integers(0, 40)),
    gate_at=st.none() | st.integers(0, 39),
    order=st.sampled_from(Order),
    parked=st.sets(st.integers(0, 5), max_size=2),
    random=st.randoms(use_true_random=False),
)
def test_delivering_whole_messages_at_once_is_delivering_them_one_by_one(
    keys: list[int],
    holes: set[int],
    finished_before: set[int],
    gate_at: int | None,
    order: Order,
    parked: set[int],
    random: Random,
) -> None:
    earlier = progress_at(0, finished=ranges_of(finished_before))
    texts = [repr(b"%d" % key) for key in parked]
    chunk = random.randint(1, 7)
    if random.random() < 0.5 and gate_at is None:
        texts.append("partition 0")
    pair = [Dispatcher({0: Ledger(0, 38, earlier)}, order, texts) for _ in range(2)]
    offsets = [offset for offset in range(len(keys)) if offset not in holes]
    running: list[tuple[SubMessage, SubMessage]] = []
    seed = random.random()
    for begin in range(0, len(offsets), chunk):
        for dispatcher, deliver_all in zip(
            pair, (Dispatcher.deliver_whole, one_by_one), strict=True
        ):
            some = offsets[begin : begin + chunk]
            deliver_all(dispatcher, [message_at(o, key=b"%d" % keys[o]) for o in some])
            if gate_at in some and dispatcher.wants(message_at(some[-1] + 1)):
                dispatcher.deliver(message_at(some[-1] + 1), [Barrier()])
        chance = Random(seed + begin)
        for _ in range(chance.randint(0, 2 * chunk)):
            if running and chance.random() < 0.5:
                ends: list[Callable[[Dispatcher, SubMessage], None]] = [Dispatcher.finish] * 5
                end = chance.choice([*ends, Dispatcher.park])
                for dispatcher, sub in zip(pair, running.pop(0), strict=True):
                    end(dispatcher, sub)
                continue
            at_once, one = (dispatcher.take() for dispatcher in pair)
            assert str(at_once) == str(one)
            if at_once is not None and one is not None:
                running.append((at_once, one))
        assert pair[0].progress() == pair[1].progress()
        assert pair[0].counts() == pair[1].counts()
        assert pair[0].left_pending == pair[1].left_pending
        assert pair[0].lanes.ready == pair[1].lanes.ready
        assert len(pair[0].lanes) == len(pair[1].lanes)


# --- many ledgers ---


def part_of(offset: int, shard: int, indexes: Sequence[int], total: int) -> ShippedMessage:
    """Part of a message for one shard; the message split into so many sub-messages."""
    origin = Origin("orders", "topic-id", 0, Stream(0, Shard(shard, 40)))
    part = ShippedMessage(origin, offset, b"key", None, (), KeySums(total, 7))
    part.subs = subs = []
    for index in indexes:
        sub = SubMessage(shard)
        sub.message, sub.index = part, index
        subs.append(sub)
    return part


@settings(max_examples=25)
@given(
    shards=st.integers(1, 40),
    messages=st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=8), max_size=12),
    random=st.randoms(use_true_random=False),
)
def test_all_streams_together_are_what_each_of_them_is(
    shards: int, messages: list[list[int]], random: Random
) -> None:
    ledgers: dict[int, Ledger] = {
        Stream(0, Shard(shard, 40)): Ledger(0, len(messages)) for shard in range(shards)
    }
    dispatcher = Dispatcher(ledgers)
    reported = {number: progress_at(0) for number in ledgers}
    parts: list[set[int]] = [set() for _ in messages]  # by offset, which streams have one
    running: list[SubMessage] = []

    def step() -> None:
        if (sub := dispatcher.take()) is not None:
            running.append(sub)
        if running and random.random() < 0.7:
            sub = running.pop(random.randrange(len(running)))
            if random.random() < 0.1:
                dispatcher.park(sub)
            else:
                dispatcher.finish(sub, random.choice((Outcome.DONE, *ENDS)))
        if random.random() < 0.3:
            for number, changes in dispatcher.changes().items():
                reported[number] = reported[number].merge(written_and_read(changes))
        assert dispatcher.complete == all(each.complete for each in ledgers.values())
        assert dispatcher.delivered == all(each.delivered for each in ledgers.values())
        assert dispatcher.pending_bytes == sum(each.pending_bytes for each in ledgers.values())
        assert dispatcher.tally() == dispatcher.counts()
        assert dispatcher.tally()[1].read == sum(each.subs_read for each in ledgers.values())

    for offset, hashes in enumerate(messages):
        of_shard: dict[int, list[int]] = {}
        for index, place in enumerate(hashes):
            of_shard.setdefault(place % shards, []).append(index)
        for shard, indexes in of_shard.items():
            parts[offset].add(Stream(0, Shard(shard, 40)))
            dispatcher.deliver_parts([part_of(offset, shard, indexes, len(hashes))])
            step()
    for number in random.sample(sorted(ledgers), shards):
        dispatcher.skip_to(number, len(messages))
        step()
    while running or dispatcher.ready:
        step()
    step()
    for number, changes in dispatcher.changes().items():
        reported[number] = reported[number].merge(written_and_read(changes))
    for number, progress in dispatcher.progress().items():
        assert (
            reported[number].sub_messages.without_pending()
            == progress.sub_messages.without_pending()
        )
        for offset, hashes in enumerate(messages):
            known, found = (
                finished_subs(each, offset, len(hashes)) for each in (reported[number], progress)
            )
            assert known <= found
            assert number not in parts[offset] or known == found, "reported what had finished"
    assert dispatcher.complete == (not dispatcher.left_pending)
