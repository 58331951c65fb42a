"""Folding what tasks report into the offset plan, so that nothing of it counts twice.

A drain on Spark dispatches its backlog to tasks. They write records, and the plan takes them in:
over and over while they run, and again by whoever loads it after a crash. What is finished may be
merged as often as one likes. Accounts may not: so the plan has beside them what of the dispatches
that are under way is in them. All accounts are in the claim "all".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from drainer.model.claims import ALL
from drainer.model.codec import Whole
from drainer.model.plan import OffsetPlan
from drainer.model.progress import (
    OTHERWISE,
    Counts,
    OutcomeRanges,
    Partial,
    Progress,
    merge_outcomes,
)
from drainer.model.ranges import Range, RangeSet, decode_ranges, join_ranges, subtract
from drainer.model.unhandled import Unhandled


@dataclass(frozen=True, slots=True)
class Record:
    """Progress since the record before it, as a journal has it.

    ``changes`` is progress of a claim by partition: what changed, with whole accounts. ``parked``
    are lanes that were parked meanwhile. ``unhandled`` has the whole counts, if there are any.
    """

    changes: Mapping[Whole, Progress]
    parked: tuple[str, ...] = ()
    unhandled: Unhandled | None = None
    claim: str = ALL


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """Progress of a task since its record before: ``claims`` has it by claim and partition, for a
    task has parts of several; ``counts`` is the whole account of its sub-messages by partition.

    Messages are counted when all claims have finished them, which no task knows.
    """

    claims: Mapping[str, Mapping[int, Progress]] = field(default_factory=dict)
    counts: Mapping[int, Counts] = field(default_factory=dict)
    parked: tuple[str, ...] = ()
    unhandled: Unhandled | None = None


def merged(records: Iterable[TaskRecord]) -> TaskRecord:
    """Records of one task, in their order, as one."""
    claims: dict[str, dict[int, list[Progress]]] = {}
    counts: dict[int, Counts] = {}
    parked: dict[str, None] = {}
    unhandled: Unhandled | None = None
    for record in records:
        for selector, changes in record.claims.items():
            claim = claims.setdefault(selector, {})
            for number, found in changes.items():
                claim.setdefault(number, []).append(found)
        counts |= record.counts
        parked.update(dict.fromkeys(record.parked))
        if record.unhandled is not None:
            unhandled = (unhandled or Unhandled()).merge(record.unhandled)
    joined = {s: {n: _joined(each) for n, each in claim.items()} for s, claim in claims.items()}
    return TaskRecord(joined, counts, tuple(parked), unhandled)


def _joined(each: Sequence[Progress]) -> Progress:
    """Join records in one go: a dispatch may have thousands of them."""
    partial: dict[int, Partial] = {}
    for offset, part in chain.from_iterable(progress.partial.items() for progress in each):
        partial[offset] = partial[offset] | part if offset in partial else part
    whole = ((offset, offset + 1) for offset, part in partial.items() if part.is_whole)
    ranges = join_ranges(chain(whole, *(progress.finished for progress in each)))
    finished = RangeSet(ranges)
    open_yet = {offset: partial[offset] for offset in sorted(partial) if offset not in finished}
    return Progress(0, ranges, open_yet, fates=merge_outcomes(progress.fates for progress in each))


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The records of one task's share, by all attempts together; ``torn`` when some are spoilt."""

    record: TaskRecord
    count: int
    torn: bool


def fold(plan: OffsetPlan, reports: Iterable[TaskRecord]) -> OffsetPlan:
    """The plan with all reports of the tasks of its dispatches, but for those that it has taken.

    Args:
        plan: of a drain whose tasks write to ``plan.state``; it may have any part of it already.
        reports: for each task of each dispatch one record of all its reports (``merged``).
    """
    reference = plan.account.state
    if reference is None:
        raise ValueError("the plan has no state whose records it could take in")
    others = {selector: dict(claim) for selector, claim in plan.account.others.items()}
    counted: dict[int, Counts] = {}
    parked = set(plan.account.parked)
    unhandled = Unhandled()
    reports = list(reports)
    claims = [claim for record in reports for claim in record.claims.values()]
    units = {
        n: undecided(decode_ranges(each), (claim[n].fates for claim in claims if n in claim))
        for n, each in reference.units.items()
    }
    for record in reports:
        parked.update(record.parked)
        if record.unhandled is not None:
            unhandled += record.unhandled
        count_in(counted, record.counts)
        for selector, changes in record.claims.items():
            claim = others.setdefault(
                selector, {n: Progress(p.start) for n, p in plan.account.partitions.items()}
            )
            for number, found in changes.items():
                finished = subtract(found.finished, units.get(number, ()))
                claim[number] = claim[number].merge(replace(found, finished=finished))
    known = dict(plan.account.claims[ALL])
    for number in {*counted, *reference.counted}:
        subs = counted.get(number, Counts()) - reference.counted.get(number, Counts())
        known[number] = replace(known[number], sub_messages=known[number].sub_messages + subs)
    account = replace(
        plan.account,
        claims={ALL: known, **others},
        parked=tuple(sorted(parked)),
        unhandled=plan.account.unhandled + unhandled - reference.unhandled,
        state=replace(reference, counted=counted, unhandled=unhandled),
    )
    return OffsetPlan(plan.terms, account)


def undecided(units: Sequence[Range], fates: Iterable[OutcomeRanges]) -> tuple[Range, ...]:
    """Messages of ``units``, which ``split`` rejected, that these outcomes leave unfinished."""
    ended = merge_outcomes(fates)
    return subtract(units, join_ranges(chain.from_iterable(ended.get(o, ()) for o in OTHERWISE)))


def count_in(counted: dict[int, Counts], counts: Mapping[int, Counts]) -> None:
    """Adds accounts by partition to others."""
    for number, found in counts.items():
        counted[number] = counted.get(number, Counts()) + found
