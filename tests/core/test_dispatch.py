"""The dispatcher: what may run beside what, what is refused, and what is left behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.core.order import Order
from drainer.core.parked import KEY_LENGTH, NAMED_MOST
from drainer.core.progress import Counts, Outcome, Progress, ranges_of
from drainer.errors import SplitFailed
from drainer.message import Barrier, Message, Origin, SubMessage

from .messages import (
    deliver,
    message_at,
    one_partition,
    says_finished,
    subs_of,
    take,
    take_all,
    written_and_read,
)


def finish_all(dispatcher: Dispatcher) -> list[str]:
    """Takes and finishes one after the other; tells what was handled."""
    handled = []
    while (sub := dispatcher.take()) is not None:
        handled.append(f"{sub.message.offset}[{sub.index}]")
        dispatcher.finish(sub)
    return handled


def resume(dispatcher: Dispatcher) -> Dispatcher:
    """A dispatcher that goes on from what this one's plan would say."""
    return Dispatcher(
        {
            number: Ledger(0, dispatcher.ledgers[number].end, written_and_read(progress))
            for number, progress in dispatcher.progress().items()
        }
    )


# --- order ---


def test_sub_messages_of_one_message_run_at_once_when_their_sub_keys_differ() -> None:
    dispatcher = one_partition(0, 1)
    deliver(dispatcher, 0, "a", "b", "a")

    assert set(take_all(dispatcher)) == {"0[0]", "0[1]"}


def test_messages_run_at_once_when_their_sub_keys_differ() -> None:
    dispatcher = one_partition(0, 2)
    deliver(dispatcher, 0, "a")
    deliver(dispatcher, 1, "b")

    assert set(take_all(dispatcher)) == {"0[0]", "1[0]"}


def test_one_sub_key_is_handled_in_order_of_offset_and_index() -> None:
    dispatcher = one_partition(0, 2)
    deliver(dispatcher, 0, "a", "a")
    deliver(dispatcher, 1, "a")

    assert finish_all(dispatcher) == ["0[0]", "0[1]", "1[0]"]


def test_several_sub_keys_hold_a_place_in_each_lane() -> None:
    dispatcher = one_partition(0, 4)
    deliver(dispatcher, 0, "a")
    deliver(dispatcher, 1, SubMessage(keys=["a", "b"]))
    deliver(dispatcher, 2, "b")
    deliver(dispatcher, 3, "c")

    taken = take_all(dispatcher)
    assert set(taken) == {"0[0]", "3[0]"}
    dispatcher.finish(taken["0[0]"])
    taken = take_all(dispatcher)
    assert set(taken) == {"1[0]"}
    dispatcher.finish(taken["1[0]"])
    assert set(take_all(dispatcher)) == {"2[0]"}


def test_a_lane_is_a_sub_key_whatever_partition_it_comes_from() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 1), 1: Ledger(0, 1)})
    for partition in (0, 1):
        dispatcher.deliver(message_at(0, partition), subs_of("a"))

    first = take(dispatcher)
    assert dispatcher.take() is None
    assert dispatcher.finish_and_take(first) is not None


def test_a_sub_message_knows_where_it_came_from() -> None:
    dispatcher = one_partition(0, 8)
    deliver(dispatcher, 7, "a", "b")

    subs = take_all(dispatcher).values()

    assert {sub.id for sub in subs} == {"topic-id:0:7:0", "topic-id:0:7:1"}
    assert {str(sub) for sub in subs} == {"orders/0/7[0]", "orders/0/7[1]"}


def key_order_backlog(order: Order) -> Dispatcher:
    """Four messages in two partitions, keys x y | x x, each with two different sub-keys."""
    dispatcher = Dispatcher({0: Ledger(0, 2), 1: Ledger(10, 12)}, order)
    places = [(0, 0, b"x"), (0, 1, b"y"), (1, 10, b"x"), (1, 11, b"x")]
    for number, (partition, offset, key) in enumerate(places):
        dispatcher.deliver(
            message_at(offset, partition, key), subs_of(f"{number}-a", f"{number}-b")
        )
    return dispatcher


@pytest.mark.parametrize(
    ("order", "at_once"),
    [
        (Order.SUB_KEY, {"0[0]", "0[1]", "1[0]", "1[1]", "10[0]", "10[1]", "11[0]", "11[1]"}),
        (Order.KEY, {"0[0]", "1[0]"}),
        (Order.PARTITION, {"0[0]", "10[0]"}),
        (Order.NONE, {"0[0]", "0[1]", "1[0]", "1[1]", "10[0]", "10[1]", "11[0]", "11[1]"}),
    ],
    ids=lambda value: value.value if isinstance(value, Order) else "",
)
def test_the_order_decides_what_runs_at_once(order: Order, at_once: set[str]) -> None:
    assert set(take_all(key_order_backlog(order))) == at_once


@pytest.mark.parametrize("order", Order)
def test_everything_is_handled_in_any_order(order: Order) -> None:
    dispatcher = key_order_backlog(order)

    assert len(finish_all(dispatcher)) == 8
    assert dispatcher.complete


def test_without_order_one_sub_key_runs_many_at_once() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9)}, Order.NONE)
    deliver(dispatcher, 0, "a", "a", SubMessage(keys=["a", "b"]))
    deliver(dispatcher, 1, "a")

    assert len(take_all(dispatcher)) == 4


def test_with_partition_order_several_sub_keys_wait_as_all_do() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9)}, Order.PARTITION)
    deliver(dispatcher, 0, SubMessage(keys=["a", "b"]))
    deliver(dispatcher, 1, SubMessage(keys=["c", "d"]), "e")

    assert finish_all(dispatcher) == ["0[0]", "1[0]", "1[1]"]
    assert len(take_all(dispatcher)) == 0


# --- barriers ---


def test_a_barrier_waits_for_all_before_it_and_all_after_it_wait_for_it() -> None:
    dispatcher = one_partition(0, 3)
    deliver(dispatcher, 0, "a", "b")
    deliver(dispatcher, 1, Barrier())
    deliver(dispatcher, 2, "c")

    before = take_all(dispatcher)
    assert set(before) == {"0[0]", "0[1]"}
    dispatcher.finish(before["0[1]"])
    assert dispatcher.take() is None
    dispatcher.finish(before["0[0]"])
    barrier = take(dispatcher)
    assert isinstance(barrier, Barrier)
    assert dispatcher.take() is None
    dispatcher.finish(barrier)
    assert set(take_all(dispatcher)) == {"2[0]"}


def test_a_barrier_at_the_very_front_runs_at_once() -> None:
    dispatcher = one_partition(0, 1)
    deliver(dispatcher, 0, Barrier(), "a")

    assert set(take_all(dispatcher)) == {"0[0]"}


def test_a_barrier_inside_a_message_parts_what_is_around_it() -> None:
    dispatcher = one_partition(0, 1)
    deliver(dispatcher, 0, "a", "b", Barrier(), "c")

    assert finish_all(dispatcher) == ["0[0]", "0[1]", "0[2]", "0[3]"]
    assert dispatcher.complete


def test_a_barrier_does_not_take_one_in_its_message_that_ran_for_all_before_it() -> None:
    dispatcher = one_partition(0, 1)
    deliver(dispatcher, 0, "a", "b", Barrier())

    taken = take_all(dispatcher)
    dispatcher.finish(taken["0[1]"])

    assert dispatcher.take() is None


def test_barriers_in_a_row_run_one_by_one() -> None:
    dispatcher = one_partition(0, 2)
    deliver(dispatcher, 0, Barrier(), Barrier())
    deliver(dispatcher, 1, Barrier())

    first = take(dispatcher)
    assert dispatcher.take() is None
    second = dispatcher.finish_and_take(first)
    assert second is not None
    assert dispatcher.take() is None
    assert dispatcher.finish_and_take(second) is not None


def test_a_barrier_holds_only_its_own_partition() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9), 1: Ledger(0, 9)})
    dispatcher.deliver(message_at(0, 0), [SubMessage("a")])
    dispatcher.deliver(message_at(1, 0), [Barrier()])
    dispatcher.deliver(message_at(2, 0), [SubMessage("b")])
    dispatcher.deliver(message_at(5, 1), [SubMessage("b"), SubMessage("c")])

    assert set(take_all(dispatcher)) == {"0[0]", "5[0]", "5[1]"}


def test_a_barrier_waits_for_a_message_that_is_dead() -> None:
    dispatcher = one_partition(0, 2)
    deliver(dispatcher, 0, "a")
    deliver(dispatcher, 1, Barrier())

    dispatcher.finish(take(dispatcher), Outcome.DEAD)

    assert isinstance(dispatcher.take(), Barrier)


@pytest.mark.parametrize("order", Order)
def test_a_barrier_is_kept_in_any_order(order: Order) -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9)}, order)
    deliver(dispatcher, 0, "a")
    deliver(dispatcher, 1, Barrier())
    deliver(dispatcher, 2, "b")

    assert finish_all(dispatcher) == ["0[0]", "1[0]", "2[0]"]


def test_a_barrier_does_not_run_twice_after_a_resume() -> None:
    dispatcher = one_partition(0, 1)
    deliver(dispatcher, 0, "a", Barrier(), "b", "c")
    dispatcher.finish(take(dispatcher))
    dispatcher.finish(take(dispatcher))

    resumed = resume(dispatcher)
    deliver(resumed, 0, "a", Barrier(), "b", "c")

    assert set(take_all(resumed)) == {"0[2]", "0[3]"}


def test_a_barrier_still_waits_for_what_is_left_before_it_after_a_resume() -> None:
    dispatcher = one_partition(0, 1)
    deliver(dispatcher, 0, "a", "b", Barrier(), "c")
    dispatcher.finish(take(dispatcher))

    resumed = resume(dispatcher)
    deliver(resumed, 0, "a", "b", Barrier(), "c")

    assert finish_all(resumed) == ["0[1]", "0[2]", "0[3]"]
    assert resumed.complete


# --- what split may give ---


def a_generator(*subs: SubMessage) -> Iterator[SubMessage]:
    yield from subs


@pytest.mark.parametrize("collection", [list, tuple, a_generator])
def test_split_may_give_any_iterable(collection: Callable[..., Iterable[SubMessage]]) -> None:
    subs = subs_of("a", "b")
    dispatcher = one_partition(0, 1)
    made = a_generator(*subs) if collection is a_generator else collection(subs)

    dispatcher.deliver(message_at(0), made)

    assert set(take_all(dispatcher).values()) == set(subs)


def test_no_keys_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="names no lane"):
        SubMessage(keys=())


class Undone(SubMessage):
    """A subclass that forgot to call ``super().__init__``."""

    __slots__ = ()

    def __init__(self) -> None:
        pass


class Called(SubMessage):
    """A subclass that did not."""

    __slots__ = ()


class Uncalled(SubMessage):
    """One that is yielded itself: ``yield Uncalled``. To set a field of it would break the class,
    so that no other test may use it."""

    __slots__ = ()


NOT_SUB_MESSAGES = [
    pytest.param("doc-1", "str", id="str"),
    pytest.param(None, "NoneType", id="None"),
    pytest.param(("doc-1", {}), "tuple", id="pair"),
    pytest.param({"id": "doc-1"}, "dict", id="dict"),
    pytest.param(Uncalled, "type", id="class"),
    pytest.param(SimpleNamespace(key="a", keys=None), "SimpleNamespace", id="look-alike"),
    pytest.param(Undone(), "Undone", id="half-made"),
]


@pytest.mark.parametrize(("wrong", "name"), NOT_SUB_MESSAGES)
@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
def test_what_is_no_sub_message_is_refused_and_nothing_is_taken_in(
    wrong: Any, name: str, before: int
) -> None:
    dispatcher = one_partition(0, 9)

    with pytest.raises(SplitFailed, match=f"{name}.*orders/0/4") as error:
        dispatcher.deliver(message_at(4), [*subs_of("a")[:before], wrong])

    assert error.value.hint
    assert_nothing_taken_in(dispatcher)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(["a"], id="list"),
        pytest.param({"a": 1}, id="dict"),
        pytest.param(("a", ["b"]), id="list-in-tuple"),
        pytest.param(True, id="bool"),
        pytest.param(1.0, id="float"),
        pytest.param(("a", False), id="bool-in-tuple"),
        pytest.param(frozenset("ab"), id="set"),
        pytest.param(Order.KEY, id="enum"),
        pytest.param(10**700, id="long-int"),
    ],
)
@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("order", Order)
def test_a_sub_key_of_another_type_is_refused_and_nothing_is_taken_in(
    wrong: Any, before: int, order: Order
) -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9)}, order)

    with pytest.raises(SplitFailed, match=r"at orders/0/4.* not the same everywhere: ") as error:
        dispatcher.deliver(message_at(4), [*subs_of("a")[:before], SubMessage(wrong)])

    assert error.value.hint
    assert_nothing_taken_in(dispatcher)


def test_a_split_that_is_not_deterministic_is_refused_and_nothing_is_taken_in() -> None:
    dispatcher = one_partition(0, 9)
    deliver(dispatcher, 4, "a", "b")
    dispatcher.finish(take(dispatcher))
    resumed = resume(dispatcher)

    with pytest.raises(SplitFailed, match="orders/0/4"):
        deliver(resumed, 4, "a", "c")

    assert resumed.take() is None
    assert len(resumed.lanes) == 0
    deliver(resumed, 4, "a", "b")
    assert set(take_all(resumed)) == {"4[1]"}


def test_a_split_that_raises_takes_nothing_in() -> None:
    def split() -> Iterator[SubMessage]:
        yield SubMessage("a")
        raise LookupError("no such field")

    dispatcher = one_partition(0, 9)

    with pytest.raises(LookupError):
        dispatcher.deliver(message_at(4), split())

    assert_nothing_taken_in(dispatcher)


def test_a_subclass_of_sub_message_is_one() -> None:
    dispatcher = one_partition(0, 1)
    sub = Called("a")
    dispatcher.deliver(message_at(0), [sub])

    assert dispatcher.take() is sub


def assert_nothing_taken_in(dispatcher: Dispatcher) -> None:
    assert dispatcher.counts() == (Counts(), Counts())
    assert dispatcher.ledgers[0].position == 0
    assert dispatcher.pending_bytes == 0
    assert len(dispatcher.lanes) == 0
    assert dispatcher.take() is None


# --- what is wanted ---


def test_a_fetched_message_past_the_end_is_not_wanted() -> None:
    # A batch of the consumer may reach over the end of the backlog, which was frozen before.
    dispatcher = one_partition(0, 5)

    assert dispatcher.wants(message_at(4))
    assert not dispatcher.wants(message_at(5))


def test_a_message_finished_before_is_not_wanted_and_is_passed() -> None:
    dispatcher = one_partition(0, 3)
    for offset in range(3):
        deliver(dispatcher, offset, f"{offset}")
    taken = take_all(dispatcher)
    for place in ("1[0]", "2[0]"):
        dispatcher.finish(taken[place])

    resumed = resume(dispatcher)
    wanted = []
    for offset in range(3):
        if resumed.wants(message_at(offset)):
            wanted.append(offset)
            deliver(resumed, offset, f"{offset}")
    finish_all(resumed)

    assert wanted == [0]
    assert resumed.complete
    assert resumed.counts()[0] == Counts(3, 3)


def test_nothing_below_what_is_skipped_to_remains() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9), 1: Ledger(0, 9)})
    dispatcher.skip_to(0, 9)
    assert not dispatcher.complete
    dispatcher.skip_to(1, 9)

    assert dispatcher.complete


# --- the account ---


def test_counts_are_those_of_all_partitions() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9), 1: Ledger(0, 9)})
    dispatcher.deliver(message_at(0, 0), subs_of("a", "b"))
    dispatcher.deliver(message_at(0, 1), subs_of("c"))
    dispatcher.finish(take(dispatcher), Outcome.DEAD)

    messages, subs = dispatcher.counts()

    assert messages.read == 2
    assert subs == Counts(3, dead=1, pending=2)


def test_changes_name_only_partitions_in_which_something_finished() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9), 1: Ledger(0, 9)})
    dispatcher.deliver(message_at(0, 0), subs_of("a"))
    dispatcher.deliver(message_at(0, 1), subs_of("b"))
    sub = take(dispatcher)
    dispatcher.finish(sub)

    changes = dispatcher.changes()

    assert set(changes) == {sub.message.partition}
    assert says_finished(changes[sub.message.partition], 0)
    assert dispatcher.changes() == {}
    assert set(dispatcher.progress()) == {0, 1}


def test_pending_bytes_grow_with_the_record_and_with_what_it_splits_into() -> None:
    dispatcher = one_partition(0, 9)
    seen = [dispatcher.pending_bytes]
    for offset, (subs, size) in enumerate([(1, 0), (1, 10_000), (50, 0)]):
        message = message_at(offset)
        message.size = size
        dispatcher.deliver(message, subs_of(*range(subs)))
        seen.append(dispatcher.pending_bytes - sum(seen))

    _, small, large, many = seen
    assert small > 0
    assert large == small + 10_000
    assert many > 10 * small
    finish_all(dispatcher)
    assert dispatcher.pending_bytes == 0


# --- memory ---


class Mark:
    """A payload by which the sub-messages of one test are told from all others."""


def alive(mark: Mark) -> int:
    return sum(type(o) in (SubMessage, Barrier) and o.payload is mark for o in gc.get_objects())


@pytest.mark.parametrize(
    ("order", "split"),
    [
        pytest.param(Order.SUB_KEY, lambda n, m: [SubMessage(n % 7, m)], id="one-sub-key"),
        pytest.param(
            Order.SUB_KEY,
            lambda n, m: [SubMessage(key, m) for key in range(n % 4)],
            id="many-sub-messages",
        ),
        pytest.param(
            Order.SUB_KEY, lambda n, m: [SubMessage(payload=m, keys=[n % 3, "x"])], id="many-keys"
        ),
        pytest.param(
            Order.SUB_KEY, lambda n, m: [SubMessage(n, m), Barrier(m)], id="with-barriers"
        ),
        pytest.param(Order.KEY, lambda n, m: [SubMessage(n, m)], id="key-order"),
        pytest.param(Order.PARTITION, lambda n, m: [SubMessage(n, m)], id="partition-order"),
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


def test_a_sub_message_that_is_kept_does_not_keep_those_behind_it() -> None:
    mark = Mark()
    dispatcher = one_partition(0, 100)
    for offset in range(100):
        dispatcher.deliver(message_at(offset), [SubMessage("a", mark)])
    first = take(dispatcher)
    dispatcher.finish(first)
    finish_all(dispatcher)
    dispatcher.changes()
    gc.collect()

    assert alive(mark) == 1


def test_finished_messages_are_freed_though_the_first_is_stuck() -> None:
    dispatcher = one_partition(0, 1_001)
    deliver(dispatcher, 0, "stuck")
    take(dispatcher)
    gc.collect()
    gc.disable()
    try:
        before = sum(type(o) is Message for o in gc.get_objects())
        for offset in range(1, 1_001):
            deliver(dispatcher, offset, "a", "b")
            finish_all(dispatcher)
        dispatcher.changes()
        after = sum(type(o) is Message for o in gc.get_objects())
    finally:
        gc.enable()

    assert after - before < 200


# --- what stays pending ---


def place(sub: SubMessage) -> str:
    return f"{sub.message.offset}[{sub.index}]"


def test_a_held_sub_message_holds_its_lanes_and_no_worker() -> None:
    dispatcher = one_partition(0, 9)
    deliver(dispatcher, 0, SubMessage(keys=["a", "b"]))
    deliver(dispatcher, 1, "a", "b", "c")
    sub = take(dispatcher)
    dispatcher.hold(sub)
    assert list(take_all(dispatcher)) == ["1[2]"]
    assert (dispatcher.lanes.running, dispatcher.lanes.held) == (1, 1)
    dispatcher.release(sub)
    assert (take(dispatcher), sub.attempt) == (sub, 2)
    dispatcher.finish(sub)
    assert set(take_all(dispatcher)) == {"1[0]", "1[1]"}


def test_a_held_barrier_still_holds_its_partition() -> None:
    dispatcher = one_partition(0, 9)
    deliver(dispatcher, 0, Barrier(), "a")
    barrier = take(dispatcher)
    dispatcher.hold(barrier)
    assert dispatcher.take() is None
    dispatcher.release(barrier)
    assert take(dispatcher) is barrier
    dispatcher.finish(barrier)
    assert list(take_all(dispatcher)) == ["0[1]"]


def test_what_is_parked_stays_pending_with_all_behind_it() -> None:
    dispatcher = one_partition(0, 9)
    deliver(dispatcher, 0, "a", "b", "a")
    first = take_all(dispatcher)["0[0]"]
    dispatcher.park(first)
    deliver(dispatcher, 1, "a")
    deliver(dispatcher, 2, SubMessage(keys=["a", "c"]), "c")
    assert dispatcher.take() is None
    assert dispatcher.lanes.parked == 1
    assert dispatcher.newly_parked() == [], "it is only for this run"
    assert dispatcher.counts()[1].pending == 6
    again = resume(dispatcher)
    deliver(again, 0, "a", "b", "a")
    assert finish_all(again)[0] == "0[0]"


def test_parked_lanes_are_named_with_the_place_that_they_wait_at() -> None:
    dispatcher = one_partition(0, 9)
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


def test_a_partition_that_is_parked_behind_a_barrier_is_named() -> None:
    dispatcher = one_partition(0, 9)
    deliver(dispatcher, 0, Barrier(), "a")
    barrier = take_all(dispatcher)["0[0]"]
    dispatcher.park(barrier, "ValueError")
    (lane,) = dispatcher.parked_lanes.first
    assert (lane.key, lane.place) == ("partition 0", str(barrier))


def test_more_parked_lanes_than_are_named_are_counted() -> None:
    dispatcher = one_partition(0, NAMED_MOST + 9)
    for offset in range(NAMED_MOST + 5):
        deliver(dispatcher, offset, f"{offset}" * KEY_LENGTH)
    for sub in take_all(dispatcher).values():
        dispatcher.park(sub, "ValueError")
    named = dispatcher.parked_lanes
    assert (named.total, len(named.first)) == (NAMED_MOST + 5, NAMED_MOST)
    assert max(len(lane.key) for lane in named.first) == KEY_LENGTH


def test_a_lane_parked_behind_a_dead_letter_is_told_once_and_kept() -> None:
    dispatcher = one_partition(0, 9)
    deliver(dispatcher, 0, SubMessage(keys=["a", b"b"]), "a", "c")
    both = take_all(dispatcher)["0[0]"]
    dispatcher.park_behind(both, Outcome.DEAD)
    assert set(dispatcher.newly_parked()) == {"'a'", "b'b'"} == dispatcher.parked
    assert dispatcher.newly_parked() == []
    assert dispatcher.counts()[1] == Counts(read=3, dead=1, pending=2)

    ledger = Ledger(0, 9, written_and_read(dispatcher.progress()[0]))
    again = Dispatcher({0: ledger}, parked=dispatcher.parked)
    deliver(again, 0, SubMessage(keys=["a", b"b"]), "a", "c")
    deliver(again, 1, "a", "d")
    assert set(take_all(again)) == {"0[2]", "1[1]"}
    assert again.parked == dispatcher.parked
    assert again.newly_parked() == []


def test_a_lane_is_parked_by_the_text_of_its_key_and_its_type() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9)}, parked=["1"])
    dispatcher.deliver(message_at(0), subs_of(1, "1", b"1"))
    assert set(take_all(dispatcher)) == {"0[1]", "0[2]"}


def test_a_dead_barrier_parks_its_partition_for_later_runs_too() -> None:
    def begun(parked: Iterable[str], progress: Progress | None = None) -> Dispatcher:
        return Dispatcher({0: Ledger(0, 9, progress), 1: Ledger(0, 9)}, parked=parked)

    dispatcher = begun(())
    deliver(dispatcher, 0, Barrier(), "a", Barrier(), SubMessage(keys=["b", "c"]))
    dispatcher.park_behind(take(dispatcher), Outcome.DEAD)
    for again in (dispatcher, begun(dispatcher.parked, dispatcher.progress()[0])):
        if again is not dispatcher:
            deliver(again, 0, Barrier(), "a", Barrier(), SubMessage(keys=["b", "c"]))
        deliver(again, 1, "d")
        again.deliver(message_at(0, 1), subs_of("a", "e"))
        assert again.resting == 2, "and nothing of them is kept whole"
        assert {place(sub) for sub in take_all(again).values()} == {"0[0]", "0[1]"}
        assert (again.parked, again.lanes.parked) == ({"partition 0"}, 1)
        assert all(counts.conserved for counts in again.counts())


def test_without_order_nothing_is_behind_a_dead_letter() -> None:
    dispatcher = Dispatcher({0: Ledger(0, 1000)}, Order.NONE)
    for offset in range(1000):
        dispatcher.deliver(message_at(offset), subs_of("a"))
        dispatcher.park_behind(take(dispatcher), Outcome.DEAD)
    assert dispatcher.complete
    assert (dispatcher.parked, len(dispatcher.lanes), dispatcher.lanes.parked) == (set(), 0, 0)


def test_without_order_a_parked_one_takes_no_other_with_it() -> None:
    # A lane's key must not be one that a later sub-message can have again.
    dispatcher = Dispatcher({0: Ledger(0, 1000)}, Order.NONE)
    for offset in range(1000):
        dispatcher.deliver(message_at(offset), subs_of("a"))
        sub = dispatcher.take()
        assert sub is not None
        dispatcher.park(sub)
        del sub
    assert dispatcher.resting == 1000


@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
def test_a_lane_of_another_order_stays_parked_in_a_later_run(order: Order) -> None:
    dispatcher = Dispatcher({0: Ledger(0, 9), 1: Ledger(0, 9)}, order)
    dispatcher.deliver(message_at(0, 0, b"k"), subs_of("a"))
    dispatcher.park_behind(take(dispatcher), Outcome.DEAD)
    ledgers = {n: Ledger(0, 9, found) for n, found in dispatcher.progress().items()}
    again = Dispatcher(ledgers, order, dispatcher.newly_parked())
    again.deliver(message_at(1, 0, b"k"), subs_of("x"))
    assert again.take() is None
    assert again.lanes.parked == 1
    again.deliver(message_at(0, 1, b"other"), subs_of("a"))
    assert take(again).message.partition == 1


def test_memory_of_what_is_parked_is_that_of_its_account() -> None:
    mark = Mark()
    dispatcher = one_partition(0, 1_001)
    dispatcher.deliver(message_at(0), [SubMessage("a", mark)])
    dispatcher.park(take(dispatcher))
    gc.collect()
    gc.disable()
    try:
        for offset in range(1, 1_001):
            dispatcher.deliver(message_at(offset), [SubMessage("a", mark)])
        left = alive(mark)
    finally:
        gc.enable()
    assert left == 0
    assert dispatcher.resting == 1_001


# --- messages that are one sub-message each ---


def of_one_key(offset: int, key: int) -> Message:
    return Message(Origin("orders", "topic-id", 0), offset, b"%d" % key, b"value")


def one_by_one(dispatcher: Dispatcher, messages: Sequence[Message]) -> None:
    for message in messages:
        if dispatcher.wants(message):
            dispatcher.deliver(message, [SubMessage(message.key, message.value)])


@given(
    keys=st.lists(st.integers(0, 5), max_size=40),
    holes=st.sets(st.integers(0, 45)),
    chunk=st.integers(1, 7),
    finished_before=st.sets(st.integers(0, 40)),
    gate_at=st.none() | st.integers(0, 39),
    order=st.sampled_from(Order),
    parked=st.sets(st.integers(0, 5), max_size=2),
    shut=st.booleans(),
    random=st.randoms(use_true_random=False),
)
def test_delivering_whole_messages_at_once_is_delivering_them_one_by_one(
    keys: list[int],
    holes: set[int],
    chunk: int,
    finished_before: set[int],
    gate_at: int | None,
    order: Order,
    parked: set[int],
    shut: bool,
    random: Random,
) -> None:
    earlier = Progress(0, ranges_of(finished_before))
    texts = [repr(b"%d" % key) for key in parked]
    if shut and gate_at is None:
        texts.append("partition 0")
    both = [Dispatcher({0: Ledger(0, 38, earlier)}, order, texts) for _ in range(2)]
    offsets = [offset for offset in range(len(keys)) if offset not in holes]
    running: list[tuple[SubMessage, SubMessage]] = []
    seed = random.random()
    for begin in range(0, len(offsets), chunk):
        for dispatcher, deliver_all in zip(
            both, (Dispatcher.deliver_whole, one_by_one), strict=True
        ):
            some = offsets[begin : begin + chunk]
            deliver_all(dispatcher, [of_one_key(offset, keys[offset]) for offset in some])
            if gate_at in some and dispatcher.wants(message_at(some[-1] + 1)):
                dispatcher.deliver(message_at(some[-1] + 1), [Barrier()])
        chance = Random(seed + begin)
        for _ in range(chance.randint(0, 2 * chunk)):
            if running and chance.random() < 0.5:
                ends: list[Callable[[Dispatcher, SubMessage], None]] = [Dispatcher.finish] * 5
                end = chance.choice([*ends, Dispatcher.park])
                for dispatcher, sub in zip(both, running.pop(0), strict=True):
                    end(dispatcher, sub)
                continue
            at_once, one = (dispatcher.take() for dispatcher in both)
            assert str(at_once) == str(one)
            if at_once is not None and one is not None:
                running.append((at_once, one))
        assert both[0].progress() == both[1].progress()
        assert both[0].counts() == both[1].counts()
        assert both[0].resting == both[1].resting
        assert (both[0].lanes.ready, len(both[0].lanes)) == (
            both[1].lanes.ready,
            len(both[1].lanes),
        )
