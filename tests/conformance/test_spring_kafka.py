"""Spring's bound on what a burst of bad records costs, and the loss that came before it.

Source: spring-projects/spring-kafka, issue 4504 (of two failing records on a partition one is never
retried nor recovered, and committed all the same) and pull request 4512 (the cost of a burst is
linear), https://github.com/spring-projects/spring-kafka/pull/4512, with the test ``test suspend
function bounded burst stays linear with N`` of ``EnableKafkaKotlinCoroutinesTests.kt``.

With n retries, N records that always fail are delivered N(n + 1) times, and at most N(n + 2) times;
before, it was N(N + 2) times. Each of them is recovered, which is to say given up, exactly once.
Those of one partition are retried from the lowest on, with all behind it.

drainer keeps the lower figure for errors that are the message's own, and behind a bad message only
its own lane waits. For an error that may be the downstream's, its promise is another one: it waits
instead of giving messages up, so the bound is one of time and not of attempts. Only when other
calls succeed, or the breaker is off, is it Spring's. The cost is still linear in N.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from core.messages import Place, sub_place
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, OnFailure
from engine.made_up_kafka import (
    Kind,
    OnTheLoop,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    handler_of,
    log_of,
)
from engine.virtual_drain import VirtualDrain

pytestmark = pytest.mark.long

RETRIES = 2  # FixedBackOff(100, 2)
POLICY = FailureSettings(
    retries=RETRIES, retry_delay_s=0.1, retry_max_delay_s=0.1, on_failure=OnFailure.DEAD_LETTER
)
BURSTS = [2, 10, 60]  # Spring's tests have two and ten


class Unclear(Exception):
    """An error that says nothing of whose fault it is."""


def burst(
    count: int, error: type[Exception], *, lanes: int, others: int, policy: FailureSettings
) -> VirtualDrain:
    """A burst at the head of a partition; all messages take turns in so many lanes."""
    return VirtualDrain(
        lambda offset, _: error("always") if offset < count else None,
        lanes=lanes,
        count=count + others,
        policy=policy,
    )


def ensure_bounded(run: VirtualDrain, count: int, most: int) -> None:
    """Ensure that all of a burst were given up, after so many attempts at most, and no others."""
    attempts = {offset: run.attempts[offset] for offset in range(count)}
    assert count * (RETRIES + 1) <= sum(attempts.values()) <= most, attempts
    assert run.halted is None
    assert set(run.given_up) == set(range(count))
    assert run.dispatcher.complete


@pytest.mark.parametrize("others", [0, 1000])
@pytest.mark.parametrize("lanes", [1, 7, 10_000])
@pytest.mark.parametrize("count", BURSTS)
def test_a_burst_of_bad_messages_costs_the_retries_of_each(
    count: int, lanes: int, others: int
) -> None:
    run = burst(count, ValueError, lanes=lanes, others=others, policy=POLICY)
    # A burst of errors that are the messages' own opens the breaker, too: once more for some.
    ensure_bounded(run, count, count * (RETRIES + (1 if count < 50 else 2)))


@pytest.mark.parametrize("lanes", [1, 7, 10_000])
@pytest.mark.parametrize("count", BURSTS)
def test_without_the_breaker_it_does_whatever_the_error_is(count: int, lanes: int) -> None:
    policy = replace(POLICY, breaker=False)
    run = burst(count, Unclear, lanes=lanes, others=1000, policy=policy)
    ensure_bounded(run, count, count * (RETRIES + 1))


@pytest.mark.parametrize("count", [2, 10])
def test_an_unclear_error_costs_no_more_where_other_calls_succeed(count: int) -> None:
    run = burst(count, Unclear, lanes=10_000, others=1000, policy=POLICY)
    ensure_bounded(run, count, count * (RETRIES + 1))


def test_where_nothing_else_is_left_an_unclear_error_costs_a_time_for_each() -> None:
    """Where Spring's bound is not drainer's, the cost is that of ``max-doubt``, and linear too."""
    policy = FailureSettings(retries=RETRIES, on_failure=OnFailure.DEAD_LETTER)
    attempts = {}
    for count in (2, 10, 40):
        run = burst(count, Unclear, lanes=10_000, others=20, policy=policy)
        ensure_bounded(run, count, 12 * count)  # delays of 0.2 s that double fill a minute
        attempts[count] = sum(run.attempts[offset] for offset in range(count))
        assert run.now_s < policy.max_doubt_s + 5
    assert attempts[40] <= 4.5 * attempts[10]


# --- what was committed, over stops and resumes ---

LANES, MESSAGES, BAD = 12, 240, range(40, 80)
DEAD = replace(POLICY, retry_delay_s=0.01, retry_max_delay_s=0.01, dead_letter_topic="dead")


class Burst:
    """A drain with a burst in its midst that is stopped and resumed, and what it does."""

    def __init__(self, virtual: VirtualDrains, kind: Kind) -> None:
        self._virtual, self._kind = virtual, kind
        logs = {0: log_of(*([f"k{n % LANES}"] for n in range(MESSAGES)))}
        self.rehearsal: Rehearsal = virtual.rehearsal(logs, failures=DEAD)
        self.attempts: list[Counter[Place]] = []
        self.committed_before: list[int] = []
        self.order: list[Place] = []  # of what was done

    def drain(self, stops_after: int | None = None) -> int:
        self.attempts.append(attempts := Counter[Place]())
        self.committed_before.append(self.rehearsal.group.committed[0] or 0)

        def step(sub: SubMessage) -> float:
            place = sub_place(sub)
            attempts[place] += 1
            if attempts.total() == stops_after:
                self._virtual.signal("SIGTERM")
            if place[1] in BAD:
                raise ValueError("always")
            self.order.append(place)
            return 0.005

        handler = handler_of(self._kind, step, self._virtual.sleep)
        return self.rehearsal.drain(handler).exit_code

    def ensure_kept(self) -> None:
        """Ensure that each was done or given up once, and none that was committed came again."""
        letters = self.rehearsal.letters.written
        assert sorted(letters) == [(0, offset, 0) for offset in BAD]
        assert len(self.order) == len(set(self.order)) == MESSAGES - len(BAD)
        for attempts, committed in zip(self.attempts, self.committed_before, strict=True):
            again = {place for place in attempts if place[1] < committed}
            assert not again, f"committed below {committed}, and handled again: {sorted(again)}"
        for offset in BAD:
            runs = [attempts[0, offset, 0] for attempts in self.attempts]
            assert runs[-1] <= RETRIES + 1
            assert sum(runs) <= (RETRIES + 1) * sum(map(bool, runs))
        assert self.rehearsal.group.committed == {0: MESSAGES}


@both_kinds
def test_what_was_committed_amid_a_burst_is_never_handled_again(
    kind: Kind, virtual: VirtualDrains
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    story = Burst(virtual, kind)
    for stop in random.Random(seed).sample(range(10, 60), 4):
        assert story.drain(stop) == 4
    assert story.drain() == 6
    story.ensure_kept()
    assert any(0 < committed < MESSAGES for committed in story.committed_before)


@both_kinds
def test_those_behind_a_burst_and_beside_it_go_on(kind: Kind, virtual: VirtualDrains) -> None:
    """The lanes without a bad message are through before the burst is, in a lane of its own."""
    bad = [["bad"]] * 5
    rehearsal = virtual.rehearsal(
        {0: log_of(["x0"], *bad, *([f"x{n}"] for n in range(100)))},
        failures=replace(DEAD, retry_delay_s=1.0, retry_max_delay_s=1.0),
    )
    done_s: list[float] = []

    def step(sub: SubMessage) -> float:
        if sub.key == "bad":
            raise ValueError("always")
        done_s.append(virtual.world.now_s)
        return 0.005

    assert rehearsal.drain(handler_of(kind, step, virtual.sleep)).exit_code == 6
    assert len(done_s) == 101
    assert max(done_s) < 1, "before the first retry"
    assert rehearsal.letters.written == [(0, offset, 0) for offset in range(1, 6)]


# --- sabotage ---


def loses_one(story: Burst) -> None:
    """Issue 4504: one is passed over, and committed."""
    story.rehearsal.letters.written.pop()


def recovers_twice(story: Burst) -> None:
    """Issue 4465: recovered, and delivered again."""
    story.rehearsal.letters.written.append((0, BAD[0], 0))


def costs_its_square(story: Burst) -> None:
    for number, offset in enumerate(BAD):
        story.attempts[-1][0, offset, 0] += number


def handles_what_was_committed(story: Burst) -> None:
    story.committed_before.append(MESSAGES)
    story.attempts.append(Counter([(0, 3, 0)]))


@pytest.mark.parametrize(
    "sabotage", [loses_one, recovers_twice, costs_its_square, handles_what_was_committed]
)
def test_an_account_that_breaks_the_promise_is_found_out(
    sabotage: Callable[[Burst], None], virtual: VirtualDrains
) -> None:
    story = Burst(virtual, OnTheLoop)
    assert story.drain() == 6
    story.ensure_kept()
    sabotage(story)
    with pytest.raises(AssertionError):
        story.ensure_kept()
