"""Law of split: it gives the same sub-messages again, here and in another process."""

from __future__ import annotations

import asyncio

import pytest

from drainer import Handler, testing
from drainer.errors import Refused
from drainer.testing import LawBroken

from . import handlers

SAMPLE = testing.messages([["a", "b", "c"], ["b"], [], ["d", None, "a"], [["a", "b"], "e"]])


def test_a_handler_that_keeps_the_law_passes() -> None:
    testing.check_split(handlers.Documents, SAMPLE)
    testing.check_split(handlers.Raises, SAMPLE)  # Of its messages it rejects one, each time.


@pytest.mark.parametrize(
    ("handler", "broken"),
    [
        (handlers.GivesOneTwice, "split: .*gave the same SubMessage object"),
        (handlers.Unhashable, "split: .*of an unstable type: dict"),
        (handlers.ByChance, r"deterministic: split gives sub-key .* at orders/0/0\[0\], and"),
        (handlers.Counts, r"another payload at orders/0/0\[0\] when called again"),
        (handlers.SetOrder, r"split gives sub-key .* at orders/0/\d\[\d\], .* in another process"),
    ],
)
def test_a_handler_that_breaks_it_is_named_with_the_place(
    handler: type[Handler], broken: str
) -> None:
    with pytest.raises(LawBroken, match=broken) as found:
        testing.check_split(handler, SAMPLE)
    assert isinstance(found.value, AssertionError)
    assert "\nhint: " in str(found.value)


def test_what_the_handler_prints_is_not_taken_for_a_result() -> None:
    testing.check_split(handlers.Prints, SAMPLE)


def test_a_handler_that_another_process_can_not_get_is_refused() -> None:
    class Local(handlers.SetOrder): ...

    with pytest.raises(Refused, match="in another process") as refused:
        testing.check_split(Local, SAMPLE)
    assert "top level" in (refused.value.hint or "")


def test_a_check_can_be_called_inside_of_an_event_loop() -> None:
    async def inside() -> None:
        testing.check_split(handlers.Documents, SAMPLE)

    asyncio.run(inside())
