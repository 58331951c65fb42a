"""The concurrency at which a downstream's throughput stops growing, found while draining.

A limit is tried until its throughput is known well enough. It doubles while throughput grows, as
TCP's slow start does (Jacobson, "Congestion Avoidance and Control", 1988); then the least limit
that gives nearly all of it is found by bisection. From there a quarter more and a fifth less are
tried now and then, and the search goes on where that is better. Latency is not trusted: a
downstream that becomes slower with each call more may still do more. Other processes of the machine
only ever lower throughput: the best that was measured is believed until its limit does worse for
longer than such noise lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

ENOUGH = 0.94  # of the best throughput: the least limit that gives it is the one to settle on
FIRST_STEP, STEP = 2.0, 1.25  # between two limits, in the first search and in later ones
NEAR = 1.15  # limits that are so close are not worth another trial
CHANGED = 0.2  # of the throughput, up or down, in two trials in a row: it is another downstream now
RECHECK_S, RECHECK_MOST_S = 5.0, 120.0  # until others are tried; twice that if in vain
RECHECK_TRIALS = 8  # or so many times as long as a trial takes

BOUND = 0.95  # of the limit in flight: then it is the limit that binds
LOOSE = 0.25  # of the looks may find less; with more, the trial is inconclusive
TRIAL_S, TRIAL_MOST_S = 0.3, 1.5  # of a trial, for downstreams that answer within milliseconds
ROUNDS, ROUNDS_MOST = 3, 4  # and how often each worker has finished one, for slower ones
ENDED_MOST = 200  # and how many have ended, for few workers
EXACT = 0.02  # relative standard error at which a trial need not go on
HOPELESS = 0.5  # of the best throughput; with less, a higher limit need not be known better
HOPELESS_TRIALS = 2  # or so many times as long as the longest trial before: calls may hang there

WORSE = 0.8  # of the best throughput ever measured: its limit is tried again. Other processes may
PATIENCE_S = 20.0  # slow this one for a while: so long that limit stays, unless others do far more

ERRORS_WEIGH = 2  # where 5% of the attempts fail, what is done is worth a tenth less
FULL = 0.85  # of one processor: this process itself is the bottleneck


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Measurements since the last look.

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
        """Calls that ended, well or badly."""
        return (self.done if self.calls is None else self.calls) + self.failed


class _Trial:
    """Measurement of one limit, once ``wait`` calls have ended that started under another."""

    def __init__(self, limit: int, wait: float = 0.0) -> None:
        self.limit = limit
        self._wait = wait
        self._looks = self._loose = 0
        self.seconds = self._busy_s = 0.0
        self.elapsed_s = 0.0  # waiting too
        self._done_since = 0  # in that time
        self._done = self._failed = self._ended = 0
        self._rates: list[float] = []

    def add(self, interval: LoadSample) -> None:
        self._looks += 1
        self.elapsed_s += interval.seconds
        self._done_since += interval.done
        self._loose += interval.in_flight < BOUND * self.limit
        if self._wait > 0:
            self._wait -= interval.ended
            return
        self.seconds += interval.seconds
        self._busy_s += interval.busy * interval.seconds
        self._done += interval.done
        self._failed += interval.failed
        self._ended += interval.ended
        self._rates.append(interval.done / interval.seconds)

    @property
    def is_inconclusive(self) -> bool:
        """Whether it was mostly something else than the limit that kept throughput where it is."""
        return self._looks >= 4 and self._loose > LOOSE * self._looks

    @property
    def over(self) -> bool:
        if self.seconds < TRIAL_S or self._ended < ROUNDS * self.limit:
            return False
        most = max(ENDED_MOST, ROUNDS_MOST * self.limit)
        if self.seconds >= TRIAL_MOST_S and self._ended >= most:
            return True
        mean = sum(self._rates) / len(self._rates)
        spread = sum((each - mean) ** 2 for each in self._rates)
        return sqrt(spread) / len(self._rates) <= EXACT * mean

    @property
    def done_per_s(self) -> float:
        """Rate since its start, when calls may have ended that started under another limit."""
        return self._done_since / self.elapsed_s

    @property
    def worth(self) -> float:
        """Sub-messages done per second, worth less the more attempts fail."""
        succeeded = 1 - self._failed / max(1, self._ended)
        return self._done / self.seconds * float(succeeded**ERRORS_WEIGH)

    @property
    def busy(self) -> float:
        return self._busy_s / self.seconds


class ConcurrencyLimit:
    """The limit that a drain should run with, from what it measures."""

    look_s = 0.1

    def __init__(self, first: int, most: int, least: int = 1) -> None:
        self.most = most
        self.least = least
        self.limit = max(least, min(first, most))  # the one for now
        self.found: int | None = None  # the one that was found last, None until one was
        self._found_worth = 0.0
        self.searching = True  # whether it is being looked for
        self._bound = True  # whether it is the limit that binds
        self._why = "beginning"
        self._step = FIRST_STEP
        self._tried: dict[int, float] = {}  # limits and what they are worth, in this search
        self._busy = 0.0  # the most, in this search
        self._took_s = 0.0  # the longest trial of this search
        self._trial = _Trial(self.limit, wait=self.limit)
        self._best = (self.limit, 0.0)  # the limit that did best in any search, and its worth
        self._strange = 0  # trials in a row that are far from what was found
        self._rests_s = 0.0
        self._recheck_s = RECHECK_S

    @property
    def why(self) -> str:
        """The reason why the limit is what it is, in a few words."""
        return self._why if self._bound else "fewer are ready than may run"

    def observe(self, interval: LoadSample) -> int:
        """Takes in what was measured since the last call; returns the limit from now on."""
        if interval.seconds <= 0:
            return self.limit
        trial = self._trial
        trial.add(interval)
        self._rests_s += interval.seconds
        self._bound |= interval.in_flight >= BOUND * self.limit
        if trial.is_inconclusive:  # too few lanes, an empty buffer, a pause
            self._bound = False
            self._trial = _Trial(self.limit, wait=self.limit)
        elif trial.over and self.searching:
            self._tried[self.limit] = trial.worth
            self._busy = max(self._busy, trial.busy)
            self._took_s = max(self._took_s, trial.elapsed_s)
            self._search()
        elif self._hopeless(trial):
            self._tried[self.limit] = trial.done_per_s
            self._search()
        elif trial.over:
            self._recheck(trial)
        return self.limit

    def _try(self, limit: int, why: str) -> None:
        self._trial = _Trial(limit, wait=max(limit, self.limit))
        self.limit, self._why = limit, why

    def _hopeless(self, trial: _Trial) -> bool:
        # Past what a downstream bears, calls may time out, and three rounds of that take minutes.
        return (
            self.searching
            and self.limit > max(self._tried, default=self.limit)
            and trial.elapsed_s >= max(TRIAL_MOST_S, HOPELESS_TRIALS * self._took_s)
            and trial.done_per_s < HOPELESS * max(self._tried.values())
        )

    def _search(self) -> None:
        tried, best = self._tried, max(self._tried.values())
        enough = min(limit for limit, worth in tried.items() if worth >= ENOUGH * best)
        below = max((limit for limit in tried if limit < enough), default=None)
        between = round(sqrt((below or enough) * enough))
        if enough == max(tried) and enough < self.most:
            higher = min(self.most, ceil(self._step * enough))
            self._try(higher, "throughput still grows" if below else "trying more")
        elif below is None and enough > self.least:
            self._try(max(self.least, int(enough / self._step)), "trying fewer")
        elif below is not None and below < between < enough and enough > NEAR * below:
            self._try(between, "searching where throughput stops growing")
        else:
            self._conclude(enough)

    def _conclude(self, limit: int) -> None:
        (best, worth), found = self._best, max(self._tried.values())
        worse = found < WORSE * worth
        if worse and best not in self._tried:
            self._try(best, "trying the best again")
            return
        longer_s = min(RECHECK_MOST_S, 2 * self._recheck_s)
        self._recheck_s = longer_s if limit == self.found else RECHECK_S
        if worse and self._tried[best] >= HOPELESS * found:
            limit, self._recheck_s = best, PATIENCE_S
            why = "it was the best before throughput fell"
        elif limit == self.most:
            why = "it is at its maximum"
        elif self._busy >= FULL:
            why = "this process has no more processor time"
        else:
            why = "throughput stopped growing"
        if found > worth or (worse and limit != best):
            self._best = (limit, found)
        self.found, self._found_worth = limit, self._tried[limit]
        self.searching = False
        self._strange, self._rests_s = 0, 0.0
        self._try(limit, why)

    def _recheck(self, trial: _Trial) -> None:
        self._trial = _Trial(self.limit)
        ratio = trial.worth / max(self._found_worth, 1e-9)
        if abs(ratio - 1) <= CHANGED:
            self._strange = 0
            self._found_worth += 0.3 * (trial.worth - self._found_worth)
            if self._rests_s >= max(self._recheck_s, RECHECK_TRIALS * trial.seconds):
                step = STEP
                if self._found_worth < WORSE * self._best[1]:  # it lasts: no noise of others
                    step, self._best = FIRST_STEP, (self.limit, self._found_worth)
                self._begin_again(step, self._found_worth, trial.elapsed_s)
                self._search()
            return
        self._strange += 1
        if self._strange == 2:
            self._begin_again(FIRST_STEP, trial.worth, trial.elapsed_s)
            if ratio > 1:
                self._search()
            else:  # no queue is built meanwhile
                self._try(max(self.least, self.limit // 2), "throughput fell: looking again")

    def _begin_again(self, step: float, worth: float, took_s: float) -> None:
        self.searching = True
        self._step, self._tried, self._busy = step, {self.limit: worth}, 0.0
        self._took_s = took_s
