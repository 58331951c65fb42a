"""People change, pause and stop a drain that runs: within a moment, and no law is broken by it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest
from made_up_kafka import (
    QUICK,
    Kind,
    OnTheLoop,
    OnThreads,
    Rehearsal,
    both_kinds,
    handler_of,
    in_lanes,
    work,
    work_on_a_thread,
)

from drainer.engine.control import Change, ControlRequest, Pause, Stop, Unpause
from drainer.errors import DrainerError, Refused, UsageError
from drainer.message import SubMessage
from drainer.model.account import EventKind
from drainer.model.codec import builtins
from drainer.model.option import Concurrency
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.model.status import Summary
from kafka.topic import eventually

ANA = "ana@db1"
LONG = in_lanes(4000, 400)


@dataclass
class Person:
    """Makes requests beside a drain, one after the other; each is done when it returns."""

    rehearsal: Rehearsal
    handler: OnTheLoop | OnThreads

    def requests(self, request: ControlRequest) -> tuple[str, ...]:
        return self.rehearsal.control.request(request, ANA).result(10)

    def sets(self, **values: Any) -> tuple[str, ...]:
        return self.requests(Change(values))

    def waits_for(self, begun: int) -> None:
        began = self.handler.account.began
        eventually(lambda: len(began) >= begun, f"{begun} are begun")

    @property
    def begun(self) -> int:
        return len(self.handler.account.began)

    @property
    def in_flight(self) -> int:
        return self.handler.account.in_flight


def drained(
    rehearsal: Rehearsal, handler: OnTheLoop | OnThreads, does: Callable[[Person], object]
) -> Summary:
    """A drain while a person does something; what that raises is raised here."""
    with ThreadPoolExecutor(1) as pool:
        person = Person(rehearsal, handler)

        def act() -> None:
            person.waits_for(1)
            try:
                does(person)
            except BaseException:
                with suppress(DrainerError):
                    person.requests(Stop(now=True))
                raise

        acting = pool.submit(act)
        summary = rehearsal.drain(handler)
        acting.result(10)
    assert handler.account.breaches == []
    return summary


def takes(kind: Kind, seconds: float) -> OnTheLoop | OnThreads:
    return handler_of(kind, lambda sub: seconds)


@both_kinds
def test_a_pause_begins_nothing_and_goes_on_where_it_was(kind: Kind, tmp_path: Path) -> None:
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(kind, 0.002)

    def pause_and_unpause(person: Person) -> None:
        person.waits_for(100)
        done = person.requests(Pause(reason="failover"))
        assert "paused by ana@db1" in done[0]
        assert "in flight" in done[0]
        eventually(lambda: not person.in_flight, "all calls have ended")
        begun = person.begun
        eventually(lambda: bool(rehearsal.group.committed[0]), "it commits meanwhile")
        with pytest.raises(UsageError):
            person.sets(concurrency=-1)
        person.sets(concurrency=16)
        assert person.begun == begun < 4000
        assert person.requests(Unpause()) == ("unpaused",)
        assert person.requests(Unpause()) == ("the drain is not paused",)

    summary = drained(rehearsal, handler, pause_and_unpause)
    assert summary.exit_code == 0
    assert sorted(handler.account.began) == sorted(rehearsal.places)
    done = [(each.what, each.by, each.reason) for each in summary.history]
    assert done[:3] == [
        (EventKind.PAUSED, ANA, "failover"),
        (EventKind.CHANGED, ANA, None),
        (EventKind.UNPAUSED, ANA, None),
    ]
    assert (done[-1][0], dict(summary.history[-1].offsets)) == (EventKind.ENDED, {0: 4000})
    assert rehearsal.file.load().plan.account.history == summary.history


def test_a_pause_may_end_by_itself(tmp_path: Path) -> None:
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(OnTheLoop, 0.001)
    summary = drained(rehearsal, handler, lambda person: person.requests(Pause(0.2)))
    assert summary.exit_code == 0
    assert [each.what for each in summary.history] == [
        EventKind.PAUSED,
        EventKind.UNPAUSED,
        EventKind.ENDED,
    ]
    assert summary.history[0].details == ("for 200ms",)


@both_kinds
def test_the_concurrency_is_what_was_set_last(kind: Kind, tmp_path: Path) -> None:
    rehearsal, handler = Rehearsal(tmp_path, in_lanes(20_000, 400)), takes(kind, 0.002)

    def more_and_less(person: Person) -> None:
        assert person.sets(concurrency=50) == ("concurrency 8 → 50",)
        eventually(lambda: person.in_flight > 40, "more are in flight")
        assert person.sets(concurrency=3) == ("concurrency 50 → 3",)
        eventually(lambda: person.in_flight <= 3, "fewer are in flight")
        begun = person.begun
        person.waits_for(begun + 30)
        assert person.in_flight <= 3
        assert person.sets(concurrency=3) == ("nothing changed",)
        automatic = {"first": 20, "most": 40, "most_threads": 40, "is_auto": True}
        assert person.sets(concurrency=automatic) == ("concurrency 3 → auto:40",)
        eventually(lambda: person.in_flight > 3, "it looks for more")
        person.sets(concurrency=30, grace_s=4)
        person.requests(Stop())

    assert drained(rehearsal, handler, more_and_less).exit_code == 4
    assert rehearsal.control.typed_changes() == {"concurrency": "30", "grace_s": "4s"}
    rehearsal.resumes_exactly(handler)


def test_auto_goes_back_to_the_search_and_the_maximum_that_the_drain_began_with(
    tmp_path: Path,
) -> None:
    searching = LocalSettings(concurrency=Concurrency.auto(40), plan_interval_s=0.02)
    rehearsal = Rehearsal(tmp_path, in_lanes(20_000, 400), searching)

    def by_hand_and_back(person: Person) -> None:
        person.sets(concurrency=3)
        assert person.sets(concurrency=builtins(Concurrency.auto())) == ("concurrency 3 → auto:40",)
        person.requests(Stop())

    assert drained(rehearsal, takes(OnTheLoop, 0.002), by_hand_and_back).exit_code == 4
    assert rehearsal.statuses[-1].limits.auto is not None
    assert rehearsal.statuses[-1].limits.auto.most == 40


@both_kinds
def test_a_rate_is_taken_away_and_given(kind: Kind, tmp_path: Path) -> None:
    slow = FailureSettings(rate=1.0)  # an hour
    rehearsal, handler = Rehearsal(tmp_path, LONG, failures=slow), takes(kind, 0.0)

    def without_and_with(person: Person) -> None:
        assert person.sets(rate=None) == ("rate 1/s → none",)
        person.waits_for(300)
        assert person.sets(rate=50) == ("rate none → 50/s",)
        begun = person.begun
        person.waits_for(begun + 3)
        assert person.begun < 4000
        person.sets(rate=100000)

    assert drained(rehearsal, handler, without_and_with).exit_code == 0
    assert rehearsal.file.load().plan.terms.failures.rate == 100000


def test_what_is_wrong_in_part_is_refused_as_a_whole(tmp_path: Path) -> None:
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(OnTheLoop, 0.001)
    wrong: list[Mapping[str, Any]] = [
        {"concurrency": 20, "retries": -1},
        {"concurrency": 20, "rate": 0},
        {"concurrency": 20, "on_failure": "shrug"},
        {"concurrency": 20, "bogus": 1},
        {"concurrency": 20, "journal_interval_s": 9},
        {"concurrency": "many"},
        {"grace_s": -1},
        {"buffer_bytes": 2**20},
        {"deadline": "2026-11-24T08:00:00"},
        {"concurrency": 1_000_000},
        {"plan_interval_s": 0},
    ]

    def request_all(person: Person) -> None:
        for values in wrong:
            with pytest.raises(UsageError):
                person.requests(Change(values))

    summary = drained(rehearsal, handler, request_all)
    assert [each.what for each in summary.history] == [EventKind.ENDED]
    assert rehearsal.control.typed_changes() == {}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (Refused("the topic can't be made"), "can't be made"),
        (LookupError("what?"), r"LookupError: what\?"),
    ],
)
def test_what_the_brokers_refuse_changes_nothing(
    tmp_path: Path, error: Exception, shown: str
) -> None:
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(OnTheLoop, 0.001)

    def fail(failures: FailureSettings) -> FailureSettings:
        raise error

    rehearsal.resolve = fail

    def request_letters(person: Person) -> None:
        with pytest.raises(Refused, match=shown):
            person.sets(on_failure="dead-letter", concurrency=20)

    summary = drained(rehearsal, handler, request_letters)
    assert (summary.exit_code, summary.history[0].what) == (0, EventKind.ENDED)


@both_kinds
def test_letters_are_written_from_the_moment_it_is_set(kind: Kind, tmp_path: Path) -> None:
    def bad(sub: SubMessage) -> float:
        if sub.message.offset % 400 == 7:
            raise ValueError("bad")
        return 0.001

    failures = FailureSettings(retries=1_000_000, retry_delay_s=0.01, retry_max_delay_s=0.01)
    rehearsal = Rehearsal(tmp_path, LONG, failures=failures)

    def name_a_topic(failures: FailureSettings) -> FailureSettings:
        rehearsal.failures = replace(failures, dead_letter_topic="named")
        return rehearsal.failures

    rehearsal.resolve = name_a_topic
    handler = handler_of(kind, bad)

    def have_letters(person: Person) -> None:
        eventually(lambda: bool(handler.account.failed), "one fails")
        done = person.sets(on_failure="dead-letter", retries=0)
        assert "on-failure halt → dead-letter" in done
        assert "dead-letter-topic none → named" in done

    summary = drained(rehearsal, handler, have_letters)
    assert summary.exit_code == 6
    assert summary.sub_messages.dead == 10 == len(rehearsal.letters.written)


@both_kinds
def test_a_timeout_is_set_for_calls_that_hang(kind: Kind, tmp_path: Path) -> None:
    go_on = Flag()

    def hang(sub: SubMessage) -> float | None:
        if sub.message.offset != 3:
            return None
        if kind is OnTheLoop:
            return 3600
        go_on.wait(30)
        return None

    failures = FailureSettings(timeout_s=0, breaker=False, on_failure=OnFailure.SKIP)
    rehearsal = Rehearsal(tmp_path, in_lanes(50), failures=failures)
    handler = handler_of(kind, hang)

    def have_a_timeout(person: Person) -> None:
        person.waits_for(50)
        assert person.sets(timeout_s=0.05) == ("timeout 0s → 50ms",)
        if kind is OnThreads:
            eventually(lambda: any(each.failures.timeouts for each in rehearsal.statuses), "late")
        go_on.set()

    summary = drained(rehearsal, handler, have_a_timeout)
    assert summary.last.failures.timeouts == 1
    assert summary.exit_code == (6 if kind is OnTheLoop else 0)


def test_without_a_breaker_an_outage_is_no_longer_waited_out(tmp_path: Path) -> None:
    async def down(sub: SubMessage) -> None:
        await asyncio.sleep(0)
        if sub.message.offset >= 100:
            raise ConnectionError("away")

    failures = FailureSettings(retries=1, retry_delay_s=0.01, on_failure=OnFailure.SKIP)
    rehearsal = Rehearsal(tmp_path, in_lanes(300), failures=failures)
    handler = OnTheLoop(down)

    def give_up(person: Person) -> None:
        eventually(lambda: any(each.failures.in_outage for each in rehearsal.statuses), "an outage")
        assert person.sets(breaker=False, max_failures="none")

    summary = drained(rehearsal, handler, give_up)
    assert {each.progress.eta_s for each in rehearsal.statuses if each.failures.in_outage} == {None}
    assert summary.sub_messages.failed == 200
    assert summary.exit_code == 6


def test_a_pause_is_no_outage(tmp_path: Path) -> None:
    away = Flag()

    async def down(sub: SubMessage) -> None:
        await asyncio.sleep(0)
        if away.is_set():
            raise ConnectionError("away")

    failures = FailureSettings(retries=3, retry_delay_s=0.01, max_outage_s=3)
    rehearsal = Rehearsal(tmp_path, LONG, failures=failures)
    handler = OnTheLoop(down)

    def pause_through_it(person: Person) -> None:
        person.waits_for(200)
        away.set()
        eventually(lambda: any(each.failures.in_outage for each in rehearsal.statuses), "an outage")
        person.requests(Pause())
        Flag().wait(4)  # longer than an outage may last
        away.clear()
        person.requests(Unpause())

    summary = drained(rehearsal, handler, pause_through_it)
    assert (summary.exit_code, summary.error) == (0, None)
    assert set(handler.account.finished) == rehearsal.places


@pytest.mark.parametrize("paused", [False, True])
def test_a_stop_is_as_ctrl_c_by_whoever_requests_it(tmp_path: Path, paused: bool) -> None:
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(OnTheLoop, 0.002)

    def stop(person: Person) -> None:
        person.waits_for(100)
        if paused:
            person.requests(Pause())
        assert "stopping" in person.requests(Stop(reason="wrong handler"))[0]

    summary = drained(rehearsal, handler, stop)
    assert (summary.exit_code, summary.error) == (4, "stopped by ana@db1")
    ended = summary.history[-1]
    assert (ended.by, ended.reason) == (ANA, "wrong handler")
    assert ended.offsets == {0: rehearsal.group.committed[0]}
    with pytest.raises(Refused, match="this drain is stopping"):
        rehearsal.control.request(Pause(), ANA).result(1)
    rehearsal.resumes_exactly(handler)


def test_a_stop_at_once_waits_for_no_call(tmp_path: Path) -> None:
    async def hang(sub: SubMessage) -> None:
        await asyncio.Event().wait()

    settings = LocalSettings(concurrency=8, grace_s=3600)
    rehearsal, handler = Rehearsal(tmp_path, in_lanes(50), settings), OnTheLoop(hang)

    def stop(person: Person) -> None:
        person.requests(Stop())
        person.requests(Stop(now=True))

    assert drained(rehearsal, handler, stop).exit_code == 4


@both_kinds
def test_no_order_of_requests_breaks_a_law(kind: Kind, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    choices: list[Callable[[], ControlRequest]] = [
        lambda: Change({"concurrency": chance.randint(1, 40)}),
        lambda: Change({"concurrency": chance.randint(1, 40), "rate": chance.uniform(500, 5000)}),
        lambda: Change({"rate": None}),
        lambda: Change({"retries": chance.randint(0, 9), "timeout_s": chance.choice([0, 5])}),
        lambda: Change({"breaker": chance.random() < 0.5, "retry_delay_s": 0.001}),
        lambda: Pause(chance.choice([None, 0.01])),
        Unpause,
    ]

    def fail_now_and_then(sub: SubMessage) -> float:
        if sub.attempt == 1 and hash((seed, sub.message.offset)) % 50 == 0:
            raise ValueError("once")
        return 0.001

    settings = FailureSettings(retries=9, retry_delay_s=0.001, on_failure=OnFailure.SKIP)
    rehearsal = Rehearsal(tmp_path, LONG, QUICK, failures=settings)
    handler = handler_of(kind, fail_now_and_then)

    def request_more(person: Person) -> None:
        for _ in range(40):
            with suppress(Refused):
                person.requests(chance.choice(choices)())
        with suppress(Refused):
            person.requests(Change({"retries": 9, "rate": None, "concurrency": 20}))
            person.requests(Unpause())

    summary = drained(rehearsal, handler, request_more)
    assert summary.exit_code in (0, 6)
    assert summary.conserved
    assert {*handler.account.finished, *handler.account.failed} == rehearsal.places
    assert len(handler.account.finished) == len(set(handler.account.finished))


def test_a_change_that_waits_for_the_brokers_holds_up_nothing_else(tmp_path: Path) -> None:
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(OnTheLoop, 0.002)
    requested, answers = Flag(), Flag()

    def slow(failures: FailureSettings) -> FailureSettings:
        requested.set()
        answers.wait(10)
        return failures

    rehearsal.resolve = slow

    def pause_and_stop_meanwhile(person: Person) -> None:
        change = rehearsal.control.request(Change({"on_failure": "skip"}), ANA)
        assert requested.wait(10)
        assert "paused" in person.requests(Pause())[0]
        person.requests(Stop())
        with pytest.raises(Refused, match="this drain is stopping"):
            change.result(10)
        answers.set()

    assert drained(rehearsal, handler, pause_and_stop_meanwhile).exit_code == 4


def test_late_threads_are_in_time_again_by_a_longer_timeout(tmp_path: Path) -> None:
    go_on = Flag()

    def slow(sub: SubMessage) -> None:
        work_on_a_thread(0.002)
        if sub.message.offset == 3:
            go_on.wait(30)

    failures = FailureSettings(timeout_s=0.05)
    rehearsal, handler = Rehearsal(tmp_path, LONG, failures=failures), OnThreads(slow)

    def wait_longer(person: Person) -> None:
        eventually(lambda: any(each.failures.late for each in rehearsal.statuses), "it is late")
        person.sets(timeout_s=600)
        eventually(lambda: rehearsal.statuses[-1].failures.late == 0, "it is in time")
        go_on.set()

    rehearsal.settings = LocalSettings(concurrency=4, plan_interval_s=0.02, grace_s=5.0)
    assert drained(rehearsal, handler, wait_longer).exit_code == 0


def test_a_pause_that_ends_while_a_drain_comes_to_rest_is_no_news(tmp_path: Path) -> None:
    answers: list[Future[tuple[str, ...]]] = []

    async def step(sub: SubMessage) -> None:
        if sub.message.offset == 100:
            # From the loop: the drain finds both in one look, and the pause can't end in between.
            answers.extend(rehearsal.control.request(each, ANA) for each in (Pause(0.1), Stop()))
        await work(0.3)

    rehearsal, handler = Rehearsal(tmp_path, LONG), OnTheLoop(step)

    summary = rehearsal.drain(handler)

    assert [bool(each.result(0)) for each in answers] == [True, True]
    assert [each.what for each in summary.history] == [EventKind.PAUSED, EventKind.ENDED]
    assert summary.history == rehearsal.file.load().plan.account.history


def test_threads_begin_no_more_than_they_may_once_there_are_fewer(tmp_path: Path) -> None:
    """Sub-messages handed out ahead to threads wait for those that stay."""
    rehearsal, handler = Rehearsal(tmp_path, LONG), takes(OnThreads, 0.05)
    rehearsal.settings = LocalSettings(concurrency=32, plan_interval_s=0.02, grace_s=5.0)

    def fewer(person: Person) -> None:
        person.waits_for(64)
        person.sets(concurrency=2)
        begun = person.begun
        eventually(lambda: person.in_flight <= 2, "the others have ended")
        assert person.begun - begun <= 2 * 3, "32 calls of one length ended meanwhile"
        person.sets(concurrency=300)

    assert drained(rehearsal, handler, fewer).exit_code == 0


def test_a_pause_keeps_from_threads_what_was_handed_out_ahead(tmp_path: Path) -> None:
    rehearsal, handler = Rehearsal(tmp_path, in_lanes(1000)), takes(OnThreads, 0.05)
    rehearsal.settings = LocalSettings(concurrency=32, plan_interval_s=0.02, grace_s=5.0)

    def pause(person: Person) -> None:
        person.waits_for(64)
        person.requests(Pause())
        begun = person.begun
        eventually(lambda: not person.in_flight, "all calls have ended")
        assert person.begun - begun < 8, "but for threads that had taken theirs"
        person.sets(concurrency=300)
        person.requests(Unpause())

    assert drained(rehearsal, handler, pause).exit_code == 0
