"""Moving the group by hand: to the plan's watermark after a failed commit, or back to before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from drainer.core.plan import OffsetPlan
from drainer.errors import PlanRefused
from drainer.kafka.cluster import Cluster
from drainer.operations.examine import examine, insist
from drainer.operations.start import now
from drainer.store.plan_file import LoadedPlan, PlanFile


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's committed offset, now and as it is to be."""

    partition: int
    found: int | None
    target: int


def commit_moves(cluster: Cluster, loaded: LoadedPlan) -> list[Move]:
    """What ``plan commit`` would move; empty when the group stands at the watermark already.

    Raises PlanRefused or GroupActive when the plan does not fit the cluster or the group.
    """
    insist(examine(cluster, loaded))
    return _moves(cluster, loaded.plan, loaded.plan.watermarks)


def undo_moves(cluster: Cluster, loaded: LoadedPlan) -> list[Move]:
    """What ``plan undo`` would move: back to where the group stood before the drain.

    Where it had no offset before, it is put where the drain began. Raises as ``commit_moves``.
    """
    insist(examine(cluster, loaded))
    plan = loaded.plan
    targets = {
        number: part.start if part.prior is None else part.prior
        for number, part in plan.partitions.items()
    }
    return _moves(cluster, plan, targets)


def move(cluster: Cluster, file: PlanFile, loaded: LoadedPlan, moves: list[Move]) -> None:
    """Moves the group and notes it in the plan; what is finished stays noted as finished.

    Raises PlanRefused when what is read back is not what was written.
    """
    plan = loaded.plan
    targets = {each.partition: each.target for each in moves}
    file.hold()
    try:
        cluster.alter_committed(plan.group, plan.topic, targets)
        found = cluster.committed(plan.group, plan.topic, tuple(targets))
        for number, target in targets.items():
            if found[number] != target:
                raise PlanRefused(
                    f"partition {number}: the group is at {found[number]} after it was put to"
                    f" {target}: somebody else moves it",
                    hint="find out who before anything else is done for this group",
                )
        partitions = {
            number: replace(part, committed=targets.get(number, part.committed))
            for number, part in plan.partitions.items()
        }
        file.write(
            replace(plan, partitions=partitions, updated=now(), generation=plan.generation + 2)
        )
    finally:
        file.release()


def _moves(cluster: Cluster, plan: OffsetPlan, targets: Mapping[int, int]) -> list[Move]:
    found = cluster.committed(plan.group, plan.topic, tuple(plan.partitions))
    return [
        Move(number, found[number], target)
        for number, target in targets.items()
        if found[number] != target
    ]
