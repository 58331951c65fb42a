"""Downstreams that are modelled: what a drain would measure of them at a limit on concurrency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from math import exp, sqrt
from random import Random

from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.policy.concurrency_trial import Interval

LOOK_S = 0.1
PLENTY = 10**9  # lanes


class Flow:
    """Throughput that follows ``rate(in flight, seconds)``, a latency later, with noise.

    ``noise`` is of each look, ``drift`` comes and goes within some seconds; both are relative.
    """

    def __init__(
        self,
        rate: Callable[[int, float], float],
        seed: int,
        *,
        noise: float = 0.05,
        drift: float = 0.03,
        errors: Callable[[int, float], float] = lambda n, t: 0.0,
        lanes: Callable[[float], int] = lambda t: PLENTY,
        busy: Callable[[int], float] = lambda n: 0.2,
    ) -> None:
        self._rate, self._errors, self._lanes, self._busy = rate, errors, lanes, busy
        self._noise, self._drift = noise, drift
        self._random = Random(seed)
        self._now_s = self._flow = self._drifted = self._rest = 0.0

    def look(self, limit: int) -> Interval:
        chance = self._random.gauss
        self._now_s += LOOK_S
        running = min(limit, self._lanes(self._now_s))
        rate = self._rate(running, self._now_s)
        latency_s = running / rate if rate else LOOK_S
        self._flow += (rate - self._flow) * min(1.0, 1.5 * LOOK_S / latency_s)
        self._drifted = 0.97 * self._drifted + self._drift * sqrt(1 - 0.97**2) * chance(0, 1)
        mean = self._flow * LOOK_S * exp(self._drifted + self._noise * chance(0, 1))
        found = max(0.0, mean + chance(0, 1) * sqrt(0.3 * mean) + self._rest)
        ended = int(found)
        self._rest = found - ended
        share = self._errors(running, self._now_s)
        spread = sqrt(share * (1 - share) * ended) * chance(0, 1) if share else 0.0
        failed = max(0, min(ended, round(share * ended + spread)))
        return Interval(LOOK_S, ended - failed, failed, running, self._busy(running))


class Pool:
    """So many slots, and a queue before them: each sub-message is played through."""

    def __init__(self, slots: int, takes_s: Callable[[Random], float], seed: int) -> None:
        self._slots, self._takes_s = slots, takes_s
        self._random = Random(seed)
        self._now_s = 0.0
        self._ends_s: list[float] = []
        self._waiting = self._inside = 0

    def look(self, limit: int) -> Interval:
        end_s, done, area = self._now_s + LOOK_S, 0, 0.0
        self._fill(limit)
        while self._ends_s and self._ends_s[0] <= end_s:
            at_s = heappop(self._ends_s)
            area += self._inside * (at_s - self._now_s)
            self._now_s = at_s
            self._inside -= 1
            done += 1
            self._fill(limit)
        area += self._inside * (end_s - self._now_s)
        self._now_s = end_s
        return Interval(LOOK_S, done, 0, area / LOOK_S)

    def _fill(self, limit: int) -> None:
        come = max(0, limit - self._inside)
        self._inside += come
        self._waiting += come
        while self._waiting and len(self._ends_s) < self._slots:
            self._waiting -= 1
            heappush(self._ends_s, self._now_s + self._takes_s(self._random))


class Together:
    """A downstream of which each call does several."""

    def __init__(self, downstream: Flow | Pool, several: int) -> None:
        self._downstream, self._several = downstream, several

    def look(self, limit: int) -> Interval:
        seen = self._downstream.look(limit)
        return replace(seen, done=self._several * seen.done, calls=seen.done)


class Watched:
    """A search on a downstream: at each look the limit."""

    def __init__(
        self, downstream: Flow | Pool | Together, first: int = 20, most: int = 2_000
    ) -> None:
        self.downstream = downstream
        self.knee = ConcurrencyLimit(first, most)
        self.limits: list[int] = []

    def watch(self, seconds: float) -> Watched:
        for _ in range(round(seconds / LOOK_S)):
            self.knee.hear(self.downstream.look(self.knee.limit))
            self.limits.append(self.knee.limit)
        return self

    def near(self, best: int, within: float, since_s: float) -> float:
        """The share of the looks since then at which the limit was as near to ``best``."""
        looked = self.limits[round(since_s / LOOK_S) :]
        good = [n for n in looked if (1 - within) * best - 1 <= n <= (1 + within) * best + 1]
        return len(good) / len(looked)


def slots(number: int, latency_s: float) -> Callable[[int, float], float]:
    """The throughput of a pool of slots, all of which take as long."""
    return lambda running, now_s: min(running, number) / latency_s
