"""Whether a running drain makes its deadline, and the reason when it doesn't."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drainer.engine.deadline import SURE_AFTER_S, SURE_FOR_S, DeadlineWatch, outlook
from drainer.engine.status import FailureStatus, Outlook, Reason, Status
from view import samples

NOW = datetime(2026, 11, 20, 18, 0, tzinfo=UTC)
LEFT_S = 100.0
LATE = replace(
    samples.status(),
    elapsed_s=60.0,
    eta_s=200.0,
    rate_now=1_000.0,
    running=100,
    concurrency=100,
    lanes_ready=50,
    hottest=(),
)
ALL_READ = tuple(replace(part, position=part.end) for part in LATE.partitions)


def test_a_drain_that_is_too_slow_tells_by_how_much_and_how_many_more_it_takes() -> None:
    seen = outlook(LATE, LEFT_S, None)
    assert (seen.margin_s, seen.reason) == (-100.0, Reason.CONCURRENCY)
    assert seen.concurrency is not None
    assert 200 <= seen.concurrency <= 230


@pytest.mark.parametrize(
    ("changes", "left_s", "rate", "reason"),
    [
        ({}, -1.0, None, Reason.PASSED),
        ({"eta_s": None}, -1.0, None, Reason.PASSED),
        ({"eta_s": None}, 1.0, None, None),
        ({"eta_s": 99.0}, LEFT_S, None, None),
        ({"trouble": "away"}, LEFT_S, None, Reason.OUTAGE),
        ({"hottest": (("a", 3_000),)}, LEFT_S, None, Reason.LANE),  # 100 ms each: 300 s
        ({}, LEFT_S, 1_000.0, Reason.RATE),
        ({"running": 40, "failures": FailureStatus(waiting=70)}, LEFT_S, None, Reason.RETRIES),
        ({"running": 40}, LEFT_S, None, Reason.FETCH),
        ({"running": 40, "lanes_ready": 500}, LEFT_S, None, Reason.CPU),
        ({"running": 2, "partitions": ALL_READ}, LEFT_S, None, Reason.LANE),
    ],
)
def test_the_reason_is_what_binds(
    changes: dict[str, object], left_s: float, rate: float | None, reason: Reason | None
) -> None:
    moment = replace(LATE, **changes)  # type: ignore[arg-type]
    assert outlook(moment, left_s, rate).reason is reason


def test_a_warning_comes_once_it_is_sure_and_stays() -> None:
    seen: list[Status] = []
    watch = DeadlineWatch(NOW + timedelta(seconds=LEFT_S), None, seen.append, now=lambda: NOW)

    def warning(elapsed_s: float, eta_s: float = 500.0) -> Outlook | None:
        watch(replace(LATE, elapsed_s=elapsed_s, eta_s=eta_s))
        assert seen[-1].deadline is not None
        return seen[-1].deadline.warning

    assert warning(0.5) is None
    assert warning(SURE_AFTER_S - 0.1) is None
    assert warning(20.0, eta_s=1.0) is None
    assert warning(20.0 + SURE_FOR_S) is None
    first = warning(20.0 + 2 * SURE_FOR_S)
    assert first is not None
    assert warning(100.0) is first
