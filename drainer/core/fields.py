"""Fields of a plan or a journal by type: ``int()`` and ``str()`` would take nearly anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def whole(value: object) -> int:
    """Raises TypeError unless it is a whole number; True and 1.0 are none."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def number_of(value: object) -> float:
    """Raises TypeError unless it is a number, whole or not; True is none."""
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    return float(value)  # type: ignore[arg-type]


def yes_or_no(value: object) -> bool:
    """Raises TypeError unless it is true or false."""
    if type(value) is not bool:
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def text(value: object) -> str:
    """Raises TypeError unless it is a string."""
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def listed(value: object) -> list[Any]:
    """Raises TypeError unless it is a list."""
    if type(value) is not list:
        raise TypeError(f"{value!r} is no list")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Raises TypeError unless it is a list of strings; a string alone is none."""
    if type(value) is not list:
        raise TypeError(f"{value!r} is no list")
    return tuple(map(text, value))


def numbers(value: object) -> tuple[float, ...]:
    """Raises TypeError unless it is a list of numbers."""
    if type(value) is not list:
        raise TypeError(f"{value!r} is no list")
    return tuple(map(number_of, value))


def optional(kind: Callable[[Any], Kind], value: Any) -> Kind | None:
    """A field that may be null."""
    return None if value is None else kind(value)


def number(name: str) -> int:
    """A number that names a field, as partitions and offsets do. Raises ValueError."""
    if not (name.isascii() and name.isdecimal()):
        raise ValueError(f"{name!r} is no number")
    return int(name)
