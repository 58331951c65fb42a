"""Predicates: what a rule's expression says of a sub-message, in a language that runs no code.

The language is rule-engine's (https://zerosteiner.github.io/rule-engine/), which parses an
expression into a tree and never calls Python's ``eval``. What it is shown of a payload are views:
fields of mappings and of objects, no method, no property, nothing that begins with an underscore.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context as Decimals
from functools import cache
from typing import Any

from drainer.errors import UsageError
from drainer.mask import masking
from drainer.message import Barrier, SubMessage
from drainer.policy.rules.facts import CannotTell, Facts, View, named

NAMES = ("key", "keys", "payload", "message", "index", "barrier")
FUNCTIONS = (  # of rule-engine's; its $now and $random give another answer at each run
    *("abs", "all", "any", "filter", "map", "max", "min", "split", "sum"),
    *("parse_datetime", "parse_float", "parse_timedelta", "re_groups"),
)
EXAMPLE = "as in: payload.kind == 'set_email' and not key =~ 'app-.*'"

_Node = Any  # of rule-engine's tree


class BadExpression(UsageError):
    """Raised when an expression can't be understood; the text says where."""


class Predicate:
    """One expression, ready to be asked. Raises BadExpression when it can't be understood."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rule, symbols = _parse(text)
        self._asks_of_barriers = "barrier" in symbols

    def matches(self, sub: SubMessage, facts: Facts | None = None) -> bool:
        """Whether it is true of a sub-message; ``facts`` are those of the same one.

        A barrier is only matched by an expression that names ``barrier``: it is part of no lane,
        and an expression that was written with documents in mind should not drop it.

        Raises CannotTell when a field is missing, types don't fit, or the answer is neither true
        nor false.
        """
        if not self._asks_of_barriers and isinstance(sub, Barrier):
            return False
        try:
            found = self._rule.evaluate(facts or Facts(sub))
        except CannotTell:
            raise
        except Exception as error:  # whatever it is, nothing may be lost for it
            raise CannotTell(_reason(error)) from None
        if found is not True and found is not False:
            raise CannotTell(f"it gave {named(found)}, and neither true nor false")
        return found


def _reason(error: BaseException) -> str:
    name = getattr(error, "attribute_name", None)
    if name is not None:
        return f"there is no field {name!r}"
    if masking():  # a pattern of the payload's, say, is told with what is wrong with it
        return type(error).__name__
    inner = getattr(error, "error", None)
    text = str(getattr(error, "message", "") or error)
    return f"{text} ({inner})" if inner else text or type(error).__name__


def _parse(text: str) -> tuple[Any, frozenset[str]]:
    from rule_engine import Rule, errors  # noqa: PLC0415 - as for the context

    if not text.strip():
        raise BadExpression("the expression is empty", hint=EXAMPLE)
    context = _context_class()()
    try:
        rule = Rule(text, context)
    except errors.RuleSyntaxError as error:
        at = len(text) if error.token is None else error.token.lexpos
        raise BadExpression(
            f"it can't be understood from character {at + 1} on, {text[at : at + 30]!r}: {text}",
            hint=EXAMPLE,
        ) from None
    except errors.SymbolResolutionError as error:
        known, sign = (FUNCTIONS, "$") if error.symbol_scope else (NAMES, "")
        raise BadExpression(
            f"there is no {sign}{error.symbol_name}: {text}",
            hint=f"there are {', '.join(sign + name for name in known)}; a field of the payload is"
            f" payload.{error.symbol_name}, and text stands in quotes",
        ) from None
    except Exception as error:  # a constant that can't be computed, types that don't fit, …
        raise BadExpression(
            f"{_reason(error)}, in: {text}",
            hint="text, numbers and times are only compared with their like",
        ) from None
    _check(text, rule.statement.expression)
    return rule, frozenset(context.symbols)


def _check(text: str, tree: _Node) -> None:
    """Refuses what would skip all or none, or never end.

    Regular expressions are done by RE2, in time that grows with the text and no faster. Python's
    own may take for ever, on ``(a+)+b`` and a text of thirty letters, and nothing can interrupt it.
    """
    from rule_engine import ast  # noqa: PLC0415

    refused = {
        ast.BytesExpression: "bytes are shown as text, and never equal b'...'",
        ast.MappingExpression: "a whole mapping can't be compared, only its fields",
        ast.BitwiseShiftExpression: "there is no << and >>: a payload could ask for any memory",
    }
    sees = False
    for node in _nodes(tree):
        if type(node) in refused:
            raise BadExpression(f"{refused[type(node)]}: {text}", hint=EXAMPLE)
        sees = sees or (isinstance(node, ast.SymbolExpression) and not node.scope)
        if isinstance(node, ast.FuzzyComparisonExpression):
            node._compile_regex = _linear
            if isinstance(node.right, ast.StringExpression):
                pattern = node.right.evaluate(None)
                try:
                    node._right = _linear(pattern)
                except ValueError as error:
                    raise BadExpression(
                        f"{pattern!r} is not a regular expression of RE2: {error}",
                        hint="there are no look-arounds and backreferences; see"
                        " https://github.com/google/re2/wiki/Syntax",
                    ) from None
    if not sees:
        raise BadExpression(
            f"it looks at nothing of the sub-message, so it would take all or none: {text}",
            hint=f"{EXAMPLE}; the names are {', '.join(NAMES)}",
        )


def _linear(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - as for the context

    options = re2.Options()
    options.log_errors = False  # they are raised
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(reason.decode() if isinstance(reason, bytes) else reason) from None


def _nodes(node: _Node) -> Iterator[_Node]:
    from rule_engine.ast import ASTNodeBase  # noqa: PLC0415

    if isinstance(node, tuple | list | set | frozenset):
        for each in node:
            yield from _nodes(each)
    if not isinstance(node, ASTNodeBase):
        return
    yield node
    names = {name for kind in type(node).__mro__ for name in vars(kind).get("__slots__", ())}
    names |= set(getattr(node, "__dict__", ()))
    for name in sorted(names):
        yield from _nodes(getattr(node, name, None))


@cache
def _context_class() -> Any:
    # Takes a third of a second to import, which only a drain with expressions shall pay.
    from rule_engine import Context, errors  # noqa: PLC0415
    from rule_engine.builtins import Builtins  # noqa: PLC0415
    from rule_engine.types import DataType  # noqa: PLC0415

    def known_type(name: str) -> Any:
        if name not in NAMES:
            raise errors.SymbolResolutionError(name)
        return {"index": DataType.FLOAT, "barrier": DataType.BOOLEAN}.get(name, DataType.UNDEFINED)

    class RuleContext(Context):  # type: ignore[misc, unused-ignore]
        """Finds names in ``Facts`` and fields in a ``View``, and nowhere else."""

        def __init__(self) -> None:
            super().__init__(
                resolver=lambda facts, name: facts[name],
                type_resolver=known_type,
                default_timezone="utc",
                decimal_context=Decimals(prec=28),
                mapping_attribute_lookup=False,
            )

        def resolve_type(self, name: str, scope: str | None = None) -> Any:
            if scope == Builtins.scope_name and name not in FUNCTIONS:
                raise errors.SymbolResolutionError(name, symbol_scope=scope)
            return super().resolve_type(name, scope)

        def resolve(self, thing: Any, name: str, scope: str | None = None) -> Any:
            if scope is not None or isinstance(thing, Facts):
                return super().resolve(thing, name, scope)
            raise errors.SymbolResolutionError(name, thing=thing)

        def resolve_attribute(self, thing: Any, object_: Any, name: str) -> Any:
            if isinstance(object_, View):
                # A field may have any name, `length` too: it comes before what the language has.
                try:
                    return object_[name]
                except KeyError:
                    raise errors.AttributeResolutionError(name, None) from None
            return super().resolve_attribute(thing, object_, name)

    return RuleContext
