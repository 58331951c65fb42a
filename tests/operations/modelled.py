"""A modelled cluster with a boundary, and traffic on it in virtual time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import MeasuredLimits
from drainer.limits.search.reading import RUNNING_S
from drainer.limits.search.settings import LimitSettings
from drainer.limits.search.trial import Point, Signals
from drainer.limits.trials import LimitsStatus, Observe, Trials

LOOK_S = 0.1
UNLOADED_MS = 2.0
SETTINGS = LimitSettings(
    message_bytes=(100, 1024, 10_240),
    max_mb_per_s=100.0,
    max_producers=400,
    warm_up_s=5.0,
    window_s=20.0,
)


def forty_mb(point: Point) -> float:
    """Messages/s that brokers bear: 40 MB/s, and less of small messages."""
    return 40e6 / (point.message_bytes + 150)


@dataclass
class ModelledCluster:
    """Brokers that tolerate ``forty_mb``, with a clock of their own.

    In the middle of trial number ``stop_at``, KeyboardInterrupt is raised, as by Ctrl-C.
    """

    stop_at: int | None = None
    now_s: float = 0.0
    tried: list[tuple[Point, float]] = field(default_factory=list)
    rested: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(1)

    def clock(self) -> float:
        return self.now_s

    def measure(
        self,
        point: Point,
        *,
        warm_up_s: float,
        window_s: float,
        observe: Observe,
    ) -> Signals:
        begun_s, end_s = self.now_s, self.now_s + warm_up_s + window_s
        while self.now_s < end_s:
            self.now_s += LOOK_S
            passed_s = self.now_s - begun_s
            if len(self.tried) + 1 == self.stop_at and passed_s > warm_up_s:
                self.stop_at = None
                raise KeyboardInterrupt
            running = self._signals(point, RUNNING_S) if passed_s >= RUNNING_S else None
            observe("warming up" if passed_s < warm_up_s else "steady", running)
        self.tried.append((point, warm_up_s + window_s))
        return self._signals(point, window_s)

    def rest(self, cool_down_s_most: float, observe: Observe) -> bool:
        self.rested += 1
        self.now_s += 1.0
        observe("cooling down", None)
        return True

    def _signals(self, point: Point, window_s: float) -> Signals:
        sent = point.messages_per_s
        load = sent / forty_mb(point)
        overloaded = load / self._chance.gauss(1.0, 0.005) > 1
        return Signals(
            window_s=window_s,
            sent_per_s=min(sent, forty_mb(point)) if overloaded else sent,
            round_trip_ms=UNLOADED_MS * (40 if overloaded else 1 + load),
            throttled=0.0,
            falling_behind=0.2 if overloaded else 0.0,
            handlers_idle=None,
            isr_changing=0.0,
            clients_busy=0.4,
            queue_ms=5.0,
            read_per_s=5 * sent,
        )


def nothing_known(settings: LimitSettings = SETTINGS) -> MeasuredLimits:
    return MeasuredLimits("c-1", 1, 1_000.0, settings)


def run(
    cluster: ModelledCluster,
    path: Path,
    settings: LimitSettings = SETTINGS,
    statuses: list[LimitsStatus] | None = None,
) -> MeasuredLimits:
    """Make a measurement, or resume the one in the file."""
    file = LimitsFile(path)
    return Trials(
        file.find() or nothing_known(settings),
        cluster,
        file,
        update=(statuses if statuses is not None else []).append,
        clock=cluster.clock,
        now=cluster.clock,
    ).run()


@cache
def searched() -> tuple[ModelledCluster, MeasuredLimits, tuple[LimitsStatus, ...]]:
    """A whole search: its cluster, what its file has at the end, and all its statuses."""
    cluster, statuses = ModelledCluster(), list[LimitsStatus]()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "limits.json"
        assert run(cluster, path, statuses=statuses) == LimitsFile(path).load()
        return cluster, LimitsFile(path).load(), tuple(statuses)
