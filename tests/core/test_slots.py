"""Slots are counted as they come and go; where tasks that wait bring executors, some wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.spark.slots import HOPE_AGAIN_S, HOPE_S, Slots


@pytest.mark.parametrize(
    ("slots", "handling"),
    [
        (Slots(16), 14),  # one in eight reads ahead
        (Slots(2), 1),
        (Slots(0), 1),
        (Slots(2, wanted=12), 12),
        (Slots(2, wanted=12, grows=True), 2),
        (Slots(20, wanted=12, grows=True), 12),
    ],
)
def test_most_slots_handle_unless_it_is_said_how_many(slots: Slots, handling: int) -> None:
    assert slots.handling == handling


def test_slots_that_come_are_dealt_to_and_those_that_go_are_not() -> None:
    slots = Slots(3)
    assert slots.room(busy=2) == 0
    slots.look(9, busy=2, now_s=1)
    assert slots.room(busy=2) == 6
    slots.look(2, busy=8, now_s=2)
    assert slots.room(busy=8) < 0
    assert slots.trouble is None
    slots.look(0, busy=8, now_s=3)
    assert slots.trouble == "Spark has no executor: the tasks wait for one"
    assert slots.room(busy=0) == 1


def test_tasks_wait_for_executors_until_none_has_come_for_long() -> None:
    slots = Slots(4, grows=True)
    assert slots.room(busy=3) == 5, "as many as there are may wait"
    slots.look(4, busy=8, now_s=10)
    slots.look(4, busy=3, now_s=11 + HOPE_S)
    assert slots.room(busy=3) == 5, "none waited"
    slots.look(4, busy=8, now_s=11 + HOPE_S)
    assert slots.room(busy=1) == 2, "no more than have a slot"
    slots.look(4, busy=1, now_s=11 + HOPE_AGAIN_S)
    assert slots.room(busy=3) == 5, "others may have left executors meanwhile"
    slots.look(4, busy=8, now_s=12 + HOPE_AGAIN_S)
    slots.look(4, busy=8, now_s=13 + HOPE_AGAIN_S + HOPE_S)
    slots.look(5, busy=8, now_s=14 + HOPE_AGAIN_S + HOPE_S)
    assert slots.room(busy=8) == 2, "one came"


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40), st.floats(0, 200)), max_size=20),
)
def test_no_more_tasks_than_were_asked_for(
    wanted: int, looks: list[tuple[int, int, float]]
) -> None:
    slots, now_s = Slots(1, wanted, grows=True), 0.0
    for count, busy, later_s in looks:
        now_s += later_s
        slots.look(count, busy, now_s)
        assert busy + max(0, slots.room(busy)) <= max(wanted, busy)
        assert slots.room(0) >= 1, "there is always one that wants a slot"
