"""Clusters as a model: what a trial of so many producers would show, and where the boundary is."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp, log
from random import Random

from drainer.limits.search.boundary import TRIALS_MOST
from drainer.limits.search.overload import judge
from drainer.limits.search.search import Search
from drainer.limits.search.trial import Point, Signals, Verdict

UNLOADED_MS = 8.0
PACE = 1_000.0  # messages/s of a producer


def point(producers: int) -> Point:
    return Point(1024, producers, PACE)


@dataclass
class Cluster:
    """Brokers whose signals follow their load, ``producers / boundary``.

    Request handlers are idle for 1 - 0.8 x load, which is 20% at the boundary. The round trip
    grows as a queue's does, to five times the unloaded one at the boundary, 8 ms without load.
    Past what they can do (1.25 times the boundary) less is sent and consumers fall behind.

    Noise: the load of a window is off by 1% (standard deviation), handlers' idle time as measured
    by 1.2 points, the round trip by 6%. That is 2% of the boundary with JMX as without. Drift: the
    boundary moves evenly by ``drift`` over the trials. Lies: of a share of the trials all signals
    are those of the wrong side: a load of 1.1 to 1.5 where it is safe, of 0.3 to 0.9 where not.
    """

    boundary: float
    seed: int
    jmx: bool = True
    noise: float = 1.0  # times what is said above
    drift: float = 0.0
    lies: float = 0.0
    lying: frozenset[int] = frozenset()  # trials that lie in any case
    trials: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    @property
    def boundary_now(self) -> float:
        """As of the last trial."""
        return self.boundary * (1 + self.drift * max(0, self.trials - 1) / (TRIALS_MOST - 1))

    def signals(self, producers: int) -> Signals:
        random, number = self.random, self.trials
        self.trials += 1
        load = producers / self.boundary_now
        if random.random() < self.lies or number in self.lying:
            load = random.uniform(1.1, 1.5) if load <= 1 else random.uniform(0.3, 0.9)
        load *= exp(random.gauss(0, 0.01 * self.noise))
        used = 0.8 * load
        wait = min(used / (1 - used), 100.0) if used < 0.99 else 100.0
        idle = min(1.0, max(0.0, 1 - used + random.gauss(0, 0.012 * self.noise)))
        return Signals(
            window_s=30.0,
            sent_per_s=producers * PACE * min(1.0, 1 / used),
            round_trip_ms=UNLOADED_MS * (1 + wait) * exp(random.gauss(0, 0.06 * self.noise)),
            throttled=0.0,
            falling_behind=max(0.0, 1 - 1 / used),
            handlers_idle=idle if self.jmx else None,
            isr_changing=0.0,
            clients_busy=0.3,
            queue_ms=5.0,
        )

    def verdict(self, producers: int) -> Verdict:
        return judge(point(producers), self.signals(producers), UNLOADED_MS)[0]


def drawn(seed: int, *, jmx: bool, lies: float) -> tuple[Cluster, int]:
    """A cluster, and a number of producers that surely overloads it.

    The boundary lies between 30 and 800 producers, the most at 1.3 to 10 times as many (all sizes
    equally likely on a log scale), and it drifts by up to 3% up or down.
    """
    random = Random(f"cluster {seed}")
    boundary = exp(random.uniform(log(30), log(800)))
    most = ceil(boundary * exp(random.uniform(log(1.3), log(10))))
    drift = random.uniform(-0.03, 0.03)
    return Cluster(boundary, seed, jmx, drift=drift, lies=lies), most


def searched(cluster: Cluster, search: Search) -> Search:
    """Gone on with until it ends."""
    while (producers := search.next()) is not None:
        search.take(producers, cluster.verdict(producers))
    return search
