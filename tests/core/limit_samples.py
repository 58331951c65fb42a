"""Limits as a measurement of a cluster would give them, and the curve that follows."""

from __future__ import annotations

from collections.abc import Mapping

from drainer.limits.search.boundary import Boundary, MeasuredLimits
from drainer.limits.search.settings import LimitSettings
from drainer.limits.search.trial import End
from drainer.model.rate_cap import CapCurve, CapPoint

RATES = {100: 5_000.0, 1_000: 2_500.0, 10_000: 400.0}


def limits(rates: Mapping[int, float] = RATES) -> CapCurve:
    """The cap of a drain, by boundaries in messages/s by message size."""
    points = tuple(CapPoint(size, rate, rate) for size, rate in sorted(rates.items()))
    return CapCurve("c", 1_795_000_000.0, 0.8, points)


def measured(
    rates: Mapping[int, float] = RATES, *, cluster_id: str = "c", groups: int = 1
) -> MeasuredLimits:
    """The measurement of such a curve."""
    found = tuple(
        Boundary(
            message_bytes=size,
            messages_per_s=rate,
            read_per_s=groups * rate,
            low=rate,
            high=rate,
            trials=9,
            end=End.NARROW,
        )
        for size, rate in rates.items()
    )
    settings = LimitSettings(message_bytes=tuple(rates), max_mb_per_s=100.0, consumer_groups=groups)
    return MeasuredLimits(cluster_id, 1, 1_795_000_000.0, settings, boundaries=found)
