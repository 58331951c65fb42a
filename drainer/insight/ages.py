"""How old the messages of a backlog are: asked of the index by time, so nothing has to be read."""

from __future__ import annotations

from math import ceil

from drainer.insight.statistics.contents import Bin
from drainer.kafka.backlog import Backlog
from drainer.kafka.cluster import Cluster

BINS = 12  # at most
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 30)),
)


def age_bins(cluster: Cluster, backlog: Backlog, oldest_ms: int, now_ms: int) -> tuple[Bin, ...]:
    """The share of the backlog's offsets by age in seconds, the youngest first.

    Kafka tells the first offset that is no older than a time. It is exact where timestamps rise
    with the offsets; where they don't, an offset counts as old as what stands before it.
    """
    if not backlog.offsets:
        return ()
    span_s = max(0, now_ms - oldest_ms) / 1000
    step_s = step_for(span_s)
    count = max(1, ceil(span_s / step_s))
    shares = [0.0]
    for part in range(1, count):
        at_ms = now_ms - part * step_s * 1000
        found = cluster.offset_at(backlog.topic, dict.fromkeys(backlog.partitions, at_ms))
        younger = 0
        for number, bounds in backlog.partitions.items():
            first = found[number]
            younger += 0 if first is None else max(0, bounds.end - max(first, bounds.start))
        shares.append(max(shares[-1], younger / backlog.offsets))
    shares.append(1.0)
    return tuple(
        Bin(part * step_s, (part + 1) * step_s, shares[part + 1] - shares[part])
        for part in range(count)
    )


def step_for(span_s: float) -> int:
    """The width of bins that a person likes to read, so that no more than ``BINS`` hold it."""
    for step in STEPS_S:
        if step * BINS >= span_s:
            return step
    return ceil(span_s / BINS / STEPS_S[-1]) * STEPS_S[-1]
