"""Running a prepared drain: hold the plan, take the lock, look once more, and let the engine go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from drainer.control.server import ControlServer
from drainer.control.wire import About
from drainer.engine.control import Control
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import EXIT_DEAD_LETTERS, EXIT_DONE, DrainerError, PlanNotWritten, PlanRefused
from drainer.escape import printable
from drainer.extensions import Extension
from drainer.kafka.backlog import open_transactions
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.kafka.commit import GroupCommitter
from drainer.kafka.lock import GroupLock
from drainer.model.failures import FailureSettings
from drainer.model.plan import OffsetPlan
from drainer.model.settings import LocalSettings
from drainer.model.status import Resuming, Status, Summary
from drainer.operations.engine import HeldDrain
from drainer.operations.examine import added_partitions
from drainer.operations.group import check_inactive, locked
from drainer.operations.passes import in_passes
from drainer.operations.policy import resolve_policy
from drainer.operations.resume import resumed
from drainer.operations.start import Prepared
from drainer.store.place import PlanPlace, absolute
from drainer.store.saved_plan import SavedPlan

# Makes sure that no task of a former driver does anything any more, and gives what removes all that
# they reported. Raises Refused when they can't be told to end.
TakeOver = Callable[[OffsetPlan, PlanPlace, Callable[[str], None]], Callable[[], None]]


def drain(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    observe: Callable[[Status], None],
    print_line: Callable[[str], None],
    give_up: Callable[[], None] = lambda: None,
    runtime: Runtime = THIS_PROCESS,
    make_lock: Callable[..., GroupLock] = GroupLock,
    control: Control | None = None,
    resuming: Callable[[], Resuming] = Resuming,
) -> Summary:
    """Drains and gives the summary.

    ``give_up`` is called as ``LocalDrain`` says: from another thread, to end the process.
    ``make_lock`` makes the lock on the group. ``resuming`` gives what a resume needs beside the
    plan.

    Raises Refused when something changed since the preview was made.
    """
    file, control = prepared.file, control or Control(running)
    make_lock = partial(make_lock, session_s=prepared.engine.session_s)
    server = _control_server(prepared, control, give_up, runtime)

    def run(held: HeldDrain) -> Summary:
        receipts: AbstractContextManager[HeldDrain] = nullcontext(held)
        if held.plan.terms.redrive is not None:
            keeping = Extension.RECEIPTS.load().keeping
            receipts = keeping(held, resumes=prepared.action.resumes)
        with receipts as kept:
            summary = _drain(prepared, kept)
        summary = replace(summary, resuming=resuming())
        server.end(summary)
        return summary

    with locked(cluster, file, prepared.seen, prepared.plan, print_line, make_lock, server) as lock:
        if server.trouble is not None:
            print_line(f"other processes can't control or watch this drain: {server.trouble}")
        _look_again(cluster, prepared)
        prepared, forget_tasks = _taken_over(prepared, print_line)
        prepared.policy.make(cluster)
        plan, cap = prepared.plan, prepared.action.cap

        def both(status: Status) -> None:
            server.observe(status)
            observe(status)

        reported = set(prepared.action.warnings)

        def observe_topic(topic: TopicInfo) -> None:
            for text in set(added_partitions(topic, plan)) - reported:
                reported.add(text)
                print_line(f"warning: {text}")

        def settle(failures: FailureSettings) -> FailureSettings:
            terms = replace(plan.terms, failures=failures)
            policy = resolve_policy(cluster, terms, plan.account.classes)
            policy.make(cluster)
            return policy.failures

        held = HeldDrain(
            plan=plan,
            file=file,
            handler=prepared.handler,
            cluster=cluster,
            committer=GroupCommitter(
                *(cluster, plan.terms.group, plan.terms.topic, plan.account.log_ends),
                is_sure=lambda: runtime.uptime() < lock.sure_until_s,
                observe=observe_topic,
            ),
            lock=lock,
            read_committed=lambda: cluster.committed(
                plan.terms.group, plan.terms.topic, list(plan.account.partitions)
            ),
            message_bytes=1.0 if cap is None else cap.message_bytes,
            observe=both,
            print_line=print_line,
            give_up=give_up,
            control=control,
            settle=settle,
            runtime=runtime,
        )
        if prepared.action.resumes:
            file.write(plan)
            forget_tasks()
            return run(held)
        aside = file.archive(prepared.seen.plan) if prepared.seen else None
        forget_tasks()
        try:
            _write_first(file, plan)
            if aside is not None:
                print_line(f"kept the earlier plan as {aside}")
            return run(held)
        except DrainerError:  # by the handler's open() at the latest: nothing was handled yet
            file.rollback(plan, aside)
            if aside is not None:
                print_line(f"put the earlier plan back to {file.path}")
            raise


def _control_server(
    prepared: Prepared, control: Control, give_up: Callable[[], None], runtime: Runtime
) -> ControlServer:
    place, plan = absolute(prepared.action.plan_path), prepared.plan
    engine = prepared.action.engine.name
    about = About(
        printable(str(place)),
        plan.terms.topic,
        plan.terms.group,
        plan.terms.drain_id,
        engine,
        runtime.now(),
    )
    return ControlServer(place, about, control, give_up)


def _drain(prepared: Prepared, held: HeldDrain) -> Summary:
    cluster, plan = held.cluster, held.plan
    summary = in_passes(held, prepared.engine)
    if prepared.action.held and summary.exit_code in (EXIT_DONE, EXIT_DEAD_LETTERS):
        # What was open at the preview may have ended since.
        ends = {number: part.end for number, part in plan.account.partitions.items()}
        with suppress(DrainerError):  # all is done and committed, whatever becomes of this
            logs = cluster.log_bounds(plan.terms.topic, ends, plan.terms.isolation)
            return replace(
                summary, open_transactions=open_transactions(plan.terms.topic, logs, ends)
            )
    return summary


def _taken_over(
    prepared: Prepared, print_line: Callable[[str], None]
) -> tuple[Prepared, Callable[[], None]]:
    """Without tasks of a former driver, and with all that they reported. The function removes
    that, once a plan on disk has it."""
    if prepared.seen is None or prepared.seen.written.account.state is None:
        return prepared, lambda: None
    take_over: TakeOver = Extension.SPARK_STATE.load().take_over
    file = prepared.file
    forget = take_over(file.reaching(prepared.seen.written), file.path, print_line)
    loaded = file.load()
    if prepared.action.resumes:
        return resumed(prepared, loaded), forget
    stateless = replace(loaded.plan.account, state=None)
    plan = OffsetPlan(loaded.plan.terms, stateless)
    return replace(prepared, seen=replace(loaded, plan=plan)), forget


def _write_first(file: SavedPlan, plan: OffsetPlan) -> None:
    try:
        file.write(plan)
    except PlanNotWritten as error:
        raise PlanRefused(
            str(error), hint="Make room there, or name another folder with --plan."
        ) from error


def _look_again(cluster: Cluster, prepared: Prepared) -> None:
    # A person may have taken an hour to say yes.
    plan = prepared.plan
    check_inactive(cluster, plan.terms.group)
    found = cluster.committed(plan.terms.group, plan.terms.topic, tuple(plan.account.partitions))
    for number, part in plan.account.partitions.items():
        # What expired meanwhile is written again with the first commit.
        if found[number] not in (part.committed, None):
            raise PlanRefused(
                f"partition {number}: group {plan.terms.group} moved from {part.committed} to"
                f" {found[number]} since the preview",
                hint="Start again to get a new preview.",
            )
