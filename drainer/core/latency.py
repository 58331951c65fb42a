"""How long the handler takes: what is told of its latencies, kept in the plan, and merged."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drainer.core.codec import JsonRecord

PERCENTILES = 101  # p0, p1, … p100
DIGITS = 6  # microseconds


@dataclass(frozen=True, slots=True)
class Latency(JsonRecord):
    """Latencies of attempts that returned: how many there were, their mean, and p0, p1, … p100.

    ``count`` is how many it stands for; when there are many, a part of them was measured.
    """

    count: int
    mean_s: float
    percentiles_s: tuple[float, ...]

    def __post_init__(self) -> None:
        percentiles = self.percentiles_s
        if len(percentiles) != PERCENTILES:
            raise ValueError(f"{len(percentiles)} percentiles are not {PERCENTILES}")
        if self.count < 1 or percentiles[0] < 0 or list(percentiles) != sorted(percentiles):
            raise ValueError("latencies are none, below zero, or do not rise")
        if not percentiles[0] <= self.mean_s <= percentiles[-1]:
            raise ValueError(f"the mean {self.mean_s} is outside its latencies")

    @property
    def p50_s(self) -> float:
        return self.percentiles_s[50]

    @property
    def p95_s(self) -> float:
        return self.percentiles_s[95]

    @property
    def p99_s(self) -> float:
        return self.percentiles_s[99]

    @property
    def longest_s(self) -> float:
        return self.percentiles_s[100]

    @classmethod
    def of(cls, count: int, mean_s: float, percentiles_s: Sequence[float]) -> Latency:
        """Rounded to what is worth telling, and so that it is sound after that."""
        told = tuple(round(each, DIGITS) for each in percentiles_s)
        return cls(count, min(max(round(mean_s, DIGITS), told[0]), told[-1]), told)


def merge_latencies(records: Iterable[Latency | None]) -> Latency | None:
    """Several records as one, each with the weight of its count; None when there are none.

    Exact in count, mean, least and longest; a percentile between is as good as its neighbours are
    close, for of each record no more is known.
    """
    known = [record for record in records if record is not None]
    if len(known) < 2:
        return known[0] if known else None
    count = sum(each.count for each in known)
    mean_s = sum(each.mean_s * each.count for each in known) / count
    # The curve of the share that took no longer: a jump where a record has a value many times.
    curve: list[tuple[float, float]] = []
    for value in sorted({value for each in known for value in each.percentiles_s}):
        for side in (_share_below, _share_up_to):
            curve.append((sum(side(each, value) * each.count for each in known) / count, value))
    return Latency.of(count, mean_s, [_value_at(curve, n / 100) for n in range(PERCENTILES)])


def _share_below(record: Latency, value: float) -> float:
    return _share(record.percentiles_s, value, bisect_left(record.percentiles_s, value))


def _share_up_to(record: Latency, value: float) -> float:
    values = record.percentiles_s
    after = bisect_right(values, value)
    if after and values[after - 1] == value:
        return (after - 1) / 100
    return _share(values, value, after)


def _share(values: Sequence[float], value: float, at: int) -> float:
    # `at` is the first that is not below: the value lies between it and the one before.
    if at == 0:
        return 0.0
    if at == len(values):
        return 1.0
    before, after = values[at - 1], values[at]
    return (at - 1 + (value - before) / (after - before)) / 100


def _value_at(curve: Sequence[tuple[float, float]], share: float) -> float:
    at = bisect_left(curve, (share, -1.0))
    if at == len(curve):
        return curve[-1][1]
    reached, value = curve[at]
    if at == 0 or reached == share:
        return value
    before, earlier = curve[at - 1]
    return earlier + (value - earlier) * (share - before) / (reached - before)
