"""The failure policy: what is decided after a failed attempt, and when it is too much."""

from __future__ import annotations

import re
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drainer.errors import Halted
from drainer.message import SubMessage
from drainer.model.settings import JITTER, SHARE_JUDGED_FROM, FailureSettings, Limit, OnFailure
from drainer.policy.failures import (
    NOTHING_SUCCEEDED,
    OTHERS_SUCCEED,
    OWN_ERROR,
    Decision,
    FailurePolicy,
    Moment,
    Retries,
    Totals,
)
from drainer.policy.fault import Fault
from drainer.split.splitting import Outage

from .messages import message_at


def new_sub() -> SubMessage:
    sub = SubMessage("a")
    sub.message = message_at(0)
    sub.index = 0
    return sub


def policy_of(**named: Any) -> FailurePolicy:
    return FailurePolicy(FailureSettings(**named), Random(1))


def fails(
    policy: FailurePolicy,
    sub: SubMessage,
    fault: Fault = Fault.OWN,
    *,
    done: int = 0,
    now_s: float = 50.0,
) -> Decision:
    return policy.failed(sub, ValueError(), fault, Moment(now_s, lanes=999, done=done))


def succeeds(policy: FailurePolicy, *, started_at: int | None = None) -> list[SubMessage]:
    """A call that began now, or after so many failed calls."""
    sub = new_sub()
    sub.started_at = policy.doubts.failed_calls if started_at is None else started_at
    return policy.succeeded(sub)


def hears(policy: FailurePolicy, began_s: float) -> list[SubMessage]:
    """Ten more successes in another process, the last of which began at that time."""
    return policy.hear(Totals(), Totals(policy.whole.done + 10, began_s=began_s), 0.0)


# --- limits ---


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("100", Limit(count=100)),
        ("0.5%", Limit(share=0.005)),
        (" None ", Limit()),
    ],
)
def test_a_limit_is_a_count_or_a_share_or_none(text: str, limit: Limit) -> None:
    assert Limit.parse(text) == limit
    assert Limit.parse(str(limit)) == limit


@pytest.mark.parametrize("text", ["", "-1", "101%", "nan%", "1.5"])
def test_anything_else_is_no_limit(text: str) -> None:
    with pytest.raises(ValueError):
        Limit.parse(text)


@given(st.decimals(0, 100, places=9))
@example(share="0.1234567")
@example(share="28.999999")
def test_a_share_is_read_as_it_was_written(share: object) -> None:
    limit = Limit.parse(f"{share}%")
    assert Limit.parse(str(limit)) == limit


def test_a_count_is_passed_by_one_more_and_a_share_is_not_judged_by_a_few() -> None:
    count, share = Limit(count=3), Limit(share=0.1)
    assert not count.passed(3, 3)
    assert count.passed(4, 1_000_000)
    assert not share.passed(SHARE_JUDGED_FROM - 1, SHARE_JUDGED_FROM - 1)
    assert not share.passed(100, SHARE_JUDGED_FROM)
    assert share.passed(101, SHARE_JUDGED_FROM)


# --- settings ---


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": -1},
        {"on_failure": "x"},
        {"max_failures": "x"},
        {"rate": "nan"},
        {"rate": 0.0},
        {"timeout_s": -0.1},
    ],
)
def test_settings_that_make_no_sense_are_not_read(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        FailureSettings.from_json(FailureSettings().as_json() | wrong)


# --- delays ---


@given(
    first=st.just(0.0) | st.floats(1e-6, 100),
    most=st.floats(0, 1000),
    failures=st.integers(1, 10_000),
    seed=st.integers(0, 99),
)
def test_a_delay_doubles_up_to_the_longest_and_is_never_past_it(
    first: float, most: float, failures: int, seed: int
) -> None:
    policy = policy_of(retry_delay_s=first, retry_max_delay_s=most)
    whole = min(most, first * 2.0 ** min(failures - 1, 900))
    sub = new_sub()
    sub.attempt = failures
    without_a_time = policy.try_later(sub, None, 0.0).at_s
    for delay in (policy.settings.delay_s(failures, Random(seed)), without_a_time):
        assert JITTER * whole * 0.999 <= delay <= whole * 1.001


# --- what counts ---


@pytest.mark.parametrize("fault", [Fault.DOWNSTREAM, Fault.UNCLEAR])
def test_a_failure_that_may_be_the_downstream_s_counts_once_a_later_call_succeeds(
    fault: Fault,
) -> None:
    policy = policy_of(retries=0, on_failure=OnFailure.DEAD_LETTER)
    sub = new_sub()
    assert fails(policy, sub, fault).action is None
    assert succeeds(policy, started_at=0) == [], "it began before"
    assert succeeds(policy) == [], "the first may be the last of an outage"
    assert fails(policy, sub, fault).action is None
    assert succeeds(policy) == [sub]


def test_failures_that_nothing_speaks_against_spend_nothing() -> None:
    policy = policy_of(retries=2, on_failure=OnFailure.DEAD_LETTER)
    sub = new_sub()
    for _ in range(30):
        assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert succeeds(policy) == []
    assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert succeeds(policy) == []
    assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert succeeds(policy) == [sub]


def test_doubt_is_as_old_as_the_oldest_that_no_success_speaks_against() -> None:
    policy = policy_of(retries=3, max_doubt_s=60.0, on_failure=OnFailure.DEAD_LETTER)
    for began_s in (50.0, 70.0):
        fails(policy, new_sub(), Fault.UNCLEAR, done=1, now_s=began_s)
    for _ in range(4):  # so many speak against an outage, but began before all failures
        succeeds(policy, started_at=0)
    assert policy.doubts_end_s == 110.0
    succeeds(policy, started_at=1)  # after the first of them had failed
    assert policy.doubts_end_s == 130.0


def test_a_doubt_that_proves_nothing_any_more_leaves_the_age_of_the_next() -> None:
    policy = policy_of(retries=3, max_doubt_s=60.0)
    first, second = new_sub(), new_sub()
    fails(policy, first, Fault.UNCLEAR, done=1, now_s=50.0)
    fails(policy, second, Fault.UNCLEAR, done=1, now_s=70.0)
    policy.excuse(first, 80.0)
    assert policy.doubts_end_s == 130.0


def test_a_sub_message_shown_to_be_bad_while_it_is_tried_again_gets_no_further_attempt() -> None:
    policy = policy_of(retries=0, on_failure=OnFailure.PARK)
    sub = new_sub()
    for _ in range(2):
        fails(policy, sub, Fault.UNCLEAR)
        succeeds(policy)
    decision = fails(policy, sub, Fault.UNCLEAR)
    assert (decision.action, decision.reason) == (OnFailure.PARK, OTHERS_SUCCEED)


def test_a_failure_that_two_rules_prove_counts_once() -> None:
    policy = policy_of(retries=3, on_failure=OnFailure.DEAD_LETTER)
    sub = new_sub()
    assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert policy.end_doubts(110.0) == []
    for _ in range(2):  # each counts at once, for nothing has succeeded since
        assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert succeeds(policy) == [], "it speaks against the last of them, which counts already"
    assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert succeeds(policy) == [sub]


def test_an_outage_makes_all_that_was_in_doubt_begin_anew() -> None:
    policy = policy_of(retries=0, on_failure=OnFailure.DEAD_LETTER)
    sub = new_sub()
    fails(policy, sub, Fault.UNCLEAR)
    succeeds(policy)
    fails(policy, sub, Fault.UNCLEAR)
    while not policy.breaker.is_open:
        fails(policy, new_sub(), Fault.UNCLEAR, done=1)
    assert not policy.doubts
    policy.breaker.close()
    assert succeeds(policy) == []
    assert fails(policy, sub, Fault.UNCLEAR, done=1).action is None
    assert succeeds(policy) == [], "it has one failure that counts"


def test_without_a_success_in_this_run_a_drain_that_halts_on_failure_halts() -> None:
    policy = policy_of(retries=1)
    sub = new_sub()
    assert fails(policy, sub, Fault.DOWNSTREAM).action is None
    assert fails(policy, sub, Fault.DOWNSTREAM) == Decision(OnFailure.HALT, why=NOTHING_SUCCEEDED)


def test_it_watches_successes_only_while_they_matter() -> None:
    policy = policy_of(retries=3)
    assert not policy.needs_successes
    fails(policy, new_sub(), Fault.OWN)
    assert policy.needs_successes
    succeeds(policy)
    assert not policy.needs_successes
    sub = new_sub()
    fails(policy, sub, Fault.UNCLEAR, done=1)
    for _ in range(49):
        succeeds(policy)
    assert policy.needs_successes
    succeeds(policy)
    assert not policy.needs_successes


def test_successes_of_other_processes_count_by_the_time_at_which_they_began() -> None:
    policy = policy_of(retries=0, on_failure=OnFailure.DEAD_LETTER)
    sub = new_sub()
    for wall_s in (1_000.0, 1_010.0):
        policy.failed(sub, ValueError(), Fault.UNCLEAR, Moment(0.0, wall_s, lanes=9, done=1))
        assert hears(policy, wall_s + 0.5) == [], "clocks may differ"
        bad = hears(policy, wall_s + 1.5)
    assert bad == [sub]


def test_a_success_of_another_process_closes_the_breaker_if_it_began_after_that_opened() -> None:
    policy = policy_of()
    while not policy.breaker.is_open:
        policy.failed(new_sub(), OSError(), Fault.DOWNSTREAM, Moment(0.0, 1_000.0, 2, done=1))
        policy.failed(new_sub(), OSError(), Fault.DOWNSTREAM, Moment(0.0, 1_005.0, 2, done=1))
    hears(policy, 1_003.0)
    assert policy.breaker.is_open, "the call began before"
    hears(policy, 1_007.0)
    assert not policy.breaker.is_open
    assert policy.others_may_succeed(59.0)
    assert not policy.others_may_succeed(61.0)


def test_without_the_breaker_an_outage_is_over_and_nothing_is_in_doubt() -> None:
    policy = policy_of()
    fails(policy, new_sub(), Fault.UNCLEAR, done=1)
    policy.change(FailureSettings(breaker=False))
    assert not policy.doubts
    while not policy.breaker.is_open:
        policy.change(FailureSettings())
        fails(policy, new_sub(), Fault.UNCLEAR, done=1)
    policy.change(FailureSettings(breaker=False))
    assert policy.outage(1) is None


# --- too many ---


def test_too_many_given_up_are_a_reason_to_halt() -> None:
    policy = policy_of(max_failures=Limit(count=2))
    assert [policy.count_given_up(OWN_ERROR, n) for n in (10, 11)] == [None, None]
    assert "more than --max-failures 2" in (policy.count_given_up(OTHERS_SUCCEED, 12) or "")
    assert policy.given_up_by == {OWN_ERROR: 2, OTHERS_SUCCEED: 1}


# --- what other tasks did, by totals of all that count the own part too, and late ---

STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=40)


def all_of(count: int) -> Totals:
    return Totals(count, count, count)


@given(STEPS)
def test_what_others_did_is_never_overstated_and_known_at_rest(
    steps: list[tuple[int, int, bool]],
) -> None:
    own = others = shown = 0
    known = Totals()
    for mine, theirs, shows in steps:
        own, others = own + mine, others + theirs
        if shows:
            shown = own
        before, known = known, known.beside(all_of(own), all_of(shown + others))
        assert before.done <= known.done <= others
    assert known.beside(all_of(own), all_of(own + others)) == all_of(others)


# --- what waits ---


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_what_waits_comes_by_time_and_then_as_it_came_and_what_was_removed_never(
    times: list[tuple[int, bool]],
) -> None:
    retries, subs = Retries(), [SubMessage(number) for number in range(len(times))]
    for sub, (at_s, _) in zip(subs, times, strict=True):
        retries.push(sub, float(at_s))
    removed = [sub for sub, (_, goes) in zip(subs, times, strict=True) if goes]
    assert all(map(retries.remove, removed))
    assert not any(map(retries.remove, removed))
    left = sorted((at_s, number) for number, (at_s, goes) in enumerate(times) if not goes)
    assert retries.due_s == min((at_s for at_s, _ in left), default=None)
    found = []
    for now_s in range(3):
        while (due := retries.pop(now_s)) is not None:
            found.append((now_s, due.key))
    assert found == [(at_s, number) for at_s, number in left if at_s < 3]
    rest = [sub.key for sub in iter(retries.pop, None)]
    assert rest == [number for at_s, number in left if at_s >= 3]
    assert (len(retries), retries.started) == (0, len(left))


def test_an_outage_lasts_from_its_first_failure_to_the_next_answer() -> None:
    now_s, requested_stop = 0.0, False
    outage = Outage(60.0, lambda _: not requested_stop, lambda: now_s)
    assert outage(0.2, "it is away")
    now_s = 60.0  # requests take time, too
    assert outage(0.2, "it is away")
    assert re.fullmatch(
        r"it is away \(since [\d:]{8}; drainer keeps trying, and halts at (\w+ )?[\d:]{8}\)",
        outage.trouble or "",
    )
    outage.end()
    assert outage.trouble is None
    now_s = 100.0
    assert outage(0.2, "it is away again")
    now_s = 161.0
    with pytest.raises(Halted, match=r"away again, for longer than --tune max-outage \(1m\)"):
        outage(0.2, "it is away again")
    outage.end()
    requested_stop = True
    assert not outage(0.2, "it is away")
    outage = Outage(inf, lambda _: True, lambda: now_s)
    assert outage(0.2, "it is away")
    assert (outage.trouble or "").endswith("keeps trying)")
