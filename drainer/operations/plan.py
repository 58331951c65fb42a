"""The operation of ``plan undo``: it moves the group back to its offsets from before a drain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import BrokerUnreachable, CommitDelayed, OffsetMoved, PlanRefused, raised_as
from drainer.kafka.cluster import Cluster
from drainer.model.account import Event, EventKind
from drainer.model.listed import listed
from drainer.model.plan import OffsetPlan
from drainer.operations.examine import ensure_same_place
from drainer.operations.group import committed_offsets, locked
from drainer.store.saved_plan import LoadedPlan, SavedPlan

NO_OFFSET = "no offset before the drain"


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's committed offset now (``found``), and the offset to commit (``target``).

    The two are equal if the group was moved back already, and only the plan does not know it. If
    the group had no offset before the drain (``prior``), the target is where the backlog starts.
    """

    partition: int
    found: int | None
    target: int
    prior: int | None

    def __str__(self) -> str:
        """Return ``partition 0: 470 -> 0``, with what the target is if it is no former offset."""
        where = f"{'none' if self.found is None else self.found} -> {self.target}"
        if self.found == self.target:
            where = f"already at {self.target}: drainer notes that in the plan"
        had = f" (the start of the backlog: the group had {NO_OFFSET})"
        return f"partition {self.partition}: {where}{had if self.prior is None else ''}"


def already_back(plan: OffsetPlan) -> str:
    """Say where a group is that needs no move."""
    parts = plan.account.partitions.items()
    had_none = [f"partition {n}" for n, p in parts if p.prior is None and p.committed is not None]
    if not had_none:
        return "the group is already at its offsets from before the drain"
    return (
        f"the group is already back: it had {NO_OFFSET} on {listed(had_none)}, so it is at the"
        " start of the backlog there"
    )


def undo_moves(cluster: Cluster, loaded: LoadedPlan) -> list[Move]:
    """List the moves that take the group back to its offsets from before the drain.

    The group may be at any offset now, because something else may have moved it, and the plan need
    not be resumable. If the group had no offset in a partition before, the target is where the
    drain began.

    Raises PlanRefused when the cluster or the topic is not the plan's, or when the drain commits
    nothing; GroupActive when the group has members.
    """
    moves = []
    plan = loaded.plan
    if not plan.terms.commits:
        raise PlanRefused(
            f"this drain committed nothing: group {plan.terms.group} is where it was",
            hint="There is nothing to undo.",
        )
    ensure_same_place(cluster, loaded)
    for number, offset in committed_offsets(cluster, plan).items():
        part = plan.account.partitions[number]
        never = offset is None and part.prior is None
        if (offset, part.committed) != (part.before, part.before) and not never:
            moves.append(Move(number, offset, part.before, part.prior))
    return moves


def undo(
    cluster: Cluster,
    file: SavedPlan,
    loaded: LoadedPlan,
    moves: list[Move],
    print_line: Callable[[str], None],
    reason: str | None = None,
) -> None:
    """Move the group, and note that in the plan. What is finished stays finished in the plan.

    ``moves`` are the moves that a person confirmed.

    Raises:
        Refused: the plan, the group or its offsets have changed since they were shown. Nothing is
            moved then.
        CommitDelayed: no answer came, so it is unknown whether the group was moved.
        OffsetMoved: the offsets that were read back are not those that were written.
    """
    with locked(cluster, file, loaded, loaded.plan, print_line):
        if undo_moves(cluster, loaded) != moves:
            raise PlanRefused(
                f"group {loaded.plan.terms.group} moved since drainer printed these offsets",
                hint="Repeat the command to see the new offsets.",
            )
        # The plan is written first. If this process dies after that, the group may be at its old
        # offset or at the target. With the lower of these two in the plan, a resume accepts both.
        lower = {
            each.partition: None if each.found is None else min(each.found, each.target)
            for each in moves
        }
        plan = _committed(loaded.plan, lower, loaded.last_generation + 1)
        file.write(plan)
        targets = {each.partition: each.target for each in moves}
        about = f"unknown whether group {plan.terms.group} moved: "
        hint = "Repeat the command once the cluster answers."
        with raised_as(CommitDelayed, BrokerUnreachable, about=about, hint=hint):
            cluster.alter_committed(plan.terms.group, plan.terms.topic, targets)
            found = cluster.committed(plan.terms.group, plan.terms.topic, tuple(targets))
        for number, target in targets.items():
            if found[number] != target:
                raise OffsetMoved(
                    f"partition {number}: drainer committed {target}, but the group is at"
                    f" {found[number]}: something else moves it",
                    hint="Find and stop the other writer first.",
                )
        plan = _committed(plan, targets, plan.account.generation + 1)
        now, user = THIS_PROCESS.now(), THIS_PROCESS.user()
        undone = Event(now, EventKind.UNDONE, user, reason, offsets=plan.account.committed)
        file.write(OffsetPlan(plan.terms, plan.account.with_event(undone)))


def _committed(
    plan: OffsetPlan, committed: Mapping[int, int | None], generation: int
) -> OffsetPlan:
    account = plan.account.with_committed(committed)
    account = replace(account, updated=THIS_PROCESS.now(), generation=generation)
    return OffsetPlan(plan.terms, account)
