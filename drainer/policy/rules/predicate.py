"""Predicates: what a rule's expression says of a sub-message, in a language that runs no code.

The language is rule-engine's (https://zerosteiner.github.io/rule-engine/), which parses an
expression into a tree and never calls Python's ``eval``. What it is shown of a payload are views:
fields of mappings and of objects, no method, no property, nothing that begins with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Context as Decimals
from decimal import Decimal
from enum import Enum
from functools import cache
from types import MemberDescriptorType
from typing import Any
from uuid import UUID

import orjson

from drainer.errors import UsageError, ValueNotShipped
from drainer.mask import masking
from drainer.message import Barrier, Message, SubMessage, Unsplit

NAMES = ("key", "keys", "payload", "message", "index", "barrier")
FUNCTIONS = (  # of rule-engine's; its $now and $random give another answer at each run
    *("abs", "all", "any", "filter", "map", "max", "min", "split", "sum"),
    *("parse_datetime", "parse_float", "parse_timedelta", "re_groups"),
)
EXAMPLE = "Write it like: payload.kind == 'set_email' and not key =~ 'app-.*'"

_Node = Any  # of rule-engine's tree


class BadExpression(UsageError):
    """Raised when an expression can't be understood; the text says where."""


class Predicate:
    """One expression, ready to be asked. Raises BadExpression when it can't be understood."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rule, symbols = _parse(text)
        self._asks_of_barriers = "barrier" in symbols
        # Whether its answer is the same for all sub-messages of a message, but barriers.
        self.of_message = symbols == {"message"}

    def matches(self, sub: SubMessage, facts: Facts | None = None) -> bool:
        """Whether it is true of a sub-message; ``facts`` are those of the same one.

        A barrier is only matched by an expression that names ``barrier``: it is part of no lane,
        and an expression that was written with documents in mind should not drop it. A message that
        ``split`` rejected is matched by one that names nothing but ``message``.

        Raises CannotTell when a field is missing, types don't fit, or the answer is neither true
        nor false.
        """
        if isinstance(sub, Barrier):
            unsplit = isinstance(sub, Unsplit)
            if not (self.of_message if unsplit else self._asks_of_barriers):
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
            f"syntax error from character {at + 1} on, {text[at : at + 30]!r}: {text}", hint=EXAMPLE
        ) from None
    except errors.SymbolResolutionError as error:
        known, sign = (FUNCTIONS, "$") if error.symbol_scope else (NAMES, "")
        raise BadExpression(
            f"there is no {sign}{error.symbol_name}: {text}",
            hint=f"Use {', '.join(sign + name for name in known)}, a field of the payload as"
            f" payload.{error.symbol_name}, or text in quotes.",
        ) from None
    except Exception as error:  # a constant that can't be computed, types that don't fit, …
        raise BadExpression(
            f"{_reason(error)}, in: {text}",
            hint="Compare text with text, numbers with numbers, and times with times.",
        ) from None
    _check(text, rule.statement.expression)
    return rule, frozenset(context.symbols)


def _check(text: str, tree: _Node) -> None:
    """Refuses what would skip all or none, or never end.

    Regular expressions are done by RE2, in time that grows with the text and no faster. Python's
    own may take for ever, on ``(a+)+b`` and a text of thirty letters, and nothing can interrupt it.
    """
    from rule_engine import ast, types  # noqa: PLC0415

    refused = {
        ast.BytesExpression: "bytes are text here, and never equal b'...'",
        ast.MappingExpression: "rules compare fields, not a whole mapping",
        ast.BitwiseShiftExpression: "rules have no << and >>",
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
                        f"{pattern!r} is not an RE2 regular expression: {error}",
                        hint="Use no look-arounds or backreferences; see"
                        " https://github.com/google/re2/wiki/Syntax",
                    ) from None
    if tree.result_type not in (types.DataType.UNDEFINED, types.DataType.BOOLEAN):
        raise BadExpression(f"the expression is neither true nor false: {text}", hint=EXAMPLE)
    if not sees:
        raise BadExpression(
            f"the expression uses nothing of the sub-message, so it matches all or none: {text}",
            hint=f"{EXAMPLE}. Use one of {', '.join(NAMES)}.",
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


class CannotTell(Exception):
    """Raised when an expression has no answer for a sub-message; the text says why."""


class Facts:
    """What an expression may see of one sub-message, looked at when it is asked for."""

    __slots__ = ("_known", "_sub")

    def __init__(self, sub: SubMessage) -> None:
        self._sub = sub
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        known = self._known
        if name not in known:
            known[name] = _FACTS[name](self._sub)
        return known[name]


class View(Mapping[Any, Any]):
    """The fields of a mapping or an object; what is read of it is shown in the same way.

    It tells an iteration over its types nothing: that would read a whole payload each time.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[Any, Any]) -> None:
        self.fields = fields

    def __getitem__(self, name: Any) -> Any:
        return shown(self.fields[name])

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self.fields == other.fields

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> Any:
        return ()

    def values(self) -> Any:
        return ()


def shown(value: Any) -> Any:  # noqa: PLR0911 - a table of types
    """A value as expressions see it. Raises CannotTell when they don't."""
    if type(value) in _AS_THEY_ARE:
        return value
    if type(value) is dict or isinstance(value, Mapping):
        return View(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _content(bytes(value))
    if isinstance(value, Enum):
        return shown(value.value)
    if isinstance(value, UUID):
        return str(value)
    if type(value) is date:
        return datetime(value.year, value.month, value.day)
    # Two types compare as unequal in this language, so those derived from others become these.
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return View(dict(zip(value._fields, value, strict=True)))
    if isinstance(value, list | tuple):
        return tuple(map(shown, value))
    if isinstance(value, set | frozenset):
        return set(map(shown, value))
    return View(_fields(value))


def _content(data: bytes) -> Any:
    """Bytes that hold a JSON object or array are that, others text; what is neither stays."""
    if data.lstrip()[:1] in (b"{", b"["):
        with suppress(orjson.JSONDecodeError):
            return shown(orjson.loads(data))
    with suppress(UnicodeDecodeError):
        return data.decode()
    return data


_AS_THEY_ARE = frozenset({str, int, float, bool, type(None), Decimal, datetime, timedelta})


def _key(sub: SubMessage) -> Any:
    if sub.keys is not None:
        raise CannotTell("it has several sub-keys; `keys` has them all")
    return shown(sub.key)


def _keys(sub: SubMessage) -> Any:
    if isinstance(sub, Barrier):
        return ()
    return shown((sub.key,) if sub.keys is None else sub.keys)


def _message(message: Message) -> View:
    # A view shows what is asked for: the value is parsed then.
    ms = message.timestamp
    time = None if ms is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    fields = {name: getattr(message, name) for name in ("topic", "partition", "offset")}
    fields |= {"key": message.key, "headers": dict(message.headers), "timestamp": time}
    with suppress(ValueNotShipped):
        fields["value"] = message.value
    return View(fields)


_FACTS: dict[str, Callable[[SubMessage], Any]] = {
    "key": _key,
    "keys": _keys,
    "payload": lambda sub: shown(sub.payload),
    "message": lambda sub: _message(sub.message),
    "index": lambda sub: sub.index,
    "barrier": lambda sub: isinstance(sub, Barrier),
}


def _fields(value: Any) -> dict[str, Any]:
    """What an object holds itself, by public name; none of its code runs."""
    fields: dict[str, Any] = {}
    if not (isinstance(value, type) or callable(value) or type(value).__module__ == "builtins"):
        for kind in type(value).__mro__:
            # Asking the object for its fields would call __getattr__ and properties.
            for name, member in vars(kind).items() if "__slots__" in vars(kind) else ():
                if isinstance(member, MemberDescriptorType):
                    with suppress(AttributeError):  # nothing was put there
                        fields[name] = member.__get__(value)
        with suppress(AttributeError, TypeError):
            fields |= object.__getattribute__(value, "__dict__")
    if not fields:
        raise CannotTell(f"{named(value)} is nothing that expressions can look at")
    return {name: each for name, each in fields.items() if not str(name).startswith("_")}


def named(value: Any) -> str:
    if value is None:
        return "null"
    if masking():
        return f"a {type(value).__name__}"
    text = f"{type(value).__name__} {value!r}" if type(value) in _AS_THEY_ARE else ""
    return text[:60] if text else f"a {type(value).__name__}"
