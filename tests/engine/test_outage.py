"""Bad messages and outages, in virtual time: what is given up, for which reason, and how soon."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from errno import ENOSPC
from functools import partial
from math import inf
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drainer.errors import Halted
from drainer.handler import GiveUp, Retry, Skip
from drainer.model.settings import FailureSettings, Limit, OnFailure
from drainer.policy.failures import FAILURES_OWN, OWN_ERROR, PROBE_MOST_S
from engine.virtual_drain import Bad, VirtualDrain, given_up_by, named

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


def disk_full() -> BaseException:
    error = RuntimeError("can't store it")
    error.__cause__ = OSError(ENOSPC, "No space left on device")
    return error


class ApiError(Exception):
    """An error with odd attributes."""

    response: ClassVar = {"Error": "boom"}


class Glitches:
    """Errors at the first attempts of 5% of the offsets."""

    def __init__(self) -> None:
        chance = Random(5)
        self.left = {offset for offset in range(8_000) if chance.random() < 0.05}

    def __call__(self, offset: int, _: float) -> BaseException | None:
        if offset not in self.left:
            return None
        self.left.remove(offset)
        return RuntimeError("reset")


def busy(offset: int, now_s: float) -> BaseException | None:
    return Retry(after=5) if 1 <= now_s < 300 and offset % 10 else None


def one_in(number: int, seed: int) -> set[int]:
    """About one of so many, drawn from 2,000 offsets."""
    chance = Random(seed)
    return {offset for offset in range(2_000) if chance.random() < 1 / number}


def attribute_error(error: BaseException) -> bool:
    raise AttributeError("status")


Drain = Callable[[], VirtualDrain]
WIDE = {"lanes": 2_000, "count": 2_000}


def drain_of(bad: Bad, concurrency: int = 8, *, virtual: Any = None, **settings: Any) -> Drain:
    """A drain of 2,000 lanes of one message each, unless ``virtual`` names others."""
    more = {**WIDE, **(virtual or {})}
    return partial(VirtualDrain, bad, concurrency=concurrency, policy=policy(**settings), **more)


@pytest.mark.parametrize(
    ("drain", "given_up", "within_s"),
    [
        # Errors of the message's own are given up once their retries are spent.
        named("own, 1%", drain_of(always(*range(7, 2_000, 100)), retry_delay_s=30.0,
              retry_max_delay_s=30.0), range(7, 2_000, 100), 3 * 30 + 5),
        *(
            named(f"own, {where}, {concurrency} at once",
                  drain_of(always(*bad, error=KeyError), concurrency, retries=0),
                  bad, 1.1 * 2_000 * 0.01 / concurrency + 1)
            for where, bad, concurrency in (
                ("first", range(20), 200), ("last", range(1_980, 2_000), 1),
                ("last", range(1_980, 2_000), 200), ("all over", range(50, 2_000, 20), 1))
        ),
        *(
            named(f"own, first, {retries} retries, though they open the breaker",
                  drain_of(always(*range(110)), 20, retries=retries), range(110), 120)
            for retries in (0, 3)
        ),
        # An outage is waited out, and gives nothing up.
        *(
            named(f"outage, calls hang into its end, {concurrency} at once",
                  drain_of(away(1, 50, TimeoutError), concurrency, retries=1,
                           virtual={"lanes": 400, "count": 8_000, "latency_s": 0.05,
                                    "hangs_s": 10.0}),
                  (), inf)
            for concurrency in (8, 20)
        ),
        named("outage after own errors", drain_of(
            either(away(1, 1.1, ValueError), away(1.1, 600)),
            virtual={"lanes": 400, "count": 820}), (), inf),
        named("outage while some request retries", drain_of(
            either(busy, away(1, 300)), virtual={"lanes": 10, "count": 4_000}), (), inf),
        named("outage after failures by chance", drain_of(
            either(Glitches(), away(2, 5, RuntimeError)), 20, retries=0,
            virtual={"lanes": 8_000, "count": 8_000}), (), inf),
        named("outage, and a few bad ones", drain_of(
            either(always(150, 151), away(1, 20)), virtual={"lanes": 20, "count": 4_000}),
            (150, 151), inf),
        # What this machine lacks is no message's fault, even without a breaker.
        named("a full disk", drain_of(away(1, 40, disk_full), retries=0, breaker=False,
              virtual={"lanes": 20}), (), inf),
        # Bad messages with unclear errors are given up where others succeed.
        named("odd attributes", drain_of(always(5, error=ApiError), virtual={"lanes": 20}), (5,),
              inf),
        named("unclear, faster than others succeed", drain_of(
            always(*range(0, 400, 3), error=RuntimeError), 200,
            virtual={"lanes": 400, "count": 400,
                     "latency_of": lambda offset: 0.002 if offset % 3 == 0 else 0.3}),
            range(0, 400, 3), inf),
        *(
            named(f"unclear, first, {count}, {concurrency} at once, {retries} retries",
                  drain_of(always(*range(50, 50 + count), error=RuntimeError), concurrency,
                           retries=retries),
                  range(50, 50 + count), 2 * count * PROBE_MOST_S)
            for count, concurrency, retries in ((60, 4, 0), (60, 32, 3), (100, 4, 3), (100, 32, 0))
        ),
        *(
            named(f"unclear, all over, {retries} retries: the last failed while there were others",
                  drain_of(always(*one_in(100, retries), error=RuntimeError), 20, retries=retries),
                  one_in(100, retries), 65)
            for retries in (0, 3)
        ),
        # What the handler decides.
        named("is_outage is true", drain_of(away(1, 40, KeyError), retries=0, virtual={
            "lanes": 300, "count": 3_000, "is_outage": lambda error: True}), (), inf),
        named("is_outage is false", drain_of(always(399, error=ConnectionError), retries=0,
              virtual={"lanes": 400, "count": 400, "is_outage": lambda error: False}), (399,), 2),
    ],
)  # fmt: skip
def test_what_is_bad_is_given_up_and_nothing_else(
    drain: Drain, given_up: Iterable[int], within_s: float
) -> None:
    run = drain()
    assert (run.halted, set(run.given_up)) == (None, set(given_up))
    assert run.now_s < within_s
    assert run.status.outages <= 2
    attempts, once_spent = {run.attempts[offset] for offset in given_up}, run.policy.retries + 1
    if run.status.outages == 0 and OWN_ERROR in given_up_by(run.status):
        assert attempts == {once_spent}
    assert min(attempts, default=once_spent) >= once_spent


@pytest.mark.parametrize(
    ("drain", "reason", "given_up_most", "within_s"),
    [
        *(
            named(f"always fails, {lanes} lanes, {retries} retries", drain_of(
                lambda *_: KeyError("id"), retries=retries, retry_delay_s=0.01,
                virtual={"lanes": lanes}),
                "nothing has succeeded", FAILURES_OWN - 1, 60 + 2_000 * 0.02)
            for lanes, retries in ((1, 0), (1, 3), (40, 3), (2_000, 0))
        ),
        named("fails mostly: judged from 1,000 finished on", drain_of(
            lambda offset, _: KeyError() if offset % 5 < 3 else None, retries=0,
            max_failures=Limit(share=0.5), virtual={"lanes": 4_000, "count": 4_000}),
            "--max-failures", 750, inf),
        named("an outage turns into HTML", drain_of(
            either(away(1, 600), away(600, 1e9, ValueError)), 20, retries=0,
            virtual={"lanes": 5_000, "count": 5_000}), "--tune max-doubt", FAILURES_OWN - 1, inf),
        *(
            named(f"outage without an end, {lanes} lanes",
                  partial(VirtualDrain, away(0.03, 1e9), lanes), "--tune max-outage", lanes == 1,
                  3_600 + 90)
            for lanes in (1, 400)
        ),
        *(
            named(f"away from the start, {lanes} lanes", partial(VirtualDrain, away(0, 1e9), lanes),
                  "nothing has succeeded in this run", lanes == 1, 3 * 60)
            for lanes in (1, 400)
        ),
        named("a disk stays full", drain_of(away(1, 1e9, disk_full), retries=0, breaker=False,
              max_outage_s=600.0, virtual={"lanes": 20}), "--tune max-outage", 0, 600 + 90),
        named("is_outage fails", partial(VirtualDrain, always(5), 20, is_outage=attribute_error),
              "is_outage() failed: AttributeError", 0, inf),
        *(
            named(f"{raised()!r} proves nothing: it may need no call", drain_of(
                either(away(0.2, 30), always(*range(0, 400, 2), error=raised)),
                retries=0, max_outage_s=20.0, virtual={"lanes": 400, "count": 400}),
                "--tune max-outage", 0, inf)
            for raised in (partial(Retry, "busy", after=0.5), partial(Skip, "old"))
        ),
    ],
)  # fmt: skip
def test_what_does_not_end_by_itself_halts_a_drain(
    drain: Drain, reason: str, given_up_most: int, within_s: float
) -> None:
    run = drain()
    assert isinstance(run.halted, Halted)
    assert reason in str(run.halted)
    assert len(run.given_up) <= given_up_most
    assert len(run.given_up) > 500 or reason != "--max-failures"
    assert run.now_s < within_s


@pytest.mark.long
def test_a_proxy_that_answers_html_costs_99_at_most() -> None:
    run = VirtualDrain(
        away(1, 31, html_with_200),
        lanes=20_000,
        count=20_000,
        concurrency=1_000,
        latency_s=0.05,
        policy=policy(retries=3),
    )
    assert run.halted is None
    assert len(run.given_up) < FAILURES_OWN
    assert run.status.outages == 1
    assert any("errors that look like the messages' own" in each for each in run.troubles)


class Flapping:
    """Away from 1 to 10 s; a success or two; then away for 4 s again."""

    back_s: float | None = None

    def __call__(self, _: int, now_s: float) -> BaseException | None:
        if now_s < 10:
            return ValueError() if now_s >= 1 else None
        self.back_s = self.back_s or now_s
        return ValueError() if self.back_s + 0.05 <= now_s < self.back_s + 4 else None


@pytest.mark.long
def test_own_errors_that_come_back_after_a_success_cost_99_again_at_most() -> None:
    run = VirtualDrain(Flapping(), 8_000, 8_000, 1_000, 0.3, policy=policy(retries=0))
    assert len(run.given_up) <= 2 * (FAILURES_OWN - 1)


def test_html_that_turns_into_an_outage_is_waited_out() -> None:
    run = VirtualDrain(either(away(1, 1.3, ValueError), away(1.3, 300)), 5_000, 5_000, 20)
    assert run.halted is None


@settings(max_examples=settings().max_examples // 5)
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


@settings(max_examples=settings().max_examples // 8)
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


def test_a_long_outage_of_the_only_lane_costs_one_sub_message() -> None:
    run = VirtualDrain(away(2, 3_000), lanes=1)
    assert (run.halted, len(run.given_up)) == (None, 1)
    assert given_up_by(run.status) == {"max-doubt": 1}
    assert any("--tune max-doubt" in each for each in run.troubles)


# --- bad messages with unclear errors ---


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


def test_a_hanging_call_that_is_all_that_is_left_is_given_up_by_max_doubt() -> None:
    run = VirtualDrain(
        lambda offset, _: TimeoutError() if offset == 399 else None, policy=policy(retries=1)
    )
    assert given_up_by(run.status) == {"max-doubt": 1}


def test_a_call_that_hangs_is_given_up_after_its_timeouts_among_healthy_ones() -> None:
    run = VirtualDrain(
        lambda offset, _: TimeoutError() if offset == 40 else None,
        lanes=8,
        count=16_000,
        policy=policy(retries=1, timeout_s=5.0),
    )
    assert run.halted is None
    assert set(run.given_up) == {40}
    assert run.given_up[40] < 15
    assert run.status.timeouts == 2


def test_only_unclear_failures_left_that_nothing_speaks_against_are_an_outage() -> None:
    """Ten at the end, one at a time, so that no other call ends meanwhile."""
    bad = range(1_990, 2_000)
    run = VirtualDrain(
        always(*bad, error=RuntimeError), lanes=2_000, count=2_000, concurrency=1, latency_s=0.001
    )
    assert run.given_up == {}
    assert "--tune max-outage" in str(run.halted)
    assert all("RuntimeError" in each for each in run.troubles)
    outage = run.status.outage
    assert outage is not None
    assert abs(outage.halts - outage.since - timedelta(hours=1)) < timedelta(milliseconds=1)


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
