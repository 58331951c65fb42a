"""The passes of a drain: one for each priority class, and one for the rest.

A pass that ends because consumers have joined the group is continued once they have left, if the
drain is to wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from drainer.engine.outcome import final_outcome, may_continue
from drainer.engine.signals import interrupt, signals_to
from drainer.errors import (
    ClassWaits,
    CommitDelayed,
    DrainerError,
    GroupJoined,
    Interrupted,
    Refused,
    Signalled,
)
from drainer.loading.extensions import Extension
from drainer.loading.loader import LoadedHandler
from drainer.model.account import Account, EventKind
from drainer.model.listed import counted, round_duration
from drainer.model.plan import OffsetPlan
from drainer.model.status import CLASS_DONE, CLASS_WAITS, HealthStatus, Status, Summary
from drainer.operations.engine import IN_PROCESS, Engine, InProcess, LocalContext
from drainer.operations.group import WAIT_EVERY_S

UNREAD = "the offsets that an earlier run did not read"


def in_passes(context: LocalContext, engine: Engine) -> Summary:
    """Drain each priority class in a pass in this process, and then the rest by ``engine``.

    Each pass begins with the plan on disk, as a resume does. If a pass ends with an error, the
    drain ends. If the error is only that lanes are parked, the next pass begins, unless --only was
    given. Raises Refused when the first pass can't begin.
    """
    passes: list[Summary] = []
    try:
        return _in_passes(context, engine, passes)
    except (DrainerError, KeyboardInterrupt) as error:
        if not passes:
            raise
        context.control.interrupted |= "SIGINT" in str(error)
        return _with_offsets(context, _stopped(passes, error))
    finally:
        context.control.end()


def _in_passes(context: LocalContext, engine: Engine, passes: list[Summary]) -> Summary:
    in_process = engine if isinstance(engine, InProcess) else IN_PROCESS
    now, unread = context, dict[str, str]()
    while (where := now.plan.account.classes.next) is not None:
        this_pass = replace(now.this_pass, where=where, rest_after_s=engine.start_s)
        of_class = replace(now, handler=_fresh_handler(context), this_pass=this_pass)
        summary = _pass(of_class, in_process, passes)
        unread[where] = summary.unread
        stops = summary.cause is not None and now.plan.account.classes.only
        if stops or not may_continue(summary.cause):
            return _together(passes)
        at = context.runtime.now()
        end_class = partial(_with_class_ended, where=where, summary=summary, at=at)
        now = replace(_next_pass(now, end_class, passes), observe=_observing(context, passes))
        classes = now.plan.account.classes
        if classes.stops:
            found = _together(passes)
            statuses = classes.statuses(now.plan.account.claims)
            progress = replace(found.last.progress, classes=statuses)
            found = replace(found, last=replace(found.last, progress=progress))
            if classes.left_over:
                return waiting(found, unread)
            return replace(found, status=CLASS_DONE)
        if context.control.stopped is not None:
            return _stopped(passes, context.control.stopped)
    _pass(now, engine, passes)
    return _together(passes)


def _pass(context: LocalContext, engine: Engine, passes: list[Summary]) -> Summary:
    """Run a pass, add its summary to ``passes``, and return it.

    If consumers join the group, and are to be waited for, this continues the pass once they have
    left. If they stay for too long, the summary is that of the pass which they ended.
    """
    own: list[Summary] = []
    now = context
    while True:
        own.append(summary := engine(now))
        passes.append(summary)
        if not context.waits_after(summary.cause):
            return summary
        committed = _committed_once_empty(now, summary)
        if committed is None:
            return summary
        now = _next_pass(now, partial(Account.with_committed, offsets=committed), own)
        now = replace(now, handler=_fresh_handler(context), observe=_observing(context, own))


def _committed_once_empty(context: LocalContext, summary: Summary) -> Mapping[int, int] | None:
    """Wait until the group has no members, commit what is done, and return the group's offsets.

    The commit itself is tried again and again. The committer first ensures that the group's
    offsets are those of this drain, and brokers accept the commit only once the group is empty.

    Return None if consumers stay for too long, or if tasks may still be at work. Raises what the
    commit raises, such as OffsetMoved as soon as a consumer has committed, and Signalled if a
    person wants to stop.
    """
    runtime, control, plan = context.runtime, context.control, context.file.load().plan
    most_s, shown = context.running.wait_for_group_s, str(summary.cause)
    until_s = runtime.uptime() + most_s
    context.print_line(f"drainer waits for the group to be empty, up to {round_duration(most_s)}")
    with signals_to(interrupt):
        while plan.account.state is None and runtime.uptime() < until_s:
            waits = f"waiting for the group to be empty: {shown}"
            context.observe(_kept_waiting(summary.last, waits))
            runtime.sleep(WAIT_EVERY_S)
            control.take_stop()
            if context.lock.lost is not None:
                raise context.lock.lost
            try:
                return context.commit(plan)
            except (GroupJoined, CommitDelayed) as error:
                shown = str(error)
    return None


def _kept_waiting(last: Status, trouble: str) -> Status:
    """Return the status of a drain that waits after a pass. ``trouble`` says what for."""
    return replace(
        last,
        progress=replace(last.progress, rate_now=0.0, eta_s=None),
        health=HealthStatus(trouble, is_kept_waiting=True),
        control=replace(last.control, stopping=None),
    )


def _fresh_handler(context: LocalContext) -> LoadedHandler:
    """Return a handler for another pass, because each pass opens and closes its own."""
    handler = context.handler.fresh().configured(context.options)
    if (redrive := context.plan.terms.redrive) is not None:
        redriving = Extension.REDRIVING.load().redriving
        handler = redriving(handler, redrive, context.cluster.settings)
    return handler


def waiting(summary: Summary, unread: Mapping[str, str]) -> Summary:
    """Return the summary of a drain with --only whose classes are not completely drained.

    ``unread`` describes the offsets that this run did not search, by class.
    """
    left = []
    for each in summary.last.progress.classes:
        many = counted(each.deferred, "selected sub-message")
        what = [f"{many} of {each.where}"] if each.deferred else []
        if each.cut:
            what.append(f"all of {each.where} in {unread.get(each.where) or UNREAD}")
        left += what
    cause = ClassWaits(
        f"{'; '.join(left)} wait behind others that --only leaves out, in their lanes or before"
        " a barrier",
        hint="Resume to drain them in order, with the rest. To drain less, resume with an --only"
        " that selects all sub-messages of their sub-keys.",
    )
    return replace(summary, status=CLASS_WAITS, exit_code=cause.exit_code, cause=cause)


def _stopped(passes: Sequence[Summary], error: BaseException) -> Summary:
    """Return the summary of a drain that stops between two passes, or at the beginning of one.

    Refused becomes Interrupted, because an earlier pass has handled sub-messages.
    """
    match error:
        case KeyboardInterrupt():
            cause: DrainerError = Signalled(str(error) or "interrupted by SIGINT")
        case Refused():
            cause = Interrupted(str(error), hint="Fix that, then resume with the plan.")
        case DrainerError():
            cause = error
        case _:
            raise error
    last = _together(passes)
    status, code, _ = final_outcome(cause, last.messages, last.sub_messages, gave_up=0, lost=False)
    return replace(last, status=status, exit_code=code, cause=cause)


def _with_offsets(context: LocalContext, summary: Summary) -> Summary:
    """Return the summary with the group's offsets of now, if the brokers answer.

    Somebody may have moved them since the last pass ended.
    """
    with suppress(DrainerError):
        now = context.read_committed()
        parts = {
            n: replace(part, committed=now.get(n, part.committed))
            for n, part in summary.partitions.items()
        }
        return replace(summary, partitions=parts)
    return summary


def _next_pass(
    context: LocalContext, change: Callable[[Account], Account], passes: Sequence[Summary]
) -> LocalContext:
    """Change the account on disk, and return the context of the pass that goes on from it."""
    loaded, now = context.file.load(), context.runtime.now()
    account = change(replace(loaded.plan.account, generation=loaded.last_generation))
    plan = OffsetPlan(loaded.plan.terms, account.next_generation(now))
    context.file.write(plan)
    # The next pass writes this once it has begun. Until then, the drain has ended here.
    *before, ended = plan.account.history
    history = (*before, replace(ended, what=EventKind.WENT_ON))
    return replace(
        context,
        plan=OffsetPlan(plan.terms, replace(plan.account, history=history)),
        this_pass=replace(context.this_pass, given_up=passes[-1].last.failures.given_up),
    )


def _with_class_ended(account: Account, where: str, summary: Summary, at: str) -> Account:
    """Note that the pass of a class has ended."""
    (found,) = (each for each in summary.last.progress.classes if each.where == where)
    ended = account.classes.with_ended(where, at, found.deferred, cut=found.cut)
    return replace(account, classes=ended)


def _observing(context: LocalContext, before: Sequence[Summary]) -> Callable[[Status], None]:
    """Return a function that observes a status together with those of the passes ``before``."""
    return partial(_observe_all, context.observe, [each.last for each in before])


def _observe_all(
    observe: Callable[[Status], None], before: Sequence[Status], status: Status
) -> None:
    observe(Status.merge([*before, status]))


def _together(passes: Sequence[Summary]) -> Summary:
    """Merge the summaries of all passes. The last one decides how the drain ended."""
    return replace(passes[-1], last=Status.merge([each.last for each in passes]))
