"""A selection: the sub-messages that an expression is true of, in every run the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from drainer.message import Barrier, SubMessage
from drainer.policy.redrive import LeftAlone, Redriven
from drainer.policy.rules.predicate import CannotTell, Predicate


class Selection:
    """Raises BadExpression when the expression can't be understood."""

    def __init__(self, where: str) -> None:
        self._predicate = Predicate(where)

    def bits(self, subs: Sequence[SubMessage]) -> int:
        """A bit for each of a message's sub-messages that is selected.

        A barrier never is, for it comes after all before it; nor is a sub-message that the
        expression can't be evaluated for. Of a redrive, a letter that is left alone always is:
        another run may redrive it.
        """
        found, of_message = 0, None
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier):
                continue
            if isinstance(sub, LeftAlone):
                selected = True
            elif of_message is None:
                selected = self._selects(sub)
                if self._predicate.of_message:
                    of_message = selected
            else:
                selected = of_message
            found |= selected << index
        return found

    def _selects(self, sub: SubMessage) -> bool:
        try:
            return self._predicate.matches(sub.original if isinstance(sub, Redriven) else sub)
        except CannotTell:
            return False
