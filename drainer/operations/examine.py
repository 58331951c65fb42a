"""Checks of a plan against itself and the cluster, for a resume and for ``plan verify``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from drainer.errors import DrainerError, GroupActive, LogCut, PlanRefused, TopicMissing
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.kafka.loss import LogCheck
from drainer.model.listed import counted, listed, name_lost
from drainer.model.plan import OffsetPlan
from drainer.operations.group import check_inactive, committed_offsets
from drainer.store.saved_plan import LoadedPlan
from drainer.text.escape import command

# A sentence that must be true, and the error if it is not.
Check = tuple[str, DrainerError | None]


def examine(
    cluster: Cluster, loaded: LoadedPlan, *, gap_accepted: bool = False, runs: bool = False
) -> list[Check]:
    """Check everything that must be true before the plan is resumed, and touch nothing.

    If a check fails, it is the last one of the list. With ``gap_accepted``, pending messages may be
    missing from the log. If the drain ``runs``, it moves its group, which is not checked.
    """
    plan = loaded.plan
    pending = f"{'other' if gap_accepted else 'all'} pending messages are still in the log"
    added = f"the journal adds {counted(loaded.records, 'record')}"
    facts = [
        "the plan is whole: its digest matches",
        added if loaded.records else "the journal has no newer progress",
    ]
    if plan.account.lost:
        lost = name_lost(plan.account.lost)
        facts.append(f"it lists the records that retention deleted unread: {lost}")
    looks: list[tuple[str, Callable[[Cluster, LoadedPlan], object]]] = [
        ("its account adds up", _account),
        (f"the cluster is the plan's ({plan.terms.cluster_id})", _cluster),
        (f"topic {plan.terms.topic} has the plan's id", _topic),
        (pending, partial(_log, gap_accepted=gap_accepted)),
        ("its records have not changed", ensure_same_records),
    ]
    if plan.terms.commits and not runs:
        mover = "this drain left it" if plan.account.undone is None else "`plan undo` put it"
        looks += [
            (f"group {plan.terms.group} has no members", _group),
            (f"the group is where {mover}", group_offsets),
        ]
    checks: list[Check] = [(fact, None) for fact in facts]
    for text, look in looks:
        try:
            look(cluster, loaded)
        except (PlanRefused, GroupActive, LogCut) as error:
            return [*checks, (text, error)]
        checks.append((text, None))
    return checks


def ensure_same_place(cluster: Cluster, loaded: LoadedPlan) -> None:
    """Ensure that this plan may move its group. The group's current offsets are not checked.

    Raises PlanRefused when the cluster or the topic is not the plan's, and GroupActive when the
    group has members.
    """
    for look in (_cluster, _topic, _group):
        look(cluster, loaded)


def ensure_all(checks: list[Check]) -> None:
    """Raise the error of the first check that failed, if one did."""
    for _, error in checks:
        if error is not None:
            raise error


def _account(_: Cluster, loaded: LoadedPlan) -> None:
    if not loaded.plan.account.conserved:
        messages, subs = loaded.plan.account.counts()
        raise PlanRefused(
            f"the plan's account does not add up: messages {messages}, sub-messages {subs}",
            hint="This is a bug in drainer: report it. Put the group back to its offsets before the"
            f" drain, then start a new one with another --plan: {_undo(loaded)}",
        )


def _undo(loaded: LoadedPlan) -> str:
    return f"`{command('plan undo', loaded.path)}`"


def _cluster(cluster: Cluster, loaded: LoadedPlan) -> None:
    found = cluster.cluster_id
    if found != loaded.plan.terms.cluster_id:
        raise PlanRefused(
            f"the plan belongs to cluster {loaded.plan.terms.cluster_id}, but this is {found}",
            hint=f"Connect with -b {loaded.plan.terms.bootstrap_servers}, as the drain did.",
        )


def _topic(cluster: Cluster, loaded: LoadedPlan) -> None:
    plan = loaded.plan
    try:
        found = cluster.topic(plan.terms.topic)
    except TopicMissing:
        raise PlanRefused(
            f"topic {plan.terms.topic} does not exist any more",
            hint="Its messages are gone. Start a new drain with another --plan.",
        ) from None
    if found.topic_id != plan.terms.topic_id:
        raise PlanRefused(
            f"topic {plan.terms.topic} was deleted and recreated: the plan has id"
            f" {plan.terms.topic_id}, the topic has {found.topic_id}",
            hint="Its offsets mean other messages now. Start a new drain with another --plan.",
        )
    missing = sorted(set(plan.account.partitions) - set(found.partitions))
    if missing:
        raise PlanRefused(
            f"topic {plan.terms.topic} has no partition {missing[0]} any more",
            hint="Its messages are gone. Start a new drain with another --plan.",
        )


def _log(cluster: Cluster, loaded: LoadedPlan, *, gap_accepted: bool) -> None:
    plan = loaded.plan
    gaps = plan.account.gaps(cluster.log_starts(plan.terms.topic, plan.account.partitions))
    if gaps and not gap_accepted:
        raise PlanRefused(
            f"retention deleted records before the drain handled them: {name_lost(gaps)}",
            hint="To skip the gap:"
            f" `{plan.account.resuming.command(loaded.path, ['--accept-gap'])}`"
            if plan.terms.redrive is None
            else "Use `drainer redrive`: it skips the gap and redrives the rest.",
        )


def ensure_same_records(cluster: Cluster, loaded: LoadedPlan) -> None:
    """Raise LogCut if the log has lost records of the backlog, even if they are finished."""
    plan = loaded.plan
    check = LogCheck(cluster, plan.terms.topic, plan.terms.group)
    check.check(loaded.written.account.log_ends)


def _group(cluster: Cluster, loaded: LoadedPlan) -> None:
    check_inactive(cluster, loaded.plan.terms.group, loaded.plan.terms.topic)


def group_offsets(cluster: Cluster, loaded: LoadedPlan) -> dict[int, int | None]:
    """Return the committed offsets of the group, by partition.

    An offset is None if the group never had one, or if it has expired. Raises PlanRefused if
    something other than this drain has moved an offset.
    """
    plan = loaded.plan
    found = committed_offsets(cluster, plan)
    for number, part in plan.account.partitions.items():
        # A commit may have succeeded although its answer was lost. So the drain may have left any
        # offset from its last known commit up to the watermark in the plan.
        lowest = part.start if part.committed is None else part.committed
        offset, highest = found[number], loaded.written.account.watermark(number)
        if offset is None or lowest <= offset <= highest:
            continue
        raise PlanRefused(
            f"partition {number}: group {plan.terms.group} is at {offset}, but this drain left it"
            f" at {part.committed}: something else moved it, or the plan is an old copy",
            hint="If the plan is a copy, put the newest back. If the move was on purpose, or others"
            " went on from here, move this plan out of its folder, and start a new drain of what is"
            " left. If it was a mistake, reset the group to before this drain, then resume, which"
            f" repeats only what others handled since: {_undo(loaded)}",
        )
    return found


def changes(cluster: Cluster, plan: OffsetPlan, committed: Mapping[int, int | None]) -> list[str]:
    """Describe those changes since the plan was made that don't prevent a resume."""
    gone = [n for n, part in plan.account.partitions.items() if part.committed is not None]
    gone = [n for n in gone if committed.get(n) is None]
    found = added_partitions(cluster.topic(plan.terms.topic), plan)
    if gone:
        where = listed([f"{plan.terms.topic}/{number}" for number in gone])
        found.append(
            f"group {plan.terms.group} has no offset on {where} any more: brokers drop the offsets"
            " of a group that was empty for long (offsets.retention.minutes). The drain writes them"
            " again"
        )
    return found


def added_partitions(topic: TopicInfo, plan: OffsetPlan) -> list[str]:
    """Return a warning if the topic has got more partitions since the plan was made."""
    added = [
        n
        for n in topic.partitions
        if n >= plan.terms.topic_partitions and n not in plan.account.partitions
    ]
    if not added:
        return []
    what = f"partition {added[0]}" if len(added) == 1 else f"partitions {added[0]} to {added[-1]}"
    unless = "without --follow, " if plan.takes_added else ""
    return [
        f"topic {plan.terms.topic} got {what} after the plan was made: {unless}this drain leaves"
        f" {'it' if len(added) == 1 else 'them'} out"
    ]
