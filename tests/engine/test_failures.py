"""Where attempts begin and end: no more starts than the rate, one probe at a time, no wait without
an end, and questions without effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.messages import deliver, one_partition
from drainer.engine.failures import Failures
from drainer.handler import Retry
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, OnFailure
from drainer.policy.failures import PROBE_FIRST_S, FailurePolicy, Totals
from drainer.policy.rate import Rate
from engine.made_up_kafka import VirtualTime
from simulation.loop import work
from simulation.world import EPOCH_S

PATIENT = FailureSettings(
    retries=1_000, on_failure=OnFailure.PARK, max_doubt_s=1e9, max_outage_s=1e9
)


class Story:
    """The failures of a drain in virtual time, with lanes of one sub-message each. Nothing moves
    but what the test takes, finishes and fails."""

    awaits_more = False

    def __init__(self, lanes: int = 0, **named: Any) -> None:
        self.time = VirtualTime()
        self.loop, self.world = self.time.loop, self.time.world
        self.dispatcher = one_partition(10_000)
        for offset in range(lanes):
            deliver(self.dispatcher, offset, f"k{offset}")
        self.policy = FailurePolicy(replace(PATIENT, **named), Random(1))
        self.breaker = self.policy.breaker
        self.failures = self.loop.run_until_complete(self._failures())

    async def _failures(self) -> Failures:
        return Failures(
            self.dispatcher, self.policy, None, None, events=self, runtime=self.time.runtime
        )

    def wait(self, seconds: float = 0.0) -> None:
        self.loop.run_until_complete(work(seconds))

    def take(self) -> SubMessage:
        sub = self.failures.take()
        assert sub is not None
        return sub

    def fail(self, sub: SubMessage, error: BaseException | None = None) -> None:
        self.failures.failed(sub, error or ConnectionError("away"))

    def halt(self, cause: BaseException) -> None:
        raise cause

    def on_moved(self) -> None:
        """No worker waits for this."""

    def on_idle(self) -> None:
        """No worker waits for this."""

    def on_busy_loop(self, now_s: float) -> None:
        """There is no journal."""


@pytest.fixture
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    made = Story(**request.param)
    yield made
    made.loop.close()


def told(**named: Any) -> pytest.MarkDecorator:
    """Give a test the story of a drain with such lanes and settings."""
    return pytest.mark.parametrize("story", [named], indirect=True, ids=str)


@told(lanes=50, rate=10.0)
def test_what_starts_is_taken_off_the_rate(story: Story) -> None:
    story.wait(1.0)
    started = sum(story.failures.take() is not None for _ in range(50))
    assert started == Rate(10.0, 0.0).allowed(1.0)


@told(lanes=2)
def test_when_all_lanes_wait_for_a_retry_the_first_of_those_is_the_probe(story: Story) -> None:
    first, second = story.take(), story.take()
    for sub, delay_s in ((first, 900.0), (second, 80.0)):
        changed = replace(PATIENT, retry_delay_s=delay_s, retry_max_delay_s=delay_s)
        story.failures.change(changed, None)
        story.fail(sub)
    assert story.breaker.is_open
    assert story.failures.take() is None
    story.wait(PROBE_FIRST_S)
    assert story.take() is second
    assert (second.attempt, story.failures.waiting) == (2, 1)
    story.failures.finish(second)
    assert not story.breaker.is_open
    story.wait()
    assert story.take() is first, "it was not its fault that it failed"


@told(lanes=3)
def test_a_success_speaks_against_the_failures_before_its_call_began(story: Story) -> None:
    early, bad = story.take(), story.take()
    story.fail(bad)
    late = story.take()
    story.failures.finish(early)
    assert list(story.policy.doubts) == [bad]
    story.failures.finish(late)
    assert not story.policy.doubts


@told(lanes=2)
def test_a_later_time_that_was_requested_stays_whatever_recovers(story: Story) -> None:
    for sub in (story.take(), story.take()):
        story.fail(sub)
    story.wait(PROBE_FIRST_S)
    story.fail(story.take(), Retry("busy", after=900.0))
    assert story.breaker.is_open, "that is no failure, and no success"
    story.wait(PROBE_FIRST_S)
    story.failures.finish(story.take())
    assert not story.breaker.is_open
    story.wait(800.0)
    assert (story.failures.ready, story.failures.waiting) == (0, 1)
    story.wait(100.0)
    assert (story.failures.ready, story.failures.waiting) == (1, 0)


INSTANT = timedelta(milliseconds=1)


@told(lanes=20, max_outage_s=3_600.0)
def test_a_status_changes_nothing_until_an_event_comes(story: Story) -> None:
    failures, now_s = story.failures, 0.0
    failures.hear(Totals(done=1))
    for sub in [story.take() for _ in range(20)]:
        story.fail(sub)
        story.world.now_s += 1.0

    def seen() -> tuple[object, ...]:
        return replace(failures.status(), outage=None), failures.trouble, failures.waiting

    first = seen()
    outage = failures.status().outage
    assert outage is not None
    assert abs(outage.halts - outage.since - timedelta(hours=1)) < INSTANT
    assert [seen() for _ in range(3)] == [first] * 3
    story.world.now_s = now_s = 10_000.0
    assert seen() == first, "only events and the clock's timers change anything"
    later = failures.status().outage
    assert later is not None
    assert abs(later.halts - outage.halts) < INSTANT
    assert story.breaker.is_open

    failures.hear(Totals(done=60, finished=60, began_s=EPOCH_S + now_s))
    assert not story.breaker.is_open
    assert failures.trouble is None


class Starts(RuleBasedStateMachine):
    """A law of any events: what may start and does not has a time, or a probe is under way."""

    @initialize(rate=st.sampled_from([None, 0.5, 10.0, 1000.0]))
    def begin(self, rate: float | None) -> None:
        self.story = Story(rate=rate)
        self.failures, self.breaker = self.story.failures, self.story.breaker
        self.offset = 0
        self.out: list[SubMessage] = []
        self.probe: SubMessage | None = None
        self.paused = False

    @rule(count=st.integers(1, 30), lanes=st.integers(1, 30))
    def deliver(self, count: int, lanes: int) -> None:
        for _ in range(count):
            deliver(self.story.dispatcher, self.offset, f"k{self.offset % lanes}")
            self.offset += 1

    @rule(wait_s=st.sampled_from([0.001, 0.1, 1.0, 30.0]))
    def wait(self, wait_s: float) -> None:
        self.story.wait(wait_s)

    @rule()
    def wait_until_next(self) -> None:
        at_s, was_open = self.failures.next_start_s, self.breaker.is_open
        if at_s is None:
            return
        self.story.wait(max(0.0, at_s - self.story.world.now_s) + 1e-6)
        if self.breaker.is_open == was_open:  # Else it has opened meanwhile.
            assert self.failures.ready
            self.take()

    @rule()
    def take(self) -> None:
        ready = self.failures.ready
        sub = self.failures.take()
        assert (sub is not None) == (ready > 0)
        if sub is None:
            return
        self.out.append(sub)
        if self.breaker.is_open:
            assert self.probe is None, "one probe at a time"
            self.probe = sub

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        sub = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        was_open = self.breaker.is_open
        self.failures.finish(sub)
        assert (was_open and not self.breaker.is_open) == (sub is self.probe)
        if sub is self.probe:
            self.probe = None

    @precondition(lambda self: self.out)
    @rule(data=st.data(), all_of_them=st.booleans())
    def fail(self, data: st.DataObject, all_of_them: bool) -> None:
        for _ in range(len(self.out) if all_of_them else 1):
            sub = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
            self.story.fail(sub)
            if sub is self.probe:
                self.probe = None

    @rule()
    def the_downstream_goes_away(self) -> None:
        while not self.breaker.is_open and (sub := self.failures.take()) is not None:
            self.out.append(sub)
        if not self.breaker.is_open:
            while self.out:
                self.story.fail(self.out.pop())

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.failures.pause(paused)

    @invariant()
    def what_waits_has_a_time(self) -> None:
        failures, is_open = self.failures, self.breaker.is_open
        if self.paused:
            assert (failures.ready, failures.take(), failures.next_start_s) == (0, None, None)
            return
        if self.story.policy.settings.rate is None and not is_open:
            return  # Nothing has to be allowed to start.
        found = self.story.dispatcher.ready + (failures.waiting if is_open else 0)
        if found and not failures.ready:
            assert failures.next_start_s is not None or self.probe is not None
        if failures.next_start_s is not None and failures.next_start_s < self.story.world.now_s:
            assert failures.ready, "a time in the past, and nothing may start: a busy loop"

    def teardown(self) -> None:
        if hasattr(self, "story"):
            self.story.loop.close()


def test_whatever_happens_what_waits_has_a_time() -> None:
    run_state_machine_as_test(
        Starts,
        settings=settings(
            max_examples=settings().max_examples // 2, stateful_step_count=40, print_blob=True
        ),
    )
