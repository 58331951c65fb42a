"""The wall clock, as plans and dead letters tell it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """ISO 8601 with offset, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
