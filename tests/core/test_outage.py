"""Outages and bad messages, in virtual time: what is given up, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drainer.core.progress import Outcome
from drainer.engine.failures import BACK_AGAIN_S
from drainer.message import SubMessage
from drainer.policy.admission import Admission, Retries
from drainer.policy.breaker import PROBE_MOST_S, Breaker
from drainer.policy.failures import Decision, FailurePolicy, FailureSettings, Fate, OnFailure

from .messages import deliver, one_partition

Bad = Callable[[int, float], bool]  # of an offset, at a time: whether the attempt fails
POLICY = FailureSettings(retries=3, on_failure=OnFailure.DEAD_LETTER)


@dataclass
class Run:
    """A drain of ``count`` messages over ``lanes`` lanes, whose handler takes ``latency_s``."""

    bad: Bad
    lanes: int = 1
    count: int = 400
    concurrency: int = 8
    latency_s: float = 0.01
    policy: FailureSettings = POLICY
    now_s: float = 0.0
    given_up: dict[int, float] = field(default_factory=dict)  # by offset, when
    halted: str | None = None
    attempts: int = 0

    def __post_init__(self) -> None:
        random = Random(1)
        self.dispatcher = one_partition(0, self.count)
        for offset in range(self.count):
            deliver(self.dispatcher, offset, f"k{offset % self.lanes}")
        self.breaker, self.retries = Breaker(), Retries()
        self.judge = FailurePolicy(self.policy, self.breaker, random)
        admission = Admission(
            self.dispatcher, self.retries, self.breaker, None, lambda: self.now_s, lambda: None
        )
        doubted: set[SubMessage] = set()
        running: list[tuple[float, int, SubMessage]] = []
        ledger = self.dispatcher.ledgers[0]
        while not self.dispatcher.complete and self.halted is None:
            while len(running) < self.concurrency and (sub := admission.take()) is not None:
                self.attempts += 1
                ends_s = self.now_s + self.latency_s * random.uniform(0.5, 1.5)
                heappush(running, (ends_s, self.attempts, sub))
            at_s = [running[0][0]] if running else []
            if not self.breaker.open and self.retries.due_s is not None:
                at_s.append(self.retries.due_s)
            if self.breaker.probe_at_s is not None:
                at_s.append(max(self.now_s, self.breaker.probe_at_s))
            self.now_s = min(at_s)
            opened_s = self.breaker.open_since_s
            if opened_s is not None and self.now_s - opened_s > self.policy.max_outage_s:
                self.halted = "--max-outage"
            while running and running[0][0] <= self.now_s:
                sub = heappop(running)[2]
                if not self.bad(sub.message.offset, self.now_s):
                    admission.finish(sub)
                    continue
                at_work = self.dispatcher.lanes.running + self.dispatcher.ready
                decision = self.judge.failed(sub, ledger.subs_done, at_work, self.now_s)
                doubted.discard(sub)
                if decision.fate is Fate.RETRY:
                    self.dispatcher.hold(sub)
                    self.retries.push(sub, decision.at_s)
                    if decision.in_doubt:
                        doubted.add(sub)
                else:
                    self._give_up(sub, decision)
            if not self.breaker.open:
                for sub in self.retries.pop_due(self.now_s):
                    at_work = self.dispatcher.lanes.running + self.dispatcher.ready
                    if not self.breaker.comes_back(sub, ledger.subs_done, at_work):
                        self.retries.push(sub, self.now_s + BACK_AGAIN_S)
                        continue
                    proven = sub in doubted and self.judge.proven(sub, ledger.subs_done)
                    doubted.discard(sub)
                    if proven:
                        self.dispatcher.unhold(sub)
                        self._give_up(sub, proven)
                    else:
                        self.dispatcher.release(sub)

    def _give_up(self, sub: SubMessage, decision: Decision) -> None:
        if decision.fate is Fate.HALT:
            self.halted = decision.why or "halted"
            return
        self.given_up[sub.message.offset] = self.now_s
        behind = self.dispatcher.lanes.behind(sub)
        if behind is not None and decision.why is None and self.dispatcher.ledgers[0].subs_done:
            self.judge.expect(behind, self.now_s)
        self.judge.gave_up(self.count)
        self.dispatcher.finish(sub, Outcome.DEAD)


def away(begins_s: float, ends_s: float) -> Bad:
    return lambda _, now_s: begins_s <= now_s < ends_s


def always(*offsets: int) -> Bad:
    return lambda offset, _: offset in offsets


def either(*each: Bad) -> Bad:
    return lambda offset, now_s: any(bad(offset, now_s) for bad in each)


def policy(**named: Any) -> FailureSettings:
    return replace(POLICY, **named)


@settings(deadline=None)
@given(
    lanes=st.integers(1, 60),
    retries=st.integers(0, 4),
    concurrency=st.integers(1, 60),
    latency_s=st.sampled_from([0.0001, 0.01, 0.3]),
    begins=st.floats(0.2, 0.9),
    lasts_s=st.floats(1, 50),
)
@example(lanes=2, retries=2, concurrency=1, latency_s=0.0001, begins=0.5, lasts_s=48.0)
def test_no_outage_gives_anything_up(
    lanes: int, retries: int, concurrency: int, latency_s: float, begins: float, lasts_s: float
) -> None:
    parallel = min(lanes, concurrency)
    begins_s = begins * 400 * latency_s / parallel
    run = Run(
        away(begins_s, begins_s + lasts_s),
        lanes,
        concurrency=concurrency,
        latency_s=latency_s,
        policy=policy(retries=retries),
    )
    assert (run.halted, run.given_up) == (None, {})
    soon_s = begins_s + lasts_s + 1 + PROBE_MOST_S + 400 * 1.5 * latency_s
    assert run.now_s < soon_s, "it resumes soon after"


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("lanes", [1, 7])
def test_a_bad_message_is_given_up_in_an_outage_too(lanes: int, retries: int) -> None:
    bad = either(always(150), away(1, 20))
    run = Run(bad, lanes, count=1_000 * lanes, policy=policy(retries=retries))
    assert run.halted is None
    assert set(run.given_up) == {150}


@pytest.mark.parametrize("retries", [0, 3])
def test_among_others_a_bad_message_is_given_up_as_soon_as_its_retries_are_spent(
    retries: int,
) -> None:
    bad = (40, 41, 42, 150)
    run = Run(always(*bad), lanes=20, policy=policy(retries=retries))
    assert set(run.given_up) == set(bad)
    assert run.now_s < 5
    assert run.breaker.opened == 0
    assert run.attempts == 400 + len(bad) * retries


def test_where_nothing_else_could_tell_a_bad_message_is_given_up_after_max_doubt() -> None:
    run = Run(always(150), lanes=1)
    assert set(run.given_up) == {150}
    assert 60 <= run.given_up[150] < 62 + 1.5 + 2 * PROBE_MOST_S
    assert Run(always(150), policy=policy(max_doubt_s=0)).now_s < 10


def test_a_long_outage_of_one_lane_costs_one_sub_message_at_most() -> None:
    run = Run(away(2, 3000), lanes=1)
    assert (run.halted, len(run.given_up)) == (None, 1)


def test_an_outage_without_an_end_halts() -> None:
    for lanes in (1, 3, 400):
        run = Run(away(0.3, 1e9), lanes)
        assert run.halted == "--max-outage"
        assert len(run.given_up) <= (lanes == 1)


@pytest.mark.parametrize("lanes", [1, 20, 400])
def test_a_handler_that_is_broken_from_the_start_gives_up_next_to_nothing(lanes: int) -> None:
    run = Run(away(0, 1e9), lanes, policy=policy(on_failure=OnFailure.HALT))
    assert run.halted is not None
    assert run.now_s < 5
    run = Run(away(0, 1e9), lanes)
    assert "nothing has succeeded" in (run.halted or "")
    assert len(run.given_up) <= 3
    assert run.now_s < 3 * 60


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize(
    ("lanes", "count", "share"),
    [(1, 400, 0.1), (5, 400, 0.1), (40, 400, 0.1), (8, 2_000, 0.01), (20, 2_000, 0.01)],
)
def test_many_bad_messages_do_not_hold_a_drain_up(
    lanes: int, count: int, share: float, retries: int
) -> None:
    """The last ones are among them. Lanes that come to one each, one after the other, are no
    outage, though in the end each waits for a retry."""
    random = Random(f"{lanes} {retries}")
    bad = {n for n in range(count) if random.random() < share} | {count - 1, count - 2, count - 4}
    run = Run(always(*bad), lanes, count, policy=policy(retries=retries, retry_delay_s=0.01))
    assert run.halted is None
    assert set(run.given_up) == bad
    assert run.now_s < 10 * 60


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize(("count", "concurrency"), [(60, 4), (100, 32)])
@pytest.mark.parametrize("lanes", [200, 2_000])
def test_many_bad_messages_next_to_each_other_hold_a_drain_up_once(
    lanes: int, count: int, concurrency: int, retries: int
) -> None:
    """Whatever is left of them when the breaker closes fails again, and others succeed."""
    bad = range(500, 500 + count)
    run = Run(always(*bad), lanes, 2_000, concurrency=concurrency, policy=policy(retries=retries))
    assert set(run.given_up) == set(bad)
    assert run.breaker.opened == 1
    assert run.now_s < count * PROBE_MOST_S


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("lanes", [2, 20])
def test_a_lane_that_is_bad_to_its_end_is_no_outage(lanes: int, retries: int) -> None:
    """It is all that is left, for the others are soon done."""
    run = Run(lambda offset, _: not offset % lanes, lanes, policy=policy(retries=retries))
    assert set(run.given_up) == set(range(0, 400, lanes))
    assert run.now_s < 400 / lanes * 4
    assert run.breaker.opened == 0


def test_two_outages_with_a_moment_between_give_nothing_up() -> None:
    for gap_s in (0.05, 0.3, 2.0):
        run = Run(either(away(0.3, 8), away(8 + gap_s, 20)), lanes=4)
        assert (run.halted, run.given_up) == (None, {})
