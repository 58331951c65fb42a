"""Bounds of a drain: memory by its settings, and no CPU while it has nothing to do."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from made_up_kafka import Kind, OnTheLoop, OnThreads, Rehearsal, both_kinds, handler_of, log_of

from drainer.core.dispatch import MESSAGE_BYTES, SUB_MESSAGE_BYTES
from drainer.engine import lifecycle
from drainer.engine.local import LocalDrain
from drainer.engine.pump import SLICE_CHECK
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from drainer.model.status import Status

MIB = 1024 * 1024


@pytest.mark.parametrize("message_bytes", [100, 4_000])
@both_kinds
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
