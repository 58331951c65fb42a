"""An engine in a task: its journal and plan are records, and its lock is a fence."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from made_up_kafka import (
    QUICK,
    Group,
    Kind,
    Letters,
    OnTheLoop,
    OnThreads,
    both_kinds,
    kafka_of,
    log_of,
    new_plan,
    not_for_ever,
)

from builders import changed, counts
from drainer.core.admission import BURST_S
from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, Ports
from drainer.engine.runtime import UNSIGNALLED, boottime_s
from drainer.errors import EXIT_INTERRUPTED
from drainer.handler import Handler
from drainer.loader import LoadedHandler
from drainer.message import SubMessage
from drainer.model.claims import ALL
from drainer.model.option import Concurrency
from drainer.model.settings import FailureSettings
from drainer.model.status import Summary
from drainer.spark.borrower import Borrower
from drainer.spark.control import ControlChannel, QuotaAllocator
from drainer.spark.fence import Fence
from drainer.spark.lease import LeaseTimes
from drainer.spark.lending import Borrowed
from drainer.spark.records import TaskStatus
from drainer.spark.sharding import Sharding
from drainer.spark.state import Attempt, QuotaGrant, State
from fake_kafka import FakeSource, Log

LOGS = {0: log_of(*(["a", f"b{n % 7}", f"c{n}"] for n in range(40)), start=100, holes=2)}
FIRST = Attempt(1, 1, 0, 0)
STREAMS = Sharding(1)


TIMES = LeaseTimes(0.01, 0.01, 0, 60, lease_s=60, cut_s=0)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State.open(str(tmp_path / "state"), "d")
    driver = ControlChannel(made, 1, TIMES, boottime_s)
    driver.begin()
    driver.lend(QuotaGrant(1, 4, {FIRST.borrower: 4}))
    yield made
    driver.end()


def run_task(
    state: State,
    attempt: Attempt,
    handler: Handler,
    sure_from_s: float = 0.0,
) -> Summary:
    with not_for_ever():
        return handle_share(state, attempt, handler, sure_from_s)


def handle_share(
    state: State,
    attempt: Attempt,
    handler: Handler,
    sure_from_s: float = 0.0,
    logs: Mapping[int, Log] = LOGS,
    rate: float | None = None,
) -> Summary:
    """What a task does: goes on from earlier attempts, and drains its share."""
    records = state.begin(attempt, STREAMS, {n: log.start for n, log in logs.items()})
    taken = state.revoke_lease(attempt, replace(TIMES, lease_s=0))
    records.go_on_from(taken)
    fence = Fence(state, attempt.epoch, TIMES)
    fence.start()
    fence.guard(attempt)
    plan = changed(new_plan(logs), failures=FailureSettings(max_doubt_s=0, rate=rate))
    claim = dict(plan.account.claims[ALL])
    for number, found in STREAMS.changes(taken.claims).items():
        claim[number] = claim[number].merge(found)
    plan = changed(plan, claims={ALL: claim})
    kafka = kafka_of(logs)
    held = DrainContext(
        plan=plan,
        file=records,
        handler=LoadedHandler(plan.terms.handler, handler),
        control=Control(replace(QUICK, plan_interval_s=60.0, journal_interval_s=0.005)),
        committer=Group(kafka),
        lock=fence,
        read_committed=dict,
        observe=lambda status: records.beat(),
        runtime=replace(
            UNSIGNALLED, uptime=lambda: boottime_s() if boottime_s() > sure_from_s else inf
        ),
    )
    letters = Letters()
    ports = Ports(
        lambda dispatcher, notify: FakeSource(kafka, dispatcher, notify), lambda _: letters
    )

    def tell() -> None:
        records.hurry()
        records.beat()

    borrower = Borrower(
        attempt.borrower,
        plan.terms.failures,
        lent=lambda: fence.lent,
        failures=lambda: fence.failures,
        obeyed=tell,
        use_share=lambda share: None,
    )
    drain = LocalDrain(held, replace(ports, quota=borrower))
    borrowed: Borrowed | None = Borrowed()
    records.status = lambda: TaskStatus(borrowed=borrowed and borrower.borrowed(drain))
    summary = drain.run()
    borrowed = None
    tell()
    fence.stop()
    records.end()
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
    assert summary.exit_code == 0
    assert sorted(first.account.finished + second.account.finished) == sorted(
        (0, offset, index) for offset in range(100, 140) for index in range(3)
    )
    assert first.account.breaches == second.account.breaches == []
    received = state.report(FIRST.share).record
    assert received.claims["0/1"][0].finished == ((100, 142),)
    assert received.counts == {0: counts(done=120)}


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
def test_nothing_goes_to_the_handler_while_the_lease_is_over(
    kind: type[OnTheLoop], state: State
) -> None:
    """Not even before the engine has noticed that its lock is unsure; and then all of it does."""
    until_s = boottime_s() + 0.3
    began: list[float] = []

    class Noting(kind):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            begin = self.account.begin

            def noted(sub: SubMessage) -> None:
                began.append(boottime_s())
                begin(sub)

            self.account.begin = noted

    handler = Noting()
    summary = run_task(state, FIRST, handler, until_s)
    assert (summary.status, summary.sub_messages.done) == ("done", 120)
    assert min(began) > until_s
    assert handler.account.breaches == []


class Calls:
    """Those in flight of several tasks, and the most that ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Counter[str]()
        self.most = Counter[str]()

    @contextmanager
    def one(self, task: str) -> Iterator[None]:
        self._count(task, 1)
        yield
        self._count(task, -1)

    def _count(self, task: str, by: int) -> None:
        with self._lock:
            self._now[task] += by
            self._now["all"] += by
            self.most |= self._now


def handler_of(kind: Kind, calls: Calls, task: str) -> Handler:
    async def on_the_loop(sub: SubMessage) -> None:
        with calls.one(task):
            await asyncio.sleep(0.002)

    def on_a_thread(sub: SubMessage) -> None:
        with calls.one(task):
            time.sleep(0.002)

    return OnTheLoop(on_the_loop) if kind is OnTheLoop else OnThreads(on_a_thread)


@both_kinds
def test_a_task_borrows_what_another_has_no_use_for_and_never_more_than_there_is(
    kind: Kind, tmp_path: Path
) -> None:
    state = State.open(str(tmp_path / "state"), "d")
    word = ControlChannel(state, 1, TIMES, boottime_s)
    word.begin()
    loans = QuotaAllocator(Concurrency.fixed(8), word, threads=kind is OnThreads)
    hot, wide = FIRST, replace(FIRST, task=1)
    logs = {hot: log_of(*[["a"]] * 100), wide: log_of(*([f"b{n}"] for n in range(1_000)))}
    calls, summaries = Calls(), dict[Attempt, Summary]()

    def work_on(task: Attempt) -> None:
        handler = handler_of(kind, calls, task.borrower)
        summaries[task] = handle_share(state, task, handler, logs={0: logs[task]})

    state.follow(1, {1: 2})

    async def drive() -> None:
        await loans.begin({hot.borrower: 100, wide.borrower: 1_000}, slots=2)
        for task in logs:
            threading.Thread(target=work_on, args=(task,), daemon=True).start()
        while len(summaries) < 2:
            for attempt, head in state.news():
                if head.status is not None:
                    loans.reported(attempt.borrower, head.status.borrowed)
            await loans.look()
            await asyncio.sleep(0.001)

    with not_for_ever():
        asyncio.run(drive())
    word.end()

    assert {task: each.sub_messages.done for task, each in summaries.items()} == {
        hot: 100,
        wide: 1_000,
    }
    assert calls.most["all"] <= 8
    assert calls.most[hot.borrower] == 1
    assert calls.most[wide.borrower] > 4


def test_a_task_has_the_part_of_the_rate_that_it_has_of_the_calls(state: State) -> None:
    began: list[float] = []

    async def note(sub: SubMessage) -> None:
        began.append(time.monotonic())

    word = ControlChannel(state, 2, TIMES, boottime_s)
    word.begin()
    word.lend(QuotaGrant(1, 8, {FIRST.borrower: 2}))
    task = replace(FIRST, epoch=2)
    logs = {0: log_of(*([f"a{n}"] for n in range(20)))}
    handle_share(state, task, OnTheLoop(note), logs=logs, rate=200)
    word.end()

    burst = 1 + 200 / 4 * BURST_S
    assert began[-1] - began[0] > (20 - burst) / (200 / 4)
