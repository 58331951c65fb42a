"""An engine in a task: its journal and plan are records, and its lock is a fence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_kafka import (
    QUICK,
    BacklogSource,
    Group,
    Letters,
    OnTheLoop,
    OnThreads,
    log_of,
    new_plan,
    not_for_ever,
)

from drainer.core.claims import ALL
from drainer.core.progress import Counts
from drainer.engine.local import LocalDrain
from drainer.engine.ports import Held, Ports
from drainer.engine.runtime import uptime_s
from drainer.engine.status import Summary
from drainer.errors import EXIT_INTERRUPTED
from drainer.handler import Handler
from drainer.loader import LoadedHandler
from drainer.message import SubMessage
from drainer.policy.failures import FailureSettings
from drainer.spark.control import ControlChannel
from drainer.spark.fence import Fence
from drainer.spark.handling import guarded
from drainer.spark.lease import LeaseTimes
from drainer.spark.state import Attempt, State

LOGS = {0: log_of(*(["a", f"b{n % 7}", f"c{n}"] for n in range(40)), start=100, holes=2)}
FIRST = Attempt(1, 1, ALL, 0)


TIMES = LeaseTimes(0.01, 0.01, 0, 60, lease_s=60, cut_s=0)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State.open(str(tmp_path / "state"), "d")
    driver = ControlChannel(made, 1, TIMES, uptime_s)
    driver.begin()
    yield made
    driver.end()


def run_task(
    state: State,
    attempt: Attempt,
    handler: Handler,
    may_begin: Callable[[], bool] = lambda: True,
) -> Summary:
    """What a task does: goes on from earlier attempts, and drains its share."""
    records = state.begin(attempt, {n: log.start for n, log in LOGS.items()})
    taken = state.settle(attempt, replace(TIMES, lease_s=0))
    fence = Fence(state, attempt.epoch, TIMES)
    fence.start()
    fence.guard(attempt)
    plan = replace(new_plan(LOGS), failures=FailureSettings(max_doubt_s=0))
    claim = dict(plan.claims[ALL])
    for number, found in taken.changes.items():
        known = claim[number].merge(found)
        claim[number] = replace(
            known,
            messages=known.messages.settled(),
            sub_messages=known.sub_messages.settled(),
        )
    plan = replace(plan, claims={ALL: claim})
    held = Held(
        plan=plan,
        file=records,
        handler=guarded(LoadedHandler(plan.handler, handler), lambda: fence.sure and may_begin()),
        running=replace(QUICK, plan_interval_s=60.0, journal_interval_s=0.005),
        committer=Group({0: None}),
        lock=fence,
        read_committed=dict,
        observe=lambda status: records.beat(),
    )
    ports = Ports(lambda dispatcher, notify: BacklogSource(LOGS, dispatcher, notify), Letters())
    drain = LocalDrain(held, ports)
    with not_for_ever():
        summary = drain.run()
    fence.stop()
    records.end({"status": summary.status})
    return summary


def test_the_next_attempt_handles_what_was_not_told(state: State) -> None:
    async def until(sub: SubMessage) -> None:
        await asyncio.sleep(0)
        if sub.message.offset == 117:
            raise LookupError("the task fails")

    first = OnTheLoop(until)
    assert run_task(state, FIRST, first).status == "halted"
    second = OnTheLoop()
    summary = run_task(state, replace(FIRST, number=1), second)
    assert summary.sub_messages == Counts(120, 120)
    assert sorted(first.account.finished + second.account.finished) == sorted(
        (0, offset, index) for offset in range(100, 140) for index in range(3)
    )
    assert first.account.breaches == second.account.breaches == []
    told = state.told(*FIRST.share).record.changes[0]
    assert (told.finished, told.sub_messages) == (((100, 142),), Counts(120, 120))


def test_a_task_that_is_overtaken_ends(state: State) -> None:
    async def overtaken(sub: SubMessage) -> None:
        if sub.message.offset == 110:
            state.begin_epoch(2, TIMES)
        await asyncio.sleep(0.05)

    handler = OnTheLoop(overtaken)
    summary = run_task(state, FIRST, handler)
    assert summary.exit_code == EXIT_INTERRUPTED
    assert "another driver" in str(summary.cause)
    assert len(handler.account.finished) < 120


@pytest.mark.parametrize("kind", [OnTheLoop, OnThreads])
def test_nothing_goes_to_the_handler_while_the_guard_says_no(
    kind: type[OnTheLoop], state: State
) -> None:
    """Not even before the engine has noticed that its lock is unsure; and then all of it does."""
    until_s = time.monotonic() + 0.3
    began: list[float] = []

    class Noting(kind):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            begin = self.account.begin

            def noted(sub: SubMessage) -> None:
                began.append(time.monotonic())
                begin(sub)

            self.account.begin = noted

    handler = Noting()
    summary = run_task(state, FIRST, handler, lambda: time.monotonic() > until_s)
    assert (summary.status, summary.sub_messages.done) == ("done", 120)
    assert min(began) > until_s
    assert handler.account.breaches == []
