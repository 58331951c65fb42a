"""Ctrl-C once lets what is in the handler finish; twice, or a handler that stays, stops at once.
Whatever happens, the plan with its journal has exactly what finished."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from core.messages import Place, sub_place
from drainer.engine import checkpointer, lifecycle
from drainer.engine.local import LocalDrain
from drainer.errors import CommitDelayed, LockLost, OffsetMoved
from drainer.message import SubMessage
from drainer.model.plan import OffsetPlan
from drainer.model.settings import LocalSettings
from drainer.model.status import Status, share_finished
from drainer.store.plan_file import PlanFile
from drainer.view.status import causes
from engine.made_up_kafka import (
    Accounting,
    Kind,
    OnTheLoop,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    in_lanes,
    log_of,
)
from simulation.loop import work

AT: Place = (0, 40, 0)  # where the signal comes
BACKLOG = log_of(*([f"k{n % 30}", f"x{n}"] for n in range(300)))
AT_ONCE = 8
STAYS_S = 1e6
PATIENT = LocalSettings(concurrency=AT_ONCE, plan_interval_s=60, grace_s=60)
UNWRITTEN = replace(PATIENT, journal_interval_s=60)  # by the time when it is stopped


def staying(kind: Kind, virtual: VirtualDrains, at_the_place: Callable[[], None]) -> Accounting:
    """A handler that stays in one sub-message."""

    def step(sub: SubMessage) -> float:
        if sub_place(sub) != AT:
            return 0.001
        at_the_place()
        return STAYS_S

    return virtual.handler(kind, step)


@both_kinds
def test_two_signals_stop_at_once_and_the_journal_has_the_rest(
    kind: Kind, virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)

    def again(status: Status) -> None:
        if status.control.stopping is not None and not rehearsal.statuses[-2].control.stopping:
            virtual.signal("SIGINT")

    rehearsal = virtual.rehearsal({0: BACKLOG}, UNWRITTEN, observe=again)
    handler = staying(kind, virtual, lambda: virtual.signal("SIGINT"))

    summary = rehearsal.drain(handler)

    assert summary.exit_code == 4
    assert summary.last.timing.elapsed_s < 5
    assert "SIGINT" in (summary.error or "")
    assert rehearsal.finished_by_the_plan() == set(handler.account.finished)
    rehearsal.resumes_exactly(handler)


@both_kinds
def test_once_nothing_begins_the_busy_workers_are_those_in_a_call(
    kind: Kind, virtual: VirtualDrains
) -> None:
    statuses = list[Status]()
    rehearsal = virtual.rehearsal({0: BACKLOG}, PATIENT, observe=statuses.append)

    def step(sub: SubMessage) -> float:
        if sub_place(sub) == AT:
            virtual.signal("SIGINT")
        return 1.2 if sub.message.offset >= AT[1] else 0.01

    rehearsal.drain(virtual.handler(kind, step))

    ending = [each for each in statuses if each.control.stopping is not None]
    at_work = [(each.limits.in_flight, each.limits.workers_busy) for each in ending]
    assert at_work[0][0] > 0
    assert at_work[-1] == (0, 0)
    assert all(in_flight == busy for in_flight, busy in at_work)
    assert "repeats" in "".join(map(str, causes(ending[0])))
    assert "repeats" not in "".join(map(str, causes(ending[-1])))


def test_a_kill_leaves_the_share_that_was_shown_last(virtual: VirtualDrains) -> None:
    shown, kept = list[float](), list[float | None]()

    def look(status: Status) -> None:
        kept.append(rehearsal.file.load().plan.account.share_done)  # as after a kill -9
        shown.append(share_finished(status.progress.partitions))

    rehearsal = virtual.rehearsal({0: BACKLOG}, PATIENT, observe=look)
    handler = virtual.handler(OnTheLoop, lambda _: 0.05)
    rehearsal.drain(handler)

    assert len(shown) > 4
    assert kept[1:-1] == shown[:-2]


def test_two_signals_during_a_slow_write_of_the_plan_begin_no_other_beside_it(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writing, beside = PlanFile.write, list[int](), list[int]()

    def slow_write(file: PlanFile, plan: OffsetPlan) -> None:
        beside.extend(writing)
        writing.append(plan.account.generation)
        if plan.account.generation > 1:
            for name in ("SIGINT", "SIGTERM"):
                virtual.signal(name)
            virtual.sleep(1.0)
        write(file, plan)
        writing.clear()

    rehearsal = virtual.rehearsal({0: BACKLOG}, replace(PATIENT, plan_interval_s=0.05))
    monkeypatch.setattr(PlanFile, "write", slow_write)
    handler = staying(OnTheLoop, virtual, lambda: None)

    summary = rehearsal.drain(handler)
    monkeypatch.undo()

    assert summary.exit_code == 4
    assert beside == []
    assert rehearsal.finished_by_the_plan() == set(handler.account.finished)
    rehearsal.resumes_exactly(handler)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_while_the_end_is_written_down(signals: int, virtual: VirtualDrains) -> None:
    """One lets it finish, for it is nearly done; after two not all of it is."""
    rehearsal = virtual.rehearsal({0: BACKLOG}, PATIENT)
    unsent = ["SIGINT", "SIGTERM"][:signals]

    def interrupt_the_commit() -> None:
        while unsent:
            virtual.signal(unsent.pop())
        virtual.sleep(1.0)  # a slow broker

    rehearsal.group.trouble = interrupt_the_commit

    summary = rehearsal.drain(OnTheLoop())

    assert (summary.exit_code, summary.status) == (
        (0, "done") if signals == 1 else (4, "interrupted")
    )
    assert rehearsal.finished_by_the_plan() == rehearsal.places
    if signals == 1:
        assert rehearsal.group.committed == {0: 300}


def test_two_signals_end_the_tries_of_the_last_commit(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "COMMIT_TRIES", 1_000_000)
    rehearsal = virtual.rehearsal({0: BACKLOG}, PATIENT)

    def in_vain() -> CommitDelayed:
        if rehearsal.group.tries in (3, 6):
            virtual.signal("SIGINT")
        return CommitDelayed("no answer")

    rehearsal.group.trouble = in_vain

    summary = rehearsal.drain(OnTheLoop())

    assert (summary.exit_code, summary.status) == (4, "interrupted")
    assert "that commits them" in (summary.hint or "")


def test_a_source_that_fails_to_stop_costs_no_checkpoint(virtual: VirtualDrains) -> None:
    def fail() -> None:
        raise RuntimeError("no such thread")

    rehearsal = virtual.rehearsal({0: BACKLOG}, UNWRITTEN)
    rehearsal.source_options = {"during_stop": fail}

    summary = rehearsal.drain(OnTheLoop())

    assert summary.exit_code == 4
    assert "no such thread" in (summary.error or "")
    assert rehearsal.file.load().written.account.watermark(0) == len(BACKLOG.records)
    assert rehearsal.group.committed == {0: len(BACKLOG.records)}


def test_ctrl_c_ends_an_open_that_hangs(virtual: VirtualDrains) -> None:
    class Hanging(OnTheLoop):
        def open(self, context: object) -> Any:
            async def hang() -> None:
                signal.raise_signal(signal.SIGINT)
                await asyncio.Event().wait()

            return hang()

    rehearsal = virtual.rehearsal({0: BACKLOG}, PATIENT)
    handler = Hanging()

    with pytest.raises(KeyboardInterrupt):
        rehearsal.drain(handler)

    assert handler.account.began == []
    assert rehearsal.group.committed == {0: None}


@pytest.mark.parametrize("grace_s", [0.1, 0])
def test_what_a_swallowed_cancellation_ends_is_not_done(
    grace_s: float, virtual: VirtualDrains
) -> None:
    """The handler returns as if all were well, and did not do it."""

    class Swallowing(OnTheLoop):
        async def handle(self, sub: SubMessage) -> None:
            with suppress(asyncio.CancelledError):
                await super().handle(sub)

    async def stay(sub: SubMessage) -> None:
        if sub_place(sub) == AT:
            virtual.signal("SIGINT")
            await work(STAYS_S)
        await work()

    settings = LocalSettings(concurrency=8, plan_interval_s=60, grace_s=grace_s)
    rehearsal = virtual.rehearsal({0: BACKLOG}, settings)
    handler = Swallowing(stay)

    summary = rehearsal.drain(handler)

    assert summary.exit_code == 4
    assert summary.conserved
    assert AT not in handler.account.finished
    assert rehearsal.finished_by_the_plan() == set(handler.account.finished)
    assert (rehearsal.group.committed[0] or 0) <= AT[1]
    rehearsal.resumes_exactly(handler)


@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGHUP"), ("SIGHUP", "SIGTERM")])
def test_a_sighup_beside_another_signal_is_no_second_request(
    first: str, second: str, virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd sends both, and so does a terminal that is closed after a Ctrl-C."""
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)

    async def step(sub: SubMessage) -> None:
        if sub_place(sub) == AT:
            virtual.signal(first)
            while rehearsal.statuses[-1].control.stopping is None:
                await work()
            virtual.signal(second)
            await work(0.1)
        await work()

    rehearsal = virtual.rehearsal({0: BACKLOG}, PATIENT)
    handler = OnTheLoop(step)

    summary = rehearsal.drain(handler)

    assert (summary.status, summary.exit_code) == ("interrupted", 4)
    assert AT in rehearsal.finished_by_the_plan(), "it was not let finish"
    assert sorted(handler.account.began) == sorted(handler.account.finished)
    rehearsal.resumes_exactly(handler)


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_finished_is_in_the_journal_before_the_handler_is_closed(
    interrupted: bool, virtual: VirtualDrains
) -> None:
    """A close() may take long, hang or crash; what was handled is not handled again for that."""
    known: list[set[Place]] = []

    async def stop(sub: SubMessage) -> None:
        if interrupted and sub_place(sub) == AT:
            virtual.signal("SIGINT")
        await asyncio.sleep(0)

    class Closing(OnTheLoop):
        async def close(self) -> None:  # type: ignore[override]
            known.append(rehearsal.finished_by_the_plan())

    rehearsal = virtual.rehearsal({0: BACKLOG}, UNWRITTEN)
    handler = Closing(stop)

    rehearsal.drain(handler)

    assert handler.account.finished
    assert known == [set(handler.account.finished)]


def lose_the_lock(rehearsal: Rehearsal) -> None:
    rehearsal.lock.lost = LockLost("another drain took the lock")


def test_no_commit_begins_once_it_was_seen_that_the_group_was_moved(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the log may show that while a plan is written, which a commit is to follow."""
    drains, committed = list[LocalDrain](), list[bool]()
    seen = False
    rehearsal = virtual.rehearsal(
        {0: BACKLOG}, replace(PATIENT, plan_interval_s=0.1), prepare=drains.append
    )
    write = rehearsal.file.write

    def write_and_look(plan: OffsetPlan) -> None:
        nonlocal seen
        write(plan)
        if len(committed) == 3 and not seen:
            seen = True
            assert drains[0].pipeline is not None
            drains[0].pipeline.ending.end(OffsetMoved("group billing is at 7 on orders/1"))

    monkeypatch.setattr(rehearsal.file, "write", write_and_look)
    rehearsal.group.allowed = lambda _: committed.append(seen)

    summary = rehearsal.drain(OnTheLoop(lambda _: work(0.01)))

    assert isinstance(summary.cause, OffsetMoved)
    assert committed == [False] * 3


def test_a_cancelled_handler_that_goes_on_is_given_nothing_more(virtual: VirtualDrains) -> None:
    """Some libraries swallow a cancellation: their handler then ends as if all were well."""
    rehearsal = virtual.rehearsal(
        in_lanes(50),
        LocalSettings(concurrency=1, plan_interval_s=60),
    )
    calls = 0

    async def swallow(sub: SubMessage) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            lose_the_lock(rehearsal)
            with suppress(asyncio.CancelledError):
                await work(STAYS_S)

    handler = OnTheLoop(swallow)
    summary = rehearsal.drain(handler)

    assert summary.exit_code == 4
    assert len(handler.account.began) == 1, "begun after the lock was lost"


@pytest.mark.parametrize("swallows", [True, False])
def test_a_call_that_goes_on_after_its_cancellation_is_counted(
    swallows: bool, virtual: VirtualDrains
) -> None:
    async def stay(sub: SubMessage) -> None:
        lose_the_lock(rehearsal)
        while swallows:
            with suppress(asyncio.CancelledError):
                await work(STAYS_S)
        await work(STAYS_S)

    drains: list[LocalDrain] = []
    settings = LocalSettings(concurrency=1, plan_interval_s=60)
    rehearsal = virtual.rehearsal(in_lanes(5), settings, prepare=drains.append)

    assert rehearsal.drain(OnTheLoop(stay)).exit_code == 4
    assert [drain.calls() for drain in drains] == [int(swallows)]
