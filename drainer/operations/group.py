"""The checks of a drain's group before anything is done, and the lock on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, GroupActive, LockHeld, OffsetsPending, handling_nothing
from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import GroupLock, lock_group
from drainer.model.listed import listed
from drainer.model.plan import OffsetPlan
from drainer.model.settings import LocalSettings
from drainer.store.saved_plan import LoadedPlan, SavedPlan, holder
from drainer.text.escape import command

WAIT_EVERY_S = 0.5  # While a drain waits for the group to be empty, it looks this often.


def check_inactive(cluster: Cluster, group: str, topic: str) -> str:
    """Return the state of a group that has no members.

    Raises GroupActive, which names the members, if it has some.
    """
    found = cluster.group(group)
    if found.kind != "consumer":
        # Commit an offset that is committed already. If the group has members, the coordinator
        # refuses that with an error that shows the kind of the group.
        offsets = cluster.committed(group, topic, cluster.topic(topic).partitions)
        for number, offset in offsets.items():
            if offset is not None:
                cluster.ensure_no_members(group, topic, (number, offset))
                return "empty"
    if found.active:
        raise found.in_use()
    return found.state


def await_inactive(
    cluster: Cluster,
    group: str,
    topic: str,
    running: LocalSettings,
    print_line: Callable[[str], None],
) -> None:
    """Wait until the group has no members, and no open transaction has offsets of it.

    This waits for at most ``wait_for_group_s`` and raises nothing if that was not enough, so the
    caller has to check the group again.
    """
    until_s, shown = boottime_s() + running.wait_for_group_s, ""
    while boottime_s() < until_s:
        try:
            check_inactive(cluster, group, topic)
            cluster.committed(group, topic, cluster.topic(topic).partitions)
            break
        except (GroupActive, OffsetsPending) as error:
            if shown != (shown := str(error)):
                print_line(f"waiting: {shown}")
            time.sleep(WAIT_EVERY_S)


def live_readers(cluster: Cluster, group: str) -> str | None:
    """Return a warning that names the group's members or running drains; None without any."""
    names = group, lock_group(group)
    found = [cluster.group(name, right="DESCRIBE") for name in names]
    readers = [each.readers for each in found if each.members or each.kind != "consumer"]
    if not readers:
        return None
    return (
        f"group {group} is in use: {listed(readers)}. They may handle a sub-key at the same time,"
        " and their order against this drain can't be kept"
    )


def committed_offsets(cluster: Cluster, plan: OffsetPlan) -> dict[int, int | None]:
    """Return the committed offsets of the plan's group, by partition; None where there is none.

    For a drain that commits nothing, all are None.
    """
    if not plan.terms.commits:
        return dict.fromkeys(plan.account.partitions)
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
    ensure_wanted: Callable[[], None] = lambda: None,
) -> Iterator[GroupLock]:
    """Lock the file, and then the plan's group, until the block ends.

    Args:
        seen: the content of the file when the preview was made; None if there was no file.
        server: a context that is entered as soon as the file is locked, because the lock on the
            group may take seconds.
        ensure_wanted: raises an error if a wait for the lock on the group should end.

    Raises PlanRefused when the file is locked, or has changed since the preview; LockHeld when
    another drain holds the lock on the group.
    """
    file.acquire()
    try:
        file.ensure_unchanged(seen)
        lock = make_lock(
            cluster,
            plan.terms.group,
            plan.terms.topic,
            # The name of the lock's member. If the lock group has a member of this name, it belongs
            # to an earlier owner of this file. That process has ended, or the file would be locked.
            f"{plan.terms.drain_id}.{file.owner}",
            report=print_line,
            ensure_wanted=ensure_wanted,
            commits=plan.terms.commits,
        )
        with server or nullcontext():
            try:
                with handling_nothing("drainer waited for the lock on the group"):
                    _acquire(lock, file)
                    ensure_wanted()
                yield lock
            finally:
                lock.release()
    finally:
        file.release()


def _acquire(lock: GroupLock, file: SavedPlan) -> None:
    """Acquire the lock. The error for a lock that is held names who runs the drain of this plan.

    It also names the plan of the holder if that is on this machine.
    """
    try:
        lock.acquire()
    except LockHeld as error:
        with suppress(DrainerError):
            plan = file.load(without_reports=True).plan
            if plan.account.running and plan.terms.drain_id in str(error):
                error.args = (f"{error}: {holder(plan)}",)
        from drainer.control import client  # noqa: PLC0415 - with http, half as long as --help

        # If the holder works by another copy of this plan, its id is also that of this process.
        others = [each.about for each in client.running() if each.pid != os.getpid()]
        plans = [about.plan for about in others if about.drain_id in error.drains]
        if plans:
            ways = listed([f"`{command('stop', plan)}`" for plan in plans])
            error.hint = f"Wait for it to end, or stop it: {ways} prints how to resume it."
        raise
