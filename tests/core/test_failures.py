"""The failure policy: what is decided after a failed attempt, and when it is too much."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drainer.handler import Retry
from drainer.message import SubMessage
from drainer.policy.breaker import FAILURES, Breaker
from drainer.policy.failures import (
    JITTER,
    SHARE_JUDGED_FROM,
    AfterDead,
    FailurePolicy,
    FailureSettings,
    Fate,
    Limit,
    OnFailure,
)

from .messages import message_at


def new_sub() -> SubMessage:
    sub = SubMessage("a")
    sub.message = message_at(0)
    sub.index = 0
    return sub


def policy_of(**named: Any) -> FailurePolicy:
    return FailurePolicy(FailureSettings(**named), Breaker(), Random(1))


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


def test_a_count_is_passed_by_one_more_and_a_share_says_nothing_of_a_few() -> None:
    count, share = Limit(count=3), Limit(share=0.1)
    assert not count.passed(3, 3)
    assert count.passed(4, 1_000_000)
    assert not share.passed(SHARE_JUDGED_FROM - 1, SHARE_JUDGED_FROM - 1)
    assert not share.passed(100, SHARE_JUDGED_FROM)
    assert share.passed(101, SHARE_JUDGED_FROM)


# --- settings ---


def test_settings_are_read_as_they_were_written() -> None:
    settings = FailureSettings(
        retries=3,
        on_failure=OnFailure.DEAD_LETTER,
        after_dead=AfterDead.PARK,
        dead_letter_topic="orders.dead",
        max_failures=Limit(share=0.0123),
        rate=0.5,
    )
    assert FailureSettings.from_json(orjson.loads(orjson.dumps(settings.as_json()))) == settings


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
    without_a_time = policy.later(0.0, None, sub).at_s
    for delay in (policy.settings.delay_s(failures, Random(seed)), without_a_time):
        assert JITTER * whole * 0.999 <= delay <= whole * 1.001


# --- decisions ---


@pytest.mark.parametrize(
    ("on_failure", "fate", "retries"),
    [
        (OnFailure.HALT, Fate.HALT, 0),
        (OnFailure.DEAD_LETTER, Fate.DEAD, 1),
        (OnFailure.PARK, Fate.PARKED, 3),
        (OnFailure.SKIP, Fate.FAILED, 3),
    ],
)
def test_when_retries_are_spent_the_setting_decides(
    on_failure: OnFailure, fate: Fate, retries: int
) -> None:
    policy = policy_of(on_failure=on_failure, retries=retries, retry_delay_s=1.0)
    sub = new_sub()
    for _ in range(retries):
        decision = policy.failed(sub, 0, 999, 50.0)
        assert decision.fate is Fate.RETRY
        assert decision.at_s >= 50.5
    assert policy.failed(sub, 0, 999, 50.0).fate is fate
    assert policy.retries == retries


def test_asking_to_be_called_later_spends_no_retry() -> None:
    policy = policy_of(retries=1, retry_delay_s=1.0)
    sub = new_sub()
    for _ in range(20):
        assert policy.later(10.0, 7.0, sub).at_s == 17.0
        sub.attempt += 1
    assert policy.failed(sub, 0, 999, 10.0).fate is Fate.RETRY
    assert policy.failed(sub, 0, 999, 10.0).fate is Fate.HALT
    assert policy.retries == 21


@pytest.mark.parametrize("after_s", [float("nan"), float("inf")])
def test_a_time_to_be_called_at_is_a_number(after_s: float) -> None:
    with pytest.raises(ValueError, match="after="):
        Retry("later", after=after_s)


# --- outages ---


def test_nothing_is_given_up_while_the_downstream_is_away_and_no_retry_is_spent() -> None:
    policy = policy_of(retries=1, on_failure=OnFailure.DEAD_LETTER)
    sub = new_sub()
    for _ in range(FAILURES):
        policy.failed(new_sub(), 1, 999, 0.0)
    assert policy.breaker.open
    for _ in range(20):
        assert policy.failed(sub, 1, 999, 1.0).fate is Fate.RETRY
    policy.breaker.start_probe(sub)
    assert policy.breaker.ended(sub)
    assert policy.failed(sub, 2, 999, 2.0).fate is Fate.RETRY
    assert policy.failed(sub, 3, 999, 2.0).fate is Fate.DEAD


# --- too many ---


def test_too_many_given_up_are_a_reason_to_halt() -> None:
    policy = policy_of(max_failures=Limit(count=2))
    assert [policy.gave_up(10), policy.gave_up(11)] == [None, None]
    assert "more than --max-failures 2" in (policy.gave_up(12) or "")
