"""When something outside fails: commits that get no answer, a group that is no longer ours, a disk
that is full. The drain waits it out or stops, and in either case loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from core.messages import sub_place
from drainer.engine import checkpointer, lifecycle
from drainer.errors import (
    BrokerUnreachable,
    CommitDelayed,
    DrainerError,
    LockLost,
    OffsetMoved,
    PlanNotWritten,
    TopicGone,
)
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from drainer.model.status import Status
from drainer.store.plan_file import PlanFile
from engine.made_up_kafka import (
    QUICK,
    Accounting,
    Kind,
    OnTheLoop,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    handler_of,
    in_lanes,
    log_of,
)
from simulation.loop import work

BACKLOG = log_of(*([f"k{n % 30}", f"x{n}"] for n in range(300)))
FINISHED = {0: 300}


def resumes(rehearsal: Rehearsal, before: Accounting) -> None:
    """A resume finishes everything, and repeats nothing that the plan could hold."""
    finished = set(before.account.finished)
    rehearsal.group.trouble = lambda: None
    rehearsal.observe = lambda status: None
    rehearsal.prepare = lambda drain: None
    again = OnTheLoop()
    assert rehearsal.drain(again).exit_code == 0
    assert finished | set(again.account.finished) == rehearsal.places
    assert again.account.breaches == before.account.breaches == []
    assert rehearsal.group.committed == FINISHED


def only_the_last_waits_for(event: asyncio.Event) -> OnTheLoop:
    async def step(sub: SubMessage) -> None:
        if sub.message.offset == 299:
            await event.wait()

    return OnTheLoop(step)


def test_a_commit_without_an_answer_is_waited_out_and_shown(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)
    shown, answered = asyncio.Event(), asyncio.Event()

    def look(status: Status) -> None:
        if status.health.trouble == "no answer from broker 1":
            shown.set()
        elif shown.is_set() and status.progress.partitions[0].committed is not None:
            answered.set()

    rehearsal = virtual.rehearsal({0: BACKLOG}, observe=look)
    rehearsal.group.trouble = lambda: (
        None if shown.is_set() else CommitDelayed("no answer from broker 1")
    )

    summary = rehearsal.drain(only_the_last_waits_for(answered))

    assert summary.exit_code == 0
    assert rehearsal.group.committed == FINISHED
    assert rehearsal.statuses[-1].health.trouble is None


def test_while_the_journal_waits_for_its_place_nothing_begins_and_the_status_says_so(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)
    begun, in_trouble = list[int](), list[int]()

    async def step(sub: SubMessage) -> None:
        begun.append(sub.message.offset)
        await work(0.05)

    def look(status: Status) -> None:
        if status.health.trouble == "the journal waits":
            assert status.health.is_kept_waiting
            in_trouble.append(len(begun))
        rehearsal.file.trouble = None
        if len(begun) > 50 and len(in_trouble) < 20:
            rehearsal.file.trouble = "the journal waits"

    rehearsal = virtual.rehearsal({0: BACKLOG}, observe=look)
    assert rehearsal.drain(OnTheLoop(step)).exit_code == 0
    assert len(in_trouble) == 20
    assert in_trouble[1] == in_trouble[-1], "the calls in flight end, and no other begins"
    assert rehearsal.group.committed == FINISHED


def test_a_delayed_last_commit_is_tried_again_until_it_is_answered(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal({0: BACKLOG}, LocalSettings(plan_interval_s=60))
    rehearsal.group.trouble = lambda: (
        CommitDelayed("no answer") if rehearsal.group.tries < 5 else None
    )

    summary = rehearsal.drain(OnTheLoop())

    assert summary.exit_code == 0
    assert rehearsal.group.tries == 5
    assert rehearsal.group.committed == FINISHED
    assert rehearsal.file.load().plan.account.partitions[0].committed == 300


def slow() -> Accounting:
    return handler_of(OnTheLoop, lambda sub: 0.005)


def test_a_lock_lost_between_the_tries_of_the_last_commit_ends_them(virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal({0: BACKLOG}, LocalSettings(plan_interval_s=60))

    def lose() -> DrainerError:
        rehearsal.lock.lost = LockLost("another drain has the lock", hint="see which")
        return CommitDelayed("no answer")

    rehearsal.group.trouble = lose
    handler = OnTheLoop()

    summary = rehearsal.drain(handler)

    assert rehearsal.group.tries == 1, "committed without the lock"
    assert (summary.status, summary.exit_code) == ("interrupted", 4)
    assert (summary.error, summary.hint) == ("another drain has the lock", "see which")
    assert rehearsal.finished_by_the_plan() == rehearsal.places
    resumes(rehearsal, handler)


def test_nothing_is_committed_while_the_lock_is_not_confirmed(virtual: VirtualDrains) -> None:
    """The coordinator of the lock is away: another drain may hold it by now."""
    rehearsal = virtual.rehearsal({0: BACKLOG}, LocalSettings(plan_interval_s=60))

    async def doubt_at_the_last(sub: SubMessage) -> None:
        if len(handler.account.began) == len(rehearsal.places):
            rehearsal.lock.sure_until_s = -inf

    handler = OnTheLoop(doubt_at_the_last)

    summary = rehearsal.drain(handler)

    assert rehearsal.group.tries == 0
    assert rehearsal.group.committed == {0: None}
    assert (summary.status, summary.exit_code) == ("interrupted", 4)
    assert "the lock on the group is not confirmed" in (summary.error or "")
    assert "that commits them" in (summary.hint or "")
    assert summary.sub_messages.done == len(rehearsal.places)
    assert rehearsal.file.load().plan.account.complete
    resumes(rehearsal, handler)


@both_kinds
def test_no_call_begins_once_the_lease_is_over_whatever_was_handed_out(
    kind: Kind, virtual: VirtualDrains
) -> None:
    """A process that stood still goes on exactly where it stood: with what its threads wait for."""
    rehearsal = virtual.rehearsal({0: BACKLOG}, LocalSettings(concurrency=4))
    over: list[int] = []
    attempts: set[int] = set()

    def end_the_lease(sub: SubMessage) -> float:
        attempts.add(sub.attempt)
        if len(handler.account.began) >= 20 and not over:
            rehearsal.lock.sure_until_s = -inf
            over.append(len(handler.account.began))
        return 0.005

    def give_it_back(status: Status) -> None:
        if over:
            over.append(len(handler.account.began))
            rehearsal.lock.sure_until_s = inf

    rehearsal.observe = give_it_back
    handler = virtual.handler(kind, end_the_lease)

    summary = rehearsal.drain(handler)

    assert over[1] - over[0] < 4, "but what was just beginning"
    assert summary.exit_code == 0
    assert summary.sub_messages.done == len(rehearsal.places)
    assert summary.last.failures.failures == 0
    assert attempts == {1}, "what did not begin was no attempt"


def test_a_source_that_fails_ends_the_drain_with_its_reason(virtual: VirtualDrains) -> None:
    def fail(status: Status) -> None:
        rehearsal.source.failure = TopicGone("the topic was deleted")

    settings = LocalSettings(concurrency=8, plan_interval_s=60)
    rehearsal = virtual.rehearsal({0: BACKLOG}, settings, observe=fail)
    handler = slow()

    summary = rehearsal.drain(handler)

    assert (summary.exit_code, summary.error) == (8, "the topic was deleted")
    assert rehearsal.group.tries == 0, "committed for a topic that is gone"
    assert rehearsal.finished_by_the_plan() == set(handler.account.finished)
    resumes(rehearsal, handler)


def test_offsets_that_can_not_be_read_back_are_reported_as_this_drain_knows_them(
    virtual: VirtualDrains,
) -> None:
    def unreachable() -> dict[int, int | None]:
        raise BrokerUnreachable("no broker answers")

    rehearsal = virtual.rehearsal({0: BACKLOG}, read_committed=unreachable)
    summary = rehearsal.drain(OnTheLoop())

    assert (summary.exit_code, summary.partitions[0].committed) == (0, 300)


# A disk that is full.


def full(file: PlanFile, *written: object) -> None:
    raise PlanNotWritten("disk full", hint="make room, then resume")


@pytest.mark.parametrize("call", ["write", "append"])
def test_a_plan_that_can_not_be_written_ends_the_drain(
    call: str, virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that some is unwritten at the end.
    settings = LocalSettings(concurrency=8, plan_interval_s=0.02, journal_interval_s=60)
    rehearsal = virtual.rehearsal({0: BACKLOG}, settings)

    async def break_at(sub: SubMessage) -> None:
        if sub_place(sub) == (0, 20, 0):
            monkeypatch.setattr(PlanFile, call, full)
        await work(0.005)

    handler = OnTheLoop(break_at)

    summary = rehearsal.drain(handler)

    assert (summary.status, summary.exit_code) == ("interrupted", 4)
    assert "disk full" in (summary.error or "")
    assert summary.sub_messages.done < len(rehearsal.places)
    assert handler.closed == 1
    monkeypatch.undo()
    resumes(rehearsal, handler)


def test_on_a_slow_disk_the_journal_is_written_less_often(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers would wait for it most of the time otherwise."""
    append, begun_s, ended_s = PlanFile.append, list[float](), list[float]()
    now_s = virtual.world.monotonic

    def slow(file: PlanFile, *written: Any) -> None:
        begun_s.append(now_s())
        virtual.sleep(0.01)
        append(file, *written)
        ended_s.append(now_s())

    monkeypatch.setattr(PlanFile, "append", slow)
    monkeypatch.setattr(checkpointer, "JOURNAL_SLOWEST_S", 0.2)
    rehearsal = virtual.rehearsal({0: BACKLOG}, replace(QUICK, plan_interval_s=60))

    assert rehearsal.drain(handler_of(OnTheLoop, lambda sub: 0.01)).exit_code == 0

    quick = checkpointer.SLOW_WRITES - 1  # pauses before the disk counts as slow
    *pauses_s, _ = (begun - ended for begun, ended in zip(begun_s[1:], ended_s, strict=False))
    assert len(pauses_s) > quick  # the last record is that of the end
    del pauses_s[:quick]
    assert min(pauses_s) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("share", "pause_s"), [(1, 0.05), (1 / 12, 0.4), (1 / 1000, checkpointer.JOURNAL_SLOWEST_S)]
)
def test_where_others_have_the_core_the_journal_is_written_less_often(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch, share: float, pause_s: float
) -> None:
    """It would take a large part of the little that a worker gets of the core otherwise."""
    append, begun_s, ended_s = PlanFile.append, list[float](), list[float]()
    now_s, write_s = virtual.world.monotonic, 0.001

    def processor(threads: bool) -> tuple[float, float]:
        waited_s = (now_s() - write_s * len(ended_s)) * (1 - share)
        return now_s() - waited_s, waited_s

    def takes_1_ms(file: PlanFile, *written: Any) -> None:
        begun_s.append(now_s())
        virtual.sleep(write_s)
        append(file, *written)
        ended_s.append(now_s())

    monkeypatch.setattr(PlanFile, "append", takes_1_ms)
    settings = replace(QUICK, plan_interval_s=60)
    runtime = replace(virtual.runtime, processor=processor)
    rehearsal = virtual.rehearsal({0: BACKLOG}, settings, runtime=runtime)

    assert rehearsal.drain(handler_of(OnTheLoop, lambda sub: 0.04)).exit_code == 0

    quick = checkpointer.SLOW_WRITES - 1
    *pauses_s, _ = (begun - ended for begun, ended in zip(begun_s[1:], ended_s, strict=False))
    del pauses_s[:quick]
    assert min(pauses_s) == pytest.approx(pause_s)


# Two things at once: neither hides the other.


def test_a_plan_that_can_not_be_written_at_the_end_is_reported_beside_the_handler_s_failure(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LocalSettings(concurrency=8, plan_interval_s=60)
    rehearsal = virtual.rehearsal({0: BACKLOG}, settings)

    async def fail(sub: SubMessage) -> None:
        if sub_place(sub) == (0, 40, 0):
            monkeypatch.setattr(PlanFile, "write", full)
            raise ValueError("no such document")
        await work()

    handler = OnTheLoop(fail)

    summary = rehearsal.drain(handler)

    assert (summary.status, summary.exit_code) == ("halted", 5)
    assert "orders/0/40[0]" in (summary.error or "")
    assert "ValueError: no such document" in (summary.error or "")
    assert "disk full" in (summary.error or "")
    assert summary.hint == "make room, then resume"
    assert rehearsal.group.tries == 0
    monkeypatch.undo()
    resumes(rehearsal, handler)


def test_the_plan_holds_what_was_committed_before_another_moved_the_group(
    virtual: VirtualDrains,
) -> None:
    """Otherwise a resume could take the other's offset for one of its own."""

    wrote: list[int] = []

    def overtaken(offsets: Mapping[int, int]) -> None:
        wrote.append(offsets[0])
        moved = OffsetMoved("the group is at 7")
        moved.left = offsets
        raise moved

    rehearsal = virtual.rehearsal({0: BACKLOG})
    rehearsal.group.allowed = overtaken
    assert rehearsal.drain(slow()).exit_code == 8
    assert [rehearsal.file.load().plan.account.partitions[0].committed] == wrote


# Bugs.


def test_an_error_in_the_view_ends_the_drain_loudly_with_the_plan_saved(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)

    def break_down(status: Status) -> None:
        if status.progress.sub_messages.done:
            raise ZeroDivisionError("in the view")

    rehearsal = virtual.rehearsal({0: BACKLOG}, LocalSettings(concurrency=2), observe=break_down)
    handler = slow()

    with pytest.raises(ZeroDivisionError, match="in the view"):
        rehearsal.drain(handler)

    assert handler.account.finished
    assert rehearsal.finished_by_the_plan() == set(handler.account.finished)
    resumes(rehearsal, handler)


def test_a_silent_coordinator_is_the_trouble_whatever_else_is_wrong(virtual: VirtualDrains) -> None:
    silent: list[Status] = []

    def fall_silent(status: Status) -> None:
        lock, now_s = rehearsal.lock, virtual.world.now_s
        if 1.0 < now_s < 20.0:
            lock.sure_until_s, lock.silence = -inf, ("broker b1:9092", 1.0)
            rehearsal.source.trouble = "b1:9092/1: 3 request(s) timed out"
        else:
            lock.sure_until_s, lock.silence, rehearsal.source.trouble = inf, None, None
        if status.health.silent_s is not None:
            silent.append(status)

    rehearsal = virtual.rehearsal(in_lanes(400), LocalSettings(concurrency=4), observe=fall_silent)
    assert rehearsal.drain(virtual.handler(OnTheLoop, lambda sub: 0.05)).exit_code == 0
    assert {each.health.trouble for each in silent} == {"no answer from broker b1:9092"}
    assert silent[-1].health.silent_s == pytest.approx(19.0, abs=1.0)
    assert all(each.health.is_kept_waiting for each in silent)
    assert {each.failures.waiting for each in silent} == {0}, "nothing has failed"
    still = [each for each in silent if not each.limits.in_flight]
    assert {each.progress.eta_s for each in still} == {None}
    assert len(still) > len(silent) / 2
    assert rehearsal.statuses[-1].health.trouble is None


def test_the_time_left_is_right_soon_after_a_silence(virtual: VirtualDrains) -> None:
    def fall_silent(_: Status) -> None:
        lock, is_silent = rehearsal.lock, 5.0 < virtual.world.now_s < 35.0
        lock.sure_until_s = -inf if is_silent else inf
        lock.silence = ("broker b1:9092", 5.0) if is_silent else None

    rehearsal = virtual.rehearsal(
        in_lanes(4_000), LocalSettings(concurrency=4), observe=fall_silent
    )
    assert rehearsal.drain(virtual.handler(OnTheLoop, lambda sub: 0.05)).exit_code == 0

    took_s = rehearsal.statuses[-1].timing.elapsed_s
    known = [
        (each.progress.eta_s, took_s - each.timing.elapsed_s)
        for each in rehearsal.statuses
        if 35.0 < each.timing.elapsed_s < took_s - 5.0 and each.progress.eta_s is not None
    ]
    assert len(known) > 40
    assert all(found_s == pytest.approx(left_s, rel=0.25) for found_s, left_s in known), known
