"""Bad messages and outages, in virtual time: what is given up, by which rule, and how soon."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtual_drain import Bad, VirtualDrain, given_up_by

from drainer.errors import Halted
from drainer.handler import GiveUp, Retry, Skip
from drainer.model.settings import FailureSettings, Limit, OnFailure
from drainer.policy.breaker import FAILURES_OWN, PROBE_MOST_S

POLICY = FailureSettings(retries=3, on_failure=OnFailure.DEAD_LETTER)

Error = Callable[[], BaseException]


def policy(**named: Any) -> FailureSettings:
    return replace(POLICY, **named)


def away(begins_s: float, ends_s: float, error: Error = ConnectionError) -> Bad:
    return lambda _, now_s: error() if begins_s <= now_s < ends_s else None


def always(*offsets: int, error: Error = ValueError) -> Bad:
    bad = set(offsets)
    return lambda offset, _: error() if offset in bad else None


def either(*each: Bad) -> Bad:
    return lambda offset, now_s: next((e for bad in each if (e := bad(offset, now_s))), None)


def html_with_200() -> BaseException:
    try:
        json.loads("<html>")
    except ValueError as error:
        return error
    raise AssertionError


# --- errors of the message's own ---


def test_bad_messages_with_long_retries_are_given_up_after_those_and_hold_up_nothing_else() -> None:
    """1% ValueError with 3 retries of 30 s."""
    bad = range(7, 2_000, 100)
    run = VirtualDrain(
        always(*bad),
        lanes=2_000,
        count=2_000,
        policy=policy(retry_delay_s=30.0, retry_max_delay_s=30.0),
    )
    assert run.halted is None
    assert set(run.given_up) == set(bad)
    assert {run.attempts[offset] for offset in bad} == {4}
    assert run.now_s < 3 * 30 + 5
    assert given_up_by(run.status) == {"error of its own": 20}
    assert run.status.outages == 0


@pytest.mark.parametrize("concurrency", [1, 8, 200])
@pytest.mark.parametrize("bad", [range(20), range(1_980, 2_000), range(50, 2_000, 20)])
def test_own_errors_are_given_up_at_once_wherever_they_stand(bad: range, concurrency: int) -> None:
    """Bad ones first; bad ones last; 5%."""
    run = VirtualDrain(
        always(*bad, error=KeyError),
        lanes=2_000,
        count=2_000,
        concurrency=concurrency,
        policy=policy(retries=0),
    )
    assert run.halted is None
    assert set(run.given_up) == set(bad)
    assert max(run.attempts.values()) == 1
    assert run.now_s < 1.1 * 2_000 * 0.01 / concurrency + 1


@pytest.mark.parametrize("lanes", [1, 40, 2_000])
@pytest.mark.parametrize("retries", [0, 3])
def test_a_handler_that_always_fails_gives_up_99_and_halts(lanes: int, retries: int) -> None:
    """KeyError on 100%."""
    run = VirtualDrain(
        lambda *_: KeyError("id"), lanes, 2_000, policy=policy(retries=retries, retry_delay_s=0.01)
    )
    assert isinstance(run.halted, Halted)
    assert run.halted.exit_code == 5
    assert "nothing has succeeded" in str(run.halted)
    assert len(run.given_up) < FAILURES_OWN
    assert run.now_s < 60 + 2_000 * 0.02


def test_a_handler_that_fails_mostly_is_stopped_by_max_failures() -> None:
    """KeyError on 60%."""
    chance = Random(3)
    bad = [offset for offset in range(4_000) if chance.random() < 0.6]
    run = VirtualDrain(
        always(*bad, error=KeyError),
        lanes=4_000,
        count=4_000,
        policy=policy(retries=0, max_failures=Limit(share=0.5)),
    )
    assert "--max-failures" in str(run.halted)
    assert 500 < len(run.given_up) < 750, "it is judged from 1,000 finished on"


@pytest.mark.parametrize("concurrency", [20, 1_000])
@pytest.mark.parametrize("retries", [0, 3])
def test_a_proxy_that_answers_html_costs_99_at_most(concurrency: int, retries: int) -> None:
    run = VirtualDrain(
        away(1, 31, html_with_200),
        lanes=20_000,
        count=20_000,
        concurrency=concurrency,
        latency_s=0.05,
        policy=policy(retries=retries),
    )
    assert run.halted is None
    assert len(run.given_up) < FAILURES_OWN
    assert run.status.outages == 1
    assert any("errors that look like the messages' own" in each for each in run.troubles)


class Flapping:
    """Away with one error from 1 to 10 s; a success or two; then away with another for 4 s."""

    def __init__(self, first: Error, second: Error) -> None:
        self.first, self.second = first, second
        self.back_s: float | None = None

    def __call__(self, _: int, now_s: float) -> BaseException | None:
        if now_s < 10:
            return self.first() if now_s >= 1 else None
        self.back_s = self.back_s or now_s
        return self.second() if self.back_s + 0.05 <= now_s < self.back_s + 4 else None


@pytest.mark.parametrize("first", [ValueError, ConnectionError])
def test_own_errors_that_come_back_after_a_success_cost_99_again_at_most(first: Error) -> None:
    run = VirtualDrain(
        Flapping(first, ValueError), 20_000, 20_000, 1_000, 0.3, policy=policy(retries=0)
    )
    assert len(run.given_up) <= 2 * (FAILURES_OWN - 1)


def test_an_outage_that_turns_into_html_costs_99_at_most() -> None:
    run = VirtualDrain(
        either(away(1, 600), away(600, 1e9, ValueError)),
        5_000,
        5_000,
        20,
        policy=policy(retries=0),
    )
    assert len(run.given_up) < FAILURES_OWN
    assert "--max-doubt" in str(run.halted)


def test_html_that_turns_into_an_outage_is_waited_out() -> None:
    run = VirtualDrain(either(away(1, 1.3, ValueError), away(1.3, 300)), 5_000, 5_000, 20)
    assert run.halted is None


@pytest.mark.parametrize("retries", [0, 3])
def test_many_own_errors_first_are_given_up_though_they_open_the_breaker(retries: int) -> None:
    run = VirtualDrain(always(*range(110)), 2_000, 2_000, 20, policy=policy(retries=retries))
    assert run.halted is None
    assert set(run.given_up) == set(range(110))
    assert run.now_s < 120


# --- outages ---


@pytest.mark.parametrize("concurrency", [8, 20])
def test_calls_that_hang_into_the_end_of_an_outage_do_not_count(concurrency: int) -> None:
    """The client gives up after 10 s; drainer's own retries are one."""
    run = VirtualDrain(
        away(1, 50, TimeoutError),
        400,
        8_000,
        concurrency,
        latency_s=0.05,
        hangs_s=10.0,
        policy=policy(retries=1),
    )
    assert run.given_up == {}


def test_failures_of_their_own_make_no_suspects_of_the_downstream_s() -> None:
    run = VirtualDrain(either(away(1, 1.1, ValueError), away(1.1, 600)), 400, 820)
    assert run.given_up == {}


def test_what_waits_for_a_retry_that_was_asked_for_may_still_tell() -> None:
    def busy(offset: int, now_s: float) -> BaseException | None:
        return Retry(after=5) if 1 <= now_s < 300 and offset % 10 else None

    run = VirtualDrain(either(busy, away(1, 300)), 10, 4_000)
    assert run.given_up == {}


@settings(deadline=None, max_examples=60)
@given(
    lanes=st.integers(2, 60),
    retries=st.integers(0, 4),
    concurrency=st.integers(1, 60),
    latency_s=st.sampled_from([0.0001, 0.01, 0.3]),
    begins=st.floats(0.2, 0.9),
    lasts_s=st.floats(1, 900),
    error=st.sampled_from([ConnectionError, RuntimeError, TypeError]),
)
@example(
    lanes=2,
    retries=2,
    concurrency=1,
    latency_s=0.0001,
    begins=0.5,
    lasts_s=48.0,
    error=ConnectionError,
)
def test_no_outage_gives_up_more_than_the_rules_allow(
    lanes: int,
    retries: int,
    concurrency: int,
    latency_s: float,
    begins: float,
    lasts_s: float,
    error: type[Exception],
) -> None:
    begins_s = begins * 400 * latency_s / min(lanes, concurrency)
    run = VirtualDrain(
        away(begins_s, begins_s + lasts_s, error),
        lanes,
        concurrency=concurrency,
        latency_s=latency_s,
        policy=policy(retries=retries),
    )
    if error is TypeError:
        assert len(run.given_up) < FAILURES_OWN
        return
    assert (run.halted, run.given_up) == (None, {})
    soon_s = begins_s + lasts_s + 1 + PROBE_MOST_S + 400 * 1.5 * latency_s
    assert run.now_s < soon_s, "it resumes soon after"


@settings(deadline=None, max_examples=40)
@given(
    gaps=st.lists(st.sampled_from([0.02, 0.3, 2.0, 9.0]), min_size=1, max_size=4),
    lanes=st.integers(2, 30),
    retries=st.integers(1, 3),
)
def test_outages_with_moments_between_give_nothing_up(
    gaps: list[float], lanes: int, retries: int
) -> None:
    spans, at_s = [], 0.3
    for gap_s in gaps:
        spans.append(away(at_s, at_s + 70))
        at_s += 70 + gap_s
    run = VirtualDrain(either(*spans), lanes, count=40 * lanes, policy=policy(retries=retries))
    assert (run.halted, run.given_up) == (None, {})


def test_an_outage_in_which_a_few_messages_are_bad_gives_up_only_those() -> None:
    bad = either(always(150, 151), away(1, 20))
    run = VirtualDrain(bad, lanes=20, count=4_000)
    assert run.halted is None
    assert set(run.given_up) == {150, 151}


def test_what_had_failed_by_chance_is_not_given_up_for_an_outage() -> None:
    """5% of the first attempts fail, and then all for a while."""
    chance = Random(5)
    glitches = {offset for offset in range(8_000) if chance.random() < 0.05}

    def glitch(offset: int, _: float) -> BaseException | None:
        if offset in glitches:
            glitches.remove(offset)
            return RuntimeError("reset")
        return None

    run = VirtualDrain(
        either(glitch, away(2, 5, RuntimeError)),
        lanes=8_000,
        count=8_000,
        concurrency=20,
        policy=policy(retries=0),
    )
    assert (run.halted, run.given_up) == (None, {})


def test_an_outage_without_an_end_halts_after_max_outage() -> None:
    for lanes in (1, 3, 400):
        run = VirtualDrain(away(0.03, 1e9), lanes)
        assert "--max-outage" in str(run.halted)
        assert len(run.given_up) <= (lanes == 1)
        assert run.now_s < 3_600 + 90


@pytest.mark.parametrize("lanes", [1, 20, 400])
def test_a_downstream_that_is_away_from_the_start_halts_after_max_doubt(lanes: int) -> None:
    run = VirtualDrain(away(0, 1e9), lanes)
    assert "nothing has succeeded in this run" in str(run.halted)
    assert len(run.given_up) <= (lanes == 1)
    assert run.now_s < 3 * 60


def test_a_long_outage_of_the_only_lane_costs_one_sub_message() -> None:
    run = VirtualDrain(away(2, 3_000), lanes=1)
    assert (run.halted, len(run.given_up)) == (None, 1)
    assert given_up_by(run.status) == {"--max-doubt": 1}
    assert any("--max-doubt" in each for each in run.troubles)


# --- bad messages whose errors do not say so ---


@pytest.mark.parametrize("retries", [0, 3])
def test_one_lane_that_can_not_connect_is_given_up_soon_among_healthy_ones(retries: int) -> None:
    run = VirtualDrain(
        lambda offset, _: ConnectionError() if offset % 20 == 3 else None,
        lanes=20,
        count=4_000,
        concurrency=20,
        policy=policy(retries=retries, retry_delay_s=0.02),
    )
    assert run.halted is None
    assert set(run.given_up) == set(range(3, 4_000, 20))
    assert min(run.given_up.values()) < 2
    assert run.status.outages == 0
    assert run.now_s < 2 + 60 + 200 * 0.4, "its lane is all that is left"


def test_a_bad_lane_is_given_up_soon_where_healthy_calls_take_longer_than_retries_wait() -> None:
    run = VirtualDrain(
        always(*range(3, 400, 20), error=ConnectionError),
        20,
        concurrency=20,
        latency_of=lambda offset: 0.01 if offset % 20 == 3 else 3.0,
        policy=policy(retries=1, retry_max_delay_s=1.0),
    )
    assert run.given_up[3] < 30
    assert run.halted is None


@pytest.mark.parametrize("share", [3, 5])
def test_bad_ones_that_fail_faster_than_others_succeed_are_no_outage(share: int) -> None:
    bad = range(0, 2_000, share)
    run = VirtualDrain(
        always(*bad, error=RuntimeError),
        2_000,
        2_000,
        200,
        latency_of=lambda offset: 0.002 if offset % share == 0 else 0.3,
    )
    assert run.halted is None
    assert set(run.given_up) == set(bad)


def test_a_hanging_call_that_is_all_that_is_left_is_given_up_by_max_doubt() -> None:
    run = VirtualDrain(
        lambda offset, _: TimeoutError() if offset == 399 else None, policy=policy(retries=1)
    )
    assert given_up_by(run.status) == {"--max-doubt": 1}


def test_an_error_with_odd_attributes_is_one_like_others() -> None:
    class ApiError(Exception):
        response: ClassVar = {"Error": "boom"}

    run = VirtualDrain(always(5, error=ApiError), 20)
    assert run.halted is None
    assert set(run.given_up) == {5}


def test_a_call_that_hangs_is_given_up_after_its_timeouts_among_healthy_ones() -> None:
    run = VirtualDrain(
        lambda offset, _: TimeoutError() if offset == 40 else None,
        lanes=8,
        count=40_000,
        policy=policy(retries=1, timeout_s=5.0),
    )
    assert run.halted is None
    assert set(run.given_up) == {40}
    assert run.given_up[40] < 15
    assert run.status.timeouts == 2


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("concurrency", [4, 32])
@pytest.mark.parametrize("count", [60, 100])
def test_unclear_errors_first_open_the_breaker_and_are_given_up_once_it_closes(
    count: int, concurrency: int, retries: int
) -> None:
    """Probes take turns between lanes that were tried and those that were not."""
    run = VirtualDrain(
        always(*range(50, 50 + count), error=RuntimeError),
        lanes=2_000,
        count=2_000,
        concurrency=concurrency,
        policy=policy(retries=retries),
    )
    assert run.halted is None
    assert set(run.given_up) == set(range(50, 50 + count))
    assert run.status.outages <= 2
    assert run.now_s < 2 * count * PROBE_MOST_S


@pytest.mark.parametrize("retries", [0, 3])
def test_unclear_errors_all_over_a_backlog_end_within_max_doubt(retries: int) -> None:
    """The last ones have no others left to compare with, but failed while there were."""
    chance = Random(retries)
    bad = {n for n in range(2_000) if chance.random() < 0.01}
    run = VirtualDrain(
        always(*bad, error=RuntimeError),
        lanes=2_000,
        count=2_000,
        concurrency=20,
        policy=policy(retries=retries),
    )
    assert run.halted is None
    assert set(run.given_up) == bad
    assert run.now_s < 65


def test_only_unclear_failures_left_that_nothing_speaks_against_are_an_outage() -> None:
    """Ten at the end, one at a time, so that no other call ends meanwhile."""
    bad = range(1_990, 2_000)
    run = VirtualDrain(
        always(*bad, error=RuntimeError), lanes=2_000, count=2_000, concurrency=1, latency_s=0.001
    )
    assert run.given_up == {}
    assert "--max-outage" in str(run.halted)
    assert any("breaker=off" in each for each in run.troubles)
    assert any("for up to 1h (--max-outage)" in each for each in run.troubles)
    assert all("RuntimeError" in each.partition(": drainer")[0] for each in run.troubles)


def test_without_the_breaker_every_failure_counts_at_once() -> None:
    run = VirtualDrain(
        away(0.1, 0.4), lanes=400, policy=policy(retries=0, breaker=False, max_failures=Limit())
    )
    assert run.halted is None
    assert len(run.given_up) > 100


# --- what the handler decides ---


def test_a_handler_that_gives_up_spends_no_retry() -> None:
    run = VirtualDrain(always(3, 5, error=lambda: GiveUp("CHECK violated")), lanes=20)
    assert set(run.given_up) == {3, 5}
    assert run.attempts[3] == run.attempts[5] == 1
    assert given_up_by(run.status) == {"GiveUp": 2}


def test_a_handler_says_whose_fault_an_error_is() -> None:
    run = VirtualDrain(
        away(1, 40, KeyError),
        lanes=300,
        count=3_000,
        policy=policy(retries=0),
        is_outage=lambda error: True,
    )
    assert (run.halted, run.given_up) == (None, {})
    run = VirtualDrain(
        always(399, error=ConnectionError),
        lanes=400,
        policy=policy(retries=0),
        is_outage=lambda error: False,
    )
    assert set(run.given_up) == {399}
    assert run.now_s < 2


def test_an_is_outage_that_fails_halts() -> None:
    def fails(error: BaseException) -> bool | None:
        raise AttributeError("status")

    run = VirtualDrain(always(5), lanes=20, is_outage=fails)
    assert "is_outage() failed: AttributeError" in str(run.halted)
    assert run.given_up == {}


@pytest.mark.parametrize("raised", [Retry("busy", after=0.5), Skip("old")])
def test_retries_that_are_asked_for_and_skips_prove_nothing(raised: BaseException) -> None:
    """A skip may need no call."""
    run = VirtualDrain(
        either(away(0.2, 30), always(*range(0, 400, 2), error=lambda: raised)),
        lanes=400,
        policy=policy(retries=0, max_outage_s=20.0),
    )
    assert run.given_up == {}
    assert "--max-outage" in str(run.halted)
