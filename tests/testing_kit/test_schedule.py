"""Schedules are those that a drain may make: all of them, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from drainer import Message, testing
from drainer.certify.schedule import SampleWork, Step, SubIndex, first_free, last_free

from . import handlers

ONE = st.sampled_from("abc")
OPERATIONS = st.one_of(ONE, ONE, st.none(), st.lists(ONE, min_size=2, max_size=2, unique=True))
VALUES = st.lists(st.lists(OPERATIONS, max_size=3), min_size=1, max_size=5)


def work_of(values: Sequence[Sequence[object]]) -> SampleWork:
    sample: list[Message] = testing.messages([json.dumps(value) for value in values])
    return SampleWork.of(sample, handlers.Documents().split)


def keeps_order(work: SampleWork, order: Sequence[SubIndex]) -> bool:
    """Whether all that depend on each other stand as in the serial order."""
    rank = {place: number for number, place in enumerate(work.specs)}
    return all(
        rank[one] < rank[other] or not work.specs[one].depends_on(work.specs[other])
        for number, one in enumerate(order)
        for other in order[number + 1 :]
    )


def flat(steps: Sequence[Step]) -> list[SubIndex]:
    return [place for step in steps for place in step]


@given(VALUES, st.data())
def test_every_schedule_has_everything_once_and_keeps_dependent_ones_in_order(
    values: list[list[object]], data: st.DataObject
) -> None:
    work = work_of(values)

    steps = work.steps(lambda free: (data.draw(st.integers(0, free - 1)),))

    assert sorted(flat(steps)) == sorted(work.specs)
    assert keeps_order(work, flat(steps))


@given(VALUES)
def test_what_is_in_the_handler_at_once_depends_on_nothing_else_in_it(
    values: list[list[object]],
) -> None:
    work = work_of(values)

    for step in work.steps(range):
        specs = [work.specs[place] for place in step]
        for number, one in enumerate(specs):
            assert not any(one.depends_on(other) for other in specs[number + 1 :])


@given(VALUES)
def test_the_earliest_first_is_the_serial_order(values: list[list[object]]) -> None:
    work = work_of(values)

    assert work.steps(first_free) == work.serial


@given(VALUES)
def test_there_is_a_choice_when_another_order_than_the_serial_one_exists(
    values: list[list[object]],
) -> None:
    work = work_of(values)

    assert work.has_choice == (work.steps(last_free) != work.serial)
