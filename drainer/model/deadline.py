"""``--deadline``: when a drain shall be done, and whether it will be."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from drainer.errors import UsageError
from drainer.model.option import ValueType, parse_duration

SURE_AFTER_S = 5.0  # No warning comes before: the first speed is that of a start.
SURE_FOR_S = 2.0  # A drain must look late for so long before drainer warns.
_CLOCK = re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)$")


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """When all shall be drained, and whether it will be.

    ``left_s`` is the time until then. ``margin_s`` is by how much the deadline will be met, or
    missed if it is below zero; None while nothing is known. ``missed`` is set when the drain has
    looked late for long enough to be sure.
    """

    at: datetime
    left_s: float
    margin_s: float | None
    missed: bool = False

    @property
    def late(self) -> bool:
        """Return whether the drain looks late now."""
        return self.margin_s is not None and self.margin_s < 0


class DeadlineWatch:
    """Judges again and again whether a run will make its deadline."""

    def __init__(self) -> None:
        self._late_since_s: float | None = None

    def judge(
        self, deadline: datetime | None, now: datetime, elapsed_s: float, eta_s: float | None
    ) -> DeadlineStatus | None:
        """Return how a run stands to its deadline; None if it has none.

        ``elapsed_s`` is how long it has run, and ``eta_s`` how long it will still take, as far as
        that is known.
        """
        if deadline is None:
            self._late_since_s = None
            return None
        left_s = (deadline - now).total_seconds()
        if eta_s is None and left_s <= 0:
            eta_s = 0.0
        found = DeadlineStatus(deadline, left_s, None if eta_s is None else left_s - eta_s)
        if not found.late:
            self._late_since_s = None
            return found
        if self._late_since_s is None:
            self._late_since_s = elapsed_s
        sure = elapsed_s >= SURE_AFTER_S and elapsed_s - self._late_since_s >= SURE_FOR_S
        return replace(found, missed=sure or left_s <= 0)


def parse_deadline(text: str, now: datetime | None = None) -> datetime:
    """``08:00`` (the next one, local time), ``6h`` from now, or an ISO 8601 date and time.

    ``now`` has a time zone, and so has the result. Raises UsageError.
    """
    now, word = now or datetime.now(UTC), text.strip()
    if clock := _CLOCK.match(word):
        # Without a zone first: where the clocks change tonight, 08:00 is the new 08:00.
        today = now.astimezone().replace(tzinfo=None, second=0, microsecond=0)
        at = today.replace(hour=int(clock[1]), minute=int(clock[2]))
        return next(
            moment
            for days in range(3)
            if (moment := (at + timedelta(days=days)).astimezone()) > now
        )
    if "T" in word:  # as a command to resume has it
        with suppress(ValueError):
            return datetime.fromisoformat(word).astimezone()
    hint = "Give a time of 24 hours such as 08:00, or a duration such as 6h."
    wrong = UsageError(f"{text!r} is not a time or a duration", hint=hint)
    if not word[-1:].isalpha():  # a number alone could be either
        raise wrong
    try:
        return now.astimezone() + timedelta(seconds=parse_duration(word))
    except UsageError:
        raise wrong from None
    except OverflowError:
        raise UsageError(f"{text!r} is too far away", hint=hint) from None


def _parse(text: str) -> datetime | None:
    # ``drainer set`` drops the deadline of a running drain by ``none``.
    return None if text.strip().lower() == "none" else parse_deadline(text)


DEADLINE = ValueType("08:00|6h", _parse)
