"""How long the handler takes: measured on a sample of the attempts that return.

Each worker measures one, and passes over as many as ``note`` returns; that number is drawn, so that
no rhythm of the backlog decides which are seen. While there are few, each one is measured.

What is measured is what a worker is busy for: from the call of ``handle`` until the worker has its
result. An attempt that fails, or is cancelled for taking too long, has no latency.

Latencies are counted in buckets whose bounds grow by 1%: all that is reported is right within 0.5%.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from itertools import accumulate, cycle
from math import exp, log
from random import Random
from time import monotonic

from drainer.core.latency import PERCENTILES, Latency

SPARSE = 32  # of so many one is measured, on average, while there are many
SPARSE_ABOVE = 5_000.0  # attempts per second
RECENT_S = 10.0
GAPS = 10_007  # before they come again
AT_ONCE_MOST = 4_096  # measured between two looks, before sparseness sets in by itself
JUDGE_S = 0.25  # of work that shows whether there are many
LEAST_S = 1e-6
BUCKET = log(1.01)  # from one to the next

Buckets = Counter[int]  # attempts that took about exp(BUCKET * number) seconds, by number


@cache
def _gaps() -> tuple[int, ...]:
    # Drawn once, for drawing is slow, and from a seed, so that a run can be repeated.
    random = Random(SPARSE)
    return tuple(random.randrange(1, 2 * SPARSE) for _ in range(GAPS))


class Latencies:
    """The latencies of one run, of workers of any kind.

    ``note`` may be called from any thread, all else from one.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._each: list[float] = []  # since the last look
        self._some: list[float] = []  # the same, of one in ``SPARSE``
        self._gaps = cycle(_gaps()).__next__
        self._gap: Callable[[], int] = self._no_gap
        self._looked_s, self._pending = clock(), 0
        self._all = Buckets()
        self._recent: deque[tuple[float, Buckets]] = deque()
        self._in_recent = Buckets()  # the sum of these

    def note(self, took_s: float, gap: int) -> int:
        """Takes what a worker has measured, ``gap`` attempts after the one that it measured before.

        Returns the gap to the one that it measures next; 0 is the very next too, and a worker's
        first.
        """
        (self._some if gap else self._each).append(took_s)
        return self._gap()

    def overall(self) -> Latency | None:
        """Of the whole run up to now; None until an attempt returned."""
        self._look()
        return _latency(self._all)

    def recent(self) -> Latency | None:
        """Of the last ten seconds or so; None when no attempt returned in them."""
        self._look()
        return _latency(+self._in_recent)

    def _look(self) -> None:
        now_s, new = self._clock(), Buckets()
        for measured_s, weight in ((self._each, 1), (self._some, SPARSE)):
            found_s = measured_s[: len(measured_s)]  # threads go on appending
            del measured_s[: len(found_s)]
            for bucket, count in Counter(map(_bucket, found_s)).items():
                new[bucket] += count * weight
        if new:
            self._all.update(new)
            self._recent.append((now_s, new))
            self._in_recent.update(new)
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._in_recent.subtract(self._recent.popleft()[1])
        self._pending += new.total()
        if now_s - self._looked_s >= JUDGE_S:
            many = self._pending > SPARSE_ABOVE * (now_s - self._looked_s)
            self._gap = self._gaps if many else self._no_gap
            self._looked_s, self._pending = now_s, 0

    def _no_gap(self) -> int:
        if len(self._each) > AT_ONCE_MOST:
            self._gap = self._gaps
        return 0


def _bucket(took_s: float) -> int:
    return round(log(max(LEAST_S, took_s)) / BUCKET)


def _latency(buckets: Buckets) -> Latency | None:
    if not buckets:
        return None
    numbers, count = sorted(buckets), buckets.total()
    reached = list(accumulate(buckets[number] for number in numbers))
    values_s = [exp(BUCKET * number) for number in numbers]
    mean_s = sum(exp(BUCKET * number) * buckets[number] for number in numbers) / count
    ranks = (bisect_left(reached, n * count / (PERCENTILES - 1)) for n in range(PERCENTILES))
    return Latency.of(count, mean_s, [values_s[rank] for rank in ranks])
