"""A drain in passes: one for each class that comes first, in this process, then one for the rest.

Each pass begins from the plan on the disk, as a resume does. Whatever stops one, stops the drain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from drainer.core.latency import merge_latencies
from drainer.engine.outcome import concluded, goes_on
from drainer.engine.status import CLASS_DONE, ClassStatus, FailureStatus, Status, Summary
from drainer.errors import DrainerError, Interrupted, Refused
from drainer.operations.engine import IN_PROCESS, Engine, HeldDrain, InProcess


def in_passes(held: HeldDrain, engine: Engine) -> Summary:
    """Drains; the rest by ``engine``. Raises Refused when it can't begin."""
    passes: list[Summary] = []
    try:
        return _in_passes(held, engine, passes)
    except DrainerError as error:
        if not passes:
            raise
        # No refusal any more: something was handled.
        cause = Interrupted(str(error), hint=error.hint) if isinstance(error, Refused) else error
        last = _together(passes)
        status, code, _ = concluded(cause, last.messages, last.sub_messages, gave_up=0, lost=False)
        return replace(last, status=status, exit_code=code, cause=cause)


def _in_passes(held: HeldDrain, engine: Engine, passes: list[Summary]) -> Summary:
    in_process = engine if isinstance(engine, InProcess) else IN_PROCESS
    now = held
    while (where := now.plan.classes.next) is not None:
        handler = held.handler.fresh()  # to be opened and closed by itself
        if now.plan.redrive is not None:
            handler = handler.redriving(now.plan.redrive)
        now = replace(now, observe=_after(passes, held.observe))
        summary = in_process(replace(now, handler=handler, first=where))
        passes.append(summary)
        stops = summary.cause is not None and now.plan.classes.only
        if stops or not goes_on(summary.cause):
            return _together(passes)
        now = _next_pass(now, where, summary)
        if now.plan.classes.stops:
            classes = ClassStatus.of(now.plan)
            return replace(_together(passes), status=CLASS_DONE, classes=classes)
    passes.append(engine(replace(now, observe=_after(passes, held.observe))))
    return _together(passes)


def _next_pass(held: HeldDrain, where: str, summary: Summary) -> HeldDrain:
    """What comes after the pass of this class."""
    loaded, now = held.file.load(), held.runtime.now()
    waits = sum(each.held for each in summary.classes if each.where == where)
    generation = loaded.last_generation + 2  # past every journal, as at a resume
    plan = replace(loaded.plan.settled(), generation=generation, updated=now)
    plan = replace(plan, classes=plan.classes.with_ended(where, now, waits)).begun()
    held.file.write(plan)
    steering = held.control.steering
    running = held.running if steering is None else steering.settings.running
    return replace(held, plan=plan, running=running)


def _after(
    passes: Sequence[Summary], observe: Callable[[Status], None]
) -> Callable[[Status], None]:
    before_s = sum(each.elapsed_s for each in passes)
    return lambda status: observe(replace(status, elapsed_s=before_s + status.elapsed_s))


def _together(passes: Sequence[Summary]) -> Summary:
    """The account and the end are those of the last one; what happened is of all."""
    last = passes[-1]
    if len(passes) == 1:
        return last
    elapsed_s = sum(each.elapsed_s for each in passes)
    done = sum(each.sub_messages_per_s * each.elapsed_s for each in passes)
    failures = replace(
        FailureStatus.sum([each.failures for each in passes]),
        **{name: getattr(last.failures, name) for name in _OF_LAST},
    )
    return replace(
        last,
        elapsed_s=elapsed_s,
        sub_messages_per_s=done / elapsed_s if elapsed_s else 0.0,
        failures=failures,
        latency=merge_latencies(each.latency for each in passes),
    )


_OF_LAST = ("waiting", "parked_lanes", "late", "in_outage", "dead_letter_topic", "rate")
