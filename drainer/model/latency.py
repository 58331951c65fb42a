"""The latencies of a handler: the record that the plan keeps, and how several are merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from drainer.model.codec import JsonRecord

PERCENTILES = 101  # They are p0, p1, … p100.
DIGITS = 6  # Seconds are rounded to microseconds.


@dataclass(frozen=True, slots=True)
class Latency(JsonRecord):
    """The latencies of attempts that returned: their number, their mean, and p0, p1, … p100.

    If there were many attempts, only a part of them was measured, but ``count`` is the number of
    all. ``processor_s`` is the mean processor time of an attempt in the handler's thread.
    """

    count: int
    mean_s: float
    percentiles_s: tuple[float, ...]
    processor_s: float | None = None

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

    @classmethod
    def of(cls, count: int, mean_s: float, percentiles_s: Sequence[float]) -> Latency:
        """Make a record with rounded values. The mean remains within the percentiles."""
        rounded = tuple(round(each, DIGITS) for each in percentiles_s)
        return cls(count, min(max(round(mean_s, DIGITS), rounded[0]), rounded[-1]), rounded)


def merge_latencies(records: Iterable[Latency | None]) -> Latency | None:
    """Merge several records, each with the weight of its count. Returns None if there are none.

    Count, mean, p0 and p100 of the result are exact. Each other percentile is one of the known
    ones.
    """
    known = [record for record in records if record is not None]
    if len(known) < 2:
        return known[0] if known else None
    count = sum(each.count for each in known)
    mean_s = sum(each.mean_s * each.count for each in known) / count
    # Each percentile stands for the latencies on both sides of it. The first and the last have
    # latencies on one side only, so they have half the weight.
    points = sorted(
        (value, each.count * (1 if n in (0, PERCENTILES - 1) else 2))
        for each in known
        for n, value in enumerate(each.percentiles_s)
    )
    found: list[float] = []
    reached = 0
    for value, weight in points:
        reached += weight
        while len(found) < PERCENTILES and reached >= 2 * count * len(found):
            found.append(value)
    spent = [(each.processor_s, each.count) for each in known if each.processor_s is not None]
    merged = Latency.of(count, mean_s, found)
    if not spent:
        return merged
    spent_s = sum(spent_s * calls for spent_s, calls in spent)
    return replace(merged, processor_s=spent_s / sum(calls for _, calls in spent))
