"""Every drain ends by itself, and reports truly why, whatever its handler does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import made_up_kafka
import pytest
from made_up_kafka import OnTheLoop, OnThreads, VirtualDrains, in_lanes, log_of

from builders import counts
from drainer.engine import pump
from drainer.engine.outcome import final_outcome
from drainer.errors import AccountWrong
from drainer.loading.loader import LoadedHandler
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from fake_kafka import FakeSource, SizedBatch

QUICK = FailureSettings(retry_delay_s=0.001, retry_max_delay_s=0.004, max_doubt_s=0)


def test_a_drain_that_is_done_is_failed_when_its_account_does_not_add_up() -> None:
    right, wrong = counts(done=3), counts(read=3, done=2)
    assert final_outcome(None, right, right, gave_up=0, lost=False) == ("done", 0, None)
    for each in ((right, wrong), (wrong, right)):
        status, code, cause = final_outcome(None, *each, gave_up=0, lost=False)
        assert isinstance(cause, AccountWrong)
        assert (status, code) == ("failed", cause.exit_code)


LATE = FailureSettings(timeout_s=0.05, max_outage_s=3600)
ONE = LocalSettings(concurrency=1, plan_interval_s=0.02, grace_s=0.1)


def test_threads_that_never_return_halt_the_drain_when_none_is_left(virtual: VirtualDrains) -> None:
    let_go = virtual.event()
    rehearsal = virtual.rehearsal(in_lanes(50), ONE, failures=replace(LATE, max_outage_s=0.1))
    summary = rehearsal.drain(OnThreads(lambda sub: let_go.wait()))
    let_go.set()

    assert summary.exit_code == 5
    assert "all handler threads are blocked" in (summary.error or "")
    assert summary.last.failures.late == 1
    assert summary.conserved


def test_a_handler_that_can_not_be_cancelled_halts_the_drain(virtual: VirtualDrains) -> None:
    let_go = asyncio.Event()

    async def step(sub: SubMessage) -> None:
        while not let_go.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if rehearsal.source.stopped:
                    let_go.set()

    rehearsal = virtual.rehearsal({0: log_of(["a"], ["b"])}, ONE, failures=LATE)
    summary = rehearsal.drain(OnTheLoop(step))

    assert summary.exit_code == 5
    assert "orders/0/0[0]" in (summary.error or "")
    assert "ignored 3 cancellations" in (summary.error or "")
    assert summary.sub_messages.done == 0


def test_with_a_rate_what_comes_later_is_started_when_its_time_has_come(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def step(sub: SubMessage) -> None:
        rehearsal.source.stalled = False

    def next_batch(source: FakeSource) -> SizedBatch | None:
        found = plain(source)
        source.stalled = True
        return found

    plain = FakeSource.next_batch
    monkeypatch.setattr(FakeSource, "next_batch", next_batch)
    rehearsal = virtual.rehearsal(in_lanes(2), failures=replace(QUICK, rate=2.0))
    rehearsal.source_options = {"batch": 1}
    summary = rehearsal.drain(OnTheLoop(step))

    assert (summary.exit_code, summary.sub_messages.done) == (0, 2)


def test_an_answer_of_the_dead_letter_topic_lets_its_lane_go_on_at_its_rate(
    virtual: VirtualDrains,
) -> None:
    async def step(sub: SubMessage) -> None:
        if sub.message.offset == 0:
            raise ValueError("no good")

    failures = replace(QUICK, rate=2.0, on_failure=OnFailure.DEAD_LETTER, dead_letter_topic="dead")
    summary = virtual.rehearsal(in_lanes(2, 1), failures=failures).drain(OnTheLoop(step))
    assert (summary.exit_code, summary.sub_messages.dead, summary.sub_messages.done) == (6, 1, 1)


def test_a_drain_that_leaves_too_much_alone_reports_that_it_did_not_read_on(
    virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    def selecting(reference: str, target: Any) -> LoadedHandler:
        handler = LoadedHandler(reference, target)
        handler.selects = lambda sub: sub.key != "left alone"
        return handler

    monkeypatch.setattr(made_up_kafka, "LoadedHandler", selecting)
    monkeypatch.setattr(pump, "LEFT_PENDING_MOST", 32)
    log = log_of(*(["left alone"] for _ in range(300)), ["a"])
    rehearsal = virtual.rehearsal({0: log})
    handler = OnTheLoop()
    summary = rehearsal.drain(handler)

    assert not handler.account.began
    assert summary.exit_code == 5
    assert "read no more" in (summary.error or "")
    monkeypatch.setattr(pump, "LEFT_PENDING_MOST", 1000)
    summary = rehearsal.drain(handler)
    assert (summary.exit_code, summary.sub_messages.done) == (0, 1)
