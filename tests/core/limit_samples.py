"""Limits as a measurement of a cluster would give them, and the curve that follows."""

from __future__ import annotations

from collections.abc import Mapping

from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.point import End, Point
from drainer.limits.search.settings import Axis, LimitSettings
from drainer.policy.rate_cap import CapCurve, CapPoint

RATES = {100: 5_000.0, 1_000: 2_500.0, 10_000: 400.0}


def limits(rates: Mapping[int, float] = RATES) -> CapCurve:
    """What caps a drain, by boundaries in messages/s by message size."""
    points = tuple(CapPoint(size, rate) for size, rate in sorted(rates.items()))
    return CapCurve("c", 1_795_000_000.0, 0.8, points)


def measured(rates: Mapping[int, float] = RATES, *, cluster_id: str = "c") -> Limits:
    """What such a curve is made from."""
    settings = LimitSettings(
        axis=Axis.MESSAGE_BYTES,
        values=tuple(rates),
        pace_bytes_per_s=1_000_000.0,
        producers_most=100,
    )
    found = tuple(
        Boundary(
            size,
            Point(size, 10 if rate else 0, rate / 10 or 1.0, 5, 10),
            11,
            rate,
            rate,
            rate,
            9,
            End.NARROW,
        )
        for size, rate in rates.items()
    )
    return Limits(cluster_id, 1, 1_795_000_000.0, settings, {}, (), found)
