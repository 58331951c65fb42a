"""The laws of split: each has a handler that breaks just that, and is found out."""

from __future__ import annotations

import re
import time

import pytest

from drainer import Handler, testing
from drainer.certify.split import split_report
from drainer.certify.subject import Subject
from drainer.testing import Finding, HandlerDoubt, LawBroken, Level

from . import handlers

SAMPLE = testing.messages([["a", "b", "c"], ["b"], [], ["d", None, "a"], [["a", "b"], "e"]])


def report(handler: type[Handler], *, processes: int = 0) -> dict[str, Finding]:
    found = split_report(Subject(handler), SAMPLE, processes=processes).findings
    return {finding.check: finding for finding in found}


def only(handler: type[Handler], check: str, level: Level, *, processes: int = 0) -> Finding:
    """The one finding that is not ok."""
    found = report(handler, processes=processes)
    assert [name for name, finding in found.items() if finding.level is not Level.OK] == [check]
    assert found[check].level is level
    assert found[check].hint
    return found[check]


def test_a_handler_that_keeps_the_laws_passes_in_other_processes_too() -> None:
    found = report(handlers.Documents, processes=2)

    assert {finding.level for finding in found.values()} == {Level.OK}
    assert "other processes" in found["deterministic"].text
    testing.check_split(handlers.Documents, SAMPLE, processes=1)


@pytest.mark.parametrize(
    ("handler", "printed"),
    [
        (handlers.GivesOneTwice, "gave the same SubMessage object"),
        (handlers.Unhashable, "of an unstable type: dict"),
    ],
)
def test_what_a_drain_would_halt_at_is_bad(handler: type[Handler], printed: str) -> None:
    assert printed in only(handler, "split", Level.BAD).text


@pytest.mark.parametrize("handler", [handlers.ByChance, handlers.Counts])
def test_a_split_that_depends_on_more_than_the_message_is_found_out(handler: type[Handler]) -> None:
    assert "at orders/0/0[0]" in only(handler, "deterministic", Level.BAD).text


def test_the_order_of_a_set_is_found_out_by_other_processes() -> None:
    assert report(handlers.SetOrder)["deterministic"].level is Level.OK

    text = only(handlers.SetOrder, "deterministic", Level.BAD, processes=3).text

    assert text.endswith("in another process")


@pytest.mark.parametrize(
    ("handler", "printed"),
    [
        (handlers.ByTheDay, r"and sub-key \('\d{4}-\d\d-\d\d', 'a'\)"),
        (handlers.ByTheAge, r"3 sub-messages at orders/0/0, then 0"),
    ],
)
def test_a_split_that_looks_at_the_clock_is_found_out_by_another_one(
    handler: type[Handler], printed: str
) -> None:
    sample = [testing.message(["a", "b", "c"], timestamp=int(time.time() * 1000))]
    here = split_report(Subject(handler), sample, processes=1)
    assert not here.broken
    findings = split_report(Subject(handler), sample).findings
    (text,) = [finding.text for finding in findings if finding.level is Level.BAD]
    assert re.search(f"{printed}.* in another process whose clock is 397 days ahead", text)


def test_a_split_that_changes_the_message_is_found_out() -> None:
    text = only(handlers.ChangesTheMessage, "message", Level.BAD).text

    assert text == "split changes the message orders/0/0 itself"


def test_one_document_under_two_types_of_sub_key_is_reported() -> None:
    assert "17 comes as int and str" in only(handlers.TwoTypes, "sub-keys", Level.WARN).text


def test_a_payload_that_can_not_be_written_down_is_reported() -> None:
    text = only(handlers.ObjectPayload, "dead-letters", Level.WARN).text

    assert text.startswith("drainer can't write and read back the payload of orders/0/0[0] (Order)")


def test_a_class_inside_a_function_is_called_in_another_process_too() -> None:
    class Local(handlers.SetOrder): ...

    assert report(Local, processes=3)["deterministic"].level is Level.BAD


def test_a_handler_that_can_not_be_sent_to_another_process_is_a_doubt() -> None:
    class Bound(handlers.Documents):
        generator = (number for number in range(3))

    text = only(Bound, "deterministic", Level.WARN, processes=1).text

    assert "can't be sent to another process" in text


def test_a_broken_law_is_an_assertion_and_a_doubt_a_warning() -> None:
    with pytest.raises(LawBroken) as broken:
        testing.check_split(handlers.Raises, SAMPLE[3:4], processes=0)
    assert isinstance(broken.value, AssertionError)
    assert broken.value.finding.check == "split"
    with pytest.warns(HandlerDoubt, match="comes as int and str"):
        testing.check_split(handlers.TwoTypes, SAMPLE, processes=0)
