"""Folding what tasks tell into the offset plan, so that nothing of it counts twice.

A drain on Spark goes over its backlog in waves. The tasks of a wave write records, and the plan
takes them in: over and over while the wave runs, and again by whoever loads it after a crash. What
is finished may be merged as often as one likes. Accounts may not: so the plan says beside them
what of the running wave is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from drainer.core.claims import ALL
from drainer.core.codec import JsonRecord, Whole
from drainer.core.progress import Counts, Progress
from drainer.policy.rules.settings import RuleAccount

if TYPE_CHECKING:
    from drainer.core.plan import OffsetPlan

Account = tuple[Counts, Counts]  # of messages, and of sub-messages


@dataclass(frozen=True, slots=True)
class Record:
    """What finished since the record before it, as a journal or a task's state holds it.

    ``changes`` is progress by partition: what changed, with whole accounts. ``parked`` are lanes
    that were parked meanwhile, ``ruled`` what rules did. ``status`` is what a task shows of itself
    while it runs; it means nothing to a resume.
    """

    changes: Mapping[Whole, Progress]
    parked: tuple[str, ...] = ()
    ruled: RuleAccount | None = None
    status: Mapping[str, Any] | None = None


def merged(records: Iterable[Record]) -> Record:
    """Records of one claim, in their order, as one."""
    changes: dict[int, Progress] = {}
    parked: dict[str, None] = {}
    ruled: RuleAccount | None = None
    status: Mapping[str, Any] | None = None
    for record in records:
        for number, found in record.changes.items():
            known = changes.get(number)
            changes[number] = found if known is None else known.merge(found)
        parked.update(dict.fromkeys(record.parked))
        if record.ruled is not None:
            ruled = record.ruled if ruled is None else ruled.merge(record.ruled)
        status = status if record.status is None else record.status
    return Record(changes, tuple(parked), ruled, status)


@dataclass(frozen=True, slots=True)
class Told:
    """What tasks told of one share, all attempts together; ``torn`` when some of it was spoilt."""

    record: Record
    count: int
    torn: bool


@dataclass(frozen=True, slots=True)
class StateReference(JsonRecord):
    """Where the tasks of a drain write, and what of it the plan holds.

    Everything of epochs and waves before ``epoch`` and ``wave`` is in the plan. Of the waves from
    there on any part may be: ``counted`` is what the plan's accounts hold of their records, by
    selector and partition, and ``ruled`` what its account of rules counts of them.
    """

    uri: str
    epoch: Whole
    wave: Whole
    counted: Mapping[str, Mapping[Whole, Account]] = field(default_factory=dict)
    ruled: RuleAccount = field(default_factory=RuleAccount)

    def holds(self, epoch: int, wave: int) -> bool:
        """Whether all that tasks of this wave told is in the plan, and not to be added again."""
        return (epoch, wave) < (self.epoch, self.wave)


def fold(plan: OffsetPlan, told: Iterable[tuple[str, Record]]) -> OffsetPlan:
    """The plan with all that the tasks of its waves told, from ``plan.state.wave`` on.

    Args:
        plan: of a drain whose tasks write to ``plan.state``; it may hold any part of it already.
        told: for each wave and claim one record, of all that its tasks told (``merged``), with the
            claim's selector. What waves told that the plan has left behind must not be here.
    """
    reference = plan.state
    if reference is None:
        raise ValueError("the plan has no state whose records it could hold")
    claims = {selector: dict(claim) for selector, claim in plan.claims.items()}
    counted: dict[str, dict[int, Account]] = {}
    parked = set(plan.parked)
    ruled = RuleAccount()
    for selector, record in told:
        parked.update(record.parked)
        if record.ruled is not None:
            ruled += of_claim(selector, record.ruled)
        claim = claims.setdefault(
            selector, {n: Progress(p.start) for n, p in plan.partitions.items()}
        )
        accounts = counted.setdefault(selector, {})
        for number, found in record.changes.items():
            before = claim[number]
            claim[number] = replace(
                before.merge(found), messages=before.messages, sub_messages=before.sub_messages
            )
            messages, subs = account_of(selector, found)
            account = accounts.get(number, _NONE)
            accounts[number] = (account[0] + messages, account[1] + subs)
    for selector in {*counted, *reference.counted}:
        if selector not in claims:
            continue  # it was folded into another one with its account
        now, then = counted.get(selector, {}), reference.counted.get(selector, {})
        for number in {*now, *then}:
            messages, subs = now.get(number, _NONE)
            held = then.get(number, _NONE)
            known = claims[selector][number]
            claims[selector][number] = replace(
                known,
                messages=known.messages + messages - held[0],
                sub_messages=known.sub_messages + subs - held[1],
            )
    return replace(
        plan,
        claims=claims,
        parked=tuple(sorted(parked)),
        ruled=plan.ruled + ruled - reference.ruled,
        state=replace(reference, counted=counted, ruled=ruled.numbers),
    )


def account_of(selector: str, progress: Progress) -> Account:
    """What a claim counts: messages only where all of their sub-messages are, which is in "all"."""
    return (progress.messages if selector == ALL else Counts()), progress.sub_messages


_NONE: Account = (Counts(), Counts())


def of_claim(selector: str, ruled: RuleAccount) -> RuleAccount:
    """The account of a task: how far it has asked the limit holds for its claim alone."""
    if selector == ALL:
        return ruled
    return replace(ruled, asked_below={}, asked_by={selector: ruled.asked_below})
