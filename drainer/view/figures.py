"""Figures as a person reads them: counts, sizes, durations, rates, sub-keys.

Counts have thousands separators. Offsets have none, because people copy them into other tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from drainer.model import listed
from drainer.model.latency import Latency

UNKNOWN = "unknown"

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


counted, round_duration, size = listed.counted, listed.round_duration, listed.size


def count(number: int) -> str:
    """Return ``1,234,567``."""
    return f"{number:,}"


def offset(found: int | None) -> str:
    """Return an offset, or ``none``."""
    return "none" if found is None else str(found)


def about(number: float) -> str:
    """Return a number to two or three figures: ``4.8M``, ``12.6M``, ``130k``, ``950``."""
    value, unit = float(number), ""
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1000
    if not unit:
        return f"{value:.0f}"
    return (f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")) + unit


def tally(*counts: tuple[int, str]) -> str:
    """Return ``30 retried, 4 timed out``, without the counts that are 0."""
    return ", ".join(f"{number:,} {what}" for number, what in counts if number)


def duration(seconds: float | None) -> str:
    """Return ``10ms``, ``4.2s``, ``3m 20s``, ``1h 02m`` or ``14 days``.

    None and infinity are ``unknown``.
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return _moment(seconds)
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    minutes = round(seconds / _MINUTE)
    if minutes < 48 * 60:
        return f"{minutes // 60}h {minutes % 60:02}m"
    return f"{round(seconds / _DAY):,} days"


def latency(found: Latency) -> str:
    """Return ``p50 10ms, p95 14ms, p99 300ms``."""
    at = (("p50", found.p50_s), ("p95", found.p95_s), ("p99", found.p99_s))
    return ", ".join(f"{name} {duration(value)}" for name, value in at)


def _moment(seconds: float) -> str:
    if seconds <= 0:
        return "0s"
    if seconds < 0.0005:
        return "<1ms"
    return f"{seconds * 1000:.0f}ms" if seconds < 0.9995 else f"{seconds:.1f}s"


def rate(per_s: float) -> str:
    """Return a rate without its unit: ``89,123``.

    Below ten it has one decimal unless it is whole, so that a slow rate is not shown as 0.
    """
    if not math.isfinite(per_s):
        return UNKNOWN
    if 0 < per_s < 0.05:
        return "<0.1"
    return f"{per_s:.1f}".removesuffix(".0") if 0 < per_s < 9.95 else f"{per_s:,.0f}"


def percent(fraction: float) -> str:
    """Return ``41.2%``, rounded down: it is 100% only when nothing is left."""
    if fraction >= 1:
        return "100%"
    return f"{math.floor(max(0.0, fraction) * 1000) / 10:.1f}%"


def share(fraction: float) -> str:
    """Return a part of a whole, rounded: ``38%``, ``5.2%``, ``<0.1%``; ``100%`` only for all."""
    if 0 < fraction < 0.001:
        return "<0.1%"
    if 0.995 <= fraction < 1:
        return ">99.9%" if fraction > 0.999 else percent(fraction)
    return f"{fraction * 100:.0f}%" if fraction >= 0.1 else f"{fraction * 100:.1f}%"


def aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Make all cells of a column equally wide, and align them right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.rjust(n) for cell, n in zip(row, widths, strict=True)] for row in rows]
