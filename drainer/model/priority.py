"""Priority classes: sub-messages that are drained before the rest (``--first``, ``--only``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drainer.model.codec import JsonRecord, Whole
from drainer.model.facts import Predicate
from drainer.model.progress import Counts


@dataclass(frozen=True, slots=True)
class PriorityClass(JsonRecord):
    """Sub-messages that an expression selects, counted over all passes that ended."""

    where: str
    # When nothing was left of it but what waits for the rest (ISO 8601); None before.
    ended: str | None = None
    held: Whole = 0  # how many wait for the rest, for they stand behind some of it
    # Whether some of it was not read, for nothing more could be first: behind a barrier, or
    # since too many wait.
    cut: bool = False
    sub_messages: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class PriorityClasses(JsonRecord):
    """Priority classes of a drain, in order; with ``only`` the rest is for a later run."""

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
        """Classes that ended with some of them left."""
        return tuple(each.where for each in self.each if each.ended and (each.held or each.cut))

    def requested(self, wheres: Sequence[str], *, only: bool) -> PriorityClasses:
        """Make these the next ones, whatever was to come; drained ones stay known.

        Raises BadExpression when one can't be understood.
        """
        for where in wheres:
            Predicate(where)
        known = {each.where: each for each in self.each}
        ended = [each for each in self.each if each.ended and each.where not in wheres]
        next_ = (replace(known.get(where, PriorityClass(where)), ended=None) for where in wheres)
        return PriorityClasses((*ended, *next_), only)

    def resumed(self) -> PriorityClasses:
        """Continue in another run: what ``only`` left out is drained, too."""
        return replace(self, only=False) if self.stops else self

    def with_ended(self, where: str, at: str, held: int, *, cut: bool) -> PriorityClasses:
        return replace(
            self,
            each=tuple(
                replace(each, ended=at, held=held, cut=cut) if each.where == where else each
                for each in self.each
            ),
        )


@dataclass(frozen=True, slots=True)
class ClassStatus:
    """Progress of a class that is drained before the rest.

    ``where`` is its expression. ``sub_messages`` are those of all runs, ``held`` of these wait for
    the rest, for they stand behind some of it; ``cut`` is set when some was not looked at. ``left``
    is about how many are yet to be drained before the rest, and ``eta_s`` until they are; both are
    None when that is unknown or not its turn. ``ended`` is when it was drained (ISO 8601).
    """

    where: str
    sub_messages: Counts
    held: int = 0
    eta_s: float | None = None
    ended: str | None = None
    cut: bool = False
    left: int | None = None
