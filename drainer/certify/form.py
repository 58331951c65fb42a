"""Turns values into text that shows their structure, and is the same in every process.

``repr`` and ``pickle`` may differ between processes, because a set has a different order there, and
an object a different address.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from drainer.text.escape import repr_of, shorten

_ATOMS = (str, bytes, int, float, complex, bool, type(None))
_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


def form_of(value: Any) -> str:
    """Return the structure of a value as text. Never raises."""
    try:
        return _form(value, ())
    except RecursionError:
        return f"<opaque {type(value).__name__}: nested too deeply>"


def _form(value: Any, above: tuple[int, ...]) -> str:
    kind = type(value)
    if kind in _ATOMS:
        return repr(value)
    if id(value) in above:
        return f"<again {len(above) - above.index(id(value))} up>"
    inside = (*above, id(value))
    if isinstance(value, _NAMED):
        return f"<{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', kind)}>"
    if kind is dict:
        parts = [f"{_form(k, inside)}: {_form(v, inside)}" for k, v in value.items()]
    elif kind in (list, tuple, set, frozenset):
        parts = [_form(item, inside) for item in value]
    else:
        return _form_of_object(value, inside)
    return f"{kind.__name__}[{', '.join(parts if kind in (list, tuple) else sorted(parts))}]"


def _form_of_object(value: Any, inside: tuple[int, ...]) -> str:
    kind = type(value)
    try:
        made = value.__reduce_ex__(4)
    except Exception:  # The user's own code may run here.
        return f"<opaque {kind.__qualname__}>"
    if isinstance(made, str):
        return f"<{kind.__qualname__} {made}>"
    parts = [list(part) if isinstance(part, Iterator) else part for part in made]
    return f"{kind.__qualname__}({', '.join(_form(part, inside) for part in parts)})"


def difference(one: Any, other: Any, place: str = "") -> tuple[str, str, str]:
    """Return the place where two values first differ, and what each of them has there.

    The place is written as in ``['a'][3]``, after ``place``.
    """
    if type(one) is type(other):
        if isinstance(one, dict):
            for key in [*one, *(key for key in other if key not in one)]:
                if key not in one or key not in other:
                    absent = "nothing"
                    here = short(one[key]) if key in one else absent
                    there = short(other[key]) if key in other else absent
                    return f"{place}[{short(key, 40)}]", here, there
                if not equal(one[key], other[key]):
                    return difference(one[key], other[key], f"{place}[{short(key, 40)}]")
        elif isinstance(one, (list, tuple)) and len(one) == len(other) and len(one) > 3:
            for index, (here, there) in enumerate(zip(one, other, strict=True)):
                if not equal(here, there):
                    return difference(here, there, f"{place}[{index}]")
    return place, short(one), short(other)


def equal(one: Any, other: Any) -> bool:
    """Compare two values by ``==``, or by structure where ``==`` fails or only compares identity.

    ``==`` fails for arrays, for example.
    """
    by_identity: object = object.__eq__
    try:
        if one == other:
            return True
        structure_counts = type(one).__eq__ is by_identity
    except Exception:  # The user's own code may run here.
        structure_counts = True
    return structure_counts and form_of(one) == form_of(other)


def short(value: Any, width: int = 200) -> str:
    """Return the repr of a value, shortened in its middle. Never raises."""
    return shorten(repr_of(value), width)
