"""Predicates: what a rule's expression says of a sub-message, in a language that runs no code.

The language is rule-engine's (https://zerosteiner.github.io/rule-engine/), which parses an
expression into a tree and never calls Python's ``eval``. What it is shown of a payload are views:
fields of mappings and of objects, no method, no property, nothing that begins with an underscore.
"""

from __future__ import annotations

import re
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
EXAMPLE = "as in: payload.kind == 'set_email' and key =~ 'app-.*'"

_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_SHIFT = re.compile(r"<<|>>")

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

    if _SHIFT.search(_QUOTED.sub("", text)):
        raise BadExpression(
            f"there is no << and >>: a payload could ask for any amount of memory: {text}",
            hint="multiply or divide",
        )
    context = _context_class()()
    try:
        rule = Rule(text, context)
    except errors.RuleSyntaxError as error:
        raise _syntax_error(text, error.token) from None
    except errors.SymbolResolutionError as error:
        raise _unknown_name(text, error.symbol_name, error.symbol_scope) from None
    except errors.RegexSyntaxError as error:
        raise BadExpression(
            f"{error.value!r} is no regular expression: {error.error}{_at(text, error.value)}",
            hint="a dot, bracket or star that is meant as itself needs a backslash before it",
        ) from None
    except Exception as error:  # a constant that can't be computed, types that don't fit, …
        raise BadExpression(
            f"{_reason(error)}, in: {text}",
            hint="text, numbers and times are only compared with their like",
        ) from None
    tree = rule.statement.expression
    _insist_on_sense(text, tree)
    _make_linear(text, tree)
    return rule, frozenset(context.symbols)


def _insist_on_sense(text: str, tree: _Node) -> None:
    from rule_engine import ast  # noqa: PLC0415
    from rule_engine.types import DataType  # noqa: PLC0415

    nodes = list(_nodes(tree))
    if not any(isinstance(node, ast.SymbolExpression) and not node.scope for node in nodes):
        raise BadExpression(
            f"it looks at nothing of the sub-message, so it would take all or none: {text}",
            hint=f"{EXAMPLE}; the names are {', '.join(NAMES)}",
        )
    if tree.result_type not in (DataType.BOOLEAN, DataType.UNDEFINED):
        raise BadExpression(
            f"it gives {tree.result_type.name.lower()}, and neither true nor false: {text}",
            hint=f"compare it with something, {EXAMPLE}",
        )
    for node in nodes:
        if isinstance(node, ast.BytesExpression):
            raise BadExpression(
                f"bytes are shown as text where they are UTF-8, and never equal b'...': {text}",
                hint="leave out the b before the quotes",
            )
        if isinstance(node, ast.MappingExpression):
            raise BadExpression(
                f"a whole mapping can't be compared: {text}",
                hint="compare its fields one by one",
            )


def _make_linear(text: str, tree: _Node) -> None:
    """Has regular expressions done by RE2, in time that grows with the text and no faster.

    Python's own may take for ever, on ``(a+)+b`` and a text of thirty letters, and nothing can
    interrupt it.
    """
    from rule_engine.ast import (  # noqa: PLC0415
        FuzzyComparisonExpression,
        StringExpression,
    )

    for node in _nodes(tree):
        if isinstance(node, FuzzyComparisonExpression):
            node._compile_regex = _linear
            if isinstance(node.right, StringExpression):
                pattern = node.right.evaluate(None)
                try:
                    node._right = _linear(pattern)
                except ValueError as error:
                    raise BadExpression(
                        f"{pattern!r} is no regular expression of RE2: {error}{_at(text, pattern)}",
                        hint="there are no look-arounds and backreferences; see"
                        " https://github.com/google/re2/wiki/Syntax",
                    ) from None


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


def _syntax_error(text: str, token: Any) -> BadExpression:
    if not text.strip():
        return BadExpression("the expression is empty", hint=EXAMPLE)
    if token is None:
        return BadExpression(f"it ends too early: {text}", hint=EXAMPLE)
    at = token.lexpos
    rest = text[at:].splitlines()[0][:30] if text[at:] else ""
    hint = EXAMPLE
    if rest.startswith("=") and not rest.startswith(("==", "=~")):
        hint = "to compare, write =="
    elif rest[:1] in "\"'":
        hint = "a quote is not closed"
    elif rest.startswith(("&", "|", "!")):
        hint = "write and, or, not"
    return BadExpression(
        f"it can't be understood from character {at + 1} on, {rest!r}: {text}", hint=hint
    )


def _unknown_name(text: str, name: str, scope: str | None) -> BadExpression:
    from difflib import get_close_matches  # noqa: PLC0415 - only for this hint

    known, sign = (FUNCTIONS, "$") if scope else (NAMES, "")
    near = get_close_matches(name, known, 1, 0.75)
    meant = f"did you mean {sign}{near[0]}? " if near else ""
    listed = ", ".join(sign + each for each in known)
    more = "" if scope else f"; a field of the payload is payload.{name}, and text stands in quotes"
    return BadExpression(
        f"there is no {sign}{name}{_at(text, sign + name)}: {text}",
        hint=f"{meant}there are {listed}{more}",
    )


def _at(text: str, part: str) -> str:
    found = re.search(rf"(?<![\w.]){re.escape(part)}", text)
    return "" if found is None else f" (character {found.start() + 1})"


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
