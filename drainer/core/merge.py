"""Folding the records of tasks into the offset plan, so that nothing is counted twice.

A drain on Spark hands its backlog to tasks, slice by slice, and these write records. The plan takes
the records in, again and again while the tasks run, and once more when it is loaded after a crash.

Finished ranges may be merged any number of times, but counts may not. So the plan also keeps what
it has counted already of the slices that are under way. All counts are in the claim "all".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from drainer.model.claims import ALL
from drainer.model.codec import Share, Whole
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
    """A record of a journal: what happened since the previous record.

    ``changes`` has the progress of the claim by partition: only the ranges that have changed, but
    the counts in total. ``parked`` are the lanes that were parked since the previous record.
    ``unhandled`` has the total counts of sub-messages that were not handled, if there are any.
    ``share_done`` is the share of the backlog that was finished by the last status, if it is known.
    """

    changes: Mapping[Whole, Progress]
    parked: tuple[str, ...] = ()
    unhandled: Unhandled | None = None
    claim: str = ALL
    share_done: Share | None = None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A record of a task on Spark: what happened since its previous record.

    ``claims`` has the progress by claim and partition, because a task has parts of several claims.
    ``counts`` has the total counts of the task's sub-messages by partition. Messages are not
    counted: a message is finished when all claims have finished it, and no task knows that.
    """

    claims: Mapping[str, Mapping[int, Progress]] = field(default_factory=dict)
    counts: Mapping[int, Counts] = field(default_factory=dict)
    parked: tuple[str, ...] = ()
    unhandled: Unhandled | None = None


def merged(records: Iterable[TaskRecord]) -> TaskRecord:
    """Join the records of one task into a single one. They must be in the order of writing."""
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
    """Join the progress of many records at once, because a task may have thousands."""
    partial: dict[int, Partial] = {}
    for offset, part in chain.from_iterable(progress.partial.items() for progress in each):
        partial[offset] = partial[offset] | part if offset in partial else part
    whole = ((offset, offset + 1) for offset, part in partial.items() if part.is_whole)
    ranges = join_ranges(chain(whole, *(progress.finished for progress in each)))
    finished = RangeSet(ranges)
    open_yet = {offset: partial[offset] for offset in sorted(partial) if offset not in finished}
    return Progress(
        0, ranges, open_yet, outcomes=merge_outcomes(progress.outcomes for progress in each)
    )


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Everything that was reported of one task's share, joined into one record.

    ``count`` is the number of records that were joined. ``torn`` tells whether others are damaged.
    """

    record: TaskRecord
    count: int
    torn: bool


def fold(plan: OffsetPlan, reports: Iterable[TaskRecord]) -> OffsetPlan:
    """Add to a plan everything that its tasks have reported and that it does not have yet.

    Args:
        plan: the plan of a drain on Spark. It may have any part of the reports already.
        reports: one record for each task of each slice, with all that it reported (``merged``).

    Raises ValueError when the plan has no state on Spark.
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
        n: undecided(decode_ranges(each), (claim[n].outcomes for claim in claims if n in claim))
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


def undecided(units: Sequence[Range], outcomes: Iterable[OutcomeRanges]) -> tuple[Range, ...]:
    """Return those of the rejected messages ``units`` that have no outcome yet."""
    ended = merge_outcomes(outcomes)
    return subtract(units, join_ranges(chain.from_iterable(ended.get(o, ()) for o in OTHERWISE)))


def count_in(counted: dict[int, Counts], counts: Mapping[int, Counts]) -> None:
    """Add counts by partition to ``counted``."""
    for number, found in counts.items():
        counted[number] = counted.get(number, Counts()) + found
