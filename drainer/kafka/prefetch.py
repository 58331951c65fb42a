"""How far librdkafka reads ahead: its properties for a given number of bytes."""

from __future__ import annotations

from collections.abc import Mapping

KIB, MIB = 1024, 1024 * 1024
FETCH_PARTITION_BYTES_MAX = 8 * MIB
FETCH_BYTES_MAX = 50 * MIB
PREFETCH_RECORD_BYTES = 512  # librdkafka counts no overhead in bytes; so bound the number too


def fetch_bounds(
    prefetch_bytes: int, chosen: Mapping[str, str] | None = None
) -> dict[str, str | int | bool]:
    """librdkafka's properties that keep what it reads ahead within about ``prefetch_bytes``.

    It may overshoot by one fetch, which is a quarter of that at most (but a record always fits).
    """
    partition_bytes = min(max(prefetch_bytes // 4, 64 * KIB), FETCH_PARTITION_BYTES_MAX)
    properties: dict[str, str | int | bool] = {
        "queued_max_messages_kbytes": max(1, prefetch_bytes // KIB),
        "queued_min_messages": min(100_000, max(100, prefetch_bytes // PREFETCH_RECORD_BYTES)),
        "max_partition_fetch_bytes": partition_bytes,
        "fetch_max_bytes": min(max(prefetch_bytes // 4, partition_bytes, 1 * MIB), FETCH_BYTES_MAX),
        # How long it rests once it has read far enough ahead. Its default of a second starves a
        # fast drain: 0.3M instead of 2M records/s.
        "fetch_queue_backoff_ms": 5,
        # Off by default in librdkafka, on in Java: a damaged record must not be handled. It
        # costs a sixth of the speed.
        "check_crcs": True,
    }
    if chosen and "check.crcs" in chosen:
        properties["check_crcs"] = chosen["check.crcs"]
    return properties
