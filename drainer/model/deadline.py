"""``--deadline``: the time by which a drain should be done, and whether it will be."""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from drainer.errors import UsageError
from drainer.model.option import ValueType, parse_duration

# drainer warns once a drain has looked late for this long, by more than the error of its forecast.
SURE_FOR_S = 30.0
# The error is half of the range in which the expected end lay in the last minute, and this share of
# the time left or more.
RANGE_S, ERROR_LEAST = 60.0, 0.1
_CLOCK = re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$")


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """Section of a status: the deadline, and whether the drain will meet it.

    Attributes:
        at: the deadline.
        left_s: the time until the deadline.
        margin_s: the time between the end of the drain and the deadline. It is below zero if the
            drain will miss the deadline, and None while that is not known.
        missed: whether the deadline is over, or the drain has looked late for long enough, and by
            enough, to be sure.
    """

    at: datetime
    left_s: float
    margin_s: float | None
    missed: bool = False

    @property
    def late(self) -> bool:
        """Whether the drain looks late now."""
        return self.margin_s is not None and self.margin_s < 0


class DeadlineWatch:
    """Judges at each status whether a run will meet its deadline."""

    def __init__(self) -> None:
        self._late_since_s: float | None = None
        self._ends: deque[tuple[float, float]] = deque()  # When an end was expected, and which.

    def judge(
        self, deadline: datetime | None, now: datetime, elapsed_s: float, eta_s: float | None
    ) -> DeadlineStatus | None:
        """Return the section of a status; None if the run has no deadline.

        ``elapsed_s`` is how long the run has lasted. ``eta_s`` is how long it will still take; None
        if that is not known.
        """
        if deadline is None:
            self._late_since_s = None
            return None
        left_s = (deadline - now).total_seconds()
        if eta_s is None and left_s <= 0:
            eta_s = 0.0
        found = DeadlineStatus(deadline, left_s, None if eta_s is None else left_s - eta_s)
        late_by_s = -(found.margin_s or 0.0) - self._error_s(elapsed_s, eta_s)
        if late_by_s <= 0:
            self._late_since_s = None
        elif self._late_since_s is None:
            self._late_since_s = elapsed_s
        since_s = self._late_since_s
        sure = since_s is not None and elapsed_s - since_s >= SURE_FOR_S
        return replace(found, missed=sure or (found.late and left_s <= 0))

    def _error_s(self, elapsed_s: float, eta_s: float | None) -> float:
        """Note a forecast, and return how much the forecasts of the last minute are off."""
        if eta_s is not None:
            self._ends.append((elapsed_s, elapsed_s + eta_s))
        while self._ends and self._ends[0][0] < elapsed_s - RANGE_S:
            self._ends.popleft()
        ends = [end_s for _, end_s in self._ends] or [0.0]
        return max((max(ends) - min(ends)) / 2, ERROR_LEAST * (eta_s or 0.0))


def parse_deadline(text: str, now: datetime | None = None) -> datetime:
    """Parse ``08:00`` (the next one in local time), ``6h`` (from now), or an ISO 8601 time.

    ``now`` has a time zone, and so has the result. Raises UsageError.
    """
    now, word = now or datetime.now(UTC), text.strip()
    if clock := _CLOCK.match(word):
        # The zone is added last. If the clocks change tonight, 08:00 is by the new time.
        today = now.astimezone().replace(tzinfo=None, microsecond=0)
        at = today.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0))
        return next(
            moment
            for days in range(3)
            if (moment := (at + timedelta(days=days)).astimezone()) > now
        )
    if "T" in word or ":" in word:  # As commands to resume and TOML have it.
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(word).astimezone()
    hint = "Give a 24-hour time such as 08:00, or a duration such as 6h."
    wrong = UsageError(f"{text!r} is not a time or a duration", hint=hint)
    if not word[-1:].isalpha():  # A number alone could be a time or a duration.
        raise wrong
    try:
        return now.astimezone() + timedelta(seconds=parse_duration(word))
    except UsageError:
        raise wrong from None


def _parse(text: str) -> datetime | None:
    # ``drainer set PLAN deadline=none`` removes the deadline of a running drain.
    return None if text.strip().lower() == "none" else parse_deadline(text)


DEADLINE = ValueType("08:00|6h", _parse)
