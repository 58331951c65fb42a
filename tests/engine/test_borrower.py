"""A task's drain within what its driver lends it: calls, and as large a part of the rate."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from made_up_kafka import Kind, Rehearsal, both_kinds, handler_of, in_lanes

from drainer.engine.control import Settings
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.spark.state.state import DriverControl, QuotaGrant
from drainer.spark.task.borrower import Borrower


@dataclass
class Pipeline:
    """The part of a pipeline that a borrower controls."""

    settings: Settings
    in_flight: int = 0
    limits: list[int] = field(default_factory=list)

    def limit(self, calls: int) -> None:
        self.limits.append(calls)

    async def change(self, settings: Settings) -> None:
        self.settings = settings


def test_a_task_obeys_what_it_is_lent_and_reports_it_once_no_more_is_in_flight() -> None:
    limited = FailureSettings(rate=200.0)
    pipeline: Any = Pipeline(Settings(LocalSettings(), limited))
    grants, shares = [QuotaGrant(0, 8, {})], list[float]()
    obeyed: list[int] = []
    borrower = Borrower(
        "task",
        limited,
        control=lambda: DriverControl(lent=grants[-1]),
        obeyed=lambda: obeyed.append(grants[-1].number),
        use_share=shares.append,
    )

    def obey(in_flight: int) -> float | None:
        pipeline.in_flight = in_flight
        asyncio.run(borrower.obey(pipeline))
        rate: float | None = pipeline.settings.failures.rate
        return rate

    obey(0)
    assert (pipeline.limits, obeyed) == ([], []), "nothing was lent yet"
    grants.append(QuotaGrant(1, 8, {"task": 4, "other": 4}))
    assert obey(4) == 100.0
    grants.append(QuotaGrant(2, 8, {"task": 2, "other": 6}))
    assert obey(4) == 50.0
    assert (pipeline.limits, shares, obeyed) == ([4, 2], [0.5, 0.25], [1]), "four are in flight"
    obey(2)
    assert obeyed == [1, 2]


@both_kinds
def test_no_more_calls_are_in_flight_than_were_lent(kind: Kind, tmp_path: Path) -> None:
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
        obeyed=lambda: obeyed.append(grants[-1].number),
        use_share=lambda share: None,
    )
    handler = handler_of(kind, count)
    assert Rehearsal(tmp_path, in_lanes(1_000), quota=borrower).drain(handler).exit_code == 0
    assert most[1] <= 2 < most[2] <= 5
    assert obeyed == [1, 2]
