"""Predicates: whether a rule's expression is true of a sub-message."""

from __future__ import annotations

from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.facts import Facts, Undecided, named


class Predicate:
    """One expression, ready to be evaluated. Raises BadExpression when it can't be understood."""

    def __init__(self, text: str) -> None:
        from drainer.model import expression  # noqa: PLC0415 - it takes its time to load

        self._expression = expression.Expression(text)
        self._reason_of = expression.why_undecided
        self._names_barriers = "barrier" in self._expression.names
        # Whether it gives the same for all sub-messages of a message, but barriers.
        self.of_message = self._expression.names == {"message"}

    def matches(self, sub: SubMessage, facts: Facts | None = None) -> bool:
        """Whether it is true of a sub-message; ``facts`` are those of the same one.

        A barrier is only matched by an expression that names ``barrier``: it is part of no lane,
        and an expression that was written with documents in mind should not drop it. A message that
        ``split`` rejected is matched by one that names nothing but ``message``.

        Raises Undecided when a field is missing, types don't fit, or the answer is neither true
        nor false.
        """
        if isinstance(sub, Barrier):
            unsplit = isinstance(sub, Unsplit)
            if not (self.of_message if unsplit else self._names_barriers):
                return False
        try:
            found = self._expression.evaluate(facts or Facts(sub))
        except Undecided:
            raise
        except Exception as error:  # whatever it is, nothing may be lost for it
            raise Undecided(self._reason_of(error)) from None
        if found is not True and found is not False:
            raise Undecided(f"it gave {named(found)}, and neither true nor false")
        return found
