"""Remainder of a backlog, and its time: against the truth, on a clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import pytest

from builders import a_plan, advanced, changed
from core.messages import message_at
from drainer.core.dispatch import Dispatcher
from drainer.core.first import PriorityDispatcher
from drainer.core.ledger import Ledger
from drainer.core.other_claims import other_claims
from drainer.core.remainder import ReadSample, Remainder, unread_subs
from drainer.engine.meter import Latencies, LocalSampler, time_left
from drainer.message import Barrier, SubMessage
from drainer.model.account import Account
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.priority import PriorityClass, PriorityClasses
from drainer.model.ranges import ranges_of
from drainer.model.settings import FailureSettings
from drainer.model.status import Status, share_finished
from drainer.policy.rules import RuleFilter

WHERE = "key =~ 'c.*'"
MESSAGES, FAN_OUT, OF_CLASS = 200, 50, 10
WORKERS, CALL_S = 20, 0.1
PER_STATUS = round(WORKERS * 0.5 / CALL_S)  # sub-messages that are handled between two statuses
AHEAD = 500  # sub-messages that are read before they are wanted
FILTER_BITS = 2**25  # So many that no sub-message is deferred by chance.


def planned(*, first: bool, only: bool = False) -> OffsetPlan:
    plan = a_plan(MESSAGES)
    classes = PriorityClasses((PriorityClass(WHERE),), only) if first else PriorityClasses()
    return advanced(changed(plan, classes=classes), Account.begun)


def split(offset: int) -> list[SubMessage]:
    """Of fifty sub-messages ten are the class's."""
    kinds = ("c" if n < OF_CLASS else "x" for n in range(FAN_OUT))
    return [SubMessage(f"{kind}{offset}-{n}") for n, kind in enumerate(kinds)]


def rest_of(plan: OffsetPlan, rule_filter: RuleFilter | None = None) -> Dispatcher:
    known = plan.account.claims[ALL]
    ledgers = {n: Ledger(p.start, p.end, known[n]) for n, p in plan.account.partitions.items()}
    return Dispatcher(ledgers, rule_filter=rule_filter, others=other_claims(plan))


@dataclass
class Run:
    """A pass that reads some ahead, and handles as many sub-messages as its workers can."""

    plan: OffsetPlan
    dispatcher: Dispatcher
    now_s: float = 1_000.0
    statuses: list[tuple[float, Status]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.latencies = Latencies(lambda: self.now_s)
        self.meter = LocalSampler(
            self.dispatcher,
            self.latencies,
            concurrency=WORKERS,
            buffer_bytes=1,
            plan_path="p",
            clock=lambda: self.now_s,
        )
        self.next = self.dispatcher.ledgers[0].position

    def read(self) -> None:
        left = self.dispatcher.remainder()
        while self.next < self.dispatcher.ledgers[0].end and left.waiting < AHEAD:
            message = message_at(self.next)
            if self.dispatcher.wants(message):
                self.dispatcher.deliver(message, split(self.next))
            self.next += 1
            left = self.dispatcher.remainder()

    def show(self) -> Status:
        self.meter.measure(WORKERS)
        status = self.meter.status(self.plan, WORKERS, WORKERS)
        status = self.dispatcher.complete_status(status, self.plan, FailureSettings())
        self.statuses.append((self.now_s, status))
        return status

    def go_on(self, steps: int = 10**3) -> None:
        self.show()
        for _ in range(steps):
            self.read()
            for _ in range(PER_STATUS):
                if (sub := self.dispatcher.take()) is None:
                    break
                self.dispatcher.finish(sub)
                self.latencies.record(CALL_S, 0)
            self.now_s += 0.5
            self.show()
            if self.dispatcher.complete:
                return
        assert steps < 10**3, "the pass does not end"


def after(run: Run) -> OffsetPlan:
    ended = run.plan.account.classes.with_ended(WHERE, "2026-01-01T00:00:00+00:00", 0, cut=False)
    return advanced(
        changed(run.plan, claims=run.dispatcher.claims(), classes=ended), Account.without_pending
    )


@cache
def first_then_rest() -> tuple[Run, Run]:
    plan = planned(first=True)
    first = Run(plan, PriorityDispatcher(plan, WHERE, None, FILTER_BITS))
    first.go_on()
    rest = Run(after(first), rest_of(after(first)), first.now_s)
    rest.go_on()
    return first, rest


def test_the_time_left_of_all_has_what_the_other_engine_takes_to_start() -> None:
    plan = planned(first=True)
    found = []
    for rest_after_s in (0.0, 10.0):
        first = Run(plan, PriorityDispatcher(plan, WHERE, None, FILTER_BITS, rest_after_s))
        first.go_on(8)
        found.append(first.show().progress)
    at_once, later = found
    assert at_once.eta_s is not None
    assert later.eta_s == at_once.eta_s + 10.0
    assert later.turn == at_once.turn


def test_the_time_left_is_that_of_the_class_and_of_all_and_then_of_the_rest() -> None:
    first, rest = first_then_rest()
    for at_s, status in rest.statuses[4:-1]:
        assert status.progress.eta_s == pytest.approx(rest.now_s - at_s, rel=0.05, abs=0.5)
    for at_s, status in first.statuses[4:-1]:
        assert status.progress.turn is not None
        assert status.progress.turn.eta_s == pytest.approx(first.now_s - at_s, rel=0.05, abs=0.5)
        assert status.progress.eta_s == pytest.approx(rest.now_s - at_s, rel=0.05, abs=0.5)
        done = status.progress.turn.sub_messages.done
        assert done + (status.progress.turn.left or 0) == MESSAGES * OF_CLASS


def test_progress_rises_through_the_passes_and_counts_what_a_class_has_done() -> None:
    first, rest = first_then_rest()
    shares = [share_finished(status.progress.partitions) for _, status in first.statuses[1:]]
    assert shares[-1] == pytest.approx(OF_CLASS / FAN_OUT)
    shares += [share_finished(status.progress.partitions) for _, status in rest.statuses[1:]]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_only_a_class_takes_no_longer_than_it() -> None:
    plan = planned(first=True, only=True)
    run = Run(plan, PriorityDispatcher(plan, WHERE, None, FILTER_BITS))
    run.go_on()
    for _, status in run.statuses:
        assert status.progress.turn is not None
        assert status.progress.eta_s == status.progress.turn.eta_s
    assert share_finished(run.statuses[-2][1].progress.partitions) > 0.9


def test_behind_a_barrier_the_rest_has_the_class_too() -> None:
    plan = planned(first=True)
    dispatcher = PriorityDispatcher(plan, WHERE, None, FILTER_BITS)
    for offset in range(10):
        dispatcher.deliver(message_at(offset), split(offset))
    dispatcher.deliver(message_at(10), [*split(10), Barrier()])
    beside = dispatcher.left_beside()
    assert beside is not None
    unread = (MESSAGES - 11) * FAN_OUT
    assert beside[0] == pytest.approx(11 * (FAN_OUT - OF_CLASS) + unread, rel=0.01)
    assert dispatcher.remainder().unread == {0: 0}

    rest = rest_of(changed(plan, claims=dispatcher.claims()))
    for offset in range(5):
        rest.deliver(message_at(offset), split(offset))
    assert rest.remainder().unread == {0: (MESSAGES - 5) * FAN_OUT}, "nothing of it is finished"


def test_messages_that_an_earlier_run_finished_in_part_are_no_sample_of_those_to_come() -> None:
    plan = planned(first=False)
    before = rest_of(plan)
    for offset in range(40):
        before.deliver(message_at(offset), split(offset))
    while (sub := before.take()) is not None:
        if sub.index % 10:  # else it is at work as the run is killed
            before.finish(sub)
    rest = rest_of(advanced(changed(plan, claims=before.claims()), Account.without_pending))
    for offset in range(8):
        rest.deliver(message_at(offset), split(offset))
    left = rest.remainder()
    assert (left.waiting, left.unread) == (8 * 5, {0: 32 * 5 + (MESSAGES - 40) * FAN_OUT})


def test_what_rules_take_out_takes_no_time() -> None:
    plan = planned(first=False)
    run = Run(plan, rest_of(plan, RuleFilter(["key =~ 'x.*'"])))
    run.go_on()
    for at_s, status in run.statuses[4:-1]:
        assert status.progress.eta_s == pytest.approx(run.now_s - at_s, rel=0.05, abs=0.5)


def test_a_rate_that_was_lowered_counts_at_once() -> None:
    plan = planned(first=False)
    run = Run(plan, rest_of(plan))
    run.go_on(20)
    eta_s = run.show().progress.eta_s
    assert eta_s is not None
    pace = WORKERS / CALL_S
    run.plan = changed(plan, failures=FailureSettings(rate=pace / 10))
    assert run.show().progress.eta_s == pytest.approx(10 * eta_s, rel=0.05)


def test_holes_count_as_often_as_they_came() -> None:
    every_other = ReadSample(read=100, unread=1_000, subs=50 * 3)
    assert unread_subs({0: every_other}) == {0: 1_500}


def test_a_partition_that_was_not_read_yet_is_like_the_others() -> None:
    samples = {0: ReadSample(10, 10, 60), 1: ReadSample(0, 10, 0), 2: ReadSample(10, 10, 20)}
    assert unread_subs(samples) == {0: 60, 1: 40, 2: 20}
    assert unread_subs({0: ReadSample(0, 10, 0)}) is None
    assert unread_subs({0: ReadSample(0, 0, 0)}) == {0: 0}


def test_what_an_earlier_run_finished_is_neither_read_nor_to_be_read() -> None:
    sample = ReadSample.of((10, 50, 100), ranges_of([11, 12, 60, 61, 62]), 76, 5, 55)
    assert sample == ReadSample(38, 47, 76, 5, 38, 5)


def test_what_only_reading_takes_is_estimated_by_that() -> None:
    left = Remainder(7, 0, 0.0, 1_000, 9_000, {0: 9_000.0})
    assert time_left(left, 0.0, 100.0, starved=False) == 90
    assert time_left(left, 3.0, 100.0, starved=True) == 90
    assert time_left(left, 0.0, 0.0, starved=True) is None
