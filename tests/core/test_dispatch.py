"""The dispatcher: what is refused, freed and left behind; test_laws.py has the order."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from builders import counts
from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import CRITICAL_SHARE_READ, CRITICAL_SHARE_UNREAD
from drainer.core.ledger import Ledger
from drainer.message import Barrier, KeySums, SubMessage
from drainer.model.account import KEY_LENGTH, NAMED_MOST
from drainer.model.order import Order
from drainer.model.progress import Outcome

from .messages import deliver, message_at, one_partition, subs_of, take_all


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


# --- what the lanes are told ---


def test_a_lane_has_to_be_longer_to_be_critical_once_all_is_read() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 2), 1: Ledger(0, 5)})
    shares = [dispatcher.lanes.critical_share]
    deliver(dispatcher, 1, "a")
    for partition, position in ((0, 2), (1, 4), (1, 5)):
        dispatcher.skip_to(partition, position)
        shares.append(dispatcher.lanes.critical_share)

    assert shares == [*[CRITICAL_SHARE_UNREAD] * 3, CRITICAL_SHARE_READ]


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


def test_no_lane_is_parked_behind_what_has_no_sub_key() -> None:
    dispatcher = one_partition(9)
    deliver(dispatcher, 0, SubMessage(None), SubMessage(keys=(None,)))
    taken = take_all(dispatcher)
    dispatcher.park_behind(taken["0[0]"], Outcome.DEAD, "KeyError")
    assert (dispatcher.parked, len(dispatcher.lanes)) == (set(), 1)
    assert not dispatcher.leaves_something
    dispatcher.park_behind(taken["0[1]"], Outcome.DEAD, "KeyError")
    assert dispatcher.parked == {"None"}


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


# --- what holds a watermark back ---


def test_a_message_waits_in_the_lane_in_which_most_come_before_it() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 100), 1: Ledger(0, 100)})
    dispatcher.deliver(message_at(0, 1), subs_of(*["d-root"] * 3))
    deliver(dispatcher, 5, "a", "d-root", "d-root", "b")
    deliver(dispatcher, 6, *["d-root"] * 9)
    assert dispatcher.holders == {0: 5, 1: 0}
    assert dispatcher.held_back(0) == ("d-root", 3 + 1, False)
    first = dispatcher.lanes.take()
    assert first is not None
    assert first.message.partition == 1
    assert dispatcher.held_back(0) == ("d-root", 3 + 1, False), "what runs comes before it, too"
    dispatcher.finish(first)
    assert dispatcher.held_back(0) == ("d-root", 2 + 1, False)
    assert dispatcher.held_back(1) == ("d-root", 1, False)


def test_the_last_one_that_runs_has_none_before_it() -> None:
    dispatcher = one_partition(100)
    deliver(dispatcher, 5, "a", "b")
    deliver(dispatcher, 6, "b", "b")
    taken = take_all(dispatcher)
    dispatcher.finish(taken["5[0]"])
    assert dispatcher.held_back(0) == ("b", 0, False)
    dispatcher.delay(taken["5[1]"])
    assert dispatcher.held_back(0) == ("b", 0, False), "it waits for its next attempt"
    dispatcher.resume(taken["5[1]"])
    dispatcher.park(taken["5[1]"])
    assert dispatcher.held_back(0) is None, "a later run handles it"


def test_one_with_nothing_before_it_that_has_not_begun_only_waits_for_a_worker() -> None:
    dispatcher = one_partition(100)
    deliver(dispatcher, 5, "a", "b")
    deliver(dispatcher, 6, "b", "c")
    assert dispatcher.held_back(0) == ("a", 0, True)
    first = dispatcher.lanes.take()
    assert first is not None
    assert dispatcher.held_back(0) == (first.key, 0, False), "what runs holds it back"
    dispatcher.finish(first)
    assert dispatcher.held_back(0) == ("b", 0, True)


def test_one_with_several_sub_keys_is_found_in_the_lane_with_most_before_it() -> None:
    dispatcher = one_partition(100)
    dispatcher.deliver(message_at(5), [*subs_of(*"aab"), SubMessage(keys=("b", "a"))])
    assert dispatcher.held_back(0) == ("a", 2, False)


@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
def test_in_other_orders_a_lane_is_found_while_something_waits_in_it(order: Order) -> None:
    dispatcher = Dispatcher({0: Ledger(0, 100)}, order)
    dispatcher.deliver(message_at(5, key=b"k"), subs_of("a", "b"))
    assert dispatcher.held_back(0) == (b"k" if order is Order.KEY else 0, 1, False)


@pytest.mark.parametrize("message_keys", [1, 10])
def test_where_keys_are_not_known_the_lane_is_found_by_what_waits(message_keys: int) -> None:
    """A Spark task has only their checksum."""
    dispatcher = one_partition(100)
    message = deliver(dispatcher, 5, *["d-root"] * (message_keys + 1), "b")
    deliver(dispatcher, 6, "b", "c")
    message.sub_keys = KeySums(message_keys + 2, 0)
    assert dispatcher.held_back(0) == ("d-root", message_keys, False)
