"""How a drain runs in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from drainer.model.codec import JsonRecord
from drainer.model.concurrency import Concurrency

JOURNAL_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class LocalSettings(JsonRecord):
    """How a drain runs; none of it changes what is drained.

    ``reason`` is what the one who began it gave as one.
    """

    concurrency: int | Concurrency = 100  # fixed, or found while draining
    buffer_bytes: int = 256 * 1024 * 1024
    plan_interval_s: float = 1.0
    grace_s: float = 10.0
    journal_interval_s: float = JOURNAL_INTERVAL_S
    options: Mapping[str, str] | None = None  # the handler's own
    deadline: datetime | None = None
    reason: str | None = None  # why it is run

    def __post_init__(self) -> None:
        if Concurrency.of(self.concurrency).most < 1:
            raise ValueError("with this concurrency nothing would ever start")
        if self.buffer_bytes < 0 or self.grace_s < 0:
            raise ValueError("a buffer or a grace is below zero")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise ValueError("a deadline has no zone")
        if self.plan_interval_s <= 0:
            raise ValueError("a plan can't be written every 0 s")
