"""Limit of a real drain: measured, named, and with advice that holds."""

from __future__ import annotations

import time
from math import inf
from pathlib import Path

from made_up_kafka import (
    Kind,
    OnTheLoop,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    handler_of,
    in_lanes,
)

from drainer.handler import Handler
from drainer.message import SubMessage
from drainer.model.settings import LocalSettings
from drainer.model.status import Status
from drainer.view.limit import Bottleneck, advice, limit, limit_of

AT_ONCE = LocalSettings(concurrency=8, plan_interval_s=0.02)


def compute(sub: SubMessage) -> float:
    until_s = time.thread_time() + 0.003
    while time.thread_time() < until_s:
        pass
    return 0.001


def drained(rehearsal: Rehearsal, handler: Handler) -> list[Status]:
    """Statuses of a drain, but for the first and the last."""
    assert rehearsal.drain(handler).exit_code == 0
    return rehearsal.statuses[1:-1]


def test_a_handler_that_computes_is_limited_by_the_processor(tmp_path: Path) -> None:
    """Also where other processes leave it a part of a core."""
    seen = drained(Rehearsal(tmp_path, in_lanes(400), AT_ONCE), handler_of(OnTheLoop, compute))
    limits = [limit_of(status) for status in seen]
    assert limits.count(Bottleneck.PROCESSOR) > limits.count(Bottleneck.HANDLER)


@both_kinds
def test_a_handler_that_waits_is_the_limit_itself(kind: Kind, virtual: VirtualDrains) -> None:
    rehearsal = virtual.rehearsal(in_lanes(400), AT_ONCE)
    assert Bottleneck.HANDLER in map(
        limit_of, drained(rehearsal, virtual.handler(kind, lambda sub: 0.03))
    )


def test_while_the_lock_is_not_confirmed_nothing_else_is_the_limit(virtual: VirtualDrains) -> None:
    """Lanes wait then, and workers are free: the machine has no part in that."""
    lapsed: list[Status] = []

    def lapse(status: Status) -> None:
        rehearsal.lock.sure_until_s = -inf if status.limits.in_flight and len(lapsed) < 2 else inf
        if status.health.is_kept_waiting:
            lapsed.append(status)

    rehearsal = virtual.rehearsal(in_lanes(600), AT_ONCE, observe=lapse)
    assert rehearsal.drain(handler_of(OnTheLoop, lambda sub: 0.02)).exit_code == 0
    assert lapsed
    for status in lapsed:
        assert limit_of(status) is Bottleneck.TROUBLE
        assert "the lock on the group is not confirmed" in limit(status)
        assert advice(status) == ""


@both_kinds
def test_the_record_of_a_drain_has_the_processor_time_of_its_handler(
    kind: Kind, tmp_path: Path
) -> None:
    rehearsal = Rehearsal(tmp_path, in_lanes(50), AT_ONCE)
    rehearsal.drain(handler_of(kind, compute))
    computed = rehearsal.file.load().plan.account.latency
    assert computed is not None
    assert 0.003 <= (computed.processor_s or 0.0) < 0.006
    rehearsal = Rehearsal(tmp_path, in_lanes(50), AT_ONCE)
    (tmp_path / "orders.plan.json").unlink()
    rehearsal.drain(handler_of(kind, lambda sub: 0.01))
    waited = rehearsal.file.load().plan.account.latency
    assert waited is not None
    assert (waited.processor_s or 0.0) < 0.002
