"""Folding what tasks tell into the offset plan, so that nothing of it counts twice.

A drain on Spark goes over its backlog in waves. The tasks of a wave write records, and the plan
takes them in: over and over while the wave runs, and again by whoever loads it after a crash. What
is finished may be merged as often as one likes. Accounts may not: so the plan says beside them
what of the running wave is in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from drainer.core.claims import ALL
from drainer.core.codec import JsonRecord, Whole
from drainer.core.progress import Counts, Progress
from drainer.policy.rules.settings import RuleAccount, asked_beyond, greater

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
    rules: list[tuple[str, RuleAccount]] = []
    for selector, record in told:
        parked.update(record.parked)
        rules += [] if record.ruled is None else [(selector, record.ruled)]
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
    own = sum_of(rules)
    return replace(
        plan,
        claims=claims,
        parked=tuple(sorted(parked)),
        ruled=with_rules(plan.ruled, own, reference.ruled),
        state=replace(reference, counted=counted, ruled=numbers_of(own)),
    )


def account_of(selector: str, progress: Progress) -> Account:
    """What a claim counts: messages only where all of their sub-messages are, which is in "all"."""
    return (progress.messages if selector == ALL else Counts()), progress.sub_messages


_NONE: Account = (Counts(), Counts())


def sum_of(told: Iterable[tuple[str, RuleAccount]]) -> RuleAccount:
    """What rules did in several tasks, each of which tells of itself alone, by its claim."""
    skipped: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    counts: dict[str, int] = {}
    asked: dict[str, dict[int, int]] = {}
    for selector, account in told:
        skipped.update(account.skipped_by)
        dead.update(account.dead_by)
        reasons.update(account.skipped_for)
        counts = greater(counts, account.counts)
        asked[selector] = greater(asked.get(selector, {}), account.asked_below)
    below = asked.pop(ALL, {})
    return RuleAccount(dict(skipped), dict(dead), below, counts, asked, skipped_for=dict(reasons))


def with_rules(known: RuleAccount, now: RuleAccount, held: RuleAccount) -> RuleAccount:
    """An account with what tasks have done by now, instead of what it holds of that."""
    below = greater(known.asked_below, now.asked_below)
    return RuleAccount(
        _exchanged(known.skipped_by, now.skipped_by, held.skipped_by),
        _exchanged(known.dead_by, now.dead_by, held.dead_by),
        below,
        greater(known.counts, now.counts),
        asked_beyond(below, (known.asked_by, now.asked_by)),
        _exchanged(known.skipped_for, now.skipped_for, held.skipped_for),
    )


def numbers_of(ruled: RuleAccount) -> RuleAccount:
    """What of an account is added up; of the rest the plan may hold more."""
    return RuleAccount(ruled.skipped_by, ruled.dead_by, skipped_for=ruled.skipped_for)


def _exchanged(
    known: Mapping[str, int], now: Mapping[str, int], held: Mapping[str, int]
) -> dict[str, int]:
    total = Counter(known)
    total.update(now)
    total.subtract(held)
    return dict(total)
