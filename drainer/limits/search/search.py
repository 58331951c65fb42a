"""The search for the boundary of one size: which number of producers to try, and what was found.

A binary search believes every verdict, and one wrong one sends it astray for good. This one keeps a
probability for each place where the boundary may be, and tries the number whose verdict is expected
to tell the most about it: about the median while little is known, an edge once more when what was
seen since makes it doubtful. That is probabilistic bisection (Horstein, 1963; Waeber, Frazier and
Henderson, "Bisection search with noisy responses", 2013), with verdicts that are a matter of chance
near the boundary and now and then wrong anywhere, as thresholds are found in psychophysics (QUEST:
Watson and Pelli, 1983; QUEST+ tries what is expected to tell the most).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from drainer.limits.search.boundary import TRIALS_MOST
from drainer.limits.search.trial import End, Found, Verdict

LIES = 0.08  # of the verdicts are taken to be wrong, anywhere; more than there will be costs little
SPREAD = 0.017  # about the boundary, in which chance decides (of a logistic; as a share of it)
SURE = 0.95  # of the boundary being within the precision; then it is found
SAFE_SURE = 0.35  # of it being above what is called safe, at least
OUTSIDE = 0.025  # on either side of the interval that is reported
FINE = 4  # places to a precision
PRECISION_LEAST, PRECISION_MOST = 0.01, 0.5  # with less, chance decides in any case
UNCLEAR_MOST = 4  # in a row
WIDEST = 64  # times what is tried at first

_NONE, _BEYOND = 0.02, 0.05  # before anything is known: not one is safe, all are

Shares = NDArray[np.float64]


class Search:
    """Looks for the greatest number of producers in [0, most] that does not overload the brokers.

    ``precision`` is the width of the range that is good enough, as a share of its safe end.
    ``known`` are trials of an earlier run, (producers, verdict) in their order: taken again, they
    bring the search to where it was. ``most`` is tried only when all that is below looks safe: to
    overload brokers many times over tells nothing that less would not, and takes them long to get
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
        if most < 1 or trials_most < 1:
            raise ValueError(f"at most {most} producers and {trials_most} trials are not a search")
        if not PRECISION_LEAST <= precision <= PRECISION_MOST:
            raise ValueError(f"a precision of {precision} is not within 0.01 to 0.5")
        self.precision = precision
        self.trials_most = self._more = trials_most
        self._widest = WIDEST * most if widens else most
        self._trials: list[tuple[int, Verdict]] = []
        self._reach(most)
        for producers, verdict in known:
            self.take(producers, verdict)

    def _reach(self, most: int) -> None:
        self.most = most
        self._asks = _places(most, self.precision / FINE)
        self._logs = np.log(self._asks)
        # The boundary is below 1, between two of them, or above the most.
        between = (self._logs[1:] + self._logs[:-1]) / 2
        self._bounds = np.concatenate(([log(0.5)], between, [log(most) + 1]))
        self._chances = self._before_all()
        self._expected = self._overloads(self._logs[:, None])
        self._unsure = _entropy(self._expected)
        for producers, verdict in self._trials:
            self._fit(producers, verdict)

    def next(self) -> int | None:
        """The number of producers to try now; None when the search has ended."""
        if self._end() is not End.OPEN:
            return None
        tells = _entropy(self._expected @ self._chances) - self._unsure @ self._chances
        return int(self._asks[int(np.argmax(tells))])

    def take(self, producers: int, verdict: Verdict) -> None:
        """Takes in what a trial of that many showed. Raises ValueError outside [0, most]."""
        if not 0 <= producers <= self.most:
            raise ValueError(f"{producers} producers are not within 0 to {self.most}")
        self._trials.append((producers, verdict))
        self._fit(producers, verdict)
        if self._end() is End.MOST and self.most < self._widest:
            self.trials_most = len(self._trials) + self._more
            self._reach(2 * self.most)

    def _fit(self, producers: int, verdict: Verdict) -> None:
        if producers and verdict is not Verdict.UNCLEAR:
            overloads = self._overloads(np.array(log(producers)))
            fits = 1 - overloads if verdict is Verdict.SAFE else overloads
            self._chances = self._chances * fits
            self._chances /= self._chances.sum()

    def found(self) -> Found:
        """What is known by now; of a search that has ended, its result."""
        end = self._end()
        safe, overloaded = self._edges()
        summed = np.cumsum(self._chances)
        first = int(np.searchsorted(summed, OUTSIDE))
        last = min(int(np.searchsorted(summed, 1 - OUTSIDE)), len(self._asks))
        low = float(self._asks[first - 1]) if first else 0.0
        anywhere = end in (End.MOST, End.CLIENTS) or last == len(self._asks)
        high = None if anywhere else max(float(self._asks[last]), safe)
        overloaded = None if end is End.CLIENTS else overloaded
        return Found(safe, overloaded, min(low, safe), high, len(self._trials), end)

    def _before_all(self) -> Shares:
        # Between a boundary of any order of magnitude and one near the most: which is not known.
        width = np.diff(self._asks) / self.most
        octaves = np.diff(self._logs) / max(log(self.most), 1e-9)
        chances = np.concatenate(([_NONE], (width + octaves) / 2, [_BEYOND]))
        found: Shares = chances / chances.sum()
        return found

    def _overloads(self, logs: Shares) -> Shares:
        """How likely as many are called overloaded, for each place of the boundary."""
        found: Shares = 1 / (1 + np.exp(np.clip((self._bounds - logs) / SPREAD, -700, 700)))
        return LIES + (1 - 2 * LIES) * found

    def _end(self) -> End:
        safe, overloaded = self._edges()
        narrow = overloaded is not None and overloaded - safe <= max(1, self.precision * safe)
        clients = (overloaded, Verdict.CLIENTS) in self._trials
        if narrow and self._near(safe) >= SURE:
            return End.CLIENTS if clients else End.NARROW if safe else End.NONE
        if safe == self.most and self._chances[-1] >= SURE:
            return End.MOST
        last = [verdict for _, verdict in self._trials[-UNCLEAR_MOST:]]
        if last == [Verdict.UNCLEAR] * UNCLEAR_MOST:
            return End.UNCLEAR
        if len(self._trials) < self.trials_most:
            return End.OPEN
        return End.CLIENTS if clients else End.TRIALS

    def _edges(self) -> tuple[int, int | None]:
        """The number that counts as safe, and the fewest above it that were too many."""
        well = Counter(n for n, verdict in self._trials if verdict is Verdict.SAFE)
        badly = Counter(
            n for n, verdict in self._trials if verdict in (Verdict.OVERLOADED, Verdict.CLIENTS)
        )
        likely = [n for n in well if self._above(n) >= SAFE_SURE and well[n] >= badly[n]]
        safe = max(likely, key=lambda n: (self._near(n), n), default=0)
        return safe, min((n for n in badly if n > safe), default=None)

    def _above(self, producers: int) -> float:
        """How likely the boundary is above as many."""
        if not producers:
            return 1.0
        return float(self._chances[self._bounds > log(producers)].sum())

    def _near(self, producers: int) -> float:
        """How likely it is within the precision of as many, or of one more."""
        if not producers:
            return float(self._chances[0])
        near = np.abs(self._bounds - log(producers)) <= log(1 + self.precision)
        near[min(int(np.searchsorted(self._asks, producers)) + 1, len(near) - 1)] = True
        near[-1] = producers == self.most  # else it has no place there
        return float(self._chances[near].sum())


def _places(most: int, step: float) -> NDArray[np.int64]:
    """Numbers from 1 to the most: all while they are few, then a step apart, as a share."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * exp(step)))))
    return np.array(found)


def _entropy(chance: Shares) -> Shares:
    found: Shares = -(chance * np.log(chance) + (1 - chance) * np.log1p(-chance))
    return found
