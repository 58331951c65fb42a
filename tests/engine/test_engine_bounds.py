"""Drains in real time: everything handled in order and at once, in bounded memory, and with no CPU
while there is nothing to do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from drainer.core.dispatch import MESSAGE_BYTES, SUB_MESSAGE_BYTES
from drainer.core.merge import Record
from drainer.engine import coroutines, lifecycle
from drainer.engine.local import LocalDrain
from drainer.engine.pump import SLICE_CHECK
from drainer.handler import Context
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from drainer.model.status import Status
from drainer.store.plan_file import PlanFile
from engine.made_up_kafka import (
    Kind,
    OnTheLoop,
    OnThreads,
    Rehearsal,
    Spec,
    both_kinds,
    handler_of,
    in_lanes,
    log_of,
    work_on_a_thread,
)
from simulation.loop import work

MIB = 1024 * 1024


@pytest.mark.parametrize(("kind", "message_bytes"), [(OnTheLoop, 100), (OnThreads, 4_000)])
def test_pending_memory_stays_below_the_buffer(
    kind: Kind, message_bytes: int, tmp_path: Path
) -> None:
    drains: list[LocalDrain] = []
    most = 0

    def look(sub: SubMessage) -> None:
        nonlocal most
        most = max(most, drains[0].dispatcher.pending_bytes)

    # One hot lane behind which everything else piles up, as far as it may.
    rehearsal = Rehearsal(
        tmp_path,
        {0: log_of(*(["hot" if n % 2 else f"k{n}"] for n in range(6_000)))},
        LocalSettings(concurrency=4, buffer_bytes=MIB, plan_interval_s=0.1),
        prepare=drains.append,
        source_options={"batch": 1_000, "message_bytes": message_bytes},
    )
    summary = rehearsal.drain(handler_of(kind, look))

    assert summary.exit_code == 0
    slack = SLICE_CHECK * (message_bytes + MESSAGE_BYTES + SUB_MESSAGE_BYTES)
    assert MIB // 4 < most <= MIB // 2 + slack
    assert most <= MIB


@pytest.mark.parametrize("buffer_bytes", [0, 1, MIB])
def test_a_message_larger_than_the_buffer_is_still_handled(
    buffer_bytes: int, tmp_path: Path
) -> None:
    rehearsal = Rehearsal(
        tmp_path,
        {0: log_of(*[["a", "b"]] * 20)},
        LocalSettings(concurrency=4, buffer_bytes=buffer_bytes),
        source_options={"message_bytes": 5 * MIB},
    )

    assert rehearsal.drain(OnTheLoop()).exit_code == 0


@both_kinds
def test_waiting_takes_no_cpu(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While handlers are slow and the source stalls, it gets few requests."""
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)
    go_on = threading.Event()
    go_on_too = asyncio.Event()
    requests: list[int] = []

    async def stay(sub: SubMessage) -> None:
        await go_on_too.wait()

    def stay_on_a_thread(sub: SubMessage) -> None:
        go_on.wait(10)

    def look(status: Status) -> None:
        requests.append(rehearsal.source.requests)
        if len(requests) == 8:
            go_on.set()
            go_on_too.set()

    rehearsal = Rehearsal(
        tmp_path, {0: log_of(["a"], ["b"])}, LocalSettings(concurrency=4), observe=look
    )
    handler = OnTheLoop(stay) if kind is OnTheLoop else OnThreads(stay_on_a_thread)

    rehearsal.drain(handler)

    assert requests[7] - requests[0] <= 10 * 7


def test_a_drain_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    for kind in (OnTheLoop, OnThreads):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        Rehearsal(folder, {0: log_of(["a"], ["b"])}).drain(kind())

    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        if thread.name.startswith("worker-"):
            thread.join(5)
    assert [thread.name for thread in left if thread.is_alive()] == []


AT_ONCE = [f"k{n}" for n in range(8)]


@pytest.mark.parametrize(
    ("slice_s", "records"),
    [(60.0, (["one"], ["one"], [None], AT_ONCE)), (0.0, ([None], AT_ONCE))],
    ids=["within a slice", "when others are due"],
)
@both_kinds
def test_all_that_a_finish_makes_ready_starts_at_once(
    kind: Kind,
    slice_s: float,
    records: Sequence[Sequence[Spec]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when the handler has kept the event loop for so long that others are due."""
    monkeypatch.setattr(coroutines, "SLICE_S", slice_s)
    together, on_threads = asyncio.Barrier(8), threading.Barrier(8)

    async def meet(sub: SubMessage) -> None:
        if sub.key in AT_ONCE:
            await asyncio.wait_for(together.wait(), 5)

    def meet_on_a_thread(sub: SubMessage) -> None:
        if sub.key in AT_ONCE:
            on_threads.wait(5)

    rehearsal = Rehearsal(tmp_path, {0: log_of(*records)}, LocalSettings(concurrency=8))
    handler = OnTheLoop(meet) if kind is OnTheLoop else OnThreads(meet_on_a_thread)

    summary = rehearsal.drain(handler)

    assert (summary.exit_code, summary.last.failures.failures) == (0, 0)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("blocks_s", "count"), [(0.0005, 1500), (0.01, 100)])
def test_handlers_that_hold_the_loop_leave_little_unwritten(
    blocks_s: float, count: int, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill repeats what finished in the last 50 ms or so, however busy the loop is."""
    unwritten = most = 0
    append = PlanFile.append

    def note(self: PlanFile, record: Record) -> None:
        nonlocal unwritten
        append(self, record)
        unwritten = 0

    async def block(sub: SubMessage) -> None:
        nonlocal unwritten, most
        if waits:  # then all go on at once, whatever their workers would rather do
            await work(0.05)
        work_on_a_thread(blocks_s)
        unwritten += 1
        most = max(most, unwritten)

    monkeypatch.setattr(PlanFile, "append", note)
    rehearsal = Rehearsal(
        tmp_path,
        in_lanes(count),
        LocalSettings(concurrency=50),
        source_options={"batch": 2000},
    )
    rehearsal.drain(OnTheLoop(block))

    assert most <= 0.2 / blocks_s, "more than 200 ms of work"


def test_open_receives_the_context_of_the_drain(tmp_path: Path) -> None:
    reported: list[Context] = []

    class Curious(OnTheLoop):
        async def open(self, context: object) -> None:  # type: ignore[override]
            assert isinstance(context, Context)
            reported.append(context)

    settings = LocalSettings(concurrency=3, options={"url": "http://x"})
    Rehearsal(tmp_path, {0: log_of(["a"])}, settings).drain(Curious())

    assert reported == [
        Context("orders", "billing", "20260101-000000-abcdef", 3, {"url": "http://x"}),
    ]


def test_the_status_shows_the_drain_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STATUS_INTERVAL_S", 0.0)
    seen = asyncio.Event()
    rehearsal = Rehearsal(tmp_path, {0: log_of(["a", "a", "b"], ["a"], holes=1)})

    def look(status: object) -> None:
        latest = rehearsal.statuses[-1]
        if latest.limits.in_flight == 2 and latest.progress.sub_messages.pending == 4:
            seen.set()

    async def wait_until_seen(sub: SubMessage) -> None:
        await seen.wait()

    rehearsal.observe = look
    rehearsal.drain(OnTheLoop(wait_until_seen))

    busy = next(s for s in rehearsal.statuses if s.limits.in_flight == 2)
    assert (busy.limits.lanes, busy.limits.lanes_ready) == (2, 0)
    assert (busy.progress.messages.pending, busy.progress.sub_messages.pending) == (2, 4)
    assert (busy.progress.partitions[0].watermark, busy.progress.partitions[0].end) == (0, 3)
    assert 0 < busy.limits.buffered_bytes < busy.limits.buffer_bytes
    last = rehearsal.statuses[-1]
    assert last.limits.in_flight == 0
    assert (last.progress.messages.done, last.progress.sub_messages.done) == (2, 4)
    assert last.progress.partitions[0].complete
    assert last.progress.partitions[0].committed == 3
