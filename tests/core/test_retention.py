"""When retention may take a record: never later than Kafka would."""

from __future__ import annotations

import pytest

from drainer.insight.statistics.retention_forecast import Doom, Retention, doom

HOUR_MS = 3_600_000


def doomed(
    retention: Retention,
    timestamp_ms: int | None = 0,
    bytes_behind: float | None = 100,
    bytes_per_s: float = 10,
) -> Doom | None:
    return doom(
        retention,
        now_ms=HOUR_MS,
        timestamp_ms=timestamp_ms,
        bytes_behind=bytes_behind,
        bytes_per_s=bytes_per_s,
    )


def test_by_age_it_goes_when_it_is_too_old() -> None:
    assert doomed(Retention("delete", 3 * HOUR_MS, None)) == Doom(7200, "retention.ms")
    assert doomed(Retention("delete", HOUR_MS // 2, None)) == Doom(0, "retention.ms")


def test_by_size_it_goes_when_enough_came_after_it() -> None:
    assert doomed(Retention("delete", None, 300)) == Doom(20, "retention.bytes")
    assert doomed(Retention("delete", None, 90)) == Doom(0, "retention.bytes")
    assert doomed(Retention("delete", None, 300), bytes_per_s=0) is None


def test_the_earlier_of_both_counts() -> None:
    found = doomed(Retention("compact,delete", 3 * HOUR_MS, 300))
    assert found == Doom(20, "retention.bytes")


@pytest.mark.parametrize(
    "retention",
    [Retention("compact", HOUR_MS, 1), Retention("delete", None, None), Retention("", None, None)],
)
def test_nothing_goes_by_itself(retention: Retention) -> None:
    assert doomed(retention) is None
    assert not retention.deletes


def test_what_is_not_known_is_not_guessed() -> None:
    assert doomed(Retention("delete", HOUR_MS, None), timestamp_ms=None) is None
    assert doomed(Retention("delete", None, 1), bytes_behind=None) is None
