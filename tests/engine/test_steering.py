"""People change, pause and stop a drain that runs: within a moment, and no law is broken by it.

The drains run in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from drainer.engine.control import Change, ControlRequest, Pause, Settings, Stop, Unpause
from drainer.errors import DrainerError, Refused, UsageError
from drainer.message import SubMessage
from drainer.model.account import EventKind, PartitionPlan
from drainer.model.codec import builtins
from drainer.model.option import Concurrency, Lag
from drainer.model.settings import DEFAULT_FAILURES, FailureSettings, LocalSettings, OnFailure
from drainer.model.status import Summary
from engine.made_up_kafka import (
    Kind,
    OnTheLoop,
    OnThreads,
    VirtualDrains,
    both_kinds,
    in_lanes,
    new_plan,
)
from simulation.loop import work

ANA = "ana@db1"
LONG = in_lanes(1000, 200)


class Person:
    """Makes requests beside a drain, one after the other; each is done when it returns."""

    handler: OnTheLoop | OnThreads

    def __init__(self, virtual: VirtualDrains) -> None:
        self.time = virtual
        self.rehearsal = virtual.rehearsal(LONG)

    def beside(self, handler: OnTheLoop | OnThreads, does: Callable[[], object]) -> Summary:
        """A drain during which the person does something; what that raises is raised here."""
        self.handler, ends = handler, list[BaseException | None]()

        def act() -> None:
            self.waits_for(1)
            try:
                does()
                ends.append(None)
            except BaseException as error:
                ends.append(error)
                with suppress(DrainerError):
                    self.requests(Stop(now=True))

        self.time.start(act)
        summary = self.rehearsal.drain(handler)
        self.time.finish()
        assert ends == [None]
        assert handler.account.breaches == []
        return summary

    def takes(self, kind: Kind, seconds: float = 0.01) -> OnTheLoop | OnThreads:
        return self.time.handler(kind, lambda sub: seconds)

    def requests(self, request: ControlRequest) -> tuple[str, ...]:
        return self.answer(self.rehearsal.control.request(request, ANA))

    def answer(self, future: Future[tuple[str, ...]]) -> tuple[str, ...]:
        self.until(future.done, "it is answered")
        return future.result(0)

    def sets(self, **values: Any) -> tuple[str, ...]:
        return self.requests(Change(values))

    def until(self, condition: Callable[[], object], what: str) -> None:
        late_s = self.time.world.now_s + 600
        while not condition():
            assert self.time.world.now_s < late_s, what
            self.time.sleep(0.01)

    def waits_for(self, begun: int) -> None:
        self.until(lambda: self.begun >= begun, f"{begun} are begun")

    def sees(self, what: str) -> None:
        """Waits for a status that has such failures."""
        statuses = self.rehearsal.statuses
        self.until(lambda: any(getattr(each.failures, what) for each in statuses), what)

    @property
    def begun(self) -> int:
        return len(self.handler.account.began)

    @property
    def in_flight(self) -> int:
        return self.handler.account.in_flight


class QuietLog:
    """The log of a drain that follows it, to which nobody adds anything."""

    def ends(self) -> Mapping[int, PartitionPlan]:
        return new_plan(LONG).account.partitions

    def read_to(self, partitions: object) -> None: ...

    def finish(self) -> None: ...


def following(person: Person, until: Lag) -> None:
    """Have the person's drain follow a quiet log until the lag is so small."""
    settings = replace(person.rehearsal.settings, until_lag=until)
    person.rehearsal = replace(person.rehearsal, settings=settings, log=QuietLog())


@pytest.fixture
def person(virtual: VirtualDrains) -> Person:
    return Person(virtual)


@both_kinds
def test_a_pause_begins_nothing_and_goes_on_where_it_was(kind: Kind, person: Person) -> None:
    handler = person.takes(kind)

    def pause_and_unpause() -> None:
        person.waits_for(100)
        done = person.requests(Pause(reason="failover"))
        assert "paused by ana@db1" in done[0]
        assert "in flight" in done[0]
        person.until(lambda: not person.in_flight, "all calls have ended")
        begun = person.begun
        person.until(lambda: bool(person.rehearsal.group.committed[0]), "it commits meanwhile")
        with pytest.raises(UsageError):
            person.sets(concurrency=-1)
        person.sets(concurrency=16)
        assert person.begun == begun < 1000
        assert person.requests(Unpause()) == ("unpaused",)
        assert person.requests(Unpause()) == ("the drain is not paused",)

    summary = person.beside(handler, pause_and_unpause)
    assert summary.exit_code == 0
    assert sorted(handler.account.began) == sorted(person.rehearsal.places)
    done = [(each.what, each.by, each.reason) for each in summary.history]
    assert done[:3] == [
        (EventKind.PAUSED, ANA, "failover"),
        (EventKind.CHANGED, ANA, None),
        (EventKind.UNPAUSED, ANA, None),
    ]
    assert (done[-1][0], dict(summary.history[-1].offsets)) == (EventKind.ENDED, {0: 1000})
    assert person.rehearsal.file.load().plan.account.history == summary.history


def test_a_pause_may_end_by_itself(person: Person) -> None:
    handler = person.takes(OnTheLoop)
    summary = person.beside(handler, lambda: person.requests(Pause(0.2)))
    assert summary.exit_code == 0
    assert [each.what for each in summary.history] == [
        EventKind.PAUSED,
        EventKind.UNPAUSED,
        EventKind.ENDED,
    ]
    assert summary.history[0].details == ("for 200ms",)
    by_itself = summary.history[1]
    assert (by_itself.by, str(by_itself)) == ("", "unpaused: the time of its pause is over")
    assert person.rehearsal.file.load().plan.account.history == summary.history


def test_a_pause_that_replaces_another_says_which(person: Person) -> None:
    handler = person.takes(OnTheLoop)

    def pause_twice() -> None:
        assert len(person.requests(Pause(600, reason="failover"))) == 1
        _, replaced = person.requests(Pause(0.2))
        assert replaced.startswith("was paused by ana@db1 at ")
        assert " until " in replaced
        assert replaced.endswith("(failover)")

    summary = person.beside(handler, pause_twice)
    assert summary.exit_code == 0
    second = summary.history[1]
    assert second.reason is None
    assert second.details[0] == "for 200ms"
    assert second.details[1].endswith("(failover)")


@both_kinds
def test_the_concurrency_is_what_was_set_last(kind: Kind, person: Person) -> None:
    handler = person.takes(kind)

    def more_and_less() -> None:
        assert person.sets(concurrency=50) == ("concurrency 8 → 50",)
        person.until(lambda: person.in_flight > 40, "more are in flight")
        assert person.sets(concurrency=3) == ("concurrency 50 → 3",)
        person.until(lambda: person.in_flight <= 3, "fewer are in flight")
        begun = person.begun
        person.waits_for(begun + 30)
        assert person.in_flight <= 3
        assert person.sets(concurrency=3) == ("nothing changed",)
        automatic = {"first": 20, "most": 40, "most_threads": 40, "is_auto": True}
        assert person.sets(concurrency=automatic) == ("concurrency 3 → auto:40",)
        person.until(lambda: person.in_flight > 3, "it looks for more")
        person.sets(concurrency=30, grace_s=4)
        person.requests(Stop())

    assert person.beside(handler, more_and_less).exit_code == 4
    assert person.rehearsal.control.retyped() == {"concurrency": "30", "grace_s": "4s"}
    assert person.rehearsal.file.load().plan.account.resuming.concurrency == "30"
    person.rehearsal.resumes_exactly(handler)


def test_auto_goes_back_to_the_search_and_the_maximum_that_the_drain_began_with(
    person: Person,
) -> None:
    searching = LocalSettings(concurrency=Concurrency.auto(40), plan_interval_s=0.02)
    person.rehearsal = replace(person.rehearsal, settings=searching)

    def by_hand_and_back() -> None:
        person.sets(concurrency=3)
        assert person.sets(concurrency=builtins(Concurrency.auto())) == ("concurrency 3 → auto:40",)
        person.requests(Stop())

    assert person.beside(person.takes(OnTheLoop), by_hand_and_back).exit_code == 4
    assert person.rehearsal.statuses[-1].limits.auto is not None
    assert person.rehearsal.statuses[-1].limits.auto.most == 40


@both_kinds
def test_a_rate_is_taken_away_and_given(kind: Kind, person: Person) -> None:
    slow = FailureSettings(rate=1.0)  # an hour
    handler, person.rehearsal.failures = person.takes(kind), slow

    def without_and_with() -> None:
        assert person.sets(rate=None) == ("rate 1/s → none",)
        person.waits_for(300)
        assert person.sets(rate=50) == ("rate none → 50/s",)
        begun = person.begun
        person.waits_for(begun + 3)
        assert person.begun < 1000
        person.sets(rate=100000)

    assert person.beside(handler, without_and_with).exit_code == 0
    assert person.rehearsal.file.load().plan.terms.failures.rate == 100000


def test_what_is_wrong_in_part_is_refused_as_a_whole(person: Person) -> None:
    handler = person.takes(OnTheLoop)
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
        {"deadline": "2001-11-24T08:00:00+00:00"},
        {"concurrency": 1_000_000},
        {"plan_interval_s": 0},
    ]

    def request_all() -> None:
        for values in wrong:
            with pytest.raises(UsageError):
                person.requests(Change(values))

    summary = person.beside(handler, request_all)
    assert [each.what for each in summary.history] == [EventKind.ENDED]
    assert person.rehearsal.control.retyped() == {}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (Refused("the topic can't be made"), "can't be made"),
        (LookupError("what?"), r"LookupError: what\?"),
    ],
)
def test_what_the_brokers_refuse_changes_nothing(
    person: Person, error: Exception, shown: str
) -> None:
    handler = person.takes(OnTheLoop)

    def fail(failures: FailureSettings) -> FailureSettings:
        raise error

    person.rehearsal.resolve = fail

    def request_letters() -> None:
        with pytest.raises(Refused, match=shown):
            person.sets(on_failure="dead-letter", concurrency=20)

    summary = person.beside(handler, request_letters)
    assert (summary.exit_code, summary.history[0].what) == (0, EventKind.ENDED)


@both_kinds
def test_letters_are_written_from_the_moment_it_is_set(kind: Kind, person: Person) -> None:
    def bad(sub: SubMessage) -> float:
        if sub.message.offset % 100 == 7:
            raise ValueError("bad")
        return 0.01

    failures = FailureSettings(retries=1_000_000, retry_delay_s=0.01, retry_max_delay_s=0.01)
    person.rehearsal.failures = failures

    def name_a_topic(failures: FailureSettings) -> FailureSettings:
        person.rehearsal.failures = replace(failures, dead_letter_topic="named")
        return person.rehearsal.failures

    person.rehearsal.resolve = name_a_topic
    handler = person.time.handler(kind, bad)

    def have_letters() -> None:
        person.until(lambda: bool(handler.account.failed), "one fails")
        done = person.sets(on_failure="dead-letter", retries=0)
        assert "on-failure halt → dead-letter" in done
        assert "dead-letter-topic none → named" in done

    summary = person.beside(handler, have_letters)
    assert summary.exit_code == 6
    assert summary.sub_messages.dead == 10 == len(person.rehearsal.letters.written)


@both_kinds
def test_a_timeout_is_set_for_calls_that_hang(kind: Kind, person: Person) -> None:
    go_on = person.time.event()

    def hang(sub: SubMessage) -> float | None:
        if sub.message.offset != 3:
            return None
        if kind is OnTheLoop:
            return 3600
        go_on.wait(30)
        return None

    failures = FailureSettings(retries=0, timeout_s=0, breaker=False, on_failure=OnFailure.SKIP)
    person.rehearsal = replace(person.rehearsal, logs=in_lanes(50), failures=failures)
    handler = person.time.handler(kind, hang)

    def have_a_timeout() -> None:
        person.waits_for(50)
        assert person.sets(timeout_s=0.05) == ("timeout 0s → 50ms",)
        if kind is OnThreads:
            person.sees("timeouts")
        go_on.set()

    summary = person.beside(handler, have_a_timeout)
    assert summary.last.failures.timeouts == 1
    assert summary.exit_code == (6 if kind is OnTheLoop else 0)


def test_without_a_breaker_an_outage_is_no_longer_waited_out(person: Person) -> None:
    async def down(sub: SubMessage) -> None:
        await asyncio.sleep(0)
        if sub.message.offset >= 100:
            raise ConnectionError("away")

    failures = FailureSettings(retries=1, retry_delay_s=0.01, on_failure=OnFailure.SKIP)
    person.rehearsal = replace(person.rehearsal, logs=in_lanes(300), failures=failures)
    handler = OnTheLoop(down)

    def give_up() -> None:
        person.until(
            lambda: any(each.failures.in_outage for each in person.rehearsal.statuses), "an outage"
        )
        assert person.sets(breaker=False, max_failures="none")

    summary = person.beside(handler, give_up)
    assert {
        each.progress.eta_s for each in person.rehearsal.statuses if each.failures.in_outage
    } == {None}
    assert summary.sub_messages.failed == 200
    assert summary.exit_code == 6


def test_another_lag_is_refused_once_the_end_is_final(person: Person) -> None:
    following(person, Lag(messages=5_000))

    def set_it_too_late() -> None:
        statuses = person.rehearsal.statuses
        person.until(lambda: statuses and statuses[-1].progress.lag is None, "the end is final")
        with pytest.raises(Refused, match="end of this drain is final"):
            person.sets(until_lag="10", concurrency=3)
        assert person.sets(until_lag="5000") == ("nothing changed",)
        assert person.sets(concurrency=4) == ("concurrency 8 → 4",)

    summary = person.beside(person.takes(OnTheLoop), set_it_too_late)
    assert summary.exit_code == 0
    assert person.rehearsal.control.running.until_lag == Lag(messages=5_000)


def test_a_drain_without_follow_keeps_a_lag_at_which_it_ends(person: Person) -> None:
    following(person, Lag(messages=0))

    def drop_it() -> None:
        with pytest.raises(UsageError, match="was not begun with --follow"):
            person.sets(until_lag=None)
        assert person.sets(until_lag="5000") == ("until-lag 0 → 5000",)

    assert person.beside(person.takes(OnTheLoop), drop_it).exit_code == 0


def test_a_pause_is_no_outage(person: Person) -> None:
    away = person.time.event()

    async def down(sub: SubMessage) -> None:
        await work(0.01)
        if away.is_set():
            raise ConnectionError("away")

    failures = FailureSettings(retries=3, retry_delay_s=0.01, max_outage_s=3)
    person.rehearsal.failures = failures
    handler = OnTheLoop(down)

    def pause_through_it() -> None:
        person.waits_for(200)
        away.set()
        person.until(
            lambda: any(each.failures.in_outage for each in person.rehearsal.statuses), "an outage"
        )
        person.requests(Pause())
        person.time.sleep(4)  # longer than an outage may last
        away.clear()
        person.requests(Unpause())

    summary = person.beside(handler, pause_through_it)
    assert (summary.exit_code, summary.error) == (0, None)
    assert set(handler.account.finished) == person.rehearsal.places


@pytest.mark.parametrize("paused", [False, True])
def test_a_stop_is_as_ctrl_c_by_whoever_requests_it(person: Person, paused: bool) -> None:
    handler = person.takes(OnTheLoop)

    def stop() -> None:
        person.waits_for(100)
        if paused:
            person.requests(Pause())
        assert "stopping" in person.requests(Stop(reason="wrong handler"))[0]

    summary = person.beside(handler, stop)
    assert (summary.exit_code, summary.error) == (4, "stopped by ana@db1")
    ended = summary.history[-1]
    assert (ended.by, ended.reason) == (ANA, "wrong handler")
    assert ended.offsets == {0: person.rehearsal.group.committed[0]}
    for late in (Pause(), Stop()):
        with pytest.raises(Refused, match="this drain has ended"):
            person.rehearsal.control.request(late, ANA).result(0)
    person.rehearsal.resumes_exactly(handler)


def test_a_stop_at_once_waits_for_no_call(person: Person) -> None:
    async def hang(sub: SubMessage) -> None:
        await asyncio.Event().wait()

    settings = LocalSettings(concurrency=8, grace_s=3600)
    person.rehearsal, handler = replace(person.rehearsal, settings=settings), OnTheLoop(hang)

    def stop() -> None:
        person.requests(Stop())
        person.requests(Stop(now=True))

    assert person.beside(handler, stop).exit_code == 4


@both_kinds
def test_no_order_of_requests_breaks_a_law(kind: Kind, person: Person) -> None:
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
    person.rehearsal.failures = settings
    handler = person.time.handler(kind, fail_now_and_then)

    def request_more() -> None:
        for _ in range(40):
            with suppress(Refused):
                person.requests(chance.choice(choices)())
        with suppress(Refused):
            person.requests(Change({"retries": 9, "rate": None, "concurrency": 20}))
            person.requests(Unpause())

    summary = person.beside(handler, request_more)
    assert summary.exit_code in (0, 6)
    assert summary.conserved
    assert {*handler.account.finished, *handler.account.failed} == person.rehearsal.places
    assert len(handler.account.finished) == len(set(handler.account.finished))


def test_a_change_that_waits_for_the_brokers_holds_up_nothing_else(person: Person) -> None:
    handler = person.takes(OnTheLoop)
    requested, answers = person.time.event(), person.time.event()

    def slow(failures: FailureSettings) -> FailureSettings:
        requested.set()
        answers.wait(10)
        return failures

    person.rehearsal.resolve = slow

    def pause_and_stop_meanwhile() -> None:
        change = person.rehearsal.control.request(Change({"on_failure": "skip"}), ANA)
        assert requested.wait(10)
        assert "paused" in person.requests(Pause())[0]
        person.requests(Stop())
        with pytest.raises(Refused, match="this drain is stopping"):
            person.answer(change)
        answers.set()

    assert person.beside(handler, pause_and_stop_meanwhile).exit_code == 4


def test_late_threads_are_in_time_again_by_a_longer_timeout(person: Person) -> None:
    go_on = person.time.event()

    def slow(sub: SubMessage) -> None:
        person.time.sleep(0.002)
        if sub.message.offset == 3:
            go_on.wait(30)

    failures = FailureSettings(timeout_s=0.05)
    handler, person.rehearsal.failures = OnThreads(slow), failures

    def wait_longer() -> None:
        person.sees("late")
        person.sets(timeout_s=600)
        person.until(lambda: person.rehearsal.statuses[-1].failures.late == 0, "it is in time")
        go_on.set()

    person.rehearsal.settings = LocalSettings(concurrency=4, plan_interval_s=0.02, grace_s=5.0)
    assert person.beside(handler, wait_longer).exit_code == 0


def test_a_pause_that_ends_while_a_drain_comes_to_rest_is_no_news(person: Person) -> None:
    answers: list[Future[tuple[str, ...]]] = []

    async def step(sub: SubMessage) -> None:
        if sub.message.offset == 100:
            # From the loop: the drain finds both in one look, and the pause can't end in between.
            request = person.rehearsal.control.request
            answers.extend(request(each, ANA) for each in (Pause(0.1), Stop()))
        await work(0.3 if sub.message.offset >= 100 else 0.01)

    handler = OnTheLoop(step)

    summary = person.rehearsal.drain(handler)

    assert [bool(each.result(0)) for each in answers] == [True, True]
    assert [each.what for each in summary.history] == [EventKind.PAUSED, EventKind.ENDED]
    assert summary.history == person.rehearsal.file.load().plan.account.history


def test_threads_begin_no_more_than_they_may_once_there_are_fewer(person: Person) -> None:
    """Sub-messages handed out ahead to threads wait for those that stay."""
    handler = person.takes(OnThreads, 0.05)
    person.rehearsal.settings = LocalSettings(concurrency=32, plan_interval_s=0.02, grace_s=5.0)

    def fewer() -> None:
        person.waits_for(64)
        person.sets(concurrency=2)
        begun = person.begun
        person.until(lambda: person.in_flight <= 2, "the others have ended")
        assert person.begun - begun <= 2 * 3, "32 calls of one length ended meanwhile"
        person.sets(concurrency=300)

    assert person.beside(handler, fewer).exit_code == 0


def test_a_pause_keeps_from_threads_what_was_handed_out_ahead(person: Person) -> None:
    person.rehearsal = replace(person.rehearsal, logs=in_lanes(1000))
    handler = person.takes(OnThreads, 0.05)
    person.rehearsal.settings = LocalSettings(concurrency=32, plan_interval_s=0.02, grace_s=5.0)

    def pause() -> None:
        person.waits_for(64)
        person.requests(Pause())
        begun = person.begun
        person.until(lambda: not person.in_flight, "all calls have ended")
        assert person.begun - begun < 8, "but for threads that had taken theirs"
        person.sets(concurrency=300)
        person.requests(Unpause())

    assert person.beside(handler, pause).exit_code == 0


def test_both_sides_of_a_change_look_different() -> None:
    at = [f"2026-11-30T08:00{more}+00:00" for more in (":30", ":31")]
    first, then = (
        Settings(LocalSettings(deadline=by, concurrency=calls, grace_s=grace_s), DEFAULT_FAILURES)
        for by, calls, grace_s in ((at[0], 7, 1000.0001), (at[1], "7", 1000.0002))
    )
    shown = [str(datetime.fromisoformat(text).astimezone()) for text in at]
    assert first.changes_to(then) == (
        "grace 1000.0001s → 1000.0002s",
        f"deadline {shown[0]} → {shown[1]}",
    )
