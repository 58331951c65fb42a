"""The circuit breaker: opens when the downstream is away, and closes when it answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.message import SubMessage
from drainer.policy.failures import (
    FAILURES,
    FAILURES_OWN,
    HEALTHY,
    PROBE_FIRST_S,
    PROBE_MOST_S,
    SUCCESSES,
    Breaker,
    FailureWindow,
    Moment,
)


def fail(
    breaker: Breaker,
    times: int,
    *,
    own: bool = False,
    lanes: int = 999,
    running: int = 0,
    now_s: float = 0.0,
    since: int = 1,
) -> None:
    """Fail so many calls, each of another sub-message."""
    for number in range(since, since + times):
        breaker.failed(
            SubMessage(), number, None, Moment(now_s, lanes=lanes, running=running), own=own
        )


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker()
    fail(breaker, FAILURES, now_s=now_s)
    assert breaker.is_open
    return breaker


def probed(breaker: Breaker) -> SubMessage:
    probe = SubMessage()
    breaker.start_probe(probe)
    return probe


def again(breaker: Breaker, sub: SubMessage, now_s: float) -> None:
    breaker.failed(sub, 900, FailureWindow(), Moment(now_s, lanes=999), own=False)


@pytest.mark.parametrize(
    ("own", "lanes", "most"),
    [(False, 999, FAILURES), (False, 7, 7), (False, 1, 2), (True, 999, FAILURES_OWN)],
)
def test_it_opens_when_so_many_sub_messages_failed_and_none_succeeded(
    own: bool, lanes: int, most: int
) -> None:
    breaker = Breaker()
    fail(breaker, most - 1, own=own, lanes=lanes)
    assert not breaker.is_open
    fail(breaker, 1, own=own, lanes=lanes, since=most)
    assert (breaker.is_open, (breaker.own_since_s is not None)) == (True, own)


def test_one_sub_message_that_fails_often_is_no_outage() -> None:
    breaker, sub = Breaker(), SubMessage()
    breaker.failed(sub, 1, None, Moment(0.0, lanes=1), own=False)
    for _ in range(FAILURES):
        again(breaker, sub, 0.0)
    assert not breaker.is_open


def test_as_many_have_to_fail_as_are_in_flight_for_these_may_end_well() -> None:
    breaker = Breaker()
    fail(breaker, 199, running=200)
    assert not breaker.is_open
    fail(breaker, 1, running=200, since=200)
    assert breaker.is_open


def test_a_sub_message_counts_once_in_a_window_of_own_errors_and_again_in_the_next() -> None:
    breaker, sub = Breaker(), SubMessage()
    window = breaker.failed(sub, 1, None, Moment(0.0, lanes=9), own=True)
    for _ in range(FAILURES_OWN):
        breaker.failed(sub, 2, window, Moment(0.0, lanes=9), own=True)
    assert not breaker.is_open
    breaker.succeeded(2)
    assert breaker.failed(sub, 3, window, Moment(0.0, lanes=9), own=True) is not window


def test_a_probe_with_another_error_shows_that_it_is_not_the_messages_own() -> None:
    breaker = Breaker()
    fail(breaker, FAILURES_OWN, own=True, now_s=7.0)
    assert breaker.own_since_s == 7.0
    again(breaker, SubMessage(), 8.0)
    assert breaker.own_since_s is not None, "it began before"
    again(breaker, probed(breaker), 9.0)
    assert (breaker.is_open, (breaker.own_since_s is not None)) == (True, False)


def test_own_errors_and_others_are_counted_apart() -> None:
    breaker = Breaker()
    fail(breaker, FAILURES - 1)
    fail(breaker, FAILURES_OWN - 1, own=True, since=FAILURES)
    assert not breaker.is_open


def test_calls_that_began_before_the_first_failure_show_nothing() -> None:
    breaker = Breaker()
    fail(breaker, 1, since=5)
    breaker.succeeded(4, calls=1_000)
    fail(breaker, FAILURES - 1, since=6)
    assert breaker.is_open


def test_one_success_that_began_later_ends_the_suspicion_of_own_errors() -> None:
    breaker = Breaker()
    fail(breaker, FAILURES_OWN - 1, own=True)
    breaker.succeeded(3)
    fail(breaker, FAILURES_OWN - 1, own=True, since=FAILURES_OWN)
    assert not breaker.is_open


def test_an_outage_opens_it_soon_however_much_succeeded_before() -> None:
    breaker = Breaker()
    fail(breaker, 1)
    for _ in range(1_000_000 // SUCCESSES):
        breaker.succeeded(1, calls=SUCCESSES)
    assert not breaker.needs_successes
    fail(breaker, FAILURES, since=2)
    assert breaker.is_open


@given(st.lists(st.booleans(), max_size=300))
def test_it_stays_closed_while_a_quarter_of_the_failures_are_successes(events: list[bool]) -> None:
    """Against a naive account of the window."""
    breaker = Breaker()
    failed = succeeded = number = 0
    for is_success in events:
        if is_success:
            breaker.succeeded(number)
            succeeded += failed > 0
            if succeeded >= SUCCESSES:
                failed = succeeded = 0
        else:
            number += 1
            failed += 1
            fail(breaker, 1, since=number)
        opens = not is_success and failed >= FAILURES and succeeded < HEALTHY * failed
        assert breaker.is_open == opens
        if opens:
            return


def test_probes_back_off_up_to_the_longest_wait() -> None:
    breaker = opened()
    waits: list[float] = []
    for number in range(8):
        probe = probed(breaker)
        again(breaker, SubMessage(), float(number))
        assert breaker.probe_at_s is None, "one at a time, whatever others show"
        again(breaker, probe, float(number))
        assert breaker.probe_at_s is not None
        waits.append(breaker.probe_at_s - number)
    assert waits[:3] == [2 * PROBE_FIRST_S, 4 * PROBE_FIRST_S, 8 * PROBE_FIRST_S]
    assert waits[-1] == PROBE_MOST_S


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = opened()
    probe = probed(breaker)
    assert not breaker.close_if_probe(SubMessage()), "it was started before"
    assert breaker.is_open
    assert breaker.close_if_probe(probe)
    assert not breaker.is_open
    assert breaker.probe_at_s is None
    assert not breaker.close_if_probe(probe), "only once"


def test_once_closed_it_counts_from_nothing() -> None:
    breaker = opened()
    breaker.close_if_probe(probed(breaker))
    fail(breaker, FAILURES - 1)
    assert not breaker.is_open
    fail(breaker, 1)
    assert breaker.opened == 2
    assert breaker.probe_at_s == PROBE_FIRST_S, "and waits as at first"


def test_a_probe_that_requests_a_later_call_decides_nothing() -> None:
    breaker = opened()
    breaker.end_probe(SubMessage(), 3.0)
    assert breaker.probe_at_s == PROBE_FIRST_S
    breaker.end_probe(probed(breaker), 3.0)
    assert breaker.is_open
    assert breaker.probe_at_s == 3.0 + PROBE_FIRST_S, "no failure, so no longer wait"


def test_probes_take_turns_between_tried_and_untried_ones() -> None:
    breaker = opened()
    preferred = []
    for number in range(4):
        preferred.append(breaker.prefers_tried)
        again(breaker, probed(breaker), float(number))
    assert preferred == [False, True, False, True]
