"""The search for the boundary of one size: the level of traffic to try next, and the result.

A binary search believes every verdict, and one wrong one sends it astray for good. This one keeps a
probability for each place where the boundary may be, and tries the level whose verdict is expected
to inform the most about it: about the median while little is known, an edge once more when what was
seen since makes it doubtful. That is probabilistic bisection (Horstein, 1963; Waeber, Frazier and
Henderson, "Bisection search with noisy responses", 2013), with verdicts that are a matter of chance
near the boundary and now and then wrong anywhere, as thresholds are found in psychophysics (QUEST:
Watson and Pelli, 1983; QUEST+ tries what is expected to inform the most).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from drainer.limits.search.boundary import TRIALS_MOST
from drainer.limits.search.trial import End, Found, Verdict

LIES = 0.08  # of the verdicts are taken to be wrong, anywhere; more than there will be costs little
SPREAD = 0.017  # about the boundary, in which chance decides (of a logistic; as a share of it)
SURE = 0.95  # of the boundary being in the interval that is reported
SAFE_SURE = 0.35  # of it being above what is called safe, at least
FINE = 5  # places to a precision
STEP_LEAST = 0.005  # from place to place, as a share
PRECISION_LEAST, PRECISION_MOST = 0.01, 0.5  # with less, chance decides in any case
UNCLEAR_MOST = 4  # in a row
WIDEST = 64  # times what is tried at first

_NONE, _BEYOND = 0.02, 0.05  # before anything is known: not one is safe, all are

Shares = NDArray[np.float64]


class BoundarySearch:
    """Looks for the highest level of traffic in [0, most] that does not overload the brokers.

    It ends once the boundary lies within ``precision`` of what was found, as a share of it on
    either side. Where one level more is more than that, it can't: the result is wide.
    ``known`` are trials of an earlier run, (level, verdict) in their order: taken again, they
    bring the search to where it was. ``most`` is tried only when all that is below looks safe: to
    overload brokers many times over informs no more than less would, and takes them long to get
    over. If that is safe and the search ``widens``, it goes on to twice as many with as many
    trials, up to WIDEST times the first. Where clients are the bottleneck it finds what they can
    do, as a lower bound: too many for them count as too many. Raises ValueError for numbers that
    make no search.
    """

    def __init__(
        self,
        most: int,
        precision: float,
        trials_most: int = TRIALS_MOST,
        known: Iterable[tuple[int, Verdict]] = (),
        *,
        widens: bool = False,
    ) -> None:
        if min(most, trials_most) < 1 or not PRECISION_LEAST <= precision <= PRECISION_MOST:
            raise ValueError(f"no search is {most} levels, {trials_most} trials, {precision:.0%}")
        self.precision = precision
        self.most = most
        self.trials_most = self._more = trials_most
        self._widest = WIDEST * most if widens else most
        self._trials: list[tuple[int, Verdict]] = []
        self._posterior = _Posterior(most, precision)
        for level, verdict in known:
            self.take(level, verdict)

    def next(self) -> int | None:
        """The level to try now; None when the search has ended."""
        return self._posterior.most_informative() if self._end() is End.OPEN else None

    def take(self, level: int, verdict: Verdict) -> None:
        """Takes in the verdict on a level. Raises ValueError outside [0, most]."""
        if not 0 <= level <= self.most:
            raise ValueError(f"level {level} is not within 0 to {self.most}")
        self._trials.append((level, verdict))
        self._posterior.fit(level, verdict)
        if self._end() is End.MOST and self.most < self._widest:
            self.trials_most = len(self._trials) + self._more
            self.most *= 2
            self._posterior = _Posterior(self.most, self.precision)
            for trial in self._trials:
                self._posterior.fit(*trial)

    def found(self) -> Found:
        """Findings by now; of a search that has ended, its result."""
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
        """The level that counts as safe, and the lowest above it that was too much."""
        well = Counter(n for n, verdict in self._trials if verdict is Verdict.SAFE)
        badly = Counter(
            n for n, verdict in self._trials if verdict in (Verdict.OVERLOADED, Verdict.CLIENTS)
        )
        likely = (n for n in well if self._posterior.above(n) >= SAFE_SURE and well[n] >= badly[n])
        safe = max(likely, default=0)
        return safe, min((n for n in badly if n > safe), default=None)


class _Posterior:
    """The probability of each place where the boundary may be: about levels up to the most."""

    def __init__(self, most: int, precision: float) -> None:
        self._levels = _levels(most, max(precision / FINE, STEP_LEAST))
        self._logs = np.log(self._levels)
        # The boundary is below 1, between two of them, or above the most.
        between = (self._logs[1:] + self._logs[:-1]) / 2
        self._bounds = np.concatenate(([log(0.5)], between, [log(most) + 1]))
        # Between a boundary of any order of magnitude and one near the most: which is not known.
        width = np.diff(self._levels) / most
        octaves = np.diff(self._logs) / max(log(most), 1e-9)
        chances = np.concatenate(([_NONE], (width + octaves) / 2, [_BEYOND]))
        self._chances: Shares = chances / chances.sum()
        self._expected = self._overload_chances(self._logs[:, None])
        self._unsure = _entropy(self._expected)

    def fit(self, level: int, verdict: Verdict) -> None:
        """Updates the probabilities by a verdict."""
        if level and verdict is not Verdict.UNCLEAR:
            overloads = self._overload_chances(np.array(log(level)))
            fits = 1 - overloads if verdict is Verdict.SAFE else overloads
            self._chances = self._chances * fits
            self._chances /= self._chances.sum()

    def most_informative(self) -> int:
        """The level whose verdict is expected to inform the most."""
        information = _entropy(self._expected @ self._chances) - self._unsure @ self._chances
        return int(self._levels[int(np.argmax(information))])

    @property
    def beyond(self) -> float:
        """The probability of a boundary above the most."""
        return float(self._chances[-1])

    def above(self, level: int) -> float:
        """The probability of a boundary above a level."""
        return float(self._chances[self._bounds > log(level)].sum())

    def interval(self) -> tuple[float, float]:
        """The narrowest range that surely has the boundary, or a range without an upper end."""
        edges = np.concatenate(([0.0], self._levels, [inf]))
        summed = np.concatenate(([0.0], np.cumsum(self._chances)))
        lows = np.flatnonzero(summed <= 1 - SURE)
        highs = np.searchsorted(summed, summed[lows] + SURE).clip(max=len(edges) - 1)
        widths = edges[highs] - edges[lows]
        place = int(np.argmin(widths)) if np.isfinite(widths).any() else -1
        return float(edges[lows[place]]), float(edges[highs[place]])

    def _overload_chances(self, logs: Shares) -> Shares:
        """The probability that levels are called overloaded, for each place of the boundary."""
        found: Shares = 1 / (1 + np.exp(np.clip((self._bounds - logs) / SPREAD, -700, 700)))
        return LIES + (1 - 2 * LIES) * found


def _levels(most: int, step: float) -> NDArray[np.int64]:
    """Numbers from 1 to the most: all while they are few, then a step apart, as a share."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * exp(step)))))
    return np.array(found)


def _entropy(chance: Shares) -> Shares:
    found: Shares = -(chance * np.log(chance) + (1 - chance) * np.log1p(-chance))
    return found
