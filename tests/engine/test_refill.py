"""A group that gets consumers again while it is drained: the drain stops, or waits and goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from drainer.engine.control import Pause, Stop
from drainer.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_UNRESUMABLE,
    GroupJoined,
    LockLost,
    OffsetMoved,
    Refused,
)
from drainer.model.account import EventKind
from drainer.model.status import Status, Summary
from engine.made_up_kafka import (
    UNHURRIED,
    Accounting,
    OnTheLoop,
    OnThreads,
    Rehearsal,
    VirtualDrains,
    both_kinds,
    in_lanes,
    log_of,
)

COUNT = 40
WAITS = replace(UNHURRIED, wait_for_group_s=60.0)
WAITING = "waiting for the group to be empty: group group is in use: checkout-7 on 127.0.0.1"


class Refill:
    """A consumer that joins the group of a rehearsal at some calls of its handler.

    It leaves after ``stays`` statuses of a drain that waits; then ``leaves`` is called.
    """

    def __init__(
        self,
        virtual: VirtualDrains,
        at: tuple[int, ...],
        *,
        stays: int = 4,
        leaves: Callable[[], object] = lambda: None,
        kind: type[OnTheLoop | OnThreads] = OnTheLoop,
        takes_s: float = 0.1,
        **options: Any,
    ) -> None:
        self.virtual, self.at, self.stays, self.leaves = virtual, at, stays, leaves
        self.calls, self.shown, self.takes_s = 0, 0, takes_s
        options = {"settings": WAITS, **options}
        logs = options.pop("logs", in_lanes(COUNT, 4))
        self.rehearsal: Rehearsal = virtual.rehearsal(logs, observe=self._observe, **options)
        self.handler: Accounting = virtual.handler(kind, self._step)

    def _step(self, sub: object) -> float:
        self.calls += 1
        if self.calls in self.at:
            self.rehearsal.kafka.live_member("group", "checkout-7")
        return self.takes_s

    def _observe(self, status: Status) -> None:
        if status.health.trouble is None or not status.health.trouble.startswith(WAITING):
            return
        self.shown += 1
        if self.shown >= self.stays:
            self.shown = 0
            self.rehearsal.kafka.members = ()
            self.leaves()

    def drain(self, *wheres: str) -> Summary:
        return self.rehearsal.drain(self.handler, *wheres)

    @property
    def waits(self) -> list[Status]:
        return [each for each in self.rehearsal.statuses if each.health.is_kept_waiting]

    def is_drained(self, summary: Summary) -> None:
        assert (summary.status, summary.exit_code, summary.cause) == ("done", EXIT_DONE, None)
        assert summary.conserved
        assert set(self.handler.account.finished) == self.rehearsal.places
        assert self.handler.account.breaches == []
        assert self.rehearsal.group.committed == {0: COUNT}
        assert self.handler.opened == self.handler.closed == 1 + len(self.at)


def joined(summary: Summary) -> list[str]:
    return [each.details[0] for each in summary.history if each.what is EventKind.JOINED]


@both_kinds
@pytest.mark.parametrize("at", [(1,), (20,), (COUNT,), (5, 30)], ids=str)
def test_a_drain_waits_until_the_consumers_have_left_and_goes_on(
    at: tuple[int, ...], kind: type[OnTheLoop | OnThreads], virtual: VirtualDrains
) -> None:
    refill = Refill(virtual, at, kind=kind)
    summary = refill.drain()
    refill.is_drained(summary)
    assert joined(summary) == [
        "group group is in use: checkout-7 on 127.0.0.1 (state stable)"
    ] * len(at)
    assert len(refill.waits) == 4 * len(at)
    assert all(each.progress.eta_s is None for each in refill.waits)
    elapsed = [status.timing.elapsed_s for status in refill.rehearsal.statuses]
    assert elapsed == sorted(elapsed)


def test_what_a_thread_still_does_is_not_done_again_beside_it(virtual: VirtualDrains) -> None:
    refill = Refill(virtual, (6,), kind=OnThreads, takes_s=3.0, stays=1)
    refill.is_drained(refill.drain())


def test_a_thread_that_does_not_return_keeps_the_drain_from_going_on(
    virtual: VirtualDrains,
) -> None:
    refill = Refill(virtual, (3,), kind=OnThreads, takes_s=300.0)
    summary = refill.drain()
    assert summary.exit_code == EXIT_INTERRUPTED
    assert "calls did not return in time" in str(summary.error)
    assert refill.waits == []


def test_a_priority_class_goes_on_and_then_the_rest(virtual: VirtualDrains) -> None:
    logs = {0: log_of(*([f"c{n}"] if n % 2 else [f"x{n}"] for n in range(COUNT)))}
    refill = Refill(virtual, (5, 30), logs=logs)
    summary = refill.drain("key =~ 'c.*'")
    assert summary.exit_code == EXIT_DONE
    assert summary.last.progress.classes[0].sub_messages.done == COUNT // 2
    assert set(refill.handler.account.finished) == refill.rehearsal.places
    assert len(joined(summary)) == 2


def test_a_consumer_that_has_committed_ends_the_drain(virtual: VirtualDrains) -> None:
    refill = Refill(virtual, (20,), leaves=lambda: refill.rehearsal.kafka.committed.update({0: 1}))
    summary = refill.drain()
    assert isinstance(summary.cause, OffsetMoved)
    assert summary.exit_code == EXIT_UNRESUMABLE
    assert "has offset 1 committed on orders/0" in str(summary.error)
    assert summary.partitions[0].committed == 1
    assert refill.rehearsal.kafka.committed == {0: 1}, "what the consumer wrote stays"


@pytest.mark.parametrize("wait_s", [0.0, 2.0])
def test_consumers_that_stay_stop_the_drain_which_names_and_counts_them(
    wait_s: float, virtual: VirtualDrains
) -> None:
    settings = replace(UNHURRIED, wait_for_group_s=wait_s)
    refill = Refill(virtual, (20, 30), stays=1_000, settings=settings)
    for times in ("1 time", "2 times"):
        summary = refill.drain()
        assert type(summary.cause) is GroupJoined
        assert summary.exit_code == EXIT_INTERRUPTED
        assert "group group is in use: checkout-7 on 127.0.0.1" in str(summary.error)
        assert f"Consumers joined it {times} during this drain, last at " in str(summary.error)
        assert "paused-replicas=0" in str(summary.hint)
        assert summary.resume is not None
        refill.rehearsal.kafka.members = ()
    refill.rehearsal.resumes_exactly(refill.handler)


def test_a_wait_can_be_stopped_and_refuses_all_else(virtual: VirtualDrains) -> None:
    requests: list[Any] = []

    def steer() -> None:
        refill.rehearsal.kafka.live_member("group", "checkout-7")
        request = refill.rehearsal.control.request
        requests.extend(request(each, "ana@db1") for each in (Pause(), Stop()))

    refill = Refill(virtual, (20,), leaves=steer)
    summary = refill.drain()
    assert (summary.status, summary.exit_code) == ("interrupted", EXIT_INTERRUPTED)
    assert summary.error == "stopped by ana@db1"
    with pytest.raises(Refused, match="between two passes"):
        requests[0].result(0)
    assert "stopping" in str(requests[1].result(0))
    refill.rehearsal.kafka.members = ()
    refill.rehearsal.resumes_exactly(refill.handler)


def test_a_wait_ends_by_ctrl_c(virtual: VirtualDrains) -> None:
    def press() -> None:
        raise KeyboardInterrupt("interrupted by SIGINT")

    refill = Refill(virtual, (20,), leaves=press)
    summary = refill.drain()
    assert summary.error == "interrupted by SIGINT"
    assert refill.rehearsal.control.interrupted
    refill.rehearsal.resumes_exactly(refill.handler)


def test_a_lock_that_is_lost_ends_the_wait(virtual: VirtualDrains) -> None:
    def lose() -> None:
        refill.rehearsal.lock.lost = LockLost("another drain took the lock")

    refill = Refill(virtual, (20,), leaves=lose)
    summary = refill.drain()
    assert isinstance(summary.cause, LockLost)
