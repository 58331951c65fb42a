"""The group: what must be true of it before anything is done for it, and how it is held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import GroupLock
from drainer.model.plan import OffsetPlan
from drainer.store.plan_file import LoadedPlan, SavedPlan


def check_inactive(cluster: Cluster, group: str) -> str:
    """The group's state, if it has no members. Raises GroupActive, which names the members."""
    found = cluster.group(group)
    if found.active:
        raise found.in_use()
    return found.state


def committed_offsets(cluster: Cluster, plan: OffsetPlan) -> dict[int, int | None]:
    """Offsets that the plan's group has committed, by partition; None where there is none."""
    return cluster.committed(plan.terms.group, plan.terms.topic, tuple(plan.account.partitions))


@contextmanager
def locked(
    cluster: Cluster,
    file: SavedPlan,
    seen: LoadedPlan | None,
    plan: OffsetPlan,
    print_line: Callable[[str], None],
    make_lock: Callable[..., GroupLock] = GroupLock,
    server: AbstractContextManager[object] | None = None,
) -> Iterator[GroupLock]:
    """Holds the file and then the lock on the plan's group, for as long as the block lasts.

    ``server`` serves as soon as the file is held: the lock may take seconds.

    ``seen`` is what the file held when a person was shown what would be done, None for nothing.

    Raises PlanRefused when the file is held, or holds something else by now; LockHeld when another
    drain works for the group.
    """
    file.acquire()
    try:
        file.ensure_unchanged(seen)
        lock = make_lock(
            cluster,
            plan.terms.group,
            plan.terms.topic,
            # Whoever had this name held the file that we hold.
            f"{plan.terms.drain_id}.{file.owner}",
            report=print_line,
        )
        with server or nullcontext():
            lock.acquire()
            try:
                yield lock
            finally:
                lock.release()
    finally:
        file.release()
