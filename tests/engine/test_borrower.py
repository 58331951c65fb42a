"""A task's drain within what its driver lends it: calls, and as large a part of the rate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from drainer.engine.control import Settings
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.spark.borrower import Borrower
from drainer.spark.state import QuotaGrant


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
        lent=lambda: grants[-1],
        failures=lambda: None,
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
