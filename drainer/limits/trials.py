"""The trials of a measurement: which traffic comes next, and what is kept of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol

from drainer.errors import Interrupted
from drainer.limits.file import LimitsFile
from drainer.limits.search.boundary import LEVELS, MeasuredLimits
from drainer.limits.search.settings import LimitSettings
from drainer.limits.search.trial import Found, Point, Signals, Trial, judge

# The round trip without load is measured at this pace in messages/s, which no broker notices.
BASELINE_PACE = 5.0
# If the highest rate is very low, that pace is at most the highest rate divided by this.
BASELINE_PART = 10
# After a trial, the brokers get at most this much time to become idle again.
COOL_DOWN_S_MOST = 60.0
# The estimate of the time left assumes this number of trials per boundary.
USUAL_TRIALS = 14
# The estimate of the time left adds this time per trial, for clients to connect and for brokers to
# become idle.
SURROUNDINGS_S = 6.0
# The live view names these phases of a trial.
BASELINE, COOLING_DOWN = "baseline", "cooling down"

Observe = Callable[[str, Signals | None], None]


class Traffic(Protocol):
    """A source of traffic: tasks on Spark, or the modelled cluster of the tests."""

    def measure(
        self, point: Point, *, warm_up_s: float, window_s: float, observe: Observe
    ) -> Signals:
        """Make this traffic, and return the signals of the window after the warm-up.

        ``observe`` gets the phase and the latest signals several times a second.
        """

    def rest(self, cool_down_s_most: float, observe: Observe) -> bool:
        """Wait until the brokers are idle. Return False if that took too long."""


@dataclass(frozen=True, slots=True)
class LimitsStatus:
    """The progress of a measurement."""

    limits: MeasuredLimits
    message_bytes: int  # The message size whose boundary is searched for now.
    found: Found | None  # What is known of this boundary; None before its search has begun.
    elapsed_s: float  # The time since this run began.
    left_s: float  # A rough estimate of the time left.
    point: Point | None = None  # The traffic of the trial that runs; None between trials.
    phase: str = ""
    signals: Signals | None = None


@dataclass(eq=False)
class Trials:
    """Searches for the boundary of one message size after the other, and keeps every trial."""

    limits: MeasuredLimits  # The trials that it contains are not repeated.
    traffic: Traffic
    file: LimitsFile
    _: KW_ONLY
    update: Callable[[LimitsStatus], None]  # Called several times a second.
    clock: Callable[[], float]  # Seconds since this run began, by a monotonic clock.
    now: Callable[[], float]  # Seconds since the epoch.

    def __post_init__(self) -> None:
        self._settings = self.limits.settings
        self._message_bytes = self.limits.settings.message_bytes[0]
        self._found: Found | None = None

    def run(self) -> MeasuredLimits:
        """Find the boundaries that are not known yet.

        Raises:
            LimitsNotWritten: when a trial can't be kept.
            Interrupted: when the traffic can't continue. The trials until then are kept.
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
        round_trip_ms = self._measure(point, observe).round_trip_ms
        if not round_trip_ms:
            raise Interrupted(
                f"no broker answered within {self._settings.window_s:.0f} s at"
                f" {point.pace:.1f} messages/s, so drainer can't measure brokers without load",
                hint="Give them more time with a longer --window.",
            )
        baseline = {**self.limits.baseline, message_bytes: round_trip_ms}
        self._keep(replace(self.limits, baseline=baseline))

    def _try(self, point: Point) -> Trial:
        at = self.now()
        signals = self._measure(point, self._observer(point, lambda phase: phase))
        baseline_ms = self.limits.baseline[self._message_bytes]
        return Trial(point, signals, *judge(point, signals, baseline_ms), at)

    def _measure(self, point: Point, observe: Observe) -> Signals:
        warm_up_s, window_s = self._settings.warm_up_s, self._settings.window_s
        return self.traffic.measure(point, warm_up_s=warm_up_s, window_s=window_s, observe=observe)

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
        usual = min(USUAL_TRIALS, settings.trials)
        others = max(0, self.limits.missing - 1)
        left_s = (max(1, usual - done) + others * usual) * usual_s(settings)
        return LimitsStatus(self.limits, self._message_bytes, self._found, self.clock(), left_s)


def usual_s(settings: LimitSettings) -> float:
    """Return roughly how many seconds a trial takes, including the time around it."""
    return settings.warm_up_s + settings.window_s + SURROUNDINGS_S


def baseline_point(limits: MeasuredLimits, message_bytes: int) -> Point:
    """Return the traffic for measuring brokers without load: one producer, very slow."""
    unnoticed = limits.point(message_bytes, LEVELS // BASELINE_PART)
    return replace(unnoticed, producers=1, pace=min(BASELINE_PACE, unnoticed.messages_per_s))
