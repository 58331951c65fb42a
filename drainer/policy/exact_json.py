"""Python values as bytes, and back with the same values and types. Nothing is pickled."""

from __future__ import annotations

import ast
import marshal
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Raw, json

from drainer.text.escape import repr_of
from drainer.text.raw_json import raw_json

LITERAL_CHARACTERS_MOST = 256 * 1024  # To read a literal, Python takes 500 times as many bytes.
# The type of each tag, how it is written as text, and how it is read. Avro's logical types are
# among these.
_TAGS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "$datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "$date": (date, date.isoformat, date.fromisoformat),
    "$time": (time, time.isoformat, time.fromisoformat),
    "$decimal": (Decimal, str, Decimal),
    "$uuid": (UUID, str, UUID),
    "$bytes": (bytes, bytes.hex, bytes.fromhex),
}
_NO_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


class Encoding(StrEnum):
    """Ways to write a value.

    The encodings up to ``literal`` give the value back exactly. ``raw`` stands for the bytes of the
    message from which the value was decoded, and ``repr`` is for people to read. Records never have
    an encoding of ``FOUND``: if a letter has no payload, a redrive looks for the message that it
    came from, and these tell what it found.
    """

    NULL = "null"
    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    TYPED = "typed"  # JSON in which an object such as {"$date": "2026-11-27"} stands for a value.
    LITERAL = "literal"  # Python source, which ast.literal_eval reads.
    RAW = "raw"
    REPR = "repr"
    LEFT_OUT = "left-out"
    ORIGINAL = "original"  # The message's value, from which split makes the sub-message again.
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    FORBIDDEN = "forbidden"


FOUND = frozenset({Encoding.ORIGINAL, Encoding.GONE, Encoding.ELSEWHERE, Encoding.FORBIDDEN})


def encode_payload(payload: Any) -> tuple[bytes | None, Encoding]:
    """Encode a payload in the first encoding that gives it back exactly, or else as its repr."""
    if payload is None:
        return None, Encoding.NULL
    if type(payload) is bytes:
        return payload, Encoding.BYTES
    if type(payload) is Raw:
        return bytes(payload), Encoding.JSON
    if type(payload) is str:
        try:
            return payload.encode(), Encoding.TEXT
        except UnicodeEncodeError:  # It has half of a surrogate pair, which a literal can express.
            pass
    else:
        for encoding in (Encoding.JSON, Encoding.TYPED):
            try:
                plain = payload if encoding is Encoding.JSON else _tagged(payload)
                written = json.encode(plain)
                if _is_same(plain, json.decode(written)):
                    return written, encoding
            except (TypeError, ValueError, RecursionError):
                pass
    text, exact = as_literal(payload)
    encoded = text.encode("utf-8", "backslashreplace")
    return encoded, Encoding.LITERAL if exact else Encoding.REPR


def decode_payload(value: bytes | None, encoding: Encoding) -> Any:
    """Return the payload that was encoded.

    JSON stays raw, a ``repr`` gives its text, and a payload that was left out gives None. Raises
    ValueError when the bytes are not of this encoding.
    """
    if encoding in (Encoding.NULL, Encoding.LEFT_OUT):
        return None
    if encoding in FOUND:
        raise ValueError(f"no record has a payload that is {encoding}")
    if value is None:
        raise ValueError(f"it has no value, and should have {encoding}")
    match encoding:
        case Encoding.BYTES | Encoding.RAW:
            return value
        case Encoding.JSON:
            return raw_json(value)
        case Encoding.TYPED:
            return _untagged(json.decode(value))
        case Encoding.LITERAL:
            return from_literal(value.decode())
        case _:
            return value.decode()


def _tagged(value: Any) -> Any:
    """Return the value with objects in place of what JSON can't express.

    Raises ValueError when that is not possible.
    """
    kind = type(value)
    if kind is dict:
        if any(type(name) is str and name.startswith("$") for name in value):
            raise ValueError("a name looks like a tag")
        return {name: _tagged(each) for name, each in value.items()}
    if kind is list:
        return [_tagged(each) for each in value]
    for tag, (of, write, read) in _TAGS.items():
        if kind is of:
            text = write(value)
            if repr(read(text)) != repr(value):  # For a time, the text lacks the name of the zone.
                raise ValueError(f"{text} is not all of it")
            return {tag: text}
    return value


def _untagged(value: Any) -> Any:
    if type(value) is list:
        return [_untagged(each) for each in value]
    if type(value) is not dict:
        return value
    for name, text in value.items():
        if name in _TAGS and len(value) == 1 and type(text) is str:
            try:
                return _TAGS[name][2](text)
            except ArithmeticError as error:  # Decimal raises it.
                raise ValueError(f"{text!r} is no {name}") from error
    return {name: _untagged(each) for name, each in value.items()}


def as_literal(value: Any) -> tuple[str, bool]:
    """Return the value's repr, and whether ``from_literal`` gives the same value back.

    It never raises.
    """
    text = repr_of(value)
    try:
        return text, _is_same(value, from_literal(text))
    except _NO_LITERAL:
        return text, False


def from_literal(text: str) -> Any:
    """Return the value of a Python literal, without running code.

    Raises ValueError when the text is not a literal, or too long.
    """
    if len(text) > LITERAL_CHARACTERS_MOST:
        raise ValueError(f"this is a literal of over {LITERAL_CHARACTERS_MOST:,} characters")
    try:
        return ast.literal_eval(text)
    except _NO_LITERAL as error:
        raise ValueError(f"this is not a literal: {error}") from None


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and have the same built-in types, at every depth.

    ``==`` does not distinguish 1 from True and 1.0. marshal does, because it writes only built-in
    types, and each in its own way. Classes derived from bytes are the exception: it writes them as
    bytes. Its format 2 writes equal values as equal bytes. Raises RecursionError when they are
    nested too deeply.
    """
    try:
        return marshal.dumps(one, 2) == marshal.dumps(other, 2) and _has_plain_bytes(one)
    except ValueError:
        return False


def _has_plain_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_has_plain_bytes, value))
    return type(value) is bytes or not isinstance(value, bytes)
