"""The laws that need handle: each has a handler that breaks just that, with a small example."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable

import pytest

from drainer import Handler, SubMessage, testing
from drainer.message import Message
from drainer.testing import Certificate, Effort, Finding, HandlerDoubt, LawBroken, Level

from . import handlers

pytestmark = pytest.mark.usefixtures("no_other_process")

SAMPLE = testing.messages([[f"d{(n * m) % 7}" for m in range(3)] for n in range(20)])
QUICK = Effort(examples=15)

Check = Callable[..., None]


def certified(handler: object, sample: list[Message] = SAMPLE) -> Certificate:
    return testing.certify(handler, sample, handlers.state, effort=QUICK)


def handled(certificate: Certificate) -> dict[str, Finding]:
    checks = ("handle", "state", "commutes", "overlaps", "idempotent")
    return {f.check: f for f in certificate.findings if f.check in checks}


def broken(handler: object, sample: list[Message] = SAMPLE) -> dict[str, str]:
    """The laws that need handle and are broken, with the text of each."""
    found = handled(certified(handler, sample))
    return {f.check: f.text for f in found.values() if f.level is Level.BAD}


@pytest.mark.parametrize("handler", [handlers.Documents, handlers.AppendsOnce])
def test_a_handler_that_keeps_the_laws_passes(handler: type[Handler]) -> None:
    certificate = certified(handler)

    assert {finding.level for finding in certificate.findings} == {Level.OK}
    assert not certificate.broken
    assert certificate.handled > 500
    testing.check_commutes(handler, SAMPLE, handlers.state, effort=QUICK)
    testing.check_idempotent(handler, SAMPLE, handlers.state, effort=QUICK)


def test_an_effect_outside_the_sub_key_is_found_with_the_two_that_show_it() -> None:
    sample = testing.messages([["a"], ["b"]])

    assert broken(handlers.Newest, sample) == {
        "commutes": "orders/0/0[0] (sub-key 'a') and then orders/0/1[0] (sub-key 'b') leaves"
        " state['newest'] = 'orders/0/1[0]'; the other way round, state['newest'] ="
        " 'orders/0/0[0]'"
    }


def test_a_read_modify_write_across_an_await_is_found_by_overlaps_alone() -> None:
    sample = testing.messages([["a"], ["b"], ["c"]])

    assert broken(handlers.Adds, sample) == {
        "overlaps": "orders/0/1[0] (sub-key 'b') and orders/0/2[0] (sub-key 'c') at the same time"
        " leave state['total'] = 1; one after the other, state['total'] = 2"
    }
    with pytest.raises(LawBroken, match="at the same time"):
        testing.check_commutes(handlers.Adds, sample, handlers.state, effort=QUICK)


def test_an_append_can_not_be_repeated() -> None:
    found = broken(handlers.Appends, testing.messages([["a"], ["b"]]))

    assert set(found) == {"idempotent"}
    assert found["idempotent"].startswith("killed after orders/0/1[0] (sub-key 'b'), and resumed")
    assert "[1, 1]" in found["idempotent"]
    with pytest.raises(LawBroken, match="and resumed from"):
        testing.check_idempotent(handlers.Appends, SAMPLE, handlers.state, effort=QUICK)


def test_each_may_be_repeatable_and_the_lane_not() -> None:
    """The example of docs/explanation/correctness.md."""
    found = broken(handlers.Copies, testing.messages(["1", "null", "5", "null", "7", "8"]))

    assert set(found) == {"idempotent"}
    assert found["idempotent"].count("orders/0/") == 3  # two that are repeated, and where from
    assert "state['b']" in found["idempotent"]


def test_a_handler_that_raises_is_named_with_the_place_and_nothing_else_is_checked() -> None:
    found = handled(certified(handlers.Fails))

    assert found["handle"].level is Level.BAD
    assert "LookupError: the document is locked at orders/0/3[0]" in found["handle"].text
    assert {f.level for check, f in found.items() if check != "handle"} == {Level.UNCHECKED}


def test_a_plain_handle_that_returns_a_coroutine_has_done_nothing() -> None:
    assert "that nothing awaits" in broken(handlers.ReturnsACoroutine)["handle"]


def test_a_state_function_that_sees_nothing_is_reported() -> None:
    found = handled(testing.certify(handlers.Documents, SAMPLE, lambda _: 1, effort=QUICK))

    assert found["state"].level is Level.WARN
    with pytest.warns(HandlerDoubt, match="prove little"):
        testing.check_commutes(handlers.Documents, SAMPLE, lambda _: 1, effort=QUICK)


def test_the_state_function_may_be_async() -> None:
    async def state(handler: handlers.Documents) -> handlers.State:
        return handler.documents

    testing.check_commutes(handlers.Documents, SAMPLE, state, effort=QUICK)
    with pytest.raises(LawBroken):
        testing.check_commutes(handlers.Newest, SAMPLE, state, effort=QUICK)


def test_one_lane_leaves_nothing_to_swap_and_that_is_reported() -> None:
    sample = testing.messages([["a"], ["a"]])

    assert handled(certified(handlers.Documents, sample))["commutes"].level is Level.UNCHECKED
    with pytest.warns(HandlerDoubt, match="one sub-key"):
        testing.check_commutes(handlers.Documents, sample, handlers.state, effort=QUICK)


def test_a_plain_handle_is_checked_but_for_what_overlaps() -> None:
    found = handled(certified(handlers.OnThreads))

    assert found["overlaps"].level is Level.UNCHECKED
    assert found["commutes"].level is Level.OK
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        testing.check_commutes(handlers.OnThreads, SAMPLE, handlers.state, effort=QUICK)


def test_what_names_the_same_sub_key_is_never_swapped() -> None:
    """Newest breaks the law only if its sub-messages may change places at all."""
    same = testing.messages([["a", "a"], [["a", "b"]], ["b", "b"]])
    barriers = testing.messages([["a", None, "b", None], ["c"]])
    in_each_partition = [testing.message([None, key], partition=n) for n, key in enumerate("ab")]

    for sample in (same, barriers, in_each_partition):
        assert broken(handlers.Newest, sample) == {}
    assert "commutes" in broken(handlers.Newest, testing.messages([["a", None, "b"], ["c"]]))


def test_messages_that_split_rejects_are_counted_and_the_others_checked() -> None:
    certificate = certified(handlers.Raises)

    found = {finding.check: finding for finding in certificate.findings}
    assert found["split"].level is Level.WARN
    assert "rejects 1 of" in found["split"].text
    assert not certificate.broken
    assert certificate.handled > 0
    testing.check_commutes(handlers.Raises, SAMPLE, handlers.state, effort=QUICK)


def test_a_split_that_rejects_every_message_keeps_handle_from_being_called() -> None:
    only = [each for each in SAMPLE if each.offset == 3]

    certificate = testing.certify(handlers.Raises, only, handlers.state, effort=QUICK)

    assert certificate.broken
    assert certificate.handled == 0
    with pytest.raises(LawBroken, match="split failed at orders/0/3"):
        testing.check_commutes(handlers.Raises, only, handlers.state, effort=QUICK)


def test_without_a_state_function_nothing_is_handled() -> None:
    certificate = testing.certify(handlers.Fails, SAMPLE)

    assert not certificate.broken
    assert certificate.handled == 0
    assert {f.level for f in handled(certificate).values()} == {Level.UNCHECKED}


def test_instances_modules_and_functions_that_make_one_will_do() -> None:
    sample = testing.messages([["a"], ["b"]])

    for handler in (handlers.Newest(), lambda: handlers.Newest()):  # noqa: PLW0108 - not a class
        assert "commutes" in broken(handler, sample)


def test_inside_of_an_event_loop_the_error_names_the_way_out() -> None:
    async def inside() -> None:
        testing.check_split(handlers.Documents, SAMPLE, processes=0)

    with pytest.raises(RuntimeError, match="plain `def test_"):
        asyncio.run(inside())


def test_two_that_do_not_commute_are_found_among_hundreds_that_do() -> None:
    class Rare(handlers.Documents):
        async def handle(self, sub: SubMessage) -> None:
            await super().handle(sub)
            if sub.key in ("x", "y"):
                self.documents["z"] = sub.key

    sample = testing.messages(
        [["x"] if n == 100 else ["y"] if n == 200 else [f"d{n}"] for n in range(300)]
    )

    text = broken(Rare, sample)["commutes"]

    assert text.startswith("orders/0/100[0] (sub-key 'x') and then orders/0/200[0] (sub-key 'y')")
    assert "more" not in text
