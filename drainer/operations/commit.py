"""Moving the group by hand: to the plan's watermark after a failed commit, or back to before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from drainer.core.closure import closed
from drainer.core.plan import ALL, OffsetPlan, finished_beyond
from drainer.engine.clock import now
from drainer.errors import BrokerUnreachable, CommitDelayed, OffsetMoved, PlanRefused
from drainer.kafka.cluster import Cluster
from drainer.kafka.commit import metadata_beside
from drainer.kafka.offsets import CommittedOffset
from drainer.operations.examine import examine, group_commits, insist
from drainer.operations.hold import holding
from drainer.store.plan_file import LoadedPlan, PlanFile


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's committed offset, now and as it is to be, and the metadata beside it then."""

    partition: int
    found: int | None
    target: int
    metadata: str = ""


FindMoves = Callable[[Cluster, LoadedPlan], list[Move]]


def commit_moves(cluster: Cluster, loaded: LoadedPlan) -> list[Move]:
    """What ``plan commit`` would move, all of it forward; empty when the group is there already.

    A group that has lost its offsets is put there too.

    Raises PlanRefused or GroupActive when the plan does not fit the cluster or the group.
    """
    plan = loaded.plan
    beyond = finished_beyond(plan)
    moves = []
    for number, commit in _found(cluster, loaded, or_gone=True).items():
        target = plan.watermark(number)
        if commit is None or commit.offset < target:
            told = () if plan.shared(number) else closed(plan.claims[ALL][number])
            finished = (*told, *beyond[number])
            metadata = metadata_beside(commit, target, finished)
            moves.append(Move(number, None if commit is None else commit.offset, target, metadata))
    return moves


def undo_moves(cluster: Cluster, loaded: LoadedPlan) -> list[Move]:
    """What ``plan undo`` would move: back to where the group stood before the drain.

    The metadata too. Where it had no offset before, it is put where the drain began. Raises as
    ``commit_moves``.
    """
    moves = []
    for number, commit in _found(cluster, loaded).items():
        part = loaded.plan.partitions[number]
        prior = CommittedOffset(
            part.start if part.prior is None else part.prior, part.prior_metadata
        )
        if commit is not None and commit.offset >= prior.offset and commit != prior:
            moves.append(Move(number, commit.offset, prior.offset, prior.metadata))
    return moves


def move(
    cluster: Cluster,
    file: PlanFile,
    loaded: LoadedPlan,
    moves: list[Move],
    find_moves: FindMoves,
    say: Callable[[str], None],
) -> None:
    """Moves the group and notes it in the plan; what is finished stays noted as finished.

    ``moves`` are those that a person said yes to, and ``find_moves`` is how they were found.

    Raises:
        Refused: when plan, group or offsets are not as they were shown; nothing is moved then.
        CommitDelayed: when no answer came; the group may have been moved.
        OffsetMoved: when what is read back is not what was written.
    """
    with holding(cluster, file, loaded, loaded.plan, say):
        if find_moves(cluster, loaded) != moves:
            raise PlanRefused(
                f"group {loaded.plan.group} was moved since these offsets were shown",
                hint="say the same again, to see where it is now",
            )
        _move(cluster, file, loaded, moves)


def _move(cluster: Cluster, file: PlanFile, loaded: LoadedPlan, moves: list[Move]) -> None:
    # The plan first. Wherever the group is left then, between the lower of the two offsets and the
    # watermark, the plan says that this drain put it there.
    lower = {
        each.partition: None if each.found is None else min(each.found, each.target)
        for each in moves
    }
    plan = _committed(loaded.plan, lower, loaded.last_generation + 1)
    file.write(plan)
    targets = {each.partition: each.target for each in moves}
    try:
        metadata = {each.partition: each.metadata for each in moves}
        cluster.alter_committed(plan.group, plan.topic, targets, metadata=metadata)
        found = cluster.committed(plan.group, plan.topic, tuple(targets))
    except BrokerUnreachable as error:
        raise CommitDelayed(
            f"it is not known whether group {plan.group} was moved: {error}",
            hint="say the same again once the cluster answers",
        ) from error
    for number, target in targets.items():
        if found[number] != target:
            raise OffsetMoved(
                f"partition {number}: the group is at {found[number]} after it was put to"
                f" {target}: somebody else moves it",
                hint="find out who before anything else is done for this group",
            )
    file.write(_committed(plan, targets, plan.generation + 1))


def _found(
    cluster: Cluster, loaded: LoadedPlan, *, or_gone: bool = False
) -> dict[int, CommittedOffset | None]:
    insist(examine(cluster, loaded, or_gone=or_gone))
    return group_commits(cluster, loaded, or_gone=or_gone)


def _committed(
    plan: OffsetPlan, committed: Mapping[int, int | None], generation: int
) -> OffsetPlan:
    partitions = {
        number: replace(part, committed=committed.get(number, part.committed))
        for number, part in plan.partitions.items()
    }
    return replace(plan, partitions=partitions, updated=now(), generation=generation)
