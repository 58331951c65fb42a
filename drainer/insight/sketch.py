"""Counts within bounds of memory: the most frequent, how many differ, how large they are.

The sketches are those of Apache DataSketches. What is counted comes in clusters, the windows of a
sample: messages that lie together resemble each other, so how far a share may be off is judged by
how the clusters differ, and not as if messages were drawn one by one (W. G. Cochran, Sampling
Techniques, chapter 9: ratio estimates of clusters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import sqrt
from typing import Any

from drainer.escape import encodable

TALLIED = 50_000  # different things between two visits to the sketches
CAPACITY_LOG2 = 15  # of the frequent items: it is off by 0.01% of the total at most
REMEMBERED = 200  # of each cluster, to compare clusters by
DISTINCT_LOG2 = 14  # of HyperLogLog: 0.8% standard error
DISTINCT_EXACT = 1_000  # different things; so few it keeps one by one, and counts right
DIGITS = 2  # that count of a number: it is off by 5% at most, and 90 stand for a tenfold
LEAST_CLUSTERS, STUDENT_T = 10, 2.262  # 97.5% of Student's t for so many: of more it is less


@dataclass(frozen=True, slots=True)
class ItemShare:
    """One of many things, and its share of the whole.

    Attributes:
        count: how often it came in what was read.
        share: its part of the whole, 0 to 1.
        low, high: the 95% interval of that; both equal when everything was read and counted.
    """

    name: str
    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Sizes of numbers: their mean, the middle one, one in a hundred, the largest.

    The middle one and one in a hundred are rounded to two digits.
    """

    mean: float
    p50: int
    p99: int
    max: int


def ratio(
    parts: Sequence[float], wholes: Sequence[float], fraction: float
) -> tuple[float, float | None]:
    """The ratio of two sums over clusters, and how far it may be off (95%).

    ``fraction`` is how much of the population the clusters are: nothing is off when it is 1. The
    error is None for fewer than ``LEAST_CLUSTERS``, which show little of how they differ.
    """
    whole = sum(wholes)
    if not whole:
        return 0.0, 0.0 if fraction >= 1 else None
    found = sum(parts) / whole
    if fraction >= 1:
        return found, 0.0
    count = sum(1 for w in wholes if w)
    if count < LEAST_CLUSTERS:
        return found, None
    spread = sum((p - found * w) ** 2 for p, w in zip(parts, wholes, strict=True))
    variance = (1 - fraction) * count / (count - 1) * spread / whole**2
    return found, STUDENT_T * sqrt(variance)


class Heavy:
    """Counts things by their ``text``; has the most frequent ones, and how many differ.

    Things differ by their text; those that are equal count as one, as lanes have it, until
    they go to the sketches. Memory is bounded. It can be pickled.
    """

    def __init__(self, text: Callable[[Any], str]) -> None:
        import datasketches  # noqa: PLC0415 - it brings numpy, which takes its time

        self._text = text
        self._items = datasketches.frequent_strings_sketch(CAPACITY_LOG2)
        self._distinct = datasketches.hll_sketch(DISTINCT_LOG2, datasketches.HLL_8)
        self._tally: Counter[Hashable] = Counter()
        self._cluster: Counter[str] = Counter()
        self._clusters: list[dict[str, int]] = []

    def add(self, things: Iterable[Hashable]) -> None:
        """Raises TypeError when one of them is not hashable; some are counted then."""
        self._tally.update(things)
        if len(self._tally) > TALLIED:
            self._flush()

    def end_cluster(self) -> None:
        """Ends the cluster; another one begins."""
        self._flush()
        self._clusters.append(dict(self._cluster.most_common(REMEMBERED)))
        self._cluster.clear()

    def merge(self, other: Heavy) -> None:
        """Adds the counts of the other; both have ended their clusters."""
        import datasketches  # noqa: PLC0415

        self._items.merge(other._items)
        union = datasketches.hll_union(DISTINCT_LOG2)
        union.update(self._distinct)
        union.update(other._distinct)
        self._distinct = union.get_result(datasketches.HLL_8)
        self._clusters += other._clusters

    def __getstate__(self) -> dict[str, Any]:
        self._flush()
        sketches = bytes(self._items.serialize()), bytes(self._distinct.serialize_compact())
        return {**self.__dict__, "_items": sketches[0], "_distinct": sketches[1]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import datasketches  # noqa: PLC0415

        self.__dict__.update(state)
        self._items = datasketches.frequent_strings_sketch.deserialize(state["_items"])
        self._distinct = datasketches.hll_sketch.deserialize(state["_distinct"])

    @property
    def distinct(self) -> int:
        """Number of different things, to 1.6% (95%)."""
        self._flush()
        estimate: float = self._distinct.get_estimate()
        return round(estimate)

    def most(self, count: int, wholes: Sequence[int], fraction: float) -> tuple[ItemShare, ...]:
        """The most frequent things, of clusters with so many in all.

        The last cluster has ended. ``fraction`` is how much was read.
        """
        whole = sum(wholes)
        if not whole:
            return ()
        import datasketches  # noqa: PLC0415

        no_false = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
        found = self._items.get_frequent_items(no_false)
        shares = []
        ranked = nsmallest(count, found, key=lambda item: (-item[2], item[0]))
        for name, _, low, high in ranked:
            parts = [counts.get(name, 0) for counts in self._clusters]
            _, error = ratio(parts, wholes, fraction)
            error = 1.0 if error is None else error
            shares.append(
                ItemShare(
                    name,
                    low,
                    low / whole,
                    max(0.0, low / whole - error),
                    min(1.0, high / whole + error),
                )
            )
        return tuple(shares)

    def _flush(self) -> None:
        text, add, see = self._text, self._items.update, self._distinct.update
        cluster = self._cluster
        for thing, count in self._tally.items():
            name = encodable(text(thing))  # the sketches reject half surrogate pairs
            add(name, count)
            see(name or "\0")  # the sketch passes over an empty text
            cluster[name] += count
        self._tally.clear()
        if len(cluster) > TALLIED:
            self._cluster = Counter(dict(cluster.most_common(REMEMBERED)))


class Amounts:
    """Numbers that come in clusters: how they are spread.

    ``counts`` and ``sums`` are by cluster, once it has ended.
    """

    def __init__(self) -> None:
        self._rounded = Counter[int]()
        self._max = 0
        self.count = self.total = 0
        self.counts: list[int] = []
        self.sums: list[int] = []

    def add(self, numbers: Sequence[int]) -> None:
        """Numbers of no less than 0."""
        self.count += len(numbers)
        self.total += sum(numbers)
        self._max = max(self._max, max(numbers, default=0))
        self._rounded.update(round(number, DIGITS - len(str(number))) for number in numbers)

    def end_cluster(self) -> None:
        """Ends the cluster; another one begins."""
        self.counts.append(self.count - sum(self.counts))
        self.sums.append(self.total - sum(self.sums))

    def merge(self, other: Amounts) -> None:
        """Adds the numbers of the other; both have ended their clusters."""
        self._rounded += other._rounded
        self._max = max(self._max, other._max)
        self.count += other.count
        self.total += other.total
        self.counts += other.counts
        self.sums += other.sums

    @property
    def spread(self) -> Spread:
        """All zeros without a number."""
        mean = self.total / max(1, self.count)
        return Spread(mean, self._quantile(0.5), self._quantile(0.99), self._max)

    def _quantile(self, rank: float) -> int:
        behind = 0
        for number in sorted(self._rounded):
            behind += self._rounded[number]
            if behind >= rank * self.count:
                return min(number, self._max)
        return 0
