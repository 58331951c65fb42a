"""Latencies of the handler, measured on a sample of the attempts that return.

Each worker measures an attempt, and then passes over as many as ``record`` returns. While there are
few attempts, each is measured. If there are many, the number to pass over is drawn by chance, so
that no rhythm of the backlog decides which attempts are seen. An attempt that is measured stands
for those that were passed over.

A latency is the time for which a worker is busy: from the call of ``handle`` until the worker has
its result. An attempt that fails, or is cancelled because it takes too long, has no latency.

Latencies are counted in buckets whose bounds grow by 1%, so what is reported is right within 0.5%.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import exp, log
from random import Random
from time import monotonic

from drainer.model.latency import PERCENTILES, Latency

SPARSE = 32  # While there are many attempts, one of so many is measured, on average.
EACH_MOST = 500  # More than so many that are measured between two calls of `look` are many.
RECENT_S = 10.0
LEAST_S = 1e-6
BUCKET = log(1.01)  # The step from one bucket to the next.

Buckets = Counter[int]  # By number, attempts that took about exp(BUCKET * number) seconds.


class Latencies:
    """The latencies of one run, of workers of any kind.

    ``record`` may be called from any thread, all else from one. What was recorded counts from the
    next ``look`` on, which is called about twice a second.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._draw = Random(SPARSE).random  # With a seed, so that a run can be repeated.
        self._new: list[tuple[float, float, int]] = []  # What was recorded since the last look.
        self._spent_s = 0.0  # Processor seconds of all attempts that ``_all`` stands for.
        self._all = Buckets()
        self._recent: deque[tuple[float, Buckets]] = deque()
        self._in_recent = Buckets()  # The sum of ``_recent``.

    def record(self, took_s: float, gap: int, spent_s: float = 0.0) -> int:
        """Count what a worker has measured, ``gap`` attempts after the one that it measured before.

        Return the gap to the attempt that it measures next. 0 stands for the very next one, too,
        and for a worker's first.
        """
        self._new.append((took_s, spent_s, gap or 1))
        return 0 if len(self._new) < EACH_MOST else 1 + int(self._draw() * (2 * SPARSE - 1))

    def overall(self) -> Latency | None:
        """Return the latency of the whole run up to now; None until an attempt returned."""
        found, count = _latency(self._all), max(1, self._all.total())
        return None if found is None else replace(found, processor_s=self._spent_s / count)

    def recent(self) -> Latency | None:
        """Return the latency of the last ten seconds or so; None if no attempt returned in them."""
        return _latency(+self._in_recent)

    def look(self) -> None:
        """Count what was recorded since the last look."""
        now_s, found = self._clock(), Buckets()
        measured = self._new[: len(self._new)]  # Threads append to it meanwhile.
        del self._new[: len(measured)]
        for took_s, spent_s, weight in measured:
            self._spent_s += weight * spent_s
            found[round(log(max(LEAST_S, took_s)) / BUCKET)] += weight
        if found:
            self._all.update(found)
            self._recent.append((now_s, found))
            self._in_recent.update(found)
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._in_recent.subtract(self._recent.popleft()[1])


def _latency(buckets: Buckets) -> Latency | None:
    if not buckets:
        return None
    numbers, count = sorted(buckets), buckets.total()
    reached = list(accumulate(buckets[number] for number in numbers))
    values_s = [exp(BUCKET * number) for number in numbers]
    mean_s = sum(exp(BUCKET * number) * buckets[number] for number in numbers) / count
    ranks = (bisect_left(reached, n * count / (PERCENTILES - 1)) for n in range(PERCENTILES))
    return Latency.of(count, mean_s, [values_s[rank] for rank in ranks])
