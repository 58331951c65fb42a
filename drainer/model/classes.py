"""Priority classes: what a drain drains before the rest, in which order, and their accounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drainer.model.codec import JsonRecord, Whole
from drainer.model.progress import Counts


@dataclass(frozen=True, slots=True)
class PriorityClass(JsonRecord):
    """What an expression selects, with the account of its sub-messages in all passes that ended."""

    where: str
    # When nothing was left of it but what waits for the rest (ISO 8601); None before.
    ended: str | None = None
    held: Whole = 0  # how many wait for the rest, for they stand behind some of it
    # Whether some of it was not looked at, for nothing more could be first: behind a barrier, or
    # since too many wait.
    cut: bool = False
    sub_messages: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class PriorityClasses(JsonRecord):
    """Those of a drain, in their order; with ``only`` the rest is for a later run."""

    each: tuple[PriorityClass, ...] = ()
    only: bool = False

    @property
    def next(self) -> str | None:
        """The expression of the one to be drained now; None when the rest is."""
        return next((each.where for each in self.each if each.ended is None), None)

    @property
    def stops(self) -> bool:
        """Whether the drain ends here, and leaves the rest."""
        return self.only and self.next is None

    @property
    def left_over(self) -> tuple[str, ...]:
        """The classes that some is left of, all the same."""
        return tuple(each.where for each in self.each if each.ended and (each.held or each.cut))

    def asked(self, wheres: Sequence[str], *, only: bool) -> PriorityClasses:
        """These as the next ones, whatever was to come; those that were drained stay known."""
        known = {each.where: each for each in self.each}
        ended = [each for each in self.each if each.ended and each.where not in wheres]
        asked = (replace(known.get(where, PriorityClass(where)), ended=None) for where in wheres)
        return PriorityClasses((*ended, *asked), only)

    def resumed(self) -> PriorityClasses:
        """As a run goes on with them: what is left of a drain that stopped is the rest."""
        return replace(self, only=False) if self.stops else self

    def with_ended(self, where: str, at: str, held: int, *, cut: bool) -> PriorityClasses:
        return replace(
            self,
            each=tuple(
                replace(each, ended=at, held=held, cut=cut) if each.where == where else each
                for each in self.each
            ),
        )
