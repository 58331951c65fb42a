"""Admission: no more starts than the rate, one probe at a time, and no wait without an end."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from drainer.core.admission import BURST_S, Admission, Rate, Retries
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings
from drainer.policy.breaker import PROBE_FIRST_S, Breaker
from drainer.policy.failures import FailurePolicy
from drainer.policy.fault import Fault

from .messages import deliver, one_partition

# --- the rate ---


def most_at_once(per_s: float) -> float:
    return max(1.0, per_s * BURST_S)


@settings(deadline=None)
@given(
    rates=st.lists(st.floats(0.01, 10_000), min_size=1, max_size=3),
    waits=st.lists(st.sampled_from([0.0, 1e-6, 0.001, 0.003, 0.05, 0.5, 7.0, 1000.0]), max_size=30),
)
def test_in_no_time_does_more_start_than_rates_and_burst(
    rates: list[float], waits: list[float]
) -> None:
    now_s = due = 0.0  # that the rates have given by now
    starts: list[float] = []  # what was due then
    rate = Rate(rates[0], now_s)
    for number, wait_s in enumerate(waits):
        due += rate.per_s * wait_s
        now_s += wait_s
        for _ in range(min(8, rate.allowed(now_s))):
            rate.start(now_s)
            starts.append(due)
        rate.change(rates[number % len(rates)], now_s)
    burst = most_at_once(max(rates))
    for number, first in enumerate(starts):
        for count, last in enumerate(starts[number:], start=1):
            assert count <= last - first + burst + 1e-3


@settings(deadline=None)
@given(per_s=st.floats(0.01, 10_000), idle_s=st.floats(0, 10), step=st.floats(0, 1))
def test_the_next_may_start_at_the_time_that_was_given(
    per_s: float, idle_s: float, step: float
) -> None:
    rate = Rate(per_s, 0.0)
    while rate.allowed(idle_s):
        rate.start(idle_s)
    from_s = idle_s + step / per_s
    next_s = rate.next_at_s(from_s)
    assert from_s <= next_s <= idle_s + 1 / per_s + 1e-6, "it counts what has come meanwhile"
    assert rate.allowed(next_s + 1e-9 * (1 + next_s) / min(1, per_s)) >= 1


# --- retries ---


@given(st.lists(st.integers(0, 5)))
def test_they_come_by_time_and_then_as_they_came(times: list[int]) -> None:
    retries = Retries()
    subs = [SubMessage(number) for number in range(len(times))]
    for sub, at_s in zip(subs, times, strict=True):
        retries.push(sub, float(at_s))
    found = []
    for now_s in range(6):
        while (due := retries.pop(now_s)) is not None:
            found.append((now_s, due.key))
    assert found == sorted((at_s, number) for number, at_s in enumerate(times))
    assert len(retries) == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_what_is_removed_never_comes(times: list[tuple[int, bool]]) -> None:
    retries = Retries()
    subs = [SubMessage(number) for number in range(len(times))]
    for sub, (at_s, _) in zip(subs, times, strict=True):
        retries.push(sub, float(at_s))
    removed = {sub for sub, (_, goes) in zip(subs, times, strict=True) if goes}
    assert all(retries.remove(sub) for sub in removed)
    assert not any(retries.remove(sub) for sub in removed)
    assert retries.due_s == min((at_s for at_s, goes in times if not goes), default=None)
    found = set()
    while (sub_or_none := retries.pop()) is not None:
        found.add(sub_or_none)
    assert found == set(subs) - removed
    assert retries.started == len(found)


# --- the face to workers ---


@dataclass
class Setting:
    rate: float | None = None
    lanes: int = 0
    now_s: float = 0.0
    outages_over: int = 0
    retries: Retries = field(default_factory=Retries)

    def __post_init__(self) -> None:
        self.dispatcher = one_partition(0, 10_000)
        for offset in range(self.lanes):
            deliver(self.dispatcher, offset, f"k{offset}")
        self.policy = FailurePolicy(FailureSettings(), Random(1))
        self.succeeded: list[SubMessage] = []
        self.admission = Admission(
            self.dispatcher,
            self.retries,
            self.policy,
            None if self.rate is None else Rate(self.rate, self.now_s),
            lambda: self.now_s,
            succeeded=self.succeeded.append,
            outage_over=self._note,
        )

    @property
    def breaker(self) -> Breaker:
        return self.policy.breaker

    def _note(self) -> None:
        self.outages_over += 1

    def fail(self, sub: SubMessage, fault: Fault = Fault.UNCLEAR) -> None:
        now_s = self.now_s
        self.policy.count_call(sub, fault, lanes=999, now_s=now_s)
        self.policy.decide(sub, ValueError(), fault, done=1, now_s=now_s)
        self.admission.update()

    def open(self) -> None:
        while not self.breaker.is_open:
            self.fail(SubMessage())

    def take(self) -> SubMessage:
        sub = self.admission.take()
        assert sub is not None
        return sub


def test_what_starts_is_taken_off_the_rate() -> None:
    setting = Setting(rate=10.0, lanes=50)
    setting.now_s = 1.0
    started = sum(setting.admission.take() is not None for _ in range(50))
    assert started == Rate(10.0, 0.0).allowed(1.0)


def test_when_all_lanes_wait_for_a_retry_the_first_of_those_is_the_probe() -> None:
    setting = Setting(lanes=2)
    first, second = setting.take(), setting.take()
    for at_s, sub in ((900.0, first), (800.0, second)):
        setting.dispatcher.delay(sub)
        setting.retries.push(sub, at_s)
    setting.open()
    setting.now_s = PROBE_FIRST_S
    assert setting.take() is second
    assert (second.attempt, len(setting.retries)) == (2, 1)
    setting.admission.finish(second)
    assert setting.outages_over == 1
    assert not setting.breaker.is_open
    assert setting.retries.pop() is first


def test_a_success_counts_with_the_failures_that_had_been_when_its_call_began() -> None:
    setting = Setting(lanes=3)
    early, bad = setting.take(), setting.take()
    setting.fail(bad)
    late = setting.take()
    setting.admission.finish(early)
    setting.admission.finish(late)
    seen = [(sub, getattr(sub, "started_at", 0)) for sub in setting.succeeded]
    assert seen == [(early, 0), (late, 1)]


def test_a_later_time_that_was_requested_stays_whatever_recovers() -> None:
    setting = Setting(lanes=2)
    probe, requested = setting.take(), setting.take()
    for sub in (probe, requested):
        setting.dispatcher.delay(sub)
    setting.retries.push(probe, 800.0)
    setting.retries.push(requested, 900.0, requested=True)
    setting.open()
    setting.now_s = PROBE_FIRST_S
    setting.admission.finish(setting.take())
    assert setting.retries.due_s == 900.0


class AdmissionMachine(RuleBasedStateMachine):
    """A law of any events: what may start and does not has a time, or a probe is under way."""

    @initialize(rate=st.sampled_from([None, 0.5, 10.0, 1000.0]))
    def begin(self, rate: float | None) -> None:
        self.setting = Setting(rate=rate, lanes=0)
        self.offset = 0
        self.out: list[SubMessage] = []
        self.probe: SubMessage | None = None

    @rule(count=st.integers(1, 30), lanes=st.integers(1, 30))
    def deliver(self, count: int, lanes: int) -> None:
        for _ in range(count):
            deliver(self.setting.dispatcher, self.offset, f"k{self.offset % lanes}")
            self.offset += 1

    @rule(wait_s=st.sampled_from([0.001, 0.1, 1.0, 30.0]))
    def wait(self, wait_s: float) -> None:
        self.setting.now_s += wait_s

    @rule()
    def wait_until_next(self) -> None:
        at_s = self.setting.admission.next_at_s
        if at_s is None:
            return
        self.setting.now_s = max(self.setting.now_s, at_s) + 1e-6
        assert self.setting.admission.ready
        self.take()

    @rule()
    def take(self) -> None:
        setting = self.setting
        ready = setting.admission.ready
        sub = setting.admission.take()
        assert (sub is not None) == (ready > 0)
        if sub is None:
            return
        self.out.append(sub)
        if setting.breaker.is_open:
            assert self.probe is None, "one probe at a time"
            self.probe = sub

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        sub = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before = self.setting.outages_over
        self.setting.admission.finish(sub)
        assert (self.setting.outages_over > before) == (sub is self.probe)
        if sub is self.probe:
            self.probe = None

    @precondition(lambda self: self.out)
    @rule(data=st.data(), all_of_them=st.booleans())
    def fail(self, data: st.DataObject, all_of_them: bool) -> None:
        setting = self.setting
        for _ in range(len(self.out) if all_of_them else 1):
            sub = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
            setting.fail(sub)
            setting.dispatcher.delay(sub)
            setting.retries.push(sub, setting.now_s + 1.0)
            if sub is self.probe:
                self.probe = None

    @rule()
    def the_downstream_goes_away(self) -> None:
        if not self.setting.breaker.is_open:
            self.setting.open()

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.setting.admission.paused = paused
        self.setting.admission.update()

    @precondition(lambda self: not self.setting.breaker.is_open)
    @rule()
    def retry(self) -> None:
        while (sub := self.setting.retries.pop(self.setting.now_s)) is not None:
            self.setting.dispatcher.release(sub)

    @invariant()
    def what_waits_has_a_time(self) -> None:
        setting = self.setting
        admission = setting.admission
        found = setting.dispatcher.ready
        if setting.breaker.is_open:
            found += len(setting.retries)
        if admission.paused:
            assert (admission.ready, admission.take(), admission.next_at_s) == (0, None, None)
            return
        if self.setting.rate is None and not setting.breaker.is_open:
            return  # no leave is needed
        if found and not admission.ready:
            assert admission.next_at_s is not None or self.probe is not None
        if admission.next_at_s is not None and admission.next_at_s < setting.now_s:
            assert admission.ready, "a time in the past, and nothing may start: a busy loop"


def test_whatever_happens_what_waits_has_a_time() -> None:
    run_state_machine_as_test(
        AdmissionMachine,
        settings=settings(deadline=None, max_examples=60, stateful_step_count=40, print_blob=True),
    )
