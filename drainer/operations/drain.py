"""Running a prepared drain: hold the plan, take the lock, look once more, and let the engine go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from drainer import wings
from drainer.core.plan import OffsetPlan
from drainer.core.transaction import HeldBack
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.engine.settings import LocalSettings
from drainer.engine.status import Status, Summary
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    DrainerError,
    PlanNotWritten,
    PlanRefused,
    Refused,
)
from drainer.kafka.backlog import held_back
from drainer.kafka.cluster import Cluster
from drainer.kafka.commit import Committer
from drainer.kafka.lock import GroupLock
from drainer.operations.engine import HeldDrain
from drainer.operations.examine import added_partitions
from drainer.operations.group import check_inactive, holding
from drainer.operations.resume import going_on
from drainer.operations.start import Prepared
from drainer.store.plan_file import PlanFile

# Makes sure that no task of a former driver does anything any more, and gives what removes all that
# they reported. Raises Refused when they can't be told to end.
TakeOver = Callable[[OffsetPlan, Path, Callable[[str], None]], Callable[[], None]]


def drain(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    observe: Callable[[Status], None],
    say: Callable[[str], None],
    give_up: Callable[[], None] = lambda: None,
    runtime: Runtime = THIS_PROCESS,
    make_lock: Callable[..., GroupLock] = GroupLock,
) -> Summary:
    """Drains and gives the summary.

    ``give_up`` is called as ``LocalDrain`` says: from another thread, to end the process.
    ``make_lock`` makes the lock on the group.

    Raises Refused when something changed since the preview was made.
    """
    file = PlanFile(prepared.action.plan_path)
    with holding(cluster, file, prepared.seen, prepared.plan, say, make_lock) as lock:
        _look_again(cluster, prepared)
        prepared, forget_tasks = _taken_over(file, prepared, say, runtime.now())
        prepared.policy.make(cluster)
        plan, topic, cap = prepared.plan, prepared.policy.topic, prepared.action.cap
        held = HeldDrain(
            plan=plan,
            file=file,
            handler=prepared.handler,
            running=running,
            cluster=cluster,
            committer=Committer(cluster, plan.group, plan.topic, say=say),
            lock=lock,
            read_committed=lambda: cluster.committed(plan.group, plan.topic, list(plan.partitions)),
            letters_topic=None if topic is None else topic.name,
            message_bytes=1.0 if cap is None else cap.message_bytes,
            observe=observe,
            give_up=give_up,
            runtime=runtime,
        )
        if prepared.action.resumes:
            file.write(plan)
            forget_tasks()
            return _drain(prepared, held)
        aside = file.set_aside(prepared.seen.plan) if prepared.seen else None
        forget_tasks()
        try:
            _write_first(file, plan)
            if aside is not None:
                say(f"the finished plan is kept as {aside}")
            return _drain(prepared, held)
        except DrainerError:  # by the handler's open() at the latest: nothing was handled yet
            file.take_back(plan, aside)
            if aside is not None:
                say(f"the finished plan is {file.path} again")
            raise


def _drain(prepared: Prepared, held: HeldDrain) -> Summary:
    cluster, plan, begun = held.cluster, held.plan, held.runtime.wall()
    summary = prepared.engine(held)
    notes: list[str] = []
    with suppress(DrainerError):  # the drain has ended, whatever becomes of this
        notes += added_partitions(cluster, plan)
        if summary.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS):
            summary = replace(summary, held=_held_behind(cluster, plan))
            notes += _stands_until(cluster, plan.group, begun)
    return replace(summary, notes=tuple(notes))


def _stands_until(cluster: Cluster, group: str, begun: datetime) -> list[str]:
    """Until when the group's offsets stand, as far as that can be known: brokers drop those of an
    empty group. ``begun`` is before the drain's first commit, and when the group was empty."""
    seconds = cluster.offsets_kept_s()
    if seconds is None:
        return []
    kept = timedelta(seconds=seconds)
    until = f"{begun + kept:%Y-%m-%d %H:%M} UTC"
    if cluster.group(group).counts_from_commits:
        return [f"what this drain committed for group {group} stands at least until {until}"]
    return [
        f"the offsets of group {group} stand until {until} at most: brokers drop them {kept} after"
        " its last consumer left, and do not say when that was"
    ]


def _taken_over(
    file: PlanFile, prepared: Prepared, say: Callable[[str], None], now: str
) -> tuple[Prepared, Callable[[], None]]:
    """Without tasks of a former driver, and with all that they reported. The function removes
    that, once a plan on disk has it."""
    if prepared.seen is None or prepared.seen.written.state is None:
        return prepared, lambda: None
    take_over: TakeOver = wings.load(wings.Hook.TAKE_OVER)
    forget = take_over(prepared.seen.written, file.path, say)
    loaded = file.load()
    if prepared.action.resumes:
        return going_on(prepared, loaded, now), forget
    return replace(prepared, seen=replace(loaded, plan=replace(loaded.plan, state=None))), forget


def _write_first(file: PlanFile, plan: OffsetPlan) -> None:
    try:
        file.write(plan)
    except PlanNotWritten as error:
        raise PlanRefused(
            str(error), hint="make room there, or name another folder with --plan"
        ) from error


def _look_again(cluster: Cluster, prepared: Prepared) -> None:
    # A person may have taken an hour to say yes.
    plan = prepared.plan
    check_inactive(cluster, plan.group)
    found = cluster.committed(plan.group, plan.topic, tuple(plan.partitions))
    for number, part in plan.partitions.items():
        # What expired meanwhile is written again with the first commit.
        if found[number] not in (part.committed, None):
            raise PlanRefused(
                f"partition {number}: group {plan.group} was moved from {part.committed} to"
                f" {found[number]} since the preview was made",
                hint="start again, to see the preview for what is there now",
            )


def _held_behind(cluster: Cluster, plan: OffsetPlan) -> tuple[HeldBack, ...]:
    ends = {number: part.end for number, part in plan.partitions.items()}
    try:
        logs = cluster.log_bounds(plan.topic, ends, plan.isolation)
        return held_back(cluster, plan.topic, plan.topic_id, logs, ends)
    except Refused:
        return ()  # all is done and committed
