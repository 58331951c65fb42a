"""Runs a prepared drain: it locks the plan and the group, checks again, and runs the passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from drainer.control.wire import About
from drainer.engine.control import Control
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import (
    EXIT_DEAD_LETTERS,
    EXIT_DONE,
    DrainerError,
    PlanNotWritten,
    PlanUnready,
    handling_nothing,
    raised_as,
)
from drainer.kafka.backlog import open_transactions
from drainer.kafka.cluster import Cluster, TopicInfo
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.dead_letters import originals_kept
from drainer.kafka.lock import GroupLock
from drainer.loading.extensions import Extension
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import LimitStatus, PartitionResult, ProgressStatus, Status, Summary
from drainer.model.terms import Terms
from drainer.operations.engine import LocalContext
from drainer.operations.examine import added_partitions
from drainer.operations.group import check_inactive, committed_offsets, live_readers, locked
from drainer.operations.hand_over import handed_over
from drainer.operations.passes import in_passes
from drainer.operations.policy import resolve_policy
from drainer.operations.resume import resumed, resuming_by
from drainer.operations.start import Prepared
from drainer.policy.redrive import not_redriven
from drainer.store.place import PlanPlace, absolute
from drainer.text.escape import printable

if TYPE_CHECKING:
    from drainer.control.server import ControlServer

# A function that ends the tasks of a former driver, and returns a function that removes their
# reports. It raises Refused when the tasks can't be ended.
TakeOver = Callable[[OffsetPlan, PlanPlace, Callable[[str], None]], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions of a command or program that a drain calls.

    Attributes:
        observe: gets each status.
        print_line: gets each message to a person.
        give_up: ends the process. It is called from another thread, when a person wants to stop at
            once and the handler blocks the event loop.
        resuming: returns what a resume needs besides the plan. By default, that is what the
            settings of the run are.
    """

    observe: Callable[[Status], None] = lambda _: None
    print_line: Callable[[str], None] = lambda _: None
    give_up: Callable[[], None] = lambda: None
    resuming: Callable[[], Resuming] | None = None


NO_CALLBACKS = Callbacks()
_ELSEWHERE = "Make room there, or name another folder with --plan."


def drain(
    cluster: Cluster,
    prepared: Prepared,
    running: LocalSettings,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    control: Control | None = None,
    runtime: Runtime = THIS_PROCESS,
    make_lock: Callable[..., GroupLock] = GroupLock,
) -> Summary:
    """Run a prepared drain to its end, for commands and programs, and on every engine.

    ``make_lock`` makes the lock on the group. If the backlog is empty, nothing is read or written.

    Raises Refused when something has changed since the preview was made, and UsageError when
    ``control`` has controlled another drain.
    """
    control, print_line = control or Control(), callbacks.print_line
    control.use(running)
    if prepared.is_empty:
        return _nothing_to_drain(prepared)
    server = _control_server(prepared, control, callbacks.give_up, runtime)
    make_lock = partial(make_lock, session_s=prepared.engine.session_s)
    locking = locked(
        *(cluster, prepared.file, prepared.seen, prepared.plan, print_line, make_lock, server),
        ensure_wanted=control.ensure_wanted,
    )
    with prepared.engine.beginning(prepared.plan) as engine, locking as lock:
        if server.trouble is not None:
            print_line(f"other processes can't control or watch this drain: {server.trouble}")
        _recheck(cluster, prepared)
        prepared, forget_tasks = _taken_over(replace(prepared, engine=engine), print_line)
        control.ensure_wanted()
        prepared.policy.make(cluster)
        given = callbacks.resuming or (lambda: resuming_by(control.running, prepared))

        def resuming() -> Resuming:
            return _resuming_now(prepared, control, given())

        prepared = _beginning(prepared, resuming())
        plan = prepared.plan

        def observe(status: Status) -> None:
            server.observe(status)
            callbacks.observe(status)

        context = LocalContext(
            plan=plan,
            file=prepared.file,
            handler=prepared.handler,
            cluster=cluster,
            commit=_committer(cluster, prepared, lock, runtime, print_line).commit_plan,
            lock=lock,
            read_committed=lambda: committed_offsets(cluster, plan),
            cap=prepared.action.cap,
            observe=observe,
            print_line=print_line,
            give_up=callbacks.give_up,
            control=control,
            resolve=partial(_resolve_failures, cluster, plan),
            resuming=resuming,
            runtime=runtime,
        )
        with _plan_written(prepared, forget_tasks, print_line):
            summary = replace(_drain(prepared, context), resuming=given())
            summary = _with_letters(cluster, prepared.plan.terms, summary)
            server.end(summary)
    return handed_over(
        *(cluster, prepared.file, plan.terms, summary, running.hand_over_s, print_line, runtime),
        show=lambda: observe(summary.last),
    )


def _resuming_now(prepared: Prepared, control: Control, given: Resuming) -> Resuming:
    """Return what a resume has to repeat, with the options as they are now."""
    engine, calls = prepared.action.engine.name, Concurrency.of(control.running.concurrency)
    now = replace(given, engine=engine, concurrency=str(calls))
    terms = prepared.plan.terms
    # If there is a client file, it may have a login, and no login goes to the plan's URL.
    return now.to_keep(terms.options if terms.client_config is None else ())


def _beginning(prepared: Prepared, resuming: Resuming) -> Prepared:
    """Note in the plan what a resume will need."""
    plan = prepared.plan
    plan = replace(plan, account=replace(plan.account, resuming=resuming))
    return replace(prepared, action=replace(prepared.action, plan=plan))


def _with_letters(cluster: Cluster, terms: Terms, summary: Summary) -> Summary:
    """Add how long messages whose letters have no payload are kept, and a redrive's exit code."""
    failures, code = summary.last.failures, summary.exit_code
    if failures.left_out_letters and terms.redrive is None:
        config: Mapping[str, str] = {}
        with suppress(DrainerError):
            config = cluster.topic_config(terms.topic)
        kept = originals_kept(terms.topic, config, failures.left_out_oldest_ms)
        summary = replace(summary, originals_kept=kept)
    if code == EXIT_DONE and not_redriven(summary.left_alone):
        code = EXIT_DEAD_LETTERS
    return replace(summary, exit_code=code)


def _nothing_to_drain(prepared: Prepared) -> Summary:
    """Return the summary of an empty backlog. Nothing was read, written or committed."""
    plan = prepared.plan
    return Summary(
        Status(plan.terms.topic, plan.terms.group, "", ProgressStatus(), LimitStatus()),
        "empty",
        EXIT_DONE,
        partitions={
            number: PartitionResult(part.start, part.end, part.end, part.committed)
            for number, part in plan.account.partitions.items()
        },
        left_alone=prepared.handler.left_alone,
        open_transactions=prepared.action.open_transactions,
    )


@contextmanager
def _plan_written(
    prepared: Prepared, forget_tasks: Callable[[], None], print_line: Callable[[str], None]
) -> Iterator[None]:
    """Write the plan, and then run the block.

    If the block raises an error or is interrupted, nothing was handled, because a drain raises
    neither after the handler's open(). Then the plan of a new drain is removed again, and an
    earlier plan that was set aside for it is moved back to its place. A resumed plan becomes what
    it was.
    """
    file, plan = prepared.file, prepared.plan
    if prepared.action.resumes:
        assert prepared.seen is not None, "a resume has a plan"
        file.write(plan)
        try:
            forget_tasks()
            yield
        except (DrainerError, KeyboardInterrupt):
            file.restore(prepared.seen, plan)
            raise
        return
    archived = file.archive(prepared.seen.plan) if prepared.seen else None
    forget_tasks()
    try:
        with raised_as(PlanUnready, PlanNotWritten, hint=_ELSEWHERE):
            file.write(plan)
        if archived is not None:
            print_line(f"kept the earlier plan as {archived}")
        yield
    except (DrainerError, KeyboardInterrupt):
        file.rollback(plan, archived)
        if archived is not None:
            print_line(f"restored the earlier plan at {file.path}")
        raise


def _committer(
    cluster: Cluster,
    prepared: Prepared,
    lock: GroupLock,
    runtime: Runtime,
    print_line: Callable[[str], None],
) -> GroupCommitter:
    plan, reported = prepared.plan, set(prepared.action.warnings)

    def observe_topic(topic: TopicInfo) -> None:
        may_join = prepared.action.follows and plan.takes_added
        new = [] if may_join else added_partitions(topic, plan)
        for text in set(new) - reported:
            reported.add(text)
            print_line(f"warning: {text}")

    return GroupCommitter(
        *(cluster, plan.terms.group, plan.terms.topic),
        is_sure=lambda: runtime.uptime() < lock.sure_until_s,
        observe=observe_topic,
    )


def _resolve_failures(
    cluster: Cluster, plan: OffsetPlan, failures: FailureSettings
) -> FailureSettings:
    """Complete new failure settings of a running drain, and create the topic that they need."""
    terms = plan.terms
    policy = resolve_policy(
        cluster, terms.topic, terms.group, failures, redrives=terms.redrive is not None
    )
    policy.make(cluster)
    return policy.failures


def _control_server(
    prepared: Prepared, control: Control, give_up: Callable[[], None], runtime: Runtime
) -> ControlServer:
    from drainer.control.server import ControlServer  # noqa: PLC0415 - with http, half as long as --help

    place, plan = absolute(prepared.action.plan_path), prepared.plan
    names = plan.terms.topic, plan.terms.group, plan.terms.drain_id, prepared.action.engine.name
    about = About(printable(str(place)), *names, runtime.now())
    return ControlServer(place, about, control, give_up)


def _drain(prepared: Prepared, context: LocalContext) -> Summary:
    receipts: AbstractContextManager[LocalContext] = nullcontext(context)
    if context.plan.terms.redrive is not None:
        keeping = Extension.RECEIPTS.load().keeping
        receipts = keeping(context, resumes=prepared.action.resumes)
    with receipts as kept:
        summary = in_passes(kept, prepared.engine)
        action = prepared.action
        if summary.reached_its_end and (action.open_transactions or action.follows):
            # Transactions that were open at the preview may have ended since, and with an end that
            # moved, others may be open there.
            terms = kept.plan.terms
            ends = {number: part.end for number, part in summary.partitions.items()}
            # An error does not matter here, because everything is committed.
            with suppress(DrainerError):
                logs = kept.cluster.log_bounds(terms.topic, ends, terms.isolation)
                open_ = open_transactions(terms.topic, logs, ends)
                summary = replace(summary, open_transactions=open_)
        return summary


def _taken_over(
    prepared: Prepared, print_line: Callable[[str], None]
) -> tuple[Prepared, Callable[[], None]]:
    """End the tasks of a former driver, and add to the plan what they reported.

    The returned function removes the reports. Call it once the new plan is on disk.
    """
    if prepared.seen is None or prepared.seen.written.account.state is None:
        return prepared, lambda: None
    take_over: TakeOver = Extension.SPARK_STATE.load().take_over
    file = prepared.file
    with handling_nothing("the tasks of the former driver were ending"):
        forget = take_over(file.with_reachable_state(prepared.seen.written), file.path, print_line)
    loaded = file.load()
    if prepared.action.resumes:
        return resumed(prepared, loaded), forget
    stateless = replace(loaded.plan.account, state=None)
    plan = OffsetPlan(loaded.plan.terms, stateless)
    return replace(prepared, seen=replace(loaded, plan=plan)), forget


def _recheck(cluster: Cluster, prepared: Prepared) -> None:
    # The person may have taken an hour to confirm.
    plan, shown = prepared.plan, (None, *prepared.action.warnings)
    if plan.terms.commits:
        check_inactive(cluster, plan.terms.group, plan.terms.topic)
    elif (readers := live_readers(cluster, plan.terms.group)) not in shown:
        raise PlanUnready(readers or "", hint="Start again to get a new preview.")
    found = committed_offsets(cluster, plan)
    for number, part in plan.account.partitions.items():
        # If an offset expired meanwhile, the first commit writes it again.
        if found[number] not in (part.committed, None):
            raise PlanUnready(
                f"partition {number}: group {plan.terms.group} moved from {part.committed} to"
                f" {found[number]} since the preview",
                hint="Start again to get a new preview.",
            )
