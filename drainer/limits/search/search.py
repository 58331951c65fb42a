"""The search for the boundary of one message size: which level to try next, and the result.

A binary search trusts every verdict, so a single wrong verdict makes its result wrong. This search
keeps a probability for each place where the boundary may be, and tries the level whose verdict is
expected to give the most information. While little is known, that level is near the median. Later
it may be a level that was tried before, if other verdicts contradict its verdict.

This is probabilistic bisection (Horstein, 1963; Waeber, Frazier and Henderson, "Bisection search
with noisy responses", 2013). Verdicts depend on chance near the boundary, and may be wrong at any
level, as in the search for thresholds in psychophysics (QUEST: Watson and Pelli, 1983; QUEST+ tries
what is expected to give the most information).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from drainer.limits.search.settings import TRIALS_MOST
from drainer.limits.search.trial import End, Found, Verdict

# The search assumes that this share of the verdicts is wrong, at any level. If the true share is
# smaller, that costs only a few more trials.
LIES = 0.08
# Near the boundary, the verdict depends on chance: the probability of "overloaded" rises along a
# logistic curve. This is the scale of the curve, as a share of the boundary.
SPREAD = 0.017
# The probability with which the boundary lies in the reported interval.
SURE = 0.95
# A level is called safe only if the boundary lies above it with at least this probability.
SAFE_SURE = 0.35
# The levels that the search may try are this many times closer than the precision requires.
FINE = 5
# The distance between two levels is at least this share of the lower one.
STEP_LEAST = 0.005
# The search ends after this many trials in a row without a verdict.
UNCLEAR_MOST = 4
# A search that widens goes up to at most this many times its first maximum.
WIDEST = 64

# Before anything is known: the probability that not even level 1 is safe, and that all levels are.
_NONE, _BEYOND = 0.02, 0.05

Shares = NDArray[np.float64]


@dataclass(eq=False)
class BoundarySearch:
    """Finds the highest level of traffic in [0, most] that does not overload the brokers.

    The search ends once the boundary is known to lie within ``precision`` of the result, as a share
    of it on either side. At low levels, the next level may be further away than that. Then the
    result is wide.

    ``known`` are the trials of an earlier run in their order, each as (level, verdict). The search
    continues from there.

    The search does not try ``most`` before lower levels look safe, because brokers that are heavily
    overloaded need long to recover. If ``most`` is safe and the search ``widens``, it continues up
    to twice that level with as many trials again, until it has reached WIDEST times the first
    maximum.

    If the clients are the bottleneck, the search finds the highest level that they can send, which
    is a lower bound. A level that is too high for the clients counts like one that overloads the
    brokers.
    """

    most: int
    precision: float
    trials_most: int = TRIALS_MOST
    known: Iterable[tuple[int, Verdict]] = ()
    _: KW_ONLY
    widens: bool = False

    def __post_init__(self) -> None:
        self._more = self.trials_most
        self._widest = WIDEST * self.most if self.widens else self.most
        self._trials: list[tuple[int, Verdict]] = []
        self._posterior = _Posterior(self.most, self.precision)
        for level, verdict in self.known:
            self.take(level, verdict)

    def next(self) -> int | None:
        """Return the level to try next; None when the search has ended."""
        return self._posterior.most_informative() if self._end() is End.OPEN else None

    def take(self, level: int, verdict: Verdict) -> None:
        """Add the verdict on a level."""
        self._trials.append((level, verdict))
        self._posterior.fit(level, verdict)
        if self._end() is End.MOST and self.most < self._widest:
            self.trials_most = len(self._trials) + self._more
            self.most *= 2
            self._posterior = _Posterior(self.most, self.precision)
            for trial in self._trials:
                self._posterior.fit(*trial)

    def found(self) -> Found:
        """Return what is known of the boundary so far; the result once the search has ended."""
        end = self._end()
        safe, overloaded = self._edges()
        low, high = self._posterior.interval()
        anywhere = end in (End.MOST, End.CLIENTS) or high == inf
        upper = None if anywhere else max(high, safe)
        overloaded = None if end is End.CLIENTS else overloaded
        return Found(safe, overloaded, min(low, safe), upper, len(self._trials), end)

    def _end(self) -> End:
        safe, overloaded = self._edges()
        low, high = self._posterior.interval()
        clients = (overloaded, Verdict.CLIENTS) in self._trials
        close = max(1.0, self.precision * safe)
        if overloaded is not None and max(overloaded, high) <= safe + close and low >= safe - close:
            narrow = End.NARROW if close > 1 else End.WIDE
            return End.CLIENTS if clients else narrow if safe else End.NONE
        if safe == self.most and self._posterior.beyond >= SURE:
            return End.MOST
        last = [verdict for _, verdict in self._trials[-UNCLEAR_MOST:]]
        if last == [Verdict.UNCLEAR] * UNCLEAR_MOST:
            return End.UNCLEAR
        if len(self._trials) < self.trials_most:
            return End.OPEN
        return End.CLIENTS if clients else End.WIDE

    def _edges(self) -> tuple[int, int | None]:
        """Return the level that counts as safe, and the lowest level above it that is too high.

        The second is None if no level above it was too high.
        """
        too_much = (Verdict.OVERLOADED, Verdict.CLIENTS)
        passed = Counter(n for n, verdict in self._trials if verdict is Verdict.SAFE)
        failed = Counter(n for n, verdict in self._trials if verdict in too_much)
        likely = (n for n in passed if self._posterior.above(n) >= SAFE_SURE)
        safe = max((n for n in likely if passed[n] >= failed[n]), default=0)
        return safe, min((n for n in failed if n > safe), default=None)


class _Posterior:
    """The probability of each place where the boundary may be.

    The places are below level 1, between two neighbouring levels, and above the highest level.
    """

    def __init__(self, most: int, precision: float) -> None:
        self._levels = _levels(most, max(precision / FINE, STEP_LEAST))
        self._logs = np.log(self._levels)
        # These are positions that represent the places, as logarithms.
        between = (self._logs[1:] + self._logs[:-1]) / 2
        self._bounds = np.concatenate(([log(0.5)], between, [log(most) + 1]))
        # The prior is the mean of two: that each level is equally likely, which favours high ones,
        # and that each order of magnitude is equally likely.
        width = np.diff(self._levels) / most
        octaves = np.diff(self._logs) / max(log(most), 1e-9)
        chances = np.concatenate(([_NONE], (width + octaves) / 2, [_BEYOND]))
        self._chances: Shares = chances / chances.sum()
        self._expected = self._overload_chances(self._logs[:, None])
        self._unsure = _entropy(self._expected)

    def fit(self, level: int, verdict: Verdict) -> None:
        """Update the probabilities by a verdict."""
        if verdict is not Verdict.UNCLEAR:
            overloads = self._overload_chances(np.array(log(level)))
            fits = 1 - overloads if verdict is Verdict.SAFE else overloads
            self._chances = self._chances * fits
            self._chances /= self._chances.sum()

    def most_informative(self) -> int:
        """Return the level whose verdict is expected to give the most information."""
        information = _entropy(self._expected @ self._chances) - self._unsure @ self._chances
        return int(self._levels[int(np.argmax(information))])

    @property
    def beyond(self) -> float:
        """The probability that the boundary lies above the highest level."""
        return float(self._chances[-1])

    def above(self, level: int) -> float:
        """Return the probability that the boundary lies above a level."""
        return float(self._chances[self._bounds > log(level)].sum())

    def interval(self) -> tuple[float, float]:
        """Return the narrowest range that contains the boundary with probability SURE.

        The upper end is infinite if no finite range contains it with that probability.
        """
        edges = np.concatenate(([0.0], self._levels, [inf]))
        summed = np.concatenate(([0.0], np.cumsum(self._chances)))
        lows = np.flatnonzero(summed <= 1 - SURE)
        highs = np.searchsorted(summed, summed[lows] + SURE).clip(max=len(edges) - 1)
        widths = edges[highs] - edges[lows]
        place = int(np.argmin(widths)) if np.isfinite(widths).any() else -1
        return float(edges[lows[place]]), float(edges[highs[place]])

    def _overload_chances(self, logs: Shares) -> Shares:
        """Return the probability of the verdict "overloaded" by level and place of the boundary."""
        found: Shares = 1 / (1 + np.exp(np.clip((self._bounds - logs) / SPREAD, -700, 700)))
        return LIES + (1 - 2 * LIES) * found


def _levels(most: int, step: float) -> NDArray[np.int64]:
    """Return levels from 1 to ``most``, each higher by the share ``step`` or by 1."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * exp(step)))))
    return np.array(found)


def _entropy(chance: Shares) -> Shares:
    found: Shares = -(chance * np.log(chance) + (1 - chance) * np.log1p(-chance))
    return found
