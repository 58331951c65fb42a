"""The limit: found on downstreams of many kinds, in noise, and found again when they change.

A downstream's best limit is known here: the least one that gives (nearly) all throughput there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, sqrt
from random import Random

import pytest
from hypothesis import settings

from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample

LOOK_S = 0.1
NOISE, DRIFT = 0.05, 0.03
PLENTY = 10**9  # lanes
Rate = Callable[[int, float], float]  # calls/s, of how many are in flight and the seconds


class Flow:
    """Throughput that follows ``rate(in flight, seconds)``, a latency later, with noise.

    ``NOISE`` is of each look, ``DRIFT`` comes and goes within some seconds; both are relative.
    """

    def __init__(
        self,
        rate: Rate,
        seed: int,
        *,
        errors: Callable[[int, float], float] = lambda n, t: 0.0,
        lanes: Callable[[float], int] = lambda t: PLENTY,
        busy: Callable[[int], float] = lambda n: 0.2,
    ) -> None:
        self._rate, self._errors, self._lanes, self._busy = rate, errors, lanes, busy
        self._random = Random(seed)
        self._now_s = self._flow = self._drifted = self._rest = 0.0

    def look(self, limit: int) -> LoadSample:
        chance = self._random.gauss
        self._now_s += LOOK_S
        running = min(limit, self._lanes(self._now_s))
        rate = self._rate(running, self._now_s)
        latency_s = running / rate if rate else LOOK_S
        self._flow += (rate - self._flow) * min(1.0, 1.5 * LOOK_S / latency_s)
        self._drifted = 0.97 * self._drifted + DRIFT * sqrt(1 - 0.97**2) * chance(0, 1)
        mean = self._flow * LOOK_S * exp(self._drifted + NOISE * chance(0, 1))
        found = max(0.0, mean + chance(0, 1) * sqrt(0.3 * mean) + self._rest)
        ended = int(found)
        self._rest = found - ended
        share = self._errors(running, self._now_s)
        spread = sqrt(share * (1 - share) * ended) * chance(0, 1) if share else 0.0
        failed = max(0, min(ended, round(share * ended + spread)))
        return LoadSample(LOOK_S, ended - failed, failed, running, self._busy(running))


class Together(Flow):
    """A downstream of which each call does 200."""

    def look(self, limit: int) -> LoadSample:
        seen = super().look(limit)
        return replace(seen, done=200 * seen.done, calls=seen.done)


class Watched:
    """A search on a downstream: at each look the limit."""

    def __init__(self, downstream: Flow, most: int = 2_000) -> None:
        self.downstream = downstream
        self.search = ConcurrencyLimit(20, most)
        self.limits: list[int] = []

    def watch(self, seconds: float) -> Watched:
        for _ in range(round(seconds / LOOK_S)):
            self.search.observe(self.downstream.look(self.search.limit))
            self.limits.append(self.search.limit)
        return self

    def near(self, best: int, within: float, since_s: float) -> float:
        """The share of the looks since then at which the limit was as near to ``best``."""
        looked = self.limits[round(since_s / LOOK_S) :]
        good = [n for n in looked if (1 - within) * best - 1 <= n <= (1 + within) * best + 1]
        return len(good) / len(looked)


def slots(number: int, latency_s: float) -> Rate:
    """The throughput of a pool of slots, all of which take as long."""
    return lambda running, now_s: min(running, number) / latency_s


SEEDS = range(settings().max_examples // 5)  # .ci/weekly takes more


def judge(good: Callable[[int], bool]) -> None:
    """Ensure that it went well with nearly all seeds, and report the others."""
    bad = [seed for seed in SEEDS if not good(seed)]
    assert len(bad) <= len(SEEDS) // 10, f"went wrong with seeds {bad}"


def falls_past(number: int, by: float) -> Rate:
    def rate(running: int, now_s: float) -> float:
        return (running if running < number else number * (number / running) ** by) / 0.015

    return rate


def changes(before: int, after: int) -> Rate:
    return lambda running, now_s: min(running, before if now_s < 30 else after) / 0.015


@pytest.mark.parametrize(
    ("best", "rate", "seconds", "errors"),
    [
        *((number, slots(number, 0.001), 90, 0) for number in (1, 12, 1_000)),
        (30, slots(30, 0.1), 90, 0),
        (200, slots(200, 0.015), 90, 0),
        (300, slots(300, 1.0), 90, 0),
        *((300, falls_past(300, by), 40, 0) for by in (0.3, 0.7, 1.5)),
        # More slots are only found when more are tried; fewer are felt at once.
        *((to, changes(by, to), 130, 0) for by, to in [(300, 100), (100, 300), (300, 30)]),
        # What fails as often at any limit is not the limit's fault.
        (300, slots(300, 0.015), 60, 0.1),
    ],
)
def test_settles_within_20_percent_of_a_downstreams_best(
    best: int, rate: Rate, seconds: float, errors: float
) -> None:
    def good(seed: int) -> bool:
        seen = Watched(Flow(rate, seed, errors=lambda n, t: errors)).watch(seconds)
        found = seen.search.found
        return found is not None and 0.8 * best <= found <= 1.2 * best + (best < 300)

    judge(good)


def test_where_calls_time_out_past_the_best_it_does_not_wait_for_them() -> None:
    search, limits, ended = ConcurrencyLimit(20, 2_000), [], 0.0
    for _ in range(3_000):
        bears_it = search.limit <= 100
        ended = ended % 1 + search.limit * LOOK_S / (0.1 if bears_it else 30.0)
        done, failed = (int(ended), 0) if bears_it else (0, int(ended))
        limits.append(search.observe(LoadSample(LOOK_S, done, failed, search.limit)))
    assert sum(limit > 100 for limit in limits) < 0.1 * len(limits)
    assert 80 <= (search.found or 0) <= 100


def test_a_downstream_that_never_saturates_gets_the_most_and_no_more() -> None:
    seen = Watched(Flow(slots(10**6, 0.01), seed=1), most=500).watch(60)

    assert seen.search.found == 500
    assert max(seen.limits) == 500
    assert seen.search.why == "it is at its maximum"


# --- errors ---


def test_errors_past_a_limit_of_the_downstream_keep_it_just_below() -> None:
    def good(seed: int) -> bool:
        downstream = Flow(
            lambda running, now_s: running / 0.015, seed, errors=lambda n, t: max(0, 1 - 300 / n)
        )
        seen = Watched(downstream).watch(60)
        return 240 <= (seen.search.found or 0) <= 320 and seen.near(300, 0.3, 10) > 0.9

    judge(good)


def test_it_goes_down_within_seconds_when_many_fail() -> None:
    downstream = Flow(slots(10**6, 0.015), 1, errors=lambda n, t: 0.5 if t > 9.95 else 0)
    seen = Watched(downstream, most=400).watch(9.9)
    assert seen.limits[-1] == 400

    seen.watch(4)

    assert min(seen.limits[-20:]) <= 200


def test_it_comes_back_after_an_outage() -> None:
    def good(seed: int) -> bool:
        downstream = Flow(slots(300, 0.015), seed, errors=lambda n, t: 1.0 if 20 < t < 23 else 0.0)
        seen = Watched(downstream).watch(120)
        return min(seen.limits[200:240]) < 200 and 240 <= (seen.search.found or 0) <= 360

    judge(good)


# --- noise of other processes on the machine ---


def slowed(capacity: Callable[[int], float], seed: int, until_s: float) -> Rate:
    """Throughput that other processes cut to a third, for 1 to 5 s in every 2 to 13."""
    chance = Random(seed)
    loud: list[tuple[float, float]] = []
    end_s = 0.0
    while end_s < until_s:
        begin_s = end_s + chance.uniform(1, 8)
        end_s = begin_s + chance.uniform(1, 5)
        loud.append((begin_s, min(end_s, until_s)))
    return lambda running, now_s: (
        capacity(running) / (3 if any(begin <= now_s < end for begin, end in loud) else 1)
    )


def to_120(running: int) -> float:
    return min(running, 120) / 0.015


def less_and_less_to_120(running: int) -> float:
    return 1_000.0 * float((min(running, 120) / 15) ** 0.53)  # 120 do three times as much as 15


NOISY_SHAPES = pytest.mark.parametrize("capacity", [to_120, less_and_less_to_120])


@NOISY_SHAPES
def test_noise_of_other_processes_never_keeps_it_below_half_of_the_best(
    capacity: Callable[[int], float],
) -> None:
    def longest_s(seed: int) -> float:
        seen = Watched(Flow(slowed(capacity, seed, 300), seed), most=300).watch(300)
        low = "".join("x" if capacity(n) < capacity(120) / 2 else " " for n in seen.limits[300:])
        return max(map(len, low.split(" "))) * LOOK_S

    judge(lambda seed: longest_s(seed) <= 20)


@NOISY_SHAPES
def test_after_the_noise_it_settles_near_the_best(capacity: Callable[[int], float]) -> None:
    def good(seed: int) -> bool:
        seen = Watched(Flow(slowed(capacity, seed, 60), seed), most=300).watch(80)
        return capacity(seen.search.found or 1) > 0.8 * capacity(120)

    judge(good)


# --- what is no saturation ---


def test_too_few_lanes_are_no_saturation() -> None:
    # A hot row: 12 lanes for 30 s, then plenty.
    seen = Watched(Flow(slots(300, 0.015), 1, lanes=lambda t: 12 if t < 30 else 10**9)).watch(29)
    assert set(seen.limits) == {20}
    assert seen.search.found is None
    assert seen.search.why == "fewer lanes are ready than may run"
    assert 240 <= (seen.watch(15).search.found or 0) <= 360


def test_it_reports_when_this_process_is_the_bottleneck() -> None:
    downstream = Flow(slots(300, 0.015), 1, busy=lambda running: min(0.97, running / 300))

    seen = Watched(downstream).watch(5)

    assert seen.search.why == "this process is out of CPU"
    assert 240 <= (seen.search.found or 0) <= 360


# --- the edges ---


def test_whatever_it_observes_it_stays_within_its_bounds() -> None:
    for seed in range(50):
        chance = Random(seed)
        search = ConcurrencyLimit(20, 300)
        for _ in range(300):
            done = chance.choice([0, 1, 30, 3_000])
            search.observe(
                LoadSample(
                    chance.choice([0.0, 0.1, 0.1, 30.0]),
                    done,
                    chance.choice([0, 0, 1, done]),
                    chance.choice([0, search.limit, search.limit, 2 * search.limit]),
                    chance.random(),
                )
            )
            assert 1 <= search.limit <= 300, f"seed {seed}"
            assert search.found is None or 1 <= search.found <= 300, f"seed {seed}"


def test_calls_that_do_several_are_measured_as_carefully_as_those_that_do_one() -> None:
    one = Watched(Flow(slots(64, 0.5), seed=1)).watch(60)
    several = Watched(Together(slots(64, 0.5), seed=1)).watch(60)
    assert several.limits == one.limits
