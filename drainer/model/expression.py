"""Expressions in the language of rule-engine (https://zerosteiner.github.io/rule-engine/).

rule-engine parses an expression into a tree, and never calls Python's ``eval``. An expression finds
its names in ``Facts`` and fields in a ``View``, and nothing else. RE2 evaluates its regular
expressions. Importing rule-engine takes a third of a second, so only a drain with expressions
imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Context as Decimals
from typing import Any

import re2
from rule_engine import Context, Rule, ast, errors
from rule_engine.builtins import Builtins
from rule_engine.types import DataType

from drainer.errors import BadExpression, raised_as
from drainer.model.facts import NAMES, Facts, Missing, Undecided, View
from drainer.text.mask import masking

_RE2_HINT = "Use no look-arounds or backreferences; see https://github.com/google/re2/wiki/Syntax"
# The functions of rule-engine that expressions may use. Its $now and $random would give another
# answer at each run, and $range may take any amount of memory.
FUNCTIONS = (
    *("abs", "all", "any", "filter", "map", "max", "min", "split", "sum"),
    *("parse_datetime", "parse_float", "parse_timedelta"),
)
EXAMPLE = "Write it like: payload.kind == 'set_email' and not key =~ 'app-.*'"

_REFUSED = {
    ast.BytesExpression: "bytes are text here, and never equal b'...'",
    ast.MappingExpression: "rules compare fields, not a whole mapping",
    ast.BitwiseShiftExpression: "rules have no << and >>",
}
_METHODS = ("decode", "encode", "ends_with", "starts_with")  # Functions that a value itself has.
# How to write what functions of other languages do, by their names without underscores.
_INSTEAD = {
    "startswith": "payload.kind.starts_with('a')",
    "endswith": "payload.kind.ends_with('a')",
    "contains": "'a' in payload.kind",
    **dict.fromkeys(("lower", "aslower"), "payload.kind.as_lower"),
    **dict.fromkeys(("upper", "asupper"), "payload.kind.as_upper"),
    **dict.fromkeys(("len", "length"), "payload.tags.length"),
}
# RE2's method for each comparison with a pattern, and whether it is negated.
_MATCHES = {
    "eq_fzm": ("match", False),
    "eq_fzs": ("search", False),
    "ne_fzm": ("match", True),
    "ne_fzs": ("search", True),
}
_KINDS = {"index": DataType.FLOAT, "barrier": DataType.BOOLEAN}

_Node = Any  # A node of rule-engine's tree.


class Expression:
    """A parsed expression.

    ``names`` are the names that it uses, including functions and variables. With ``gives_truth``,
    its value must be true or false. With ``absent_is_null``, a field that an object does not have
    is null, and so are the fields of null. Raises BadExpression.
    """

    def __init__(
        self, text: str, *, gives_truth: bool = True, absent_is_null: bool = False
    ) -> None:
        if not text.strip():
            raise BadExpression("the expression is empty", hint=EXAMPLE)
        context = _DataContext(absent_is_null)
        rule = _parse(text, context)
        self.names = frozenset(context.symbols)
        tree = rule.statement.expression
        reads = False
        for node in _nodes(tree):
            _check(text, node)
            reads = reads or (isinstance(node, ast.SymbolExpression) and not node.scope)
        if gives_truth and tree.result_type not in (DataType.UNDEFINED, DataType.BOOLEAN):
            raise BadExpression(f"the expression is neither true nor false: {text}", hint=EXAMPLE)
        if not reads:
            raise BadExpression(
                "the expression has no field of the sub-message, so it matches all or none:"
                f" {text}",
                hint=f"{EXAMPLE}. Use one of {', '.join(NAMES)}.",
            )
        self._evaluate = _sub_key_test(tree) or rule.evaluate

    def evaluate(self, facts: Facts) -> Any:
        """Compute the value of the expression.

        Raises Missing if it needs a field that an object does not have, and Undecided if it has no
        value for another reason.
        """
        try:
            return self._evaluate(facts)
        except Undecided:
            raise
        except Exception as error:  # Whatever the error is, no sub-message may be lost for it.
            missing = isinstance(getattr(error, "container", None), View)
            raise (Missing if missing else Undecided)(_why_undecided(error)) from None


def _why_undecided(error: BaseException) -> str:
    """Return what went wrong in an evaluation. With masking, the text quotes no payload."""
    name = getattr(error, "attribute_name", None)
    if name is not None:
        return _no_field(name)
    if masking():  # The text may quote the payload, such as a pattern in it that is wrong.
        return type(error).__name__
    inner = getattr(error, "error", None)
    text = str(getattr(error, "message", "") or error)
    return f"{text} ({inner})" if inner else text or type(error).__name__


def _no_field(name: str) -> str:
    return f"there is no field {name!r}"


class _DataContext(Context):  # type: ignore[misc, unused-ignore]
    """Finds names in ``Facts`` and fields in a ``View``, and nowhere else."""

    def __init__(self, absent_is_null: bool) -> None:
        self._absent_is_null = absent_is_null
        # Attributes that values of a type do not have. rule-engine searches for a similar name each
        # time, which takes ten times as long as the evaluation.
        self._absent = set[tuple[type, str]]()
        super().__init__(
            resolver=lambda facts, name: facts[name],
            type_resolver=_type_of,
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
        if object_ is None or isinstance(object_, View):
            # A field may have any name, such as `length`. It takes precedence over the attributes
            # that the language has.
            fields: Any = object_ or {}
            if name in fields:
                return fields[name]
            if not self._absent_is_null:
                raise Missing(_no_field(name))
            return None
        if (type(object_), name) in self._absent:
            raise Undecided(_no_field(name))
        try:
            return super().resolve_attribute(thing, object_, name)
        except errors.AttributeResolutionError as error:
            if error.suggestion is not None:  # The type has attributes, and this is none of them.
                self._absent.add((type(object_), name))
            raise


def _type_of(name: str) -> Any:
    if name not in NAMES:
        raise errors.SymbolResolutionError(name)
    return _KINDS.get(name, DataType.UNDEFINED)


def _parse(text: str, context: Context) -> Any:
    try:
        return Rule(text, context)
    except errors.RuleSyntaxError as error:
        at = len(text) if error.token is None else error.token.lexpos
        is_equals = re.match("=(?![=~>])", text[at:])
        raise BadExpression(
            f"syntax error from character {at + 1} on, {text[at : at + 30]!r}: {text}",
            hint=f"Compare with ==: {text[:at]}={text[at:]}" if is_equals else EXAMPLE,
        ) from None
    except errors.SymbolResolutionError as error:
        known, sign = (FUNCTIONS, "$") if error.symbol_scope else (NAMES, "")
        raise BadExpression(
            f"there is no {sign}{error.symbol_name}: {text}",
            hint=_instead(text, error.symbol_name)
            or f"Use {', '.join(sign + name for name in known)}, a field of the payload as"
            f" payload.{error.symbol_name}, or text in quotes.",
        ) from None
    except Exception as error:  # A constant can't be computed, or types don't fit, for example.
        raise BadExpression(
            f"{_why_undecided(error)}, in: {text}",
            hint="Compare text with text, numbers with numbers, and times with times.",
        ) from None


def _instead(text: str, name: str) -> str | None:
    """Return a hint on how to write what a function of other languages does; None without one."""
    form = _INSTEAD.get(name.lower().replace("_", ""))
    return f"Write it like: {form}" if form and re.search(rf"{name}\s*\(", text) else None


def _nodes(node: _Node) -> Iterator[_Node]:
    if isinstance(node, tuple | list | set | frozenset):
        for each in node:
            yield from _nodes(each)
    if not isinstance(node, ast.ASTNodeBase):
        return
    yield node
    names = {name for kind in type(node).__mro__ for name in vars(kind).get("__slots__", ())}
    names |= set(getattr(node, "__dict__", ()))
    for name in sorted(names):
        yield from _nodes(getattr(node, name, None))


def _check(text: str, node: _Node) -> None:
    """Refuse what expressions must not use, and have RE2 compare patterns."""
    if type(node) in _REFUSED:
        raise BadExpression(f"{_REFUSED[type(node)]}: {text}", hint=EXAMPLE)
    match node:
        case ast.FunctionCallExpression(function=ast.GetAttributeExpression(name=str(name))):
            if name not in _METHODS:
                known = (*_METHODS, *(f"${each}" for each in FUNCTIONS))
                hint = _instead(text, name) or f"Use one of {', '.join(known)}."
                raise BadExpression(f"there is no function {name}: {text}", hint=hint)
        case ast.FuzzyComparisonExpression():
            node.evaluate = _linear_match(node)


def _sub_key_test(tree: _Node) -> Callable[[Facts], bool] | None:
    """Return a fast test for ``sub_key == 'a'`` and ``sub_key in ['a', 'b']``, or None.

    These are the most common rules. Every sub-message of a backlog goes through them, and
    rule-engine would take four times as long.
    """
    match tree:
        case ast.ComparisonExpression(
            type="eq",
            left=ast.SymbolExpression(name="sub_key"),
            right=ast.StringExpression() as text,
        ):
            texts = [text]
        case ast.ContainsExpression(
            member=ast.SymbolExpression(name="sub_key"), container=ast.ArrayExpression(value=texts)
        ) if all(isinstance(text, ast.StringExpression) for text in texts):
            pass
        case _:
            return None
    wanted = frozenset(text.evaluate(None) for text in texts)
    return lambda facts: facts["sub_key"] in wanted


def _linear_match(node: _Node) -> Callable[[Facts], bool]:
    """Return the comparison with a pattern, which takes time that is linear in the text.

    Python's own regular expressions may take forever, for example ``(a+)+b`` on a text of thirty
    letters, and nothing can interrupt them.
    """
    method, negated = _MATCHES[node.type]
    constant = None
    if isinstance(node.right, ast.StringExpression):
        pattern = node.right.evaluate(None)
        about = f"{pattern!r} is not an RE2 regular expression: "
        with raised_as(BadExpression, ValueError, about=about, hint=_RE2_HINT):
            constant = _compiled(pattern)

    def evaluate(facts: Facts) -> bool:
        text = node.left.evaluate(facts)
        pattern = node.right.evaluate(facts) if constant is None else ""
        if not (isinstance(text, str | None) and isinstance(pattern, str | None)):
            raise errors.EvaluationError("data type mismatch")
        if text is None or pattern is None:
            return (text is pattern) is not negated
        found = getattr(constant or _compiled(pattern), method)(text)
        return (found is None) is negated

    return evaluate


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False  # Errors are raised.
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(reason.decode() if isinstance(reason, bytes) else reason) from None
