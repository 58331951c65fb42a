"""Examining a plan against the cluster: what a resume insists on and ``plan verify`` shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from drainer.errors import DrainerError, GroupActive, PlanRefused, TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.offsets import CommittedOffset
from drainer.operations.group import check_inactive
from drainer.store.plan_file import LoadedPlan


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what it is, and either that it holds or why it does not."""

    text: str
    error: DrainerError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


def examine(cluster: Cluster, loaded: LoadedPlan, *, or_gone: bool = False) -> list[Check]:
    """Looks at everything that must be true for the plan to be resumed; touches nothing.

    ``or_gone`` takes a group without offsets too, whatever the plan says of them.
    """
    plan = loaded.plan
    torn = "; what follows a torn one is left out" if loaded.journal_torn else ""
    checks = [
        Check("the plan is whole: its digest matches and it obeys the laws"),
        Check(f"its journal adds {loaded.journal_records} records{torn}"),
        *_of_tasks(loaded),
        _try(f"the cluster is the plan's own ({plan.cluster_id})", _cluster, cluster, loaded),
    ]
    if checks[-1].ok:
        checks.append(_try(f"topic {plan.topic} has the plan's id", _topic, cluster, loaded))
    if checks[-1].ok:
        checks.append(_try("all that is pending is still in the log", _log, cluster, loaded))
    if checks[-1].ok:
        checks.append(_try(f"group {plan.group} has no members", _group, cluster, loaded))
        checks.append(
            _try(
                "the group stands where this drain put it",
                partial(group_commits, or_gone=or_gone),
                cluster,
                loaded,
            )
        )
    return checks


def _of_tasks(loaded: LoadedPlan) -> list[Check]:
    reference = loaded.written.state
    if reference is None:
        return []
    torn = "; what follows a torn one is left out" if loaded.state_torn else ""
    return [Check(f"its state at {reference.uri} adds {loaded.state_records} records{torn}")]


def insist(checks: list[Check]) -> None:
    """Raises the error of the first check that does not hold."""
    for check in checks:
        if check.error is not None:
            raise check.error


def _try(
    text: str, look: Callable[[Cluster, LoadedPlan], object], cluster: Cluster, loaded: LoadedPlan
) -> Check:
    try:
        look(cluster, loaded)
    except (PlanRefused, GroupActive) as error:
        return Check(text, error)
    return Check(text)


def _cluster(cluster: Cluster, loaded: LoadedPlan) -> None:
    found = cluster.cluster_id()
    if found != loaded.plan.cluster_id:
        raise PlanRefused(
            f"the plan is of another cluster: {loaded.plan.cluster_id}, and this one is {found}",
            hint=f"the plan was made through {loaded.plan.bootstrap_servers}",
        )


def _topic(cluster: Cluster, loaded: LoadedPlan) -> None:
    plan = loaded.plan
    try:
        found = cluster.topic(plan.topic)
    except TopicMissing:
        raise PlanRefused(
            f"topic {plan.topic} was deleted since the plan was made",
            hint="its messages are gone, and the plan with them",
        ) from None
    if found.topic_id != plan.topic_id:
        raise PlanRefused(
            f"topic {plan.topic} was deleted and made again: the plan is for id {plan.topic_id},"
            f" this one has {found.topic_id}",
            hint="its offsets mean other messages now; begin a new drain with another --plan",
        )
    missing = sorted(set(plan.partitions) - set(found.partitions))
    if missing:
        raise PlanRefused(f"topic {plan.topic} has no partition {missing[0]} any more")


def _log(cluster: Cluster, loaded: LoadedPlan) -> None:
    plan = loaded.plan
    bounds = cluster.log_bounds(plan.topic, tuple(plan.partitions), plan.isolation)
    for number, part in plan.partitions.items():
        watermark = plan.watermark(number)
        if watermark >= part.end:
            continue
        if bounds[number].start > watermark:
            raise PlanRefused(
                f"partition {number}: retention deleted offsets {watermark} to"
                f" {bounds[number].start - 1}, below the log start, before they were handled",
                hint="they can't be had back; `drainer run --from earliest` with another --plan and"
                " group drains what is left"
                if plan.redrive is None
                else "they can't be had back; `drainer redrive` passes over them, and redrives what"
                " is left",
            )
        if bounds[number].end < part.end:
            raise PlanRefused(
                f"partition {number}: the log ends at {bounds[number].end}, before the plan's end"
                f" {part.end}: it was truncated",
                hint="find out what happened to the topic before going on",
            )


def _group(cluster: Cluster, loaded: LoadedPlan) -> None:
    check_inactive(cluster, loaded.plan.group)


def group_offsets(cluster: Cluster, loaded: LoadedPlan) -> dict[int, int | None]:
    """Where the group stands, by partition. Raises PlanRefused when somebody else put it there."""
    found = group_commits(cluster, loaded)
    return {n: None if commit is None else commit.offset for n, commit in found.items()}


def group_commits(
    cluster: Cluster, loaded: LoadedPlan, *, or_gone: bool = False
) -> dict[int, CommittedOffset | None]:
    """``group_offsets`` with the metadata beside each offset."""
    plan = loaded.plan
    commits = cluster.commits(plan.group, plan.topic, tuple(plan.partitions))
    found = {n: None if commit is None else commit.offset for n, commit in commits.items()}
    for number, part in plan.partitions.items():
        # A commit whose answer was lost may have arrived: any that the plan had written before.
        lowest = part.start if part.committed is None else part.committed
        offset, highest = found[number], _written(loaded, number)
        if offset == part.committed or (offset is not None and lowest <= offset <= highest):
            continue
        if offset is None:
            if or_gone:
                continue
            raise PlanRefused(
                f"partition {number}: group {plan.group} has no offset any more, and this drain"
                f" left it at {part.committed}",
                hint="a group that nobody uses loses its offsets after a while (the broker's"
                " offsets.retention.minutes): if it was that, `drainer plan commit` puts it back to"
                " where the plan is",
            )
        raise PlanRefused(
            f"partition {number}: group {plan.group} is at {offset}, and this drain left it at"
            f" {part.committed}: somebody else moved it",
            hint="if that was meant, begin a new drain with another --plan; if it was not, put"
            " the group back and resume",
        )
    return commits


def _written(loaded: LoadedPlan, number: int) -> int:
    # A redrive adds the partitions that its topic has got since to what is looked at.
    written = loaded.written
    return written.watermark(number) if number in written.partitions else 0
