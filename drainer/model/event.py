"""Events of a drain: lines of its plan's history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from drainer.model.codec import JsonRecord, Whole


def clock(at: str) -> str:
    """``18:32:07`` here, for a time as events have it."""
    return f"{datetime.fromisoformat(at).astimezone():%H:%M:%S}"


class EventKind(StrEnum):
    """Kinds of events, by people and drains."""

    BEGUN = "begun"
    RESUMED = "resumed"
    CHANGED = "changed"
    PAUSED = "paused"
    UNPAUSED = "unpaused"
    ENDED = "ended"
    UNDONE = "undone"
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Event(JsonRecord):
    """One event."""

    at: str  # ISO 8601 with offset
    what: EventKind
    by: str  # who did it, as "user@host"
    reason: str | None = None
    # In words: the rules that it began with, each setting that changed, how it ended.
    details: tuple[str, ...] = ()
    # Where the group stood after it, by partition; empty where nothing moved it.
    offsets: Mapping[Whole, Whole | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.at)

    def __str__(self) -> str:
        """``changed by ana@db1: concurrency 500 → 50 (the database is slow)``."""
        details = f": {', '.join(self.details)}" if self.details else ""
        why = "" if self.reason is None else f" ({self.reason})"
        return f"{self.what} by {self.by}{details}{why}"
