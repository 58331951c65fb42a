"""What a search for a boundary found, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TRIALS_MOST = 14  # of one search, unless said otherwise


class End(StrEnum):
    """Why a search ended, or where it stands."""

    OPEN = "open"  # it has not
    NARROW = "narrow"  # the boundary is known as narrowly as was asked
    TRIALS = "trials"  # no more trials are allowed; the range may be wider than was asked
    MOST = "most"  # the most is not overloaded: the boundary lies above it
    CLIENTS = "clients"  # these clients can't do more: the boundary lies above what they could
    NONE = "none"  # not even one producer is safe
    UNCLEAR = "unclear"  # trial after trial told nothing


@dataclass(frozen=True, slots=True)
class Found:
    """What a search knows, in producers.

    Attributes:
        safe: don't overload the brokers: what counts as the boundary. They were tried, or are 0.
        overloaded: the fewest above it that did; None when none did.
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
