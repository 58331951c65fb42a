"""The types of what a program gives: the arguments of functions, settings and requests.

Types that Python checks nowhere would end in errors from deep inside, or in a drain that does not
do what was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import cache, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from drainer.errors import WrongValue

P = ParamSpec("P")
T = TypeVar("T")

_NAMES: Mapping[Any, str] = {
    **{NoneType: "None", str: "a text", int: "a whole number", float: "a number"},
    **{bool: "True or False", type: "a class", Callable: "a function"},
    **{Mapping: "a mapping of texts"},
}


def ensure_types(
    given: Mapping[str, object], types: Mapping[str, Any], hints: Mapping[str, str]
) -> None:
    """Ensure that values have their types. Raises WrongValue for the first that has not.

    ``hints`` has the way out for names for which that is more than the type.
    """
    for name, value in given.items():
        if not _fits(value, types[name]):
            wanted = _named(types[name])
            hint = hints.get(name, f"Give {wanted}.")
            raise WrongValue(f"{name} is {_shown(value)}, and not {wanted}", hint=hint)


def ensure_fields(record: Any, hints: Mapping[str, str] | None = None) -> None:
    """Ensure that the fields of a new dataclass have their types. Raises WrongValue."""
    given = {each.name: getattr(record, each.name) for each in fields(record)}
    ensure_types(given, _types_of(record.__class__), hints or {})


def checked(**hints: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a decorator that ensures the types of a function's arguments.

    The function then raises WrongValue, with the hint of the argument if ``hints`` has one.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> T:
            given = signature(function).bind(*args, **named).arguments
            ensure_types(given, _types_of(function), hints)
            return function(*args, **named)

        return call

    return decorate


_types_of = cache(get_type_hints)  # Settings are made again for each change of one of them.


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Any:
        return True
    if issubclass(origin, Mapping):
        items = value.items() if isinstance(value, Mapping) else ()
        whole = all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in items)
        return isinstance(value, Mapping) and whole
    if issubclass(origin, Collection) and inner:
        of_kind = isinstance(value, origin) and not isinstance(value, str)
        return of_kind and all(_fits(each, inner[0]) for each in value)
    if origin in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if origin is float else origin)


def _named(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_named, get_args(kind))))
    if issubclass(origin, Collection) and get_args(kind) and not issubclass(origin, Mapping):
        return f"several, each {_named(get_args(kind)[0])}"
    return _NAMES.get(origin, getattr(origin, "__name__", str(origin)))


def _shown(value: object) -> str:
    """Describe a value. A text may be a secret, so it is not shown."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    return "a text" if isinstance(value, str) else f"an object of {type(value).__name__}"
