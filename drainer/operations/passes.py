"""The passes of a drain: one for each priority class, and one for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from drainer.engine.outcome import final_outcome, may_continue
from drainer.errors import ClassWaits, DrainerError, Interrupted, Refused, Signalled
from drainer.loading.extensions import Extension
from drainer.model.account import EventKind
from drainer.model.listed import counted
from drainer.model.plan import OffsetPlan
from drainer.model.status import CLASS_DONE, CLASS_WAITS, Status, Summary
from drainer.operations.engine import IN_PROCESS, Engine, InProcess, LocalContext

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
        return _stopped(passes, error)
    finally:
        context.control.end()


def _in_passes(context: LocalContext, engine: Engine, passes: list[Summary]) -> Summary:
    in_process = engine if isinstance(engine, InProcess) else IN_PROCESS
    now, unread = context, dict[str, str]()
    while (where := now.plan.account.classes.next) is not None:
        # Each pass has a handler of its own, which it opens and closes.
        handler = context.handler.fresh().configured(context.options)
        if now.plan.terms.redrive is not None:
            handler = Extension.REDRIVING.load().redriving(
                handler, now.plan.terms.redrive, now.cluster.settings
            )
        this_pass = replace(now.this_pass, where=where, rest_after_s=engine.start_s)
        summary = in_process(replace(now, handler=handler, this_pass=this_pass))
        passes.append(summary)
        unread[where] = summary.unread
        stops = summary.cause is not None and now.plan.account.classes.only
        if stops or not may_continue(summary.cause):
            return _together(passes)
        now = _next_pass(now, where, summary)
        now = replace(
            now,
            # A status and ``given_up`` count all passes so far.
            observe=partial(_observe_all, context.observe, [each.last for each in passes]),
            this_pass=replace(now.this_pass, given_up=summary.last.failures.given_up),
        )
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
    passes.append(engine(now))
    return _together(passes)


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
            cause: DrainerError = Signalled("interrupted by SIGINT")
        case Refused():
            cause = Interrupted(str(error), hint="Fix that, then resume with the plan.")
        case DrainerError():
            cause = error
        case _:
            raise error
    last = _together(passes)
    status, code, _ = final_outcome(cause, last.messages, last.sub_messages, gave_up=0, lost=False)
    return replace(last, status=status, exit_code=code, cause=cause)


def _next_pass(context: LocalContext, where: str, summary: Summary) -> LocalContext:
    """Note in the plan that the pass of a class has ended, and return the next pass's context."""
    loaded, now = context.file.load(), context.runtime.now()
    (found,) = (each for each in summary.last.progress.classes if each.where == where)
    account = loaded.plan.account
    classes = account.classes.with_ended(where, now, found.deferred, cut=found.cut)
    account = replace(account, generation=loaded.last_generation, classes=classes)
    plan = OffsetPlan(loaded.plan.terms, account.next_generation(now))
    context.file.write(plan)
    # The next pass writes this once it has begun. Until then, the drain has ended here.
    *before, ended = plan.account.history
    history = (*before, replace(ended, what=EventKind.WENT_ON))
    return replace(context, plan=OffsetPlan(plan.terms, replace(plan.account, history=history)))


def _observe_all(
    observe: Callable[[Status], None], before: Sequence[Status], status: Status
) -> None:
    observe(Status.merge([*before, status]))


def _together(passes: Sequence[Summary]) -> Summary:
    """Merge the summaries of all passes. The last one decides how the drain ended."""
    return replace(passes[-1], last=Status.merge([each.last for each in passes]))
