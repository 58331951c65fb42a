"""Counts of sub-messages that finished without being handled, by the rule or reason for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, Self

from drainer.model.codec import JsonRecord, Whole
from drainer.model.merging import merged
from drainer.model.progress import Counts

_ByName = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Unhandled(JsonRecord):
    """Counts of sub-messages that finished without being handled, over all runs of a drain.

    They travel with the progress of a drain, so they are exact after a crash, too.
    """

    # Sub-messages that ``--skip`` skipped, by its expression. The handler was not called.
    skipped_by: Mapping[str, Whole] = field(default_factory=dict)
    # Sub-messages that the handler or a redrive skipped, by the reason.
    skipped_for: Mapping[str, Whole] = field(default_factory=dict)
    # Dead letters of ``--divert``, by its expression. The handler was not called.
    diverted_by: Mapping[str, Whole] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(Unhandled))

    @property
    def without_call(self) -> int:
        """Return how many sub-messages were skipped without a call of the handler."""
        return sum(self.skipped_by.values())

    @property
    def dead_by_request(self) -> int:
        """Return how many sub-messages are dead letters by request. They did not fail."""
        return sum(self.diverted_by.values())

    def is_part_of(self, subs: Counts) -> bool:
        """Return whether these counts can be a part of the account of all sub-messages."""
        skipped = self.without_call + sum(self.skipped_for.values())
        return skipped <= subs.skipped and self.dead_by_request <= subs.dead

    def merge(self, later: Unhandled) -> Self:
        """Take in a later record of the same counts, which includes what is counted here."""
        return self._joined(later, lambda known, new: {**known, **new})

    def __add__(self, other: Unhandled) -> Self:
        """Add what another task counted. Each task counts only its own sub-messages."""
        return self._joined(other, _sum)

    def __sub__(self, other: Unhandled) -> Self:
        return self._joined(other, lambda known, less: _sum(known, less, -1))

    def _joined(self, other: Unhandled, join: Callable[[_ByName, _ByName], _ByName]) -> Self:
        joined: dict[str, Any] = {
            each.name: join(getattr(self, each.name), getattr(other, each.name))
            for each in fields(Unhandled)
        }
        return replace(self, **joined)


def _sum(one: _ByName, other: _ByName, sign: int = 1) -> dict[str, int]:
    return {name: one.get(name, 0) + sign * other.get(name, 0) for name in {**one, **other}}


def _first_of_each(each: list[Mapping[str, str]]) -> dict[str, str]:
    return {name: text for one in reversed(each) for name, text in one.items()}


@dataclass(frozen=True, slots=True)
class RuleStatus(Unhandled):
    """Section of a status: what rules and handler left unhandled, and what rules could not decide.

    ``undecided`` counts, in this run, sub-messages for which a rule had no answer, by its
    expression. They go to the handler. ``why`` is the first reason of each of these rules.
    ``barriers`` counts those that waited in this run until all before them had finished.
    """

    undecided: Mapping[str, int] = merged(lambda each: reduce(_sum, each, dict[str, int]()), dict)
    why: Mapping[str, str] = merged(_first_of_each, dict)
    barriers: int = merged(sum)
