"""How far a class is that is drained before the rest, and when all will be."""

from __future__ import annotations

from dataclasses import replace

from drainer.core.first import PriorityDispatcher
from drainer.model.plan import OffsetPlan
from drainer.model.status import ClassStatus, Status


def with_class(
    status: Status,
    plan: OffsetPlan,
    dispatcher: PriorityDispatcher,
    where: str,
    rate: float | None,
    pause_s: float = 0.0,
) -> Status:
    """A status of a run that drains one class: what is left of this is the class's, and becomes
    that of all.

    ``rate`` is how many sub-messages may be started per second. The rest begins ``pause_s`` after
    the class.
    """
    now, progress = dispatcher.counts_of_class(), status.progress
    lefts = [part.sub_messages_left for part in progress.partitions]
    left = None if None in lefts else sum(filter(None, lefts)) - dispatcher.deferred
    classes = tuple(
        ClassStatus(
            where,
            known.sub_messages + now,
            dispatcher.deferred,
            progress.eta_s,
            cut=bool(dispatcher.cut) or not dispatcher.delivered,
            left=left,
        )
        if known.where == where
        else each
        for known, each in zip(plan.account.classes.each, ClassStatus.of(plan), strict=True)
    )
    if plan.account.classes.only:
        last = sum(each.ended is None for each in classes) == 1
        eta_s = progress.eta_s if last else None
        return replace(status, progress=replace(progress, classes=classes, eta_s=eta_s))
    beside = dispatcher.left_beside()
    if beside is None:
        return replace(status, progress=replace(progress, classes=classes, eta_s=None))
    partitions = tuple(
        replace(
            part, sub_messages_left=(part.sub_messages_left or 0) + round(beside[part.partition])
        )
        for part in progress.partitions
    )
    rest_s = _rest_s(status, dispatcher, sum(beside.values()) + dispatcher.deferred, rate)
    eta_s = progress.eta_s
    if eta_s is not None:
        eta_s = None if rest_s is None else eta_s + pause_s + rest_s
    progress = replace(progress, classes=classes, partitions=partitions, eta_s=eta_s)
    return replace(status, progress=progress)


def _rest_s(
    status: Status, dispatcher: PriorityDispatcher, subs: float, rate: float | None
) -> float | None:
    """What so many of the rest take with all workers busy, as long as those of the class did.

    It may be less: a pass does little but read, which makes calls late, and the rest will not.
    """
    latency = status.timing.latency
    handled = dispatcher.counts_of_class().finished - dispatcher.ruled_out
    if not handled or latency is None:
        return None
    calls = dispatcher.remainder().share * subs * latency.count / handled
    rest_s = calls * latency.mean_s / status.limits.concurrency
    return max(rest_s, subs / rate) if rate else rest_s
