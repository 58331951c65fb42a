"""Records to test with, made by name: what a test leaves out has a value that makes sense."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from drainer.model.account import Account, PartitionPlan
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Counts, Outcome, Partial, Progress
from drainer.model.ranges import Range
from drainer.model.rate_cap import CapStatus
from drainer.model.status import (
    LimitStatus,
    PartitionResult,
    PartitionStatus,
    ProgressStatus,
    Status,
    Summary,
)
from drainer.model.terms import Terms

EMPTY = Status("orders", "reindexer", "orders.reindexer.plan", ProgressStatus(), LimitStatus())

AT = "2026-01-01T00:00:00.000+00:00"


def counts(
    *,
    done: int = 0,
    dead: int = 0,
    skipped: int = 0,
    failed: int = 0,
    pending: int = 0,
    unsplit: int = 0,
    read: int | None = None,
) -> Counts:
    """An account that adds up, unless ``read`` is given."""
    found = done + dead + skipped + failed + pending if read is None else read
    return Counts(found, done, dead, skipped, pending, failed, unsplit)


def progress_at(
    watermark: int = 0,
    *,
    finished: Iterable[Range] = (),
    partial: Mapping[int, Partial] | None = None,
    messages: Counts | None = None,
    sub_messages: Counts | None = None,
    outcomes: Mapping[Outcome, tuple[Range, ...]] | None = None,
) -> Progress:
    """Progress in one partition of which nothing was read but what is named."""
    return Progress(
        watermark,
        tuple(finished),
        partial or {},
        messages or counts(),
        sub_messages or counts(),
        outcomes or {},
    )


def a_partition(
    start: int = 0,
    end: int = 100,
    *,
    prior: int | None = None,
    committed: int | None = None,
    leader_epoch: int | None = None,
    lost: tuple[Range, ...] = (),
) -> PartitionPlan:
    """The backlog of one partition, of a group without a committed offset."""
    return PartitionPlan(start, end, prior, committed, leader_epoch, lost)


def a_plan(*ends: int, watermark: int | None = None, **others: Any) -> OffsetPlan:
    """A plan with nothing done.

    Its partitions begin at 0, which was committed, and stop at ``ends``; or they are ``partitions``
    of ``a_partition``. All below ``watermark`` is done. ``others`` are any other fields of a plan.
    """
    partitions = others.pop("partitions", None) or {
        n: a_partition(0, end, prior=0, committed=0) for n, end in enumerate(ends)
    }
    begun = {
        n: progress_at(part.start if watermark is None else watermark)
        for n, part in partitions.items()
    }
    terms = Terms(
        drain_id="20260101-000000-abcdef",
        created=AT,
        cluster_id="cluster",
        bootstrap_servers="localhost:9092",
        client_config=None,
        isolation="read_committed",
        topic="orders",
        topic_id="topic-id",
        topic_partitions=1,
        group="billing",
        handler="handlers.py:Accounting",
        order="sub-key",
    )
    account = Account(AT, 1, partitions, {ALL: begun})
    return changed(OffsetPlan(terms, account), **others)


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
    found = changed(
        EMPTY,
        elapsed_s=200.0,
        messages=counts(done=1_229_997, dead=3, pending=20_000),
        sub_messages=counts(done=61_499_997, dead=3, pending=200_000),
        rate_now=89_123.4,
        rate_average=88_000.2,
        eta_s=1_540.0,
        in_flight=996,
        concurrency=1_000,
        lanes=15_000,
        lanes_ready=14_000,
        hottest=(
            ("'doc-17'", 12_345),
            ("'tenant[4]/document/8c1f-77aa-0001'", 310),
            ("b'\\x00k'", 7),
        ),
        buffered_bytes=191 << 20,
        buffer_bytes=256 << 20,
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
    last = changed(
        EMPTY,
        elapsed_s=3_725.0,
        messages=counts(done=3_000_000),
        sub_messages=counts(done=149_999_000, skipped=1_000),
        rate_average=40_268.4,
    )
    return changed(Summary(last, "done", 0, partitions), **changes)


Found = TypeVar("Found", OffsetPlan, Status, Summary)
SECTIONS = ("terms", "account", "last", "progress", "limits", "caps", "timing", "health", "control")


def changed(found: Found, **changes: Any) -> Found:
    """A plan, status or summary with other values of these fields, in whichever section."""
    made: Found = _take(found, changes)
    assert not changes, f"no such fields: {changes}"
    return made


def _take(found: Any, changes: dict[str, Any]) -> Any:
    names = {each.name for each in fields(found)}
    taken = {name: changes.pop(name) for name in names & changes.keys()}
    for name in names.intersection(SECTIONS) - taken.keys():
        if is_dataclass(part := getattr(found, name)):
            taken[name] = _take(part, changes)
    return replace(found, **taken)


def advanced(plan: OffsetPlan, step: Callable[[Account], Account]) -> OffsetPlan:
    """A plan after a step of its account, such as ``Account.without_pending``."""
    return OffsetPlan(plan.terms, step(plan.account))


def a_cap(*, binds: bool = True, bytes_per_s: float = 100_000.0) -> CapStatus:
    """A cap of 1,000 messages per second that a run came close to."""
    return CapStatus(1_000.0, bytes_per_s, 100.0, 990.0, binds=binds)
