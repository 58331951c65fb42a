"""A plan by hand: putting the group back to where it stood, and taking a plan over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from drainer.engine.runtime import THIS_PROCESS
from drainer.errors import (
    BrokerUnreachable,
    CommitDelayed,
    OffsetMoved,
    PlanNotWritten,
    PlanRefused,
)
from drainer.escape import command
from drainer.kafka.cluster import Cluster
from drainer.model.account import Event, EventKind
from drainer.model.plan import OffsetPlan
from drainer.operations.examine import ensure_same_place
from drainer.operations.group import committed_offsets, locked
from drainer.store.plan_file import LoadedPlan, SavedPlan


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's committed offset now (``found``), and the one to commit (``target``).

    They are equal if the group is back already, and only the plan has to note that.
    """

    partition: int
    found: int | None
    target: int


def undo_moves(cluster: Cluster, loaded: LoadedPlan) -> list[Move]:
    """List the moves of ``plan undo``, back to where the group stood before the drain.

    The group's present offsets don't matter: something else may have moved it, even back already,
    and the plan need not be resumable. In a partition where the group had no offset before, it is
    put where the drain began.

    Raises PlanRefused when the cluster or the topic is not the plan's, or when the drain was one
    that commits nothing; GroupActive when the group has members.
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
        prior = part.start if part.prior is None else part.prior
        never = offset is None and part.prior is None
        if (offset, part.committed) != (prior, prior) and not never:
            moves.append(Move(number, offset, prior))
    return moves


def undo(
    cluster: Cluster,
    file: SavedPlan,
    loaded: LoadedPlan,
    moves: list[Move],
    print_line: Callable[[str], None],
    reason: str | None = None,
) -> None:
    """Moves the group and notes it in the plan; what is finished stays noted as finished.

    ``moves`` are those that a person confirmed.

    Raises:
        Refused: when plan, group or offsets are not as they were shown; nothing is moved then.
        CommitDelayed: when no answer came; the group may have been moved.
        OffsetMoved: when what is read back is not what was written.
    """
    with locked(cluster, file, loaded, loaded.plan, print_line):
        if undo_moves(cluster, loaded) != moves:
            raise PlanRefused(
                f"group {loaded.plan.terms.group} moved since drainer printed these offsets",
                hint="Repeat the command to see the new offsets.",
            )
        _move(cluster, file, loaded, moves, reason)


def _move(
    cluster: Cluster, file: SavedPlan, loaded: LoadedPlan, moves: list[Move], reason: str | None
) -> None:
    # The plan first. Wherever the group is left then, between the lower of the two offsets and the
    # watermark, the plan has it as this drain's own doing.
    lower = {
        each.partition: None if each.found is None else min(each.found, each.target)
        for each in moves
    }
    plan = _committed(loaded.plan, lower, loaded.last_generation + 1)
    file.write(plan)
    targets = {each.partition: each.target for each in moves}
    try:
        cluster.alter_committed(plan.terms.group, plan.terms.topic, targets)
        found = cluster.committed(plan.terms.group, plan.terms.topic, tuple(targets))
    except BrokerUnreachable as error:
        raise CommitDelayed(
            f"unknown whether group {plan.terms.group} moved: {error}",
            hint="Repeat the command once the cluster answers.",
        ) from error
    for number, target in targets.items():
        if found[number] != target:
            raise OffsetMoved(
                f"partition {number}: drainer committed {target}, but the group is at"
                f" {found[number]}: something else moves it",
                hint="Find and stop the other writer first.",
            )
    plan = _committed(plan, targets, plan.account.generation + 1)
    undone = _event(EventKind.UNDONE, reason, plan.account.committed)
    file.write(OffsetPlan(plan.terms, plan.account.with_event(undone)))


def _committed(
    plan: OffsetPlan, committed: Mapping[int, int | None], generation: int
) -> OffsetPlan:
    partitions = {
        number: replace(part, committed=committed.get(number, part.committed))
        for number, part in plan.account.partitions.items()
    }
    account = replace(
        plan.account, partitions=partitions, updated=THIS_PROCESS.now(), generation=generation
    )
    return OffsetPlan(plan.terms, account)


def _event(what: EventKind, reason: str | None, offsets: Mapping[int, int | None] = {}) -> Event:
    return Event(THIS_PROCESS.now(), what, THIS_PROCESS.user(), reason, offsets=offsets)


def take_plan(
    file: SavedPlan,
    seen: LoadedPlan,
    target: SavedPlan,
    handler: str | None = None,
    reason: str | None = None,
) -> None:
    """Writes the plan that was looked at as a file of this user's, its journal folded in.

    With another ``target`` the plan that there is stays as it is. ``handler`` is where this user
    has it, None for the plan's place. Raises PlanRefused when it is worked with, has changed since,
    or can't be written.
    """
    if target.path != file.path and target.exists:
        raise PlanRefused(f"{target.path} already exists", hint="Name another file with --to.")
    target.acquire()
    try:
        if file.load(allow_foreign=True) != seen:
            raise PlanRefused(
                f"{file.path} has just changed: its drain still runs",
                hint="Have its owner stop it with Ctrl-C. Then repeat the command.",
            )
        known, generation = seen.plan, seen.last_generation + 1
        terms = replace(known.terms, handler=handler or known.terms.handler)
        account = replace(known.account, generation=generation, updated=THIS_PROCESS.now())
        taken = account.with_event(_event(EventKind.TAKEN, reason))
        target.write(OffsetPlan(terms, taken))
    except PlanNotWritten as error:
        raise PlanRefused(
            str(error), hint=f"Write it elsewhere: {command('plan take', file.path)} --to FILE"
        ) from error
    finally:
        target.release()
    target.load(alone=True)
