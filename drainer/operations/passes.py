"""A drain in passes: one for each class that comes first, in this process, then one for the rest.

Each pass begins from the plan on the disk, as a resume does. Whatever stops one, stops the drain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from drainer.engine.outcome import final_outcome, may_continue
from drainer.errors import ClassWaits, DrainerError, Interrupted, Refused, Signalled
from drainer.model.listed import counted, listed
from drainer.model.plan import OffsetPlan
from drainer.model.status import (
    CLASS_DONE,
    CLASS_WAITS,
    ClassStatus,
    Status,
    Summary,
)
from drainer.operations.engine import IN_PROCESS, Engine, InProcess, LocalContext

UNREAD = " (not all of it was read: a barrier, or too many that wait)"


def in_passes(context: LocalContext, engine: Engine) -> Summary:
    """Drains; the rest by ``engine``. Raises Refused when it can't begin."""
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
    now = context
    while (where := now.plan.account.classes.next) is not None:
        # To be opened and closed by itself.
        handler = context.handler.fresh().configured(context.options)
        if now.plan.terms.redrive is not None:
            handler = handler.redriving(now.plan.terms.redrive, now.cluster.settings)
        begun = replace(now, handler=handler, first=where, pause_s=engine.start_s)
        summary = in_process(begun)
        passes.append(summary)
        stops = summary.cause is not None and now.plan.account.classes.only
        if stops or not may_continue(summary.cause):
            return _together(passes)
        now = _next_pass(now, where, summary)
        before = [each.last for each in passes]
        now = replace(
            now,
            observe=partial(_observe_all, context.observe, before),
            given_up=summary.last.failures.given_up,  # in all passes
        )
        classes = now.plan.account.classes
        if classes.stops:
            found = _together(passes)
            progress = replace(found.last.progress, classes=ClassStatus.of(now.plan))
            found = replace(found, last=replace(found.last, progress=progress))
            if classes.left_over:
                return _waits(found)
            return replace(found, status=CLASS_DONE)
        if context.control.stopped is not None:
            return _stopped(passes, context.control.stopped)
    passes.append(engine(now))
    return _together(passes)


def _waits(summary: Summary) -> Summary:
    """The summary of a drain with --only that could not drain all of its classes."""
    waiting = [
        f"{counted(each.held, 'sub-message')} of {each.where}{UNREAD if each.cut else ''}"
        for each in summary.last.progress.classes
        if each.held or each.cut
    ]
    cause = ClassWaits(
        f"--only left out what these wait for, earlier in their lanes: {listed(waiting)}",
        hint="Resume to drain them in order, with the rest. To drain less, resume with an --only"
        " that selects all sub-messages of their sub-keys.",
    )
    return replace(summary, status=CLASS_WAITS, exit_code=cause.exit_code, cause=cause)


def _stopped(passes: Sequence[Summary], error: BaseException) -> Summary:
    """The end of a drain that is stopped between two passes, or as one begins: no refusal, for
    something was handled."""
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
    """Return the context of the pass after this class."""
    loaded, now = context.file.load(), context.runtime.now()
    (found,) = (each for each in summary.last.progress.classes if each.where == where)
    account = loaded.plan.account
    classes = account.classes.with_ended(where, now, found.held, cut=found.cut)
    account = replace(account, generation=loaded.last_generation, classes=classes)
    plan = OffsetPlan(loaded.plan.terms, account.next_generation(now))
    context.file.write(plan)
    return replace(context, plan=plan)


def _observe_all(
    observe: Callable[[Status], None], before: Sequence[Status], status: Status
) -> None:
    observe(Status.merge([*before, status]))


def _together(passes: Sequence[Summary]) -> Summary:
    """The end is that of the last one; what happened is of all."""
    return replace(passes[-1], last=Status.merge([each.last for each in passes]))
