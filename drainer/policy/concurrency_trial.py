"""Trials: what a limit on concurrency gives, measured without a clock for each sub-message."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import sqrt

BOUND = 0.95  # of the limit in flight: then it is the limit that binds
LOOSE = 0.25  # of the looks may find less; with more, the trial says nothing about the limit

TRIAL_S, TRIAL_MOST_S = 0.3, 1.5  # of a trial, for downstreams that answer within milliseconds
ROUNDS, ROUNDS_MOST = 2, 4  # and how often each worker has finished one, for slower ones
ENDED_MOST = 200  # and how many have ended, for few workers
EXACT = 0.02  # relative standard error at which a trial need not go on

ERRORS = 0.05  # of the attempts, more than fail anyway: the limit is too high
USUAL = 1.5  # times what fails anyway is no more than chance
ERRORS_LEAST = 5
ATTEMPTS_LEAST = 20
ATTEMPTS = 50  # that are looked at together, or as many as the limit


@dataclass(frozen=True, slots=True)
class Interval:
    """What was measured since the last look.

    ``done`` and ``failed`` are attempts that ended; ``in_flight`` is how many were in the handler,
    on average; ``busy`` the share of one processor that this process took for itself. ``calls`` is
    in how many calls of the handler they were done, when it takes several in one: throughput is in
    sub-messages, all else in calls.
    """

    seconds: float
    done: int
    failed: int
    in_flight: float
    busy: float = 0.0
    calls: int | None = None

    @property
    def ended(self) -> int:
        """Calls, well or badly."""
        return (self.done if self.calls is None else self.calls) + self.failed


@dataclass(frozen=True, slots=True)
class ConcurrencyPoint:
    """A limit that was tried: good throughput per second, latency by Little's law, errors.

    The latency is what throughput times it gives the calls at work for; ``call_s`` that of a call.
    """

    rate: float
    latency_s: float
    done: int
    errors: float
    busy: float
    error: float  # relative standard error of the throughput
    call_s: float = 0.0


class ConcurrencyTrial:
    """Measures one limit, once ``wait`` attempts have ended that were begun under another."""

    def __init__(self, limit: int, wait: float = 0.0) -> None:
        self.limit = limit
        self.seconds = 0.0
        self.loose = self.looks = 0
        self._wait = wait
        self._done = self._failed = self._calls = 0
        self._in_flight_s = self._busy_s = 0.0
        self._rates: list[float] = []

    @property
    def waits(self) -> bool:
        return self._wait > 0

    @property
    def says_nothing(self) -> bool:
        """Whether it was mostly something else than the limit that kept throughput where it is."""
        return self.looks >= 4 and self.loose > LOOSE * self.looks

    def add(self, interval: Interval) -> None:
        self.looks += 1
        self.loose += interval.in_flight < BOUND * self.limit
        if self._wait > 0:
            self._wait -= interval.ended
            return
        self.seconds += interval.seconds
        self._done += interval.done
        self._failed += interval.failed
        self._calls += interval.ended
        self._in_flight_s += interval.in_flight * interval.seconds
        self._busy_s += interval.busy * interval.seconds
        self._rates.append(interval.done / interval.seconds)

    @property
    def long_enough(self) -> bool:
        return self.seconds >= TRIAL_S and self._calls >= ROUNDS * self.limit

    @property
    def exact(self) -> bool:
        most = max(ENDED_MOST, ROUNDS_MOST * self.limit)
        if self.seconds >= TRIAL_MOST_S and self._calls >= most:
            return True
        return self._error <= EXACT

    @property
    def _error(self) -> float:
        mean = sum(self._rates) / len(self._rates)
        spread = sum((rate - mean) ** 2 for rate in self._rates)
        return sqrt(spread) / len(self._rates) / max(mean, 1e-9)

    @property
    def point(self) -> ConcurrencyPoint:
        return ConcurrencyPoint(
            rate=self._done / self.seconds,
            latency_s=self._in_flight_s / max(1, self._done + self._failed),
            done=self._done,
            errors=self._failed / max(1, self._calls),
            busy=self._busy_s / self.seconds,
            error=self._error,
            call_s=self._in_flight_s / max(1, self._calls),
        )


class Errors:
    """The share of the last attempts that failed, as far as it is more than usual."""

    def __init__(self) -> None:
        self.usual = 0.0  # the share that fails whatever the limit
        self._intervals: deque[Interval] = deque()
        self._ended = self._failed = 0

    @property
    def share(self) -> float:
        return self._failed / max(1, self._ended)

    def forget(self) -> None:
        self._intervals.clear()
        self._ended = self._failed = 0

    def rest(self, share: float) -> None:
        """Notes how many failed in a trial in which nothing was strange."""
        if share < self.usual:
            self.usual += 0.3 * (share - self.usual)

    def too_many(self, interval: Interval, limit: int) -> bool:
        """Whether more fail now than usual, in the last attempts of at most ``limit`` workers."""
        intervals = self._intervals
        intervals.append(interval)
        self._ended += interval.ended
        self._failed += interval.failed
        most = max(ATTEMPTS, limit)
        while self._ended - intervals[0].ended >= most:
            oldest = intervals.popleft()
            self._ended -= oldest.ended
            self._failed -= oldest.failed
        return (
            self._failed >= ERRORS_LEAST
            and self._ended >= ATTEMPTS_LEAST
            and self.share > USUAL * self.usual + ERRORS
        )
