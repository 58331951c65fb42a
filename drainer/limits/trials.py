"""The trials of a measurement of limits: the traffic that is tried, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol

from drainer.errors import Interrupted
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import LEVELS, LimitSettings, MeasuredLimits
from drainer.limits.search.overload import judge
from drainer.limits.search.trial import Found, Point, Signals, Trial, Verdict

BASELINE_PACE = 5.0  # messages/s, for round trips that can be seen
BASELINE_OF = 10  # a part of what may be tried at most: the brokers have to be at rest
COOL_DOWN_S_MOST = 60.0  # after a trial, until the brokers are idle again
SURE_S = 0.2  # for which overload has to last, or it was a hiccup
USUAL_TRIALS = 14  # of a size
SURROUNDINGS_S = 6.0  # of a trial: clients connect, brokers come to rest
BASELINE, COOLING_DOWN = "baseline", "cooling down"

Observe = Callable[[str, Signals | None], None]


class Traffic(Protocol):
    """Maker of the traffic: Spark's tasks, or a modelled cluster."""

    def measure(
        self,
        point: Point,
        *,
        warm_up_s: float,
        window_s: float,
        observe: Observe,
        stop_when: Callable[[Signals], bool],
    ) -> Signals:
        """Make it for a while, and return the signals of the window.

        ``stop_when`` gets the latest signals all along, and ends it at once.
        """
        ...

    def rest(self, cool_down_s_most: float, observe: Observe) -> bool:
        """Waits until the brokers are idle; gives False when that took too long."""
        ...


@dataclass(frozen=True, slots=True)
class LimitsStatus:
    """Progress of a measurement."""

    limits: MeasuredLimits  # all that is kept of the measurement of this traffic
    message_bytes: int
    found: Found | None  # what is known of that one; None before its search began
    elapsed_s: float  # since all of it began, or was resumed
    left_s: float  # to its end, very roughly
    point: Point | None = None  # the traffic of now; None in between
    phase: str = ""
    signals: Signals | None = None


@dataclass(eq=False)
class Trials:
    """Searches the boundary of one size after the other; each trial is in the file at once."""

    limits: MeasuredLimits  # what is known already; its trials are not made again
    traffic: Traffic
    file: LimitsFile
    _: KW_ONLY
    shared: bool  # whether a trial ends as soon as overload shows, for brokers that others use
    later: int = 0  # boundaries that other measurements find after this one
    update: Callable[[LimitsStatus], None]  # called with the status, several times a second
    clock: Callable[[], float]  # seconds since the measurement began or was resumed, monotonic
    now: Callable[[], float]

    def __post_init__(self) -> None:
        self._settings = self.limits.settings
        self._message_bytes = self.limits.settings.message_bytes[0]
        self._found: Found | None = None

    def run(self) -> MeasuredLimits:
        """All boundaries that are not known yet.

        Raises:
            LimitsNotWritten: when a trial can't be kept.
            Interrupted: what the traffic raises when it can't go on; what was tried is kept.
        """
        for message_bytes in self._settings.message_bytes:
            if self.limits.boundary(message_bytes) is None:
                self._message_bytes, self._found = message_bytes, None
                self._find_boundary(message_bytes)
        return self.limits

    def _find_boundary(self, message_bytes: int) -> None:
        from drainer.limits.search.search import BoundarySearch  # noqa: PLC0415 - numpy is slow to import

        settings = self._settings
        trials = self.limits.trials_of(message_bytes)
        known = [(self.limits.level(trial.point), trial.verdict) for trial in trials]
        search = BoundarySearch(
            LEVELS, settings.precision, settings.trials, known, widens=settings.max_mb_per_s is None
        )
        self._found = search.found()
        if search.next() is not None and message_bytes not in self.limits.baseline:
            self._measure_baseline(message_bytes)
        while (level := search.next()) is not None:
            trial = self._try(self.limits.point(message_bytes, level))
            search.take(level, trial.verdict)
            self._found = search.found()
            self._keep(replace(self.limits, trials=(*self.limits.trials, trial)))
            observe = self._observer(trial.point, lambda _: COOLING_DOWN)
            self.traffic.rest(COOL_DOWN_S_MOST, observe)
        self._keep(self.limits.with_boundary(message_bytes, search.found()))

    def _measure_baseline(self, message_bytes: int) -> None:
        point = baseline_point(self.limits, message_bytes)
        observe = self._observer(point, lambda phase: f"{BASELINE}, {phase}")
        round_trip_ms = self._measure(point, observe, lambda _: False).round_trip_ms
        if not round_trip_ms:
            raise Interrupted(
                f"no broker answered within {self._settings.window_s:.0f} s at"
                f" {point.pace:.1f} messages/s, so drainer can't measure brokers without load",
                hint="Give them more time with a longer --window.",
            )
        baseline = {**self.limits.baseline, message_bytes: round_trip_ms}
        self._keep(replace(self.limits, baseline=baseline))

    def _try(self, point: Point) -> Trial:
        baseline_ms = self.limits.baseline[self._message_bytes]
        since_s: float | None = None

        def overloaded(signals: Signals) -> bool:
            nonlocal since_s
            if judge(point, signals, baseline_ms)[0] is not Verdict.OVERLOADED:
                since_s = None
                return False
            now_s = self.clock()
            since_s = now_s if since_s is None else since_s
            return now_s - since_s >= SURE_S

        at = self.now()
        stop_when = overloaded if self.shared else lambda _: False
        signals = self._measure(point, self._observer(point, lambda phase: phase), stop_when)
        return Trial(point, signals, *judge(point, signals, baseline_ms), at)

    def _measure(
        self, point: Point, observe: Observe, stop_when: Callable[[Signals], bool]
    ) -> Signals:
        return self.traffic.measure(
            point,
            warm_up_s=self._settings.warm_up_s,
            window_s=self._settings.window_s,
            observe=observe,
            stop_when=stop_when,
        )

    def _observer(self, point: Point, words: Callable[[str], str]) -> Observe:
        def observe(phase: str, signals: Signals | None) -> None:
            self.update(replace(self._status(), point=point, phase=words(phase), signals=signals))

        return observe

    def _keep(self, limits: MeasuredLimits) -> None:
        self.file.write(limits)
        self.limits = limits
        self.update(self._status())

    def _status(self) -> LimitsStatus:
        settings = self._settings
        done = self._found.trials if self._found is not None else 0
        others = self.limits.missing - 1 + self.later
        usual = min(USUAL_TRIALS, settings.trials)
        left_s = (max(1, usual - done) + max(0, others) * usual) * usual_s(settings)
        return LimitsStatus(self.limits, self._message_bytes, self._found, self.clock(), left_s)


def usual_s(settings: LimitSettings) -> float:
    """Seconds that a trial takes with all that is around it, roughly."""
    return settings.warm_up_s + settings.window_s + SURROUNDINGS_S


def baseline_point(limits: MeasuredLimits, message_bytes: int) -> Point:
    """The traffic of one producer that no broker feels, at this size."""
    unfelt = limits.point(message_bytes, LEVELS // BASELINE_OF)
    return replace(unfelt, producers=1, pace=min(BASELINE_PACE, unfelt.messages_per_s))
