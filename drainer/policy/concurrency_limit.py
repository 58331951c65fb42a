"""The concurrency at which a downstream's throughput stops growing, found while draining.

A limit is tried until its throughput is known well enough. It doubles while throughput grows, as
TCP's slow start does (Jacobson, "Congestion Avoidance and Control", 1988). Then bisection finds the
least limit that gives nearly all of the throughput. From there, a quarter more and a fifth less are
tried now and then, and the search continues where that is better.

Latency is not trusted, because a downstream that becomes slower with each further call may still do
more. Other processes of the machine can only lower throughput, so the best that was measured is
believed until its limit does worse for longer than such noise lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

# The search settles on the lowest limit that has this share of the best throughput.
ENOUGH = 0.94
# The factors from one limit to the next, in the first search and in later ones.
FIRST_STEP, STEP = 2.0, 1.25
NEAR = 1.15  # Limits that differ by less than this factor are not worth another trial.
# A downstream has changed if throughput differs by this share in two trials in a row.
CHANGED = 0.2
# Other limits are tried again after RECHECK_S. Each time that this was in vain, the wait doubles,
# up to RECHECK_MOST_S. The wait is at least RECHECK_TRIALS times as long as a trial.
RECHECK_S, RECHECK_MOST_S = 5.0, 120.0
RECHECK_TRIALS = 8

BOUND = 0.95  # The limit binds if this share of it is in flight.
LOOSE = 0.25  # If more than this share of the looks finds less in flight, a trial is inconclusive.
# A trial lasts at least TRIAL_S, and until ROUNDS calls have ended for each worker. If it is not
# exact enough, it goes on until TRIAL_MOST_S have passed, ROUNDS_MOST calls have ended for each
# worker, and ENDED_MOST calls have ended in all.
TRIAL_S, TRIAL_MOST_S = 0.3, 1.5
ROUNDS, ROUNDS_MOST = 3, 4
ENDED_MOST = 200
EXACT = 0.02  # A trial may end once the relative standard error is this small.
# A trial of a higher limit ends early if its throughput is less than HOPELESS times the best, for
# HOPELESS_TRIALS times as long as the longest trial before. Otherwise calls that hang would keep
# the trial going.
HOPELESS = 0.5
HOPELESS_TRIALS = 2

# If throughput is below WORSE times the best ever measured, the limit of the best is tried again.
# Other processes may slow this one down for a while. So that limit stays for PATIENCE_S, unless
# another limit does far more.
WORSE = 0.8
PATIENCE_S = 20.0

ERRORS_WEIGH = 2  # If 5% of the attempts fail, throughput counts as 10% lower.
FULL = 0.85  # At this share of one processor, this process itself is the bottleneck.


@dataclass(frozen=True, slots=True)
class LoadSample:
    """What was measured since the sample before.

    Attributes:
        seconds: the time that the sample covers.
        done, failed: the numbers of attempts that succeeded and that failed.
        in_flight: the mean number of attempts in the handler.
        busy: the share of one processor that this process used for its own work.
        calls: the number of calls that did these attempts, if the handler takes several
            sub-messages in a call. Throughput is then in sub-messages, and all else in calls.
    """

    seconds: float
    done: int
    failed: int
    in_flight: float
    busy: float = 0.0
    calls: int | None = None

    @property
    def ended(self) -> int:
        """The number of calls that ended, whether they succeeded or failed."""
        return (self.done if self.calls is None else self.calls) + self.failed


class _Trial:
    """The measurement of one limit.

    It begins once ``wait`` calls have ended, because those started under another limit.
    """

    def __init__(self, limit: int, wait: float = 0.0) -> None:
        self.limit = limit
        self._wait = wait
        self._looks = self._loose = 0
        self.seconds = self._busy_s = 0.0
        # ``elapsed_s`` and ``_done_since`` also cover the time before the measurement begins.
        self.elapsed_s = 0.0
        self._done_since = 0
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
        """Whether something other than the limit held throughput back too often."""
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
        """The rate since the start of the trial, with calls that started under another limit."""
        return self._done_since / self.elapsed_s

    @property
    def worth(self) -> float:
        """The sub-messages done per second. The more attempts fail, the less this counts."""
        succeeded = 1 - self._failed / max(1, self._ended)
        return self._done / self.seconds * float(succeeded**ERRORS_WEIGH)

    @property
    def busy(self) -> float:
        return self._busy_s / self.seconds


class ConcurrencyLimit:
    """Searches for the concurrency that a drain should run with, from what the drain measures.

    Attributes:
        limit: the current limit.
        found: the limit that the last search found; None until a search has ended.
        searching: whether a search is under way.
    """

    look_s = 0.1

    def __init__(self, first: int, most: int) -> None:
        self.most = most
        self.limit = max(1, min(first, most))
        self.found: int | None = None
        self._found_worth = 0.0
        self.searching = True
        self._bound = True  # Whether the limit is what holds throughput back.
        self._why = "beginning"
        self._step = FIRST_STEP
        self._tried: dict[int, float] = {}  # The worth of each limit that this search has tried.
        self._busy = 0.0  # The highest load of the processor in this search.
        self._took_s = 0.0  # The longest trial of this search.
        self._trial = _Trial(self.limit, wait=self.limit)
        self._best = (self.limit, 0.0)  # The limit that did best in any search, and its worth.
        self._strange = 0  # How many trials in a row are far from what was found.
        self._rests_s = 0.0
        self._recheck_s = RECHECK_S

    @property
    def why(self) -> str:
        """The reason for the current limit, in a few words."""
        return self._why if self._bound else "fewer lanes are ready than may run"

    def observe(self, interval: LoadSample) -> int:
        """Take what was measured since the last call, and return the new limit."""
        if interval.seconds <= 0:
            return self.limit
        trial = self._trial
        trial.add(interval)
        self._rests_s += interval.seconds
        self._bound |= interval.in_flight >= BOUND * self.limit
        if trial.is_inconclusive:  # There may be too few lanes, an empty buffer, or a pause.
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
        # Too many calls may make a downstream so slow that they time out. Three rounds of such
        # calls would take minutes.
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
        elif below is None and enough > 1:
            self._try(max(1, int(enough / self._step)), "trying fewer")
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
            why = "this process is out of CPU"
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
                # Throughput has stayed low for a long time, so this is not noise.
                if self._found_worth < WORSE * self._best[1]:
                    step, self._best = FIRST_STEP, (self.limit, self._found_worth)
                self._begin_again(step, self._found_worth, trial.elapsed_s)
                self._search()
            return
        self._strange += 1
        if self._strange == 2:
            self._begin_again(FIRST_STEP, trial.worth, trial.elapsed_s)
            if ratio > 1:
                self._search()
            else:  # Fewer calls build up no queue during the search.
                self._try(max(1, self.limit // 2), "throughput fell: looking again")

    def _begin_again(self, step: float, worth: float, took_s: float) -> None:
        self.searching = True
        self._step, self._tried, self._busy = step, {self.limit: worth}, 0.0
        self._took_s = took_s
