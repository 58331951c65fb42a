"""A task keeps to the calls and the rate that its driver lends it, and reports no sub-key."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from made_up_kafka import Kind, VirtualDrains, both_kinds, in_lanes

from drainer.message import SubMessage
from drainer.model.settings import FailureSettings
from drainer.spark.state.state import DriverControl, QuotaGrant
from drainer.spark.task.handling import Borrower
from drainer.text.mask import VARIABLE


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
        taken = borrower.take()
        borrower.obeyed(in_flight, 0, (0, 0, 0))
        return taken.calls, taken.failures.rate

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
