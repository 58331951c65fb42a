"""Sub-messages that wait for their next attempt, by when they are due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drainer.message import SubMessage
from drainer.policy.retries import Retries


def test_what_is_not_due_stays() -> None:
    retries = Retries()
    soon, later = SubMessage(), SubMessage()
    retries.push(later, 2.0)
    retries.push(soon, 1.0)
    assert retries.due_s == 1.0
    assert retries.pop_due(0.5) == []
    assert retries.pop_due(1.0) == [soon]
    assert (len(retries), retries.due_s) == (1, 2.0)
    assert retries.pop() is later, "due or not"


@given(st.lists(st.integers(0, 5)))
def test_they_come_by_time_and_then_as_they_came(times: list[int]) -> None:
    retries = Retries()
    subs = [SubMessage(number) for number in range(len(times))]
    for sub, at_s in zip(subs, times, strict=True):
        retries.push(sub, float(at_s))
    found = [sub.key for now_s in range(6) for sub in retries.pop_due(now_s)]
    assert found == sorted(range(len(times)), key=times.__getitem__)
    assert len(retries) == 0
