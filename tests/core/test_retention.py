"""When retention may take a record: never later than Kafka would."""

from __future__ import annotations

import pytest

from drainer.insight.retention import Retention

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("retention", "found"),
    [
        (Retention("delete", 3 * HOUR_MS, None), (7200, "retention.ms")),
        (Retention("delete", HOUR_MS // 2, None), (0, "retention.ms")),
        (Retention("delete", None, 300), (20, "retention.bytes")),
        (Retention("delete", None, 90), (0, "retention.bytes")),
        (Retention("compact,delete", 3 * HOUR_MS, 300), (20, "retention.bytes")),  # the earlier
        (Retention("compact", HOUR_MS, 1), None),
        (Retention("delete", None, None), None),
        (Retention("", None, None), None),
    ],
)
def test_a_record_goes_by_age_or_size_whichever_comes_first(
    retention: Retention, found: tuple[float, str] | None
) -> None:
    assert retention.deletes_in(age_s=3600, bytes_behind=100, bytes_per_s=10) == found


def test_without_a_timestamp_or_arrivals_nothing_is_guessed() -> None:
    by_age, by_size = Retention("delete", HOUR_MS, None), Retention("delete", None, 300)
    assert by_age.deletes_in(age_s=None, bytes_behind=100, bytes_per_s=10) is None
    assert by_size.deletes_in(age_s=0, bytes_behind=100, bytes_per_s=0) is None
