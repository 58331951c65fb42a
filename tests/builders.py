"""Records to test with, made by name: what a test leaves out has a value that makes sense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from drainer.core.progress import Counts
from drainer.engine.status import CapStatus, PartitionResult, PartitionStatus, Status, Summary


def a_status(partitions: int | tuple[PartitionStatus, ...] = 1, **changes: Any) -> Status:
    """A moment in the middle of a drain of 3,000,000 messages."""
    if isinstance(partitions, int):
        each = 3_000_000 // max(1, partitions)
        partitions = tuple(
            PartitionStatus(
                partition=n,
                start=1_000,
                end=1_000 + each,
                position=1_000 + each // 2,
                watermark=1_000 + each * 40 // 100 + n,
                committed=1_000 + each * 39 // 100 + n,
                messages_finished=each * 41 // 100,
            )
            for n in range(partitions)
        )
    found = Status(
        topic="orders",
        group="reindexer",
        elapsed_s=200.0,
        messages=Counts(1_250_000, 1_229_997, 3, 0, 20_000),
        sub_messages=Counts(61_700_000, 61_499_997, 3, 0, 200_000),
        rate_now=89_123.4,
        rate_average=88_000.2,
        eta_s=1_540.0,
        running=996,
        concurrency=1_000,
        lanes=15_000,
        lanes_ready=14_000,
        hottest=(("doc-17", 12_345), ("tenant[4]/document/8c1f-77aa-0001", 310), (b"\x00k", 7)),
        buffered_bytes=191 << 20,
        buffer_bytes=256 << 20,
        plan_path="orders.reindexer.plan",
        plan_age_s=0.4,
        partitions=partitions,
    )
    return changed(found, **changes)


def a_summary(partitions: int | dict[int, PartitionResult] = 1, **changes: Any) -> Summary:
    """A drain that ended well."""
    if isinstance(partitions, int):
        partitions = {
            n: PartitionResult(1_000, 9_000 + n, 9_000 + n, 9_000 + n) for n in range(partitions)
        }
    found = Summary(
        status="done",
        exit_code=0,
        elapsed_s=3_725.0,
        messages=Counts(3_000_000, 3_000_000, 0, 0, 0),
        sub_messages=Counts(150_000_000, 149_999_000, 0, 1_000, 0),
        partitions=partitions,
        plan="orders.reindexer.plan",
        sub_messages_per_s=40_268.4,
    )
    return changed(found, **changes)


Shown = TypeVar("Shown", Status, Summary)


def changed(found: Shown, **changes: Any) -> Shown:
    """A status or a summary with other values of these fields, whichever section they are in."""
    return replace(found, **changes)


def a_cap(*, binds: bool = True, bytes_per_s: float = 100_000.0) -> CapStatus:
    """A cap of 1,000 messages per second that a run came close to."""
    return CapStatus(1_000.0, bytes_per_s, 100.0, 990.0, binds=binds)
