"""A selection: the sub-messages that an expression is true of, in every run the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.facts import Undecided
from drainer.model.predicate import Predicate
from drainer.policy.redrive import LeftAlone, Redriven


class Selection:
    """Raises BadExpression when the expression can't be understood."""

    def __init__(self, where: str) -> None:
        self._predicate = Predicate(where)
        # Whether it is the same for all sub-messages of a message.
        self.of_message = self._predicate.of_message

    def bits(self, subs: Sequence[SubMessage]) -> int:
        """A bit for each of a message's sub-messages that is selected.

        What ``split`` rejected always is: the first class that meets it accounts for it. A barrier
        never is, for it comes after all before it; nor is a sub-message that the
        expression can't be evaluated for. A dead letter is judged as what it was, whether this run
        redrives it or leaves it alone.
        """
        found, of_message = 0, None
        for index, sub in enumerate(subs):
            if isinstance(sub, Barrier):
                found |= isinstance(sub, Unsplit) << index
                continue
            selected = self._selects(sub) if of_message is None else of_message
            if self.of_message:
                of_message = selected
            found |= selected << index
        return found

    def _selects(self, sub: SubMessage) -> bool:
        redriven = sub.redriven if isinstance(sub, LeftAlone) else sub
        if redriven is None:
            return False
        try:
            return self._predicate.matches(
                redriven.original if isinstance(redriven, Redriven) else redriven
            )
        except Undecided:
            return False
