"""Settings of a run: concurrency, memory, intervals, the deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from drainer.model.codec import JsonRecord
from drainer.model.option import (
    CONCURRENCY,
    DEADLINE,
    DURATION,
    PAIRS,
    REASON,
    SIZE,
    Concurrency,
    option,
)

JOURNAL_INTERVAL_S = 0.05

_drain = partial(option, panel="Drain", resumes=True)


@dataclass(frozen=True, slots=True)
class LocalSettings(JsonRecord):
    """Settings of a run; none of them changes what is drained."""

    concurrency: int | Concurrency = _drain(
        "Maximum calls in flight. auto raises it while throughput grows.",
        100,
        CONCURRENCY,
        short="-c",
        basic=True,
        live=True,
    )
    buffer_bytes: int = _drain(
        "Memory for messages that are read but not done.", 256 * 1024 * 1024, SIZE
    )
    plan_interval_s: float = _drain(
        "Interval between plan writes and commits.", 1.0, DURATION, live=True
    )
    grace_s: float = _drain(
        "Time that the first Ctrl-C waits for calls in flight.", 10.0, DURATION, live=True
    )
    journal_interval_s: float = JOURNAL_INTERVAL_S
    options: Mapping[str, str] | None = _drain(
        "Handler option; repeatable. The plan does not keep it.",
        None,
        PAIRS,
        name="--set",
        pairs=True,
        basic=True,
    )
    deadline: datetime | None = option(
        "Time to finish by; drainer warns when the drain will miss it.",
        None,
        DEADLINE,
        panel="Estimate",
        basic=True,
        resumes=True,
        live=True,
    )
    reason: str | None = option(
        "Reason for this, kept in the plan's history.", None, REASON, envvar=None, panel="Output"
    )

    def __post_init__(self) -> None:
        if Concurrency.of(self.concurrency).most < 1:
            raise ValueError("with this concurrency nothing would ever start")
        if self.buffer_bytes < 0 or self.grace_s < 0:
            raise ValueError("a buffer or a grace is below zero")
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise ValueError("a deadline has no zone")
        if self.plan_interval_s <= 0:
            raise ValueError("a plan can't be written every 0 s")
