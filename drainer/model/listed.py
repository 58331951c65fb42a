"""Words for lists, counts, sizes, durations and moments in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from drainer.model.progress import Counts
from drainer.model.ranges import Range, count_offsets, encode_ranges

NAMED = 5
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_WEEK_DAYS = 7
_SIZES = ("KiB", "MiB", "GiB", "TiB", "PiB")


def counted(number: int, noun: str) -> str:
    """Return ``1 message`` or ``2 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def given_up_words(subs: Counts) -> str:
    """Return ``with 3 dead letters and 1 failed sub-message``; empty if none was given up."""
    given_up = ((subs.dead, "dead letter"), (subs.failed, "failed sub-message"))
    words = " and ".join(counted(number, what) for number, what in given_up if number)
    return f"with {words}" if words else ""


def size(number: int) -> str:
    """Return bytes in binary units: ``512 B``, ``1.5 KiB``, ``256 MiB``."""
    if number < 1024:
        return f"{number} B"
    value = float(number)
    for unit in _SIZES:
        value /= 1024
        if value < 999.5 or unit == _SIZES[-1]:
            break
    text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
    return f"{text} {unit}"


def round_duration(seconds: float) -> str:
    """Return a round duration in few characters: ``0``, ``20ms``, ``1.5s``, ``1m 30s``, ``2h``."""
    if seconds < _MINUTE:
        if seconds <= 0:
            return "0"
        return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"
    whole = round(seconds)
    parts = (
        (whole // _DAY, "d"),
        (whole % _DAY // _HOUR, "h"),
        (whole % _HOUR // _MINUTE, "m"),
        (whole % _MINUTE, "s"),
    )
    return " ".join(f"{number}{unit}" for number, unit in parts if number)


def clock_time(at: datetime, now: datetime, form: str = "%H:%M") -> str:
    """Return a moment in local time, such as ``08:00``. Its day is named if that is not today.

    Seconds are left out as on a clock, never rounded, so one moment is the same on every page.
    """
    at, now = at.astimezone(), now.astimezone()
    days = (at.date() - now.date()).days
    if not days:
        return at.strftime(form)
    if 0 < days < _WEEK_DAYS:
        return at.strftime(f"%a {form}")
    return at.strftime(f"%d %b {form}" if at.year == now.year else f"%d %b %Y {form}")


def listed(names: Sequence[object], most: int = NAMED) -> str:
    """Return ``0, 1, 2, 3, 4 and 95 more``. If only one more is left, it is named, too."""
    if len(names) <= most + 1:
        return ", ".join(map(str, names))
    return f"{', '.join(map(str, names[:most]))} and {len(names) - most:,} more"


def name_lost(lost: Mapping[int, Sequence[Range]]) -> str:
    """Return ``offsets 100-199 of partition 0, at most 100 records``."""
    places = listed([f"{encode_ranges(lost[n])} of partition {n}" for n in sorted(lost)])
    records = sum(map(count_offsets, lost.values()))
    return f"offsets {places}, at most {counted(records, 'record')}"
