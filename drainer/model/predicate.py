"""Predicates: expressions that are true or false for a sub-message."""

from __future__ import annotations

from collections.abc import Iterable

from drainer.errors import BadExpression, raised_as
from drainer.message import Barrier, SubMessage, Unsplit
from drainer.model.facts import Facts, Undecided, named
from drainer.model.option import ValueType


class Predicate:
    """An expression that is true or false. Raises BadExpression when it can't be understood."""

    def __init__(self, text: str) -> None:
        # This import takes a third of a second, and most drains have no expressions.
        from drainer.model import expression  # noqa: PLC0415

        self._expression = expression.Expression(text)
        self._names_barriers = "barrier" in self._expression.names
        # Whether the expression has the same value for all sub-messages of a message, except for
        # barriers.
        self.of_message = self._expression.names == {"message"}

    def matches(self, sub: SubMessage, facts: Facts | None = None) -> bool:
        """Return whether the expression is true for a sub-message.

        ``facts`` are those of the same sub-message. Only an expression that names ``barrier``
        matches a barrier, because one that was written with documents in mind should not drop it.
        Only an expression that names nothing but ``message`` matches a message that ``split``
        rejected.

        Raises Missing when there is no such field, and Undecided when types don't fit or the value
        is neither true nor false.
        """
        if isinstance(sub, Barrier):
            unsplit = isinstance(sub, Unsplit)
            if not (self.of_message if unsplit else self._names_barriers):
                return False
        found = self._expression.evaluate(facts or Facts(sub))
        if found is not True and found is not False:
            raise Undecided(f"it gave {named(found)}, and neither true nor false")
        return found


def parse_expressions(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the expressions of a repeated option, without duplicates.

    ``none`` stands for no expression. Raises BadExpression when one can't be understood.
    """
    found = tuple(dict.fromkeys(text.strip() for text in texts))
    if found == ("none",):
        return ()
    with raised_as(BadExpression, about="can't be understood: "):
        for text in found:
            Predicate(text)
    return found


EXPRESSIONS = ValueType("EXPRESSION", parse_expressions, "; ".join, repeats=True)
