"""The search for the boundary of one size: which number of producers to try, and what was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from drainer.core.limits.point import Verdict

TRIALS_MOST = 14


class End(StrEnum):
    """Why a search ended, or where it stands."""

    OPEN = "open"  # it has not
    NARROW = "narrow"  # the boundary is known as narrowly as was asked
    TRIALS = "trials"  # no more trials are allowed; the range is wider than was asked
    MOST = "most"  # the most is not overloaded: the boundary lies above it
    CLIENTS = "clients"  # these clients can't do more: the boundary lies above what they could
    NONE = "none"  # not even one producer is safe
    UNCLEAR = "unclear"  # trial after trial told nothing


@dataclass(frozen=True, slots=True)
class Found:
    """What a search knows.

    Attributes:
        safe: producers that don't overload the brokers: what counts as the boundary. Tried, or 0.
        overloaded: the least above it that do; None when none was found.
        low: the boundary lies above it with some 95% probability.
        high: and below it with as much; None when it may lie anywhere above.
        trials: that were told, those that told nothing among them.
        end: why it ended.
    """

    safe: int
    overloaded: int | None
    low: float
    high: float | None
    trials: int
    end: End


class Search:
    """Looks for the greatest number of producers in [0, most] that does not overload the brokers.

    ``precision`` is the width of the range that is good enough, as a share of its safe end.
    ``known`` are trials of an earlier run, (producers, verdict) in their order: told again, they
    bring the search to where it was.
    """

    def __init__(
        self,
        most: int,
        precision: float,
        trials_most: int = TRIALS_MOST,
        known: Iterable[tuple[int, Verdict]] = (),
    ) -> None:
        raise NotImplementedError

    def next(self) -> int | None:
        """The number of producers to try now; None when the search has ended."""
        raise NotImplementedError

    def told(self, producers: int, verdict: Verdict) -> None:
        """Takes in what a trial of that many showed."""
        raise NotImplementedError

    def found(self) -> Found:
        """What is known by now; of a search that has ended, its result."""
        raise NotImplementedError
