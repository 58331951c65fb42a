"""Folding what tasks tell into the offset plan, so that nothing of it counts twice.

A drain on Spark deals its backlog out to tasks. They write records, and the plan takes them in:
over and over while they run, and again by whoever loads it after a crash. What is finished may be
merged as often as one likes. Accounts may not: so the plan says beside them what of the deals that
are under way is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from drainer.core.codec import JsonRecord, Whole
from drainer.core.progress import Counts, Progress
from drainer.policy.rules.settings import RuleAccount

if TYPE_CHECKING:
    from drainer.core.plan import OffsetPlan


@dataclass(frozen=True, slots=True)
class Record:
    """What finished since the record before it, as a journal holds it.

    ``changes`` is progress by partition: what changed, with whole accounts. ``parked`` are lanes
    that were parked meanwhile, ``ruled`` what rules did.
    """

    changes: Mapping[Whole, Progress]
    parked: tuple[str, ...] = ()
    ruled: RuleAccount | None = None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The same of a task, in a state: by claim and partition, for a task has parts of several.

    ``status`` is what the task shows of itself while it runs; it means nothing to a resume.
    """

    claims: Mapping[str, Mapping[Whole, Progress]]
    parked: tuple[str, ...] = ()
    ruled: RuleAccount | None = None
    status: Mapping[str, Any] | None = None


def merged(records: Iterable[TaskRecord]) -> TaskRecord:
    """Records of one task, in their order, as one."""
    claims: dict[str, dict[int, Progress]] = {}
    parked: dict[str, None] = {}
    ruled: RuleAccount | None = None
    status: Mapping[str, Any] | None = None
    for record in records:
        for selector, changes in record.claims.items():
            claim = claims.setdefault(selector, {})
            for number, found in changes.items():
                known = claim.get(number)
                claim[number] = found if known is None else known.merge(found)
        parked.update(dict.fromkeys(record.parked))
        if record.ruled is not None:
            ruled = record.ruled if ruled is None else ruled.merge(record.ruled)
        status = status if record.status is None else record.status
    return TaskRecord(claims, tuple(parked), ruled, status)


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of one task's share, by all attempts together; ``torn`` when some of it was
    spoilt."""

    record: TaskRecord
    count: int
    torn: bool


@dataclass(frozen=True, slots=True)
class StateReference(JsonRecord):
    """Where the tasks of a drain write, and what of it the plan holds.

    Everything of epochs before ``epoch`` is in the plan, and of deals below ``next`` that are not
    ``open``. Of the others any part may be: ``counted`` is what the plan's accounts hold of their
    records, by selector and partition, and ``ruled`` what its account of rules counts of them.
    ``joins`` are those that claims of waves under way name.
    """

    uri: str
    epoch: Whole
    next: Whole
    open: tuple[Whole, ...] = ()
    counted: Mapping[str, Mapping[Whole, Counts]] = field(default_factory=dict)
    ruled: RuleAccount = field(default_factory=RuleAccount)
    joins: tuple[Whole, ...] = ()

    def holds(self, epoch: int, deal: int) -> bool:
        """Whether all that tasks of this deal told is in the plan, and not to be added again."""
        if epoch != self.epoch:
            return epoch < self.epoch
        return deal < self.next and deal not in self.open


def fold(plan: OffsetPlan, told: Iterable[TaskRecord]) -> OffsetPlan:
    """The plan with all that the tasks of its deals told, but for what ``plan.state`` ``holds``.

    Args:
        plan: of a drain whose tasks write to ``plan.state``; it may hold any part of it already.
        told: for each task of each deal one record, of all that was told of it (``merged``).
    """
    reference = plan.state
    if reference is None:
        raise ValueError("the plan has no state whose records it could hold")
    claims = {selector: dict(claim) for selector, claim in plan.claims.items()}
    counted: dict[str, dict[int, Counts]] = {}
    parked = set(plan.parked)
    ruled = RuleAccount()
    for record in told:
        parked.update(record.parked)
        if record.ruled is not None:
            ruled += record.ruled
        count_in(counted, record)
        for selector, changes in record.claims.items():
            claim = claims.setdefault(
                selector, {n: Progress(p.start) for n, p in plan.partitions.items()}
            )
            for number, found in changes.items():
                before = claim[number]
                claim[number] = replace(
                    before.merge(found), messages=before.messages, sub_messages=before.sub_messages
                )
    for selector in {*counted, *reference.counted}:
        if selector not in claims:
            continue  # it was folded into another one with its account
        now, then = counted.get(selector, {}), reference.counted.get(selector, {})
        for number in {*now, *then}:
            subs = now.get(number, Counts()) - then.get(number, Counts())
            known = claims[selector][number]
            claims[selector][number] = replace(known, sub_messages=known.sub_messages + subs)
    return replace(
        plan,
        claims=claims,
        parked=tuple(sorted(parked)),
        ruled=plan.ruled + ruled - reference.ruled,
        state=replace(reference, counted=counted, ruled=ruled.numbers),
    )


def count_in(counted: dict[str, dict[int, Counts]], told: TaskRecord) -> None:
    """Adds the accounts of sub-messages in what a task told to those of others.

    Messages are counted when all claims have finished them, which no task knows.
    """
    for selector, changes in told.claims.items():
        accounts = counted.setdefault(selector, {})
        for number, found in changes.items():
            accounts[number] = accounts.get(number, Counts()) + found.sub_messages
