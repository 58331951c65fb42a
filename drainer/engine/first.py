"""How far a class is that is drained before the rest, and when all will be."""

from __future__ import annotations

from dataclasses import replace

from drainer.core.first import FirstDispatcher
from drainer.core.plan import OffsetPlan
from drainer.engine.status import ClassStatus, Status


def with_class(
    status: Status,
    plan: OffsetPlan,
    dispatcher: FirstDispatcher,
    where: str,
    rate: float | None,
) -> Status:
    """A status of a run that drains one class: its time is the class's, and becomes that of all.

    ``rate`` is how many sub-messages may be started per second.
    """
    now = dispatcher.counts_of_class()
    classes = tuple(
        ClassStatus(
            where,
            known.sub_messages + now,
            dispatcher.held,
            status.eta_s,
            cut=not dispatcher.looked_at_all,
        )
        if known.where == where
        else each
        for known, each in zip(plan.classes.each, ClassStatus.of(plan), strict=True)
    )
    rest_s = _rest_s(status, dispatcher, rate)
    eta_s = None if status.eta_s is None or rest_s is None else status.eta_s + rest_s
    return replace(status, classes=classes, eta_s=eta_s)


def _rest_s(status: Status, dispatcher: FirstDispatcher, rate: float | None) -> float | None:
    """What the rest takes at this concurrency, by the share of it that was read.

    It may be less: a pass does little but read, which makes calls late, and the rest will not.
    """
    marks = dispatcher.watermarks
    read = sum(part.position - marks[part.partition] for part in status.partitions)
    total = sum(part.end - marks[part.partition] for part in status.partitions)
    if not read or status.latency is None:
        return None
    subs = (dispatcher.beside + dispatcher.held) * total / read
    rest_s = subs * status.latency.mean_s / status.concurrency
    return max(rest_s, subs / rate) if rate else rest_s
