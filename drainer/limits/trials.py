"""The trials of a measurement of limits: which traffic is tried, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from drainer.errors import Interrupted
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import Boundary, Limits
from drainer.limits.search.overload import judge
from drainer.limits.search.point import Found, Point, Signals, Trial, Verdict
from drainer.limits.search.settings import LimitSettings, Value

BASELINE_PACE_LEAST = 5.0  # messages/s, so that large messages have round trips to tell of, too
BASELINE_SHARE = 0.1  # of what may be tried at most: the brokers have to be at rest
SURE_S = 0.2  # for which overload has to last, or it was a hiccup
USUAL_TRIALS = 10  # of a value, until some are known
CONNECTING_S = 2.0  # likewise
BASELINE, COOLING_DOWN = "baseline", "cooling down"

Observe = Callable[[str, Signals | None], None]


class Traffic(Protocol):
    """What makes the traffic: Spark's tasks, or a modelled cluster."""

    def measure(
        self,
        point: Point,
        *,
        warm_up_s: float,
        window_s: float,
        observe: Observe,
        stop_when: Callable[[Signals], bool],
    ) -> Signals:
        """Makes it for a while and gives what was seen in the window.

        ``stop_when`` is asked all along about what was seen last, and ends it at once.
        """
        ...

    def rest(self, cool_down_s_most: float, observe: Observe) -> bool:
        """Waits until the brokers are idle; gives False when that took too long."""
        ...


@dataclass(frozen=True, slots=True)
class Pauses:
    """What surrounds the window of a trial, in seconds."""

    warm_up_s: float
    cool_down_s_most: float


@dataclass(frozen=True, slots=True)
class Running:
    """The traffic of now. ``phase`` is in words, ``signals`` are of the last moments."""

    point: Point
    phase: str
    seconds: float
    signals: Signals | None = None


@dataclass(frozen=True, slots=True)
class LimitsStatus:
    """How far a measurement is.

    Attributes:
        limits: all that is kept of it.
        value: of the axis, that is being searched.
        found: what is known of that one; None before its search began.
        running: the traffic of now; None in between.
        elapsed_s: since it began, or was resumed.
        left_s: to its end, very roughly.
    """

    limits: Limits
    value: Value
    found: Found | None
    running: Running | None
    elapsed_s: float
    left_s: float


class Trials:
    """Searches the boundary of one value after the other; each trial is in the file at once.

    Args:
        limits: what is known already; its trials are not made again.
        stops_at_overload: end a trial as soon as overload shows, for brokers that others use.
        update: told the status, several times a second.
        clock: seconds of a monotonic clock.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        limits: Limits,
        traffic: Traffic,
        file: LimitsFile,
        pauses: Pauses,
        *,
        stops_at_overload: bool,
        update: Callable[[LimitsStatus], None],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self.limits = limits
        self._settings = limits.settings
        self._traffic = traffic
        self._file = file
        self._pauses = pauses
        self._stops_at_overload = stops_at_overload
        self._update = update
        self._clock = clock
        self._now = now
        self._begun_s = self._took_s = clock()
        self._made = 0
        self._value: Value = limits.settings.values[0]
        self._found: Found | None = None

    def run(self) -> Limits:
        """All boundaries that are not known yet.

        Raises:
            LimitsNotWritten: when a trial can't be kept.
            Interrupted: what the traffic raises when it can't go on; what was tried is kept.
        """
        for value in self._settings.values:
            if self.limits.boundary(value) is None:
                self._value, self._found = value, None
                self._find_boundary(value)
        return self.limits

    def _find_boundary(self, value: Value) -> None:
        from drainer.limits.search.search import Search  # noqa: PLC0415 - numpy is slow to import

        known = [(t.point.producers, t.verdict) for t in self.limits.trials_of(value)]
        settings = self._settings
        search = Search(settings.producers_most, settings.precision, settings.trials_most, known)
        self._found = search.found()
        if search.next() is not None and value not in self.limits.baseline:
            self._measure_baseline(value)
        while (producers := search.next()) is not None:
            trial = self._try(settings.point(value, producers))
            search.told(producers, trial.verdict)
            self._found = search.found()
            self._keep(replace(self.limits, trials=(*self.limits.trials, trial)))
            self._cool_down(trial.point)
        found = search.found()
        at = settings.point(value, found.safe)
        boundary = Boundary.of(value, at, found, self.limits.trials_of(value))
        self._keep(replace(self.limits, boundaries=(*self.limits.boundaries, boundary)))

    def _measure_baseline(self, value: Value) -> None:
        point = baseline_point(self._settings, value)
        signals = self._measure(
            point, lambda phase: f"{BASELINE}, {phase}", stop_when=lambda _: False
        )
        if not signals.round_trip_ms > 0:  # nor a number
            raise Interrupted(
                f"no broker answered within {self._settings.window_s:.0f} s of"
                f" {point.pace:.1f} messages/s, so nothing is known of brokers without load",
                hint="give them time with a longer --window",
            )
        baseline = {**self.limits.baseline, value: signals.round_trip_ms}
        self._keep(replace(self.limits, baseline=baseline))

    def _try(self, point: Point) -> Trial:
        baseline_ms = self.limits.baseline[self._value]
        thresholds = self._settings.thresholds

        since_s: float | None = None

        def overloaded(signals: Signals) -> bool:
            nonlocal since_s
            if judge(point, signals, baseline_ms, thresholds).verdict is not Verdict.OVERLOADED:
                since_s = None
                return False
            now_s = self._clock()
            since_s = now_s if since_s is None else since_s
            return now_s - since_s >= SURE_S

        at = self._now()
        signals = self._measure(
            point,
            lambda phase: phase,
            stop_when=overloaded if self._stops_at_overload else lambda _: False,
        )
        self._made, self._took_s = self._made + 1, self._clock()
        return Trial(point, signals, judge(point, signals, baseline_ms, thresholds), at)

    def _cool_down(self, point: Point) -> None:
        observe = self._observer(point, lambda _: COOLING_DOWN)
        self._traffic.rest(self._pauses.cool_down_s_most, observe)
        self._took_s = self._clock()

    def _keep(self, limits: Limits) -> None:
        self._file.write(limits)
        self.limits = limits
        self._tell(None)

    def _tell(self, running: Running | None) -> None:
        now_s = self._clock()
        self._update(
            LimitsStatus(
                limits=self.limits,
                value=self._value,
                found=self._found,
                running=running,
                elapsed_s=now_s - self._begun_s,
                left_s=self._left_s(now_s),
            )
        )

    def _measure(
        self, point: Point, words: Callable[[str], str], stop_when: Callable[[Signals], bool]
    ) -> Signals:
        return self._traffic.measure(
            point,
            warm_up_s=self._pauses.warm_up_s,
            window_s=self._settings.window_s,
            observe=self._observer(point, words),
            stop_when=stop_when,
        )

    def _observer(self, point: Point, words: Callable[[str], str]) -> Observe:
        begun_s = self._clock()

        def observe(phase: str, signals: Signals | None) -> None:
            self._tell(Running(point, words(phase), self._clock() - begun_s, signals))

        return observe

    def _left_s(self, now_s: float) -> float:
        settings, boundaries = self._settings, self.limits.boundaries
        usual = min(USUAL_TRIALS, settings.trials_most)
        if boundaries:
            usual = math.ceil(sum(each.trials for each in boundaries) / len(boundaries))
        done = self._found.trials if self._found is not None else 0
        others = len(settings.values) - len(boundaries) - 1
        to_go = max(1, usual - done) + max(0, others) * usual
        each_s = CONNECTING_S + self._pauses.warm_up_s + settings.window_s + CONNECTING_S
        if self._made and self._took_s > self._begun_s:
            each_s = (self._took_s - self._begun_s) / self._made
        return max(0.0, to_go * each_s - (now_s - self._took_s))


def baseline_point(settings: LimitSettings, value: Value) -> Point:
    """The traffic of one producer that no broker feels, at this value of the axis."""
    point = settings.point(value, 1)
    unfelt = BASELINE_SHARE * settings.producers_most * point.pace
    return replace(point, pace=max(point.pace, min(BASELINE_PACE_LEAST, unfelt)))
