"""The laws that need handle: each has a handler that breaks just that, with a small example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer import Handler, SubMessage, testing
from drainer.certify.laws import Part, Trial
from drainer.certify.subject import Subject
from drainer.message import Message
from drainer.testing import LawBroken

from . import handlers

SAMPLE = testing.messages([[f"d{(n * m) % 7}" for m in range(3)] for n in range(20)])
TWO = testing.messages([["a"], ["b"]])


def commutes(handler: Any, sample: Sequence[Message] = SAMPLE, state: Any = handlers.state) -> None:
    testing.check_commutes(handler, sample, state, schedules=5)


def repeats(handler: Any, sample: Sequence[Message] = SAMPLE) -> None:
    testing.check_idempotent(handler, sample, handlers.state, schedules=20)


@pytest.mark.parametrize(
    "handler", [handlers.Documents, handlers.AppendsOnce, handlers.OnThreads, handlers.Raises]
)
def test_a_handler_that_keeps_the_laws_passes(handler: type[Handler]) -> None:
    commutes(handler)
    repeats(handler)


def test_an_effect_outside_the_sub_key_is_found_with_the_two_that_show_it() -> None:
    repeats(handlers.Newest)
    with pytest.raises(LawBroken) as broken:
        commutes(handlers.Newest, TWO)
    assert str(broken.value).splitlines()[0] == (
        "commutes: orders/0/0[0] (sub-key 'a') and then orders/0/1[0] (sub-key 'b') leaves"
        " state['newest'] = 'orders/0/1[0]'; the other way round, state['newest'] ="
        " 'orders/0/0[0]'"
    )


def test_two_that_do_not_commute_are_found_among_hundreds_that_do() -> None:
    class Rare(handlers.Documents):
        async def handle(self, sub: SubMessage) -> None:
            await super().handle(sub)
            if sub.key in ("x", "y"):
                self.documents["z"] = sub.key

    values = [[f"d{n}", f"e{n}"] for n in range(100)]
    values[30], values[60] = ["d", "x"], ["y", "e"]
    found = r"orders/0/30\[1\] \(sub-key 'x'\) and then orders/0/60\[0\] \(sub-key 'y'\) leaves"
    with pytest.raises(LawBroken, match=found) as broken:
        commutes(Rare, testing.messages(values))
    assert "more" not in str(broken.value)


def test_a_read_modify_write_across_an_await_is_found() -> None:
    repeats(handlers.Adds)
    with pytest.raises(LawBroken) as broken:
        commutes(handlers.Adds, testing.messages([["a"], ["b"], ["c"]]))
    assert str(broken.value).startswith(
        "commutes: orders/0/1[0] (sub-key 'b') and orders/0/2[0] (sub-key 'c') at the same time"
        " leave state['total'] = 1; one after the other, state['total'] = 2"
    )


def test_an_append_can_not_be_repeated() -> None:
    commutes(handlers.Appends)
    with pytest.raises(LawBroken) as broken:
        repeats(handlers.Appends, TWO)
    assert str(broken.value).startswith(
        "idempotent: killed after orders/0/1[0] (sub-key 'b'), and resumed from orders/0/1[0]"
        " (sub-key 'b') on, it leaves state['b'] = [1, 1]; without the kill, state['b'] = [1]"
    )


def test_each_may_be_repeatable_and_the_lane_not() -> None:
    """The example of docs/explanation/correctness.md."""
    with pytest.raises(LawBroken, match=r"state\['b'\]") as broken:
        repeats(handlers.Copies, testing.messages(["1", "null", "5", "null", "7", "8"]))
    assert str(broken.value).count("orders/0/") == 3  # two that are repeated, and where from


@pytest.mark.parametrize(
    ("handler", "sample", "broken"),
    [
        (handlers.Fails, SAMPLE, r"handle: .*LookupError: the document is locked at orders/0/3\[0"),
        (handlers.ReturnsACoroutine, SAMPLE, "handle: .*that nothing awaits"),
        (handlers.Stamps, SAMPLE, "state: the same sub-messages in the same order left"),
        (handlers.Raises, SAMPLE[3:4], "split: split failed at orders/0/3"),
    ],
)
def test_what_fails_in_the_serial_order_is_named_and_nothing_else_tried(
    handler: type[Handler], sample: Sequence[Message], broken: str
) -> None:
    for check in (commutes, repeats):
        with pytest.raises(LawBroken, match=broken):
            check(handler, sample)


def test_a_check_that_can_find_nothing_does_not_pass() -> None:
    with pytest.raises(ValueError, match="sees no change"):
        commutes(handlers.Documents, state=lambda _: 1)
    with pytest.raises(ValueError, match="no sub-message"):
        repeats(handlers.Documents, testing.messages([[]]))
    with pytest.raises(ValueError, match="one sub-key"):
        commutes(handlers.Documents, testing.messages([["a"], ["a"]]))


def test_the_state_function_may_be_async() -> None:
    async def state(handler: handlers.Documents) -> handlers.State:
        return handler.documents

    commutes(handlers.Documents, state=state)
    with pytest.raises(LawBroken):
        commutes(handlers.Newest, state=state)


def test_instances_and_functions_that_make_one_will_do() -> None:
    for handler in (handlers.Newest(), lambda: handlers.Newest()):  # noqa: PLW0108 - not a class
        with pytest.raises(LawBroken):
            commutes(handler, TWO)


def test_what_names_the_same_sub_key_is_never_swapped() -> None:
    """Newest breaks the law only if its sub-messages may change places at all."""
    same = testing.messages([["a", "a"], [["a", "b"]], ["b", "b"]])
    barriers = testing.messages([["a", None, "b", None], ["c"]])
    in_each_partition = [testing.message([None, key], partition=n) for n, key in enumerate("ab")]

    for sample in (same, barriers, in_each_partition):
        with pytest.raises(ValueError, match="nothing to compare"):
            commutes(handlers.Newest, sample)
    with pytest.raises(LawBroken):
        commutes(handlers.Newest, testing.messages([["a", None, "b"], ["c"]]))


ONE = st.sampled_from("abc")
OPERATIONS = st.one_of(ONE, ONE, st.none(), st.lists(ONE, min_size=2, max_size=2, unique=True))
VALUES = st.lists(st.lists(OPERATIONS, max_size=3), min_size=1, max_size=5).filter(any)


def depends(one: Part, other: Part) -> bool:
    """Whether the order of two parts of one partition has to be kept."""
    return not (one.keys and other.keys) or bool(set(one.keys) & set(other.keys))


@given(VALUES, st.randoms(), st.integers(1, 4))
def test_schedules_have_everything_once_and_keep_what_depends_on_each_other_in_order(
    values: list[list[object]], chance: Any, width: int
) -> None:
    trial = Trial(Subject(handlers.Sees), testing.messages(values), handlers.state)
    drawn = {part: chance.random() for part in trial.parts}

    (steps,) = trial.schedule(trial.parts, drawn.__getitem__, width)

    order = [part for step in steps for part in step]
    assert set(order) == set(trial.parts)
    assert len(order) == len(trial.parts)
    places = {part: place for place, part in enumerate(trial.parts)}
    for number, step in enumerate(steps):
        later = [part for each in steps[number + 1 :] for part in each]
        for part in step:
            assert not any(depends(part, other) for other in step if other is not part)
            assert all(places[part] < places[other] for other in later if depends(part, other))
