"""Records as JSON. They are frozen dataclasses, and msgspec checks them when they are read.

A type that is better written in another form has two more attributes: ``written`` is its type in
JSON, and ``parse`` makes a value of that.
"""

from __future__ import annotations

from threading import RLock
from typing import Annotated, Any, Self, TypeVar

import msgspec

# If two threads at once are the first to read a kind of record, the process crashes (msgspec 0.22).
_LEARNING = RLock()

Kind = TypeVar("Kind")

WHOLE_MOST = 2**63 - 1
Whole = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_MOST)]  # An offset or a count.
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Milliseconds = Annotated[int, msgspec.Meta(ge=-WHOLE_MOST, le=WHOLE_MOST)]  # A time since 1970.


class JsonRecord:
    """A dataclass that is an object in JSON, with the same fields."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        return builtins(self)

    @classmethod
    def from_json(cls, body: object) -> Self:
        """Make a record from an object in JSON.

        A field with a default may be missing, and an unknown field is ignored. Raises ValueError,
        with the path of the field, when another field is missing or makes no sense.
        """
        return convert(body, cls)


class AsText:
    """A value that is text in JSON. Values of one type are equal if they have the same text."""

    __slots__ = ()
    written = str

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _written(value: object) -> str:
    if not hasattr(type(value), "written"):
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return str(value)


def builtins(body: object) -> dict[str, Any]:
    """Return a record as a dictionary that has only types of JSON."""
    found: dict[str, Any] = msgspec.to_builtins(body, str_keys=True, enc_hook=_written)
    return found


def convert(body: object, kind: type[Kind]) -> Kind:
    """Convert JSON values to a record. Raises ValueError as ``from_json`` does."""
    try:
        with _LEARNING:
            return msgspec.convert(body, kind, str_keys=True, dec_hook=_parse)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def decode(data: bytes, kind: type[Kind]) -> Kind:
    """Read JSON as a record, or as another type. Raises ValueError as ``from_json`` does."""
    try:
        with _LEARNING:
            return msgspec.json.decode(data, type=kind, dec_hook=_parse)
    except (msgspec.DecodeError, RecursionError) as error:  # ValidationError is a DecodeError.
        raise ValueError(str(error)) from None


def encode(body: object) -> bytes:
    """Write compact JSON. Raises ValueError when a text in it is not UTF-8."""
    return _ENCODER.encode(body)


_ENCODER = msgspec.json.Encoder(enc_hook=_written)


def _parse(kind: Any, value: object) -> Any:
    if type(value) is not kind.written:
        raise TypeError(f"Expected `{kind.written.__name__}`, got `{type(value).__name__}`")
    return kind.parse(value)
