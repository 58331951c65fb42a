"""Records as JSON: declared once, as frozen dataclasses, and checked by msgspec as they are read.

A type that reads better as text has ``written``, the type that JSON has of it, and ``parse``.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Annotated, Any, Self, TypeVar

import msgspec

# Two threads that are the first to read a record, at once, end the process (msgspec 0.22).
_LEARNING = RLock()

Kind = TypeVar("Kind")

WHOLE_MOST = 2**63 - 1
Whole = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_MOST)]  # an offset or a count
Milliseconds = Annotated[int, msgspec.Meta(ge=-WHOLE_MOST, le=WHOLE_MOST)]  # since 1970, or before


class JsonRecord:
    """A dataclass that is an object in JSON, with the same fields."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        return builtins(self)

    @classmethod
    def from_json(cls, body: object) -> Self:
        """Raises ValueError, with the path, when a field is missing or makes no sense.

        A field with a default may be missing; one that is unknown is left out.
        """
        return convert(body, cls)


def _written(value: object) -> str:
    if not hasattr(type(value), "written"):
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return str(value)


def builtins(body: object) -> dict[str, Any]:
    """An object in JSON, of what JSON has, with text for keys."""
    found: dict[str, Any] = msgspec.to_builtins(body, str_keys=True, enc_hook=_written)
    return found


def convert(body: object, kind: type[Kind], parse: Callable[[Any, Any], Any] | None = None) -> Kind:
    """Convert JSON values to a record. Raises ValueError as ``from_json`` does."""
    try:
        with _LEARNING:
            return msgspec.convert(body, kind, str_keys=True, dec_hook=parse or _parse)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def decode(data: bytes, kind: type[Kind]) -> Kind:
    """Read JSON as a record, or as another type. Raises ValueError as ``from_json`` does."""
    try:
        with _LEARNING:
            return msgspec.json.decode(data, type=kind, dec_hook=_parse)
    except (msgspec.DecodeError, RecursionError) as error:  # a ValidationError among them
        raise ValueError(str(error)) from None


def encode(body: object) -> bytes:
    """Compact JSON. Raises ValueError when a text in it is not UTF-8."""
    return _ENCODER.encode(body)


_ENCODER = msgspec.json.Encoder(enc_hook=_written)


def _parse(kind: Any, value: object) -> Any:
    if type(value) is not kind.written:
        raise TypeError(f"Expected `{kind.written.__name__}`, got `{type(value).__name__}`")
    return kind.parse(value)
