"""Workers up to a limit that changes while they run, by a search or by the driver that lends it:
never more, none forgotten, all in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from drainer.engine.runtime import Runtime
from drainer.message import SubMessage
from drainer.model.option import Concurrency
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample
from drainer.spark.state.state import DriverControl, QuotaGrant
from drainer.spark.task.handling import Borrower
from drainer.text.mask import VARIABLE
from engine.made_up_kafka import (
    Kind,
    OnTheLoop,
    VirtualDrains,
    both_kinds,
    in_lanes,
)
from engine.test_batches import Together, in_batches

MOST = 40
AUTO = LocalSettings(concurrency=Concurrency.auto(MOST))


class Scripted(ConcurrencyLimit):
    """Goes through some limits, one a look, and stays at the last."""

    look_s = 0.001

    def __init__(self, limits: Sequence[int], first: int, most: int) -> None:
        super().__init__(first, most)
        self._script = iter(limits)
        self.samples: list[LoadSample] = []

    def observe(self, interval: LoadSample) -> int:
        self.samples.append(interval)
        self.limit = next(self._script, self.limit)
        return self.limit


def scripted(virtual: VirtualDrains, made: list[Scripted], *limits: int) -> Runtime:
    """A runtime whose drains get these limits; ``made`` takes in what gave them."""

    def search(first: int, most: int) -> Scripted:
        made.append(Scripted(limits, first, most))
        return made[-1]

    return replace(virtual.runtime, search=search)


@both_kinds
def test_what_is_measured_is_what_was_done(kind: Kind, virtual: VirtualDrains) -> None:
    made: list[Scripted] = []
    runtime = scripted(virtual, made)
    failing = iter([True] * 30)

    def sometimes(sub: SubMessage) -> float:
        if next(failing, False):
            raise ConnectionError
        return 0.001

    rehearsal = virtual.rehearsal(
        in_lanes(1_000),
        AUTO,
        runtime=runtime,
        failures=FailureSettings(retries=2, retry_delay_s=0.001, breaker=False),
    )
    rehearsal.drain(virtual.handler(kind, sometimes))

    search = made[0]
    assert 0 < sum(each.done for each in search.samples) <= 1_000
    assert sum(each.failed for each in search.samples) == 30
    assert all(0 <= each.in_flight <= 20 for each in search.samples)
    assert all(each.seconds > 0 for each in search.samples)


def test_status_and_summary_have_the_limit(virtual: VirtualDrains) -> None:
    runtime = scripted(virtual, [], 33)
    rehearsal = virtual.rehearsal(in_lanes(2_000), AUTO, runtime=runtime)

    summary = rehearsal.drain(virtual.handler(OnTheLoop, lambda sub: 0.001))

    assert summary.last == rehearsal.statuses[-1]
    last = summary.last.limits
    assert last.auto is not None
    assert (last.concurrency, last.auto.limit, last.auto.most) == (33, 33, MOST)
    assert last.auto.settled is None


@in_batches
def test_calls_with_several_are_counted_as_calls(
    kind: type[Together], virtual: VirtualDrains
) -> None:
    made: list[Scripted] = []
    runtime = scripted(virtual, made, 20)
    handler = kind(lambda subs: virtual.sleep(0.001))
    summary = virtual.rehearsal(in_lanes(4_000), AUTO, runtime=runtime).drain(handler)

    samples = made[0].samples
    assert summary.exit_code == 0
    assert sum(interval.done for interval in samples) > 0
    assert all(interval.calls is not None for interval in samples)
    assert 8 * sum(interval.ended for interval in samples) >= sum(each.done for each in samples)
    assert 0 < sum(interval.ended for interval in samples) <= len(handler.calls)


def test_a_task_takes_what_it_is_lent_and_reports_it_once_no_more_is_in_flight() -> None:
    limited = FailureSettings(rate=200.0)
    grants, shares = [QuotaGrant(0, 8, {})], list[float]()
    reported: list[int] = []
    borrower = Borrower(
        "task",
        limited,
        control=lambda: DriverControl(lent=grants[-1]),
        report=lambda: reported.append(grants[-1].number),
        use_share=shares.append,
    )

    def take(in_flight: int) -> tuple[int, float | None]:
        calls, failures = borrower.take()
        borrower.obeyed(in_flight, 0, (0, 0, 0))
        return calls, failures.rate

    assert take(0) == (0, 200.0)
    assert reported == [], "nothing was lent yet"
    grants.append(QuotaGrant(1, 8, {"task": 4, "other": 4}))
    assert take(4) == (4, 100.0)
    grants.append(QuotaGrant(2, 8, {"task": 2, "other": 6}))
    assert take(4) == (2, 50.0)
    assert (shares, reported) == ([0.5, 0.25], [1]), "four are in flight"
    take(2)
    assert reported == [1, 2]


@both_kinds
def test_no_more_calls_are_in_flight_than_were_lent(kind: Kind, virtual: VirtualDrains) -> None:
    grants, obeyed, most = [QuotaGrant(1, 8, {"task": 2})], list[int](), Counter[int]()

    def count(sub: SubMessage) -> float:
        number = grants[-1].number
        most[number] = max(most[number], handler.account.in_flight)
        if len(handler.account.began) >= 200 and number == 1:
            grants.append(QuotaGrant(2, 8, {"task": 5}))
        return 0.002

    borrower = Borrower(
        "task",
        FailureSettings(),
        control=lambda: DriverControl(lent=grants[-1]),
        report=lambda: obeyed.append(grants[-1].number),
        use_share=lambda share: None,
    )
    handler = virtual.handler(kind, count)
    assert virtual.rehearsal(in_lanes(1_000), quota=borrower).drain(handler).exit_code == 0
    assert most[1] <= 2 < most[2] <= 5
    assert obeyed == [1, 2]


@both_kinds
def test_the_statuses_of_a_drain_or_task_have_masks_in_place_of_sub_keys(
    kind: Kind, virtual: VirtualDrains, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "a secret of this test")
    rehearsal = virtual.rehearsal(in_lanes(400, lanes=4))
    assert rehearsal.drain(virtual.handler(kind, lambda sub: 0.01)).exit_code == 0
    shown = [key for status in rehearsal.statuses for key, _ in status.limits.hottest]
    assert shown
    assert all(re.fullmatch("key#[0-9a-f]{8}", key) for key in shown)
