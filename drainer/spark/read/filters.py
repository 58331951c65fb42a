"""Filters of a query, as far as they show which offsets need not be read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from drainer.kafka.backlog import may_misplace_times
from drainer.kafka.cluster import Cluster
from drainer.message import Origin
from drainer.spark.read.options import OffsetRange

_PASSES: Mapping[type, Callable[[Any, Any], bool]] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    In: lambda value, some: value in some,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
}
EPOCH = datetime.fromtimestamp(0, UTC)


def narrowed(
    cluster: Cluster, ranges: Sequence[OffsetRange], filters: Iterable[Any]
) -> list[OffsetRange]:
    """Return the ranges that may pass; what doesn't may be in them, too.

    A time bounds it from below only: records behind it may be older.
    """
    usable = [f for f in filters if type(f) in _PASSES and None not in _values(f)]
    numbers = [f for f in usable if f.attribute == ("partition",)]
    low, high = _bounds(f for f in usable if f.attribute == ("offset",))
    since, _ = _bounds(f for f in usable if f.attribute == ("timestamp",))
    ranges = [
        r for r in ranges if all(_PASSES[type(f)](r.origin.partition, f.value) for f in numbers)
    ]
    firsts = {} if since is None or since <= EPOCH else _firsts(cluster, ranges, since)
    return [
        OffsetRange(each.origin, start, end)
        for each in ranges
        for start in [max(each.start, low or 0, firsts.get(each.origin, 0))]
        for end in [each.end if high is None else min(each.end, high + 1)]
        if start < end
    ]


def _firsts(cluster: Cluster, ranges: Sequence[OffsetRange], since: datetime) -> dict[Origin, int]:
    """Below which offsets no record is of this time or later."""
    since_ms = (since - EPOCH) // timedelta(milliseconds=1)
    firsts = dict[Origin, int]()
    for topic in {each.origin.topic for each in ranges}:
        origins = {
            each.origin.partition: each.origin for each in ranges if each.origin.topic == topic
        }
        found = cluster.offset_at(topic, origins, since_ms)
        unsure = None in found.values() and may_misplace_times(cluster, topic)
        none = 0 if unsure else sys.maxsize
        firsts |= {origins[n]: none if at is None else at for n, at in found.items()}
    return firsts


def _values(filter_: Any) -> Sequence[Any]:
    return filter_.value if isinstance(filter_, In) else [filter_.value]


def _bounds(filters: Iterable[Any]) -> tuple[Any, Any]:
    """The least and the greatest value that may pass; None where there is none."""
    lows, highs = [], []
    for each in filters:
        if not isinstance(each, LessThan | LessThanOrEqual):
            lows.append(min(_values(each)))
        if not isinstance(each, GreaterThan | GreaterThanOrEqual):
            highs.append(max(_values(each)))
    return max(lows, default=None), min(highs, default=None)
