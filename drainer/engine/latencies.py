"""How long the handler takes: measured on a sample of the attempts that return.

Each worker measures one, and passes over as many as ``note`` returns; that number is drawn, so that
no rhythm of the backlog decides which are seen. While there are few, each one is measured.

What is measured is what a worker is busy for: from the call of ``handle`` until the worker has its
result. An attempt that fails, or is cancelled for taking too long, has no latency.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, cycle
from random import Random
from time import monotonic
from typing import TYPE_CHECKING

from drainer.core.latency import PERCENTILES, Latency, merge_latencies

if TYPE_CHECKING:
    from datasketches import kll_doubles_sketch

SPARSE = 32  # of so many one is measured, on average, while there are many
SPARSE_ABOVE = 5_000.0  # attempts per second
RECENT_S = 10.0
RECENT_MOST = 150  # of each look, so that the recent ones are quick to sort
GAPS = 10_007  # before they come again
AT_ONCE_MOST = 4_096  # measured between two looks, before sparseness sets in by itself
SKETCH_K = 1_000  # a rank is right within 0.3%, in 24 kB
JUDGE_S = 0.25  # of work that shows whether there are many
_SHARES = [n / (PERCENTILES - 1) for n in range(PERCENTILES)]


@dataclass(frozen=True, slots=True)
class _Look:
    """Some of what was measured between two looks; each value stands for ``weight`` attempts."""

    at_s: float
    weight: float
    values_s: Sequence[float]


class _Measured:
    """All that was measured at one sparseness."""

    def __init__(self, weight: int) -> None:
        # Loading them takes longer than most commands do.
        from datasketches import kll_doubles_sketch  # noqa: PLC0415
        from numpy import asarray  # noqa: PLC0415

        self.weight = weight
        self.new: list[float] = []  # since the last look
        self._asarray = asarray
        self._sketch: kll_doubles_sketch = kll_doubles_sketch(SKETCH_K)
        self._total_s = 0.0

    def take(self) -> list[float]:
        """What is new, and known from now on."""
        # Threads go on appending: what is taken is what was there.
        found = self.new[: len(self.new)]
        if found:
            del self.new[: len(found)]
            self._sketch.update(self._asarray(found))
            self._total_s += sum(found)
        return found

    def record(self) -> Latency | None:
        count = self._sketch.n
        if not count:
            return None
        quantiles = self._sketch.get_quantiles(_SHARES)
        return Latency.of(count * self.weight, self._total_s / count, quantiles)


@cache
def _gaps() -> tuple[int, ...]:
    # Drawn once, for drawing is slow, and from a seed, so that a run can be repeated.
    random = Random(SPARSE)
    return tuple(random.randrange(1, 2 * SPARSE) for _ in range(GAPS))


class Latencies:
    """The latencies of one run, of workers of any kind; sketched with KLL (datasketches).

    ``note`` may be called from any thread, all else from one.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or monotonic
        self._each, self._some = _Measured(1), _Measured(SPARSE)
        self._gaps = cycle(_gaps()).__next__
        self._gap: Callable[[], int] = self._no_gap
        self._looked_s, self._pending = self._clock(), 0
        self._recent: deque[_Look] = deque()
        self._overall: Latency | None = None  # unless something came since it was merged

    def note(self, took_s: float, gap: int) -> int:
        """Takes what a worker has measured, ``gap`` attempts after the one that it measured before.

        Gives the gap to the one that it measures next; 0 is the very next too, and a worker's
        first.
        """
        (self._some if gap else self._each).new.append(took_s)
        return self._gap()

    def overall(self) -> Latency | None:
        """Of the whole run up to now; None until an attempt returned."""
        self._look()
        if self._overall is None:
            self._overall = merge_latencies((self._each.record(), self._some.record()))
        return self._overall

    def recent(self) -> Latency | None:
        """Of the last ten seconds or so; None when no attempt returned in them."""
        self._look()
        values = [value for look in self._recent for value in look.values_s]
        if not values:
            return None
        weights = [look.weight for look in self._recent for _ in look.values_s]
        ranked = sorted(zip(values, weights, strict=True))
        reached = list(accumulate(weight for _, weight in ranked))
        total = reached[-1]
        at = (min(bisect_left(reached, share * total), len(ranked) - 1) for share in _SHARES)
        mean_s = sum(value * weight for value, weight in ranked) / total
        return Latency.of(round(total), mean_s, [ranked[n][0] for n in at])

    def _look(self) -> None:
        now_s = self._clock()
        attempts = 0
        for measured in (self._each, self._some):
            found = measured.take()
            if found:
                self._overall = None
                attempts += len(found) * measured.weight
                kept = found[:: -(-len(found) // RECENT_MOST)]
                weight = len(found) * measured.weight / len(kept)
                self._recent.append(_Look(now_s, weight, kept))
        while self._recent and self._recent[0].at_s < now_s - RECENT_S:
            self._recent.popleft()
        self._pending += attempts
        if now_s - self._looked_s >= JUDGE_S:
            many = self._pending > SPARSE_ABOVE * (now_s - self._looked_s)
            self._gap = self._gaps if many else self._no_gap
            self._looked_s, self._pending = now_s, 0

    def _no_gap(self) -> int:
        if len(self._each.new) > AT_ONCE_MOST:
            self._gap = self._gaps
        return 0
