"""A deadline in words: whether a drain will make it, and why it won't."""

from __future__ import annotations

from collections.abc import Hashable

from drainer.engine.status import DeadlineStatus, Outlook, Reason, Status
from drainer.view import figures

_NEAR_S, _DAY_S = 600, 24 * 3600


def deadline_words(deadline: DeadlineStatus) -> str:
    """``drained by 08:00, 1h 20m before`` and the like."""
    seen = deadline.outlook
    at = clock(deadline)
    if seen.margin_s is None:
        return f"{at}, in {figures.duration(seen.left_s)}"
    if seen.margin_s >= 0:
        return f"{at}: makes it, with {figures.duration(seen.margin_s)} to spare"
    return f"{at}: {figures.duration(-seen.margin_s)} too late"


def deadline_warning(status: Status) -> str | None:
    """What is to be said once it became sure that the deadline will be missed; else None."""
    deadline = status.deadline
    if deadline is None or deadline.warning is None:
        return None
    seen = deadline.warning
    late = "" if seen.margin_s is None else f" by {figures.duration(-seen.margin_s)}"
    hottest = max(status.hottest, key=lambda each: each[1], default=None)
    return f"the deadline {clock(deadline)} will be missed{late}: {_why(seen, hottest)}"


def clock(deadline: DeadlineStatus) -> str:
    """The moment, with its day when it is not within one, and its seconds when it is near."""
    left_s = deadline.outlook.left_s
    form = "%H:%M:%S" if left_s < _NEAR_S else "%H:%M"
    return deadline.at.astimezone().strftime(form if left_s < _DAY_S else "%Y-%m-%d %H:%M")


def _why(seen: Outlook, hottest: tuple[Hashable, int] | None) -> str:
    if seen.reason is Reason.LANE and hottest is not None and seen.lane_s is not None:
        key, waiting = hottest
        return (
            f"{figures.counted(waiting, 'sub-message')} of sub-key {figures.sub_key(key)} wait,"
            f" one at a time: {figures.duration(seen.lane_s)} at least"
        )
    if seen.reason is Reason.CONCURRENCY:
        more = "" if seen.concurrency is None else f" (about {figures.count(seen.concurrency)})"
        return f"{Reason.CONCURRENCY.value}: stop it, and resume with more --concurrency{more}"
    return "it is too slow" if seen.reason is None else seen.reason.value
