"""Retries, dead letters, parked lanes, timeouts, the circuit breaker and the rate, as it runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from core.messages import Place
from drainer.errors import (
    DeadLetterFlawed,
    DeadLetterNotWritten,
    Interrupted,
    LockLost,
    RecordUnsure,
)
from drainer.handler import Retry
from drainer.message import Message, SubMessage
from drainer.model.settings import FailureSettings, Limit, LocalSettings, OnFailure
from drainer.model.status import DOUBLED_MOST
from drainer.policy.failures import Totals
from engine.made_up_kafka import (
    UNHURRIED,
    Kind,
    OnTheLoop,
    OnThreads,
    VirtualDrains,
    both_kinds,
    handler_of,
    in_lanes,
)

QUICK = FailureSettings(retries=2, retry_delay_s=0.001, retry_max_delay_s=0.004)

LOGS = in_lanes(100, 10)  # offset n is in lane n % 10
DEAD = replace(QUICK, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead", retries=0)
LATE = replace(QUICK, timeout_s=0.05)


def poison(*offsets: int) -> Callable[[SubMessage], None]:
    def step(sub: SubMessage) -> None:
        if sub.message.offset in offsets:
            raise ValueError(f"no good: {sub.message.offset}")

    return step


def places(*offsets: int) -> set[Place]:
    return {(0, offset, 0) for offset in offsets}


@both_kinds
def test_sub_messages_that_failed_and_their_attempts_are_counted_apart(
    kind: Kind, virtual: VirtualDrains
) -> None:
    rehearsal = virtual.rehearsal(LOGS, failures=replace(DEAD, retries=3))
    attempts, seen = Counter[int](), [0]
    rehearsal.observe = lambda status: seen.append(status.failures.retries)

    def act(sub: SubMessage) -> float:
        offset = sub.message.offset
        attempts[offset] += 1
        if offset == 5 and attempts[offset] < 3:
            raise Retry("later", after=0.001)
        if offset == 13 or (offset == 57 and attempts[offset] < 3):
            raise ValueError(f"no document {sub.message.offset}-{attempts[offset]}")
        return 0.0

    failures = rehearsal.drain(virtual.handler(kind, act)).last.failures
    assert (failures.failed_sub_messages, failures.failures, failures.retries) == (2, 6, 7)
    assert failures.errors == (("ValueError: no document …", 6),)
    assert seen == sorted(seen), "a counter that falls"


def test_a_letter_that_is_refused_stops_the_drain_and_stays_pending(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(LOGS, failures=DEAD)
    rehearsal.letters.failure = DeadLetterNotWritten("no room", hint="make some")
    handler = handler_of(OnTheLoop, poison(13))
    summary = rehearsal.drain(handler)
    assert (summary.exit_code, summary.error) == (4, "no room")
    assert summary.sub_messages.dead == 0
    assert (0, 23, 0) not in handler.account.began
    assert (rehearsal.group.committed[0] or 0) <= 13


@pytest.mark.parametrize(
    ("why", "grace_s"), [(LockLost("another drain has it"), 0.0), (Interrupted("enough"), 0.3)]
)
def test_letters_under_way_are_not_waited_for_once_the_group_is_another_s(
    why: Interrupted, grace_s: float, virtual: VirtualDrains
) -> None:
    """The drain that has it handles what died here too."""
    settings = LocalSettings(concurrency=8, plan_interval_s=0.02, grace_s=0.3)
    rehearsal = virtual.rehearsal(LOGS, settings, failures=DEAD)
    rehearsal.letters.keeps_silent = True

    def stop_when_it_died(status: object) -> None:
        if rehearsal.letters.written:
            rehearsal.lock.lost = why

    rehearsal.observe = stop_when_it_died

    assert rehearsal.drain(handler_of(OnTheLoop, poison(13))).exit_code == 4

    assert rehearsal.letters.closed_within_s == [grace_s]


def staying_at(offset: int, let_go: threading.Event) -> OnThreads:
    def step(sub: SubMessage) -> None:
        if sub.message.offset == offset:
            let_go.wait()

    return OnThreads(step)


def test_a_thread_that_takes_too_long_keeps_its_lane_and_others_go_on(
    virtual: VirtualDrains,
) -> None:
    let_go = virtual.event()
    handler = staying_at(13, let_go)
    rehearsal = virtual.rehearsal(LOGS, replace(UNHURRIED, concurrency=2), failures=LATE)
    lane = places(*range(13, 100, 10))

    def observe(status: object) -> None:
        if set(handler.account.finished) == rehearsal.places - lane:
            assert handler.account.began.count((0, 13, 0)) == 1
            let_go.set()

    rehearsal.observe = observe
    summary = rehearsal.drain(handler)

    assert summary.last.failures.timeouts == 1
    assert not handler.account.breaches
    assert (0, 13, 0) in handler.account.finished, "it was let finish"


def test_a_thread_that_returns_while_the_drain_ends_is_waited_for(virtual: VirtualDrains) -> None:
    let_go = virtual.event()
    rehearsal = virtual.rehearsal(LOGS, replace(UNHURRIED, concurrency=2), failures=LATE)
    rehearsal.source_options = {"during_stop": let_go.set}
    summary = rehearsal.drain(staying_at(93, let_go))  # the last of its lane

    assert (summary.exit_code, summary.last.failures.timeouts) == (0, 1)
    assert rehearsal.group.committed == {0: 100}


def test_a_thread_that_never_returns_ends_the_drain_when_all_else_is_done(
    virtual: VirtualDrains,
) -> None:
    let_go = virtual.event()
    settings = replace(UNHURRIED, concurrency=2, grace_s=0.1)
    rehearsal = virtual.rehearsal(LOGS, settings, failures=LATE)
    summary = rehearsal.drain(staying_at(13, let_go))
    let_go.set()

    assert summary.exit_code == 5
    assert "threads" in (summary.error or "")
    assert summary.last.failures.late == 1
    assert rehearsal.places - rehearsal.finished_by_the_plan() == places(*range(13, 100, 10))
    assert summary.conserved


@pytest.mark.parametrize(("whole", "code"), [(Totals(), 5), (Totals(1_000, 0, 1_000), 0)])
def test_an_outage_at_the_start_is_waited_for_where_other_tasks_have_succeeded(
    whole: Totals, code: int, virtual: VirtualDrains
) -> None:
    def away(sub: SubMessage) -> None:
        if virtual.world.now_s < 1:
            raise ConnectionError("away")

    rehearsal = virtual.rehearsal(LOGS, failures=FailureSettings(retries=0))
    rehearsal.totals = lambda: whole
    assert rehearsal.drain(handler_of(OnTheLoop, away)).exit_code == code


def test_what_other_tasks_gave_up_counts_against_the_limit(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(LOGS, failures=replace(DEAD, max_failures=Limit(count=6)))
    rehearsal.totals = lambda: Totals(900, 5, 905)
    summary = rehearsal.drain(handler_of(OnTheLoop, poison(50, 60)))
    assert summary.exit_code == 5
    assert "gave up 7 sub-messages" in (summary.error or "")


def test_a_record_that_may_be_written_or_not_interrupts_the_drain_at_once(
    virtual: VirtualDrains,
) -> None:
    def step(sub: SubMessage) -> None:
        if sub.message.offset == 13:
            raise RecordUnsure("unknown whether it is there", hint="Grant READ.")

    rehearsal = virtual.rehearsal(LOGS, failures=replace(QUICK, on_failure=OnFailure.SKIP))
    handler = handler_of(OnTheLoop, step)

    summary = rehearsal.drain(handler)

    assert (summary.status, summary.exit_code) == ("interrupted", 4)
    assert (summary.error, summary.hint) == ("unknown whether it is there", "Grant READ.")
    assert handler.account.began.count((0, 13, 0)) == 1
    assert (summary.conserved, summary.sub_messages.failed) == (True, 0)
    assert summary.sub_messages.pending >= 1
    assert (rehearsal.group.committed[0] or 0) <= 13
    rehearsal.resumes_exactly(handler)


def test_letters_that_may_be_there_twice_are_dead_and_listed(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(LOGS, failures=replace(DEAD, breaker=False))
    rehearsal.letters.failure = DeadLetterFlawed("dead", doubled=True)
    bad = range(0, 100, 4)

    summary = rehearsal.drain(handler_of(OnTheLoop, poison(*bad)))

    assert (summary.exit_code, summary.sub_messages.dead) == (6, 25)
    assert summary.last.failures.doubled_letters == 25
    assert len(summary.last.failures.doubled_first) == DOUBLED_MOST
    assert set(summary.last.failures.doubled_first) <= {f"orders/0/{offset}[0]" for offset in bad}
    assert summary.as_json()["doubled_letters"] == 25


def test_messages_that_do_not_split_halt_a_drain_by_max_failures_though_letters_take_time(
    virtual: VirtualDrains,
) -> None:
    class Rejecting(OnTheLoop):
        def split(self, message: Message) -> Iterable[SubMessage]:
            self.account.failed.append((0, message.offset, 0))
            raise ValueError("malformed")

    rehearsal = virtual.rehearsal(in_lanes(3_000), failures=DEAD)

    summary = rehearsal.drain(Rejecting())

    assert summary.exit_code == 5
    assert "--max-failures 50%" in (summary.error or "")
    assert "higher --max-failures" in (summary.hint or "")
    assert len(rehearsal.letters.written) <= 1_000
