"""Priority classes: sub-messages that are drained before the rest (``--first``, ``--only``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drainer.model.claims import Claims, class_selector
from drainer.model.codec import JsonRecord, Whole
from drainer.model.predicate import Predicate
from drainer.model.progress import Counts


@dataclass(frozen=True, slots=True)
class PriorityClass(JsonRecord):
    """Sub-messages that an expression selects, counted over all passes that ended."""

    where: str
    # The time (ISO 8601) when nothing was left of the class but what waits for the rest; None
    # before that.
    ended: str | None = None
    # The number of sub-messages that wait for the rest, because a sub-message of the rest is before
    # them in a lane.
    deferred: Whole = 0
    # Whether some of the class was not read, because it could not come before the rest any more: a
    # barrier stands before it, or too many sub-messages wait already.
    cut: bool = False
    sub_messages: Counts = field(default_factory=Counts)

    def counts(self, claims: Claims) -> Counts:
        """Count the class's sub-messages: those of passes that ended, and those of its claim."""
        claim = claims.get(class_selector(self.where), {})
        return Counts.sum((self.sub_messages, *(each.sub_messages for each in claim.values())))


@dataclass(frozen=True, slots=True)
class ClassStatus:
    """Progress of a class that is drained before the rest.

    ``where`` is its expression. ``sub_messages`` counts those of all runs; ``deferred``, ``cut``
    and ``ended`` are as in ``PriorityClass``. ``left`` estimates how many are still to be drained
    before the rest, and ``eta_s`` how long that takes. Both are None when that is unknown, or when
    it is not the turn of this class.
    """

    where: str
    sub_messages: Counts
    deferred: int = 0
    eta_s: float | None = None
    ended: str | None = None
    cut: bool = False
    left: int | None = None


@dataclass(frozen=True, slots=True)
class PriorityClasses(JsonRecord):
    """The priority classes of a drain, in order. With ``only``, a later run drains the rest."""

    each: tuple[PriorityClass, ...] = ()
    only: bool = False

    @property
    def next(self) -> str | None:
        """Return the expression of the class to be drained now; None when it is the rest's turn."""
        return next((each.where for each in self.each if each.ended is None), None)

    @property
    def stops(self) -> bool:
        """Return whether the drain ends here, and leaves the rest."""
        return self.only and self.next is None

    @property
    def left_over(self) -> tuple[str, ...]:
        """Return the expressions of classes of which something was left when they ended."""
        return tuple(each.where for each in self.each if each.ended and (each.deferred or each.cut))

    def requested(self, wheres: Sequence[str], *, only: bool) -> PriorityClasses:
        """Return the classes with these as the next ones, in place of those that were to come.

        Classes that are drained already stay known. Raises BadExpression when an expression can't
        be understood.
        """
        for where in wheres:
            Predicate(where)
        known = {each.where: each for each in self.each}
        ended = [each for each in self.each if each.ended and each.where not in wheres]
        next_ = (replace(known.get(where, PriorityClass(where)), ended=None) for where in wheres)
        return PriorityClasses((*ended, *next_), only)

    def resumed(self) -> PriorityClasses:
        """Return the classes for another run, which drains what ``only`` left out, too."""
        return replace(self, only=False) if self.stops else self

    def with_ended(self, where: str, at: str, deferred: int, *, cut: bool) -> PriorityClasses:
        """Return the classes with this class as ended.

        The arguments become the fields of ``PriorityClass`` that have their names; ``at`` becomes
        ``ended``.
        """
        return replace(
            self,
            each=tuple(
                replace(each, ended=at, deferred=deferred, cut=cut) if each.where == where else each
                for each in self.each
            ),
        )

    def with_counts_of(self, claims: Claims) -> PriorityClasses:
        """Return the classes with the counts of their claims, without what is pending there."""
        counted = ((each, each.counts(claims).without_pending()) for each in self.each)
        return replace(self, each=tuple(replace(one, sub_messages=n) for one, n in counted))

    def statuses(self, claims: Claims) -> tuple[ClassStatus, ...]:
        """Return the progress of the classes, as far as these claims of an account have it."""
        return tuple(
            ClassStatus(
                each.where, each.counts(claims), each.deferred, ended=each.ended, cut=each.cut
            )
            for each in self.each
        )


NO_CLASSES = PriorityClasses()
