"""Facts: what an expression can see of a sub-message.

Payloads appear as views. A view has the fields of a mapping or an object, but no methods and
properties, and nothing whose name begins with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import MemberDescriptorType
from typing import Any
from uuid import UUID

from msgspec import Raw

from drainer.errors import ValueNotShipped
from drainer.message import Barrier, Message, SubMessage
from drainer.model.order import key_text, keys_of
from drainer.text.mask import masking
from drainer.text.raw_json import raw_json, read_level


class Undecided(Exception):
    """Raised when an expression has no answer for a sub-message; the text has the reason."""


class Missing(Undecided):
    """Raised when an expression has no answer because an object lacks a field, or is null."""


class Facts:
    """The values that an expression's names have for one sub-message.

    Each value is computed when it is first used.
    """

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
    """The fields of a mapping or an object. Their values are views, too.

    ``keys`` and ``values`` are empty: rule-engine would otherwise read a whole payload to find out
    its types. ``text`` is the JSON that the fields were read from, if there is any.
    """

    __slots__ = ("fields", "text")

    def __init__(self, fields: Mapping[Any, Any], text: bytes | None = None) -> None:
        self.fields = fields
        self.text = text

    def __getitem__(self, name: Any) -> Any:
        return shown(self.fields[name])

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and _shown_fields(self) == _shown_fields(other)

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> Any:
        return ()

    def values(self) -> Any:
        return ()


def _shown_fields(view: View) -> dict[Any, Any]:
    return {name: view[name] for name in view}


def shown(value: Any) -> Any:  # noqa: PLR0911, PLR0912 - a table of types
    """Return a value as expressions see it. Raises Undecided for one that they can't read."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Raw):
        text = bytes(value)
        level = read_level(text)
        return View(level, text) if type(level) is dict else shown(level)
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
    # In this language, values of different types are never equal. So a value of a derived type
    # becomes one of the type itself.
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
    """Return bytes as a JSON object or array, or else as text. Return other bytes unchanged."""
    if data.lstrip()[:1] in (b"{", b"["):
        with suppress(ValueError, RecursionError):
            return shown(raw_json(data))
    return text_of(data)


def text_of(data: bytes | None) -> str | bytes | None:
    """Return bytes as text. Bytes that are not UTF-8 stay bytes."""
    with suppress(UnicodeDecodeError):
        return None if data is None else data.decode()
    return data


_AS_THEY_ARE = frozenset({str, int, float, bool, type(None), Decimal, datetime, timedelta})


def _key(sub: SubMessage) -> Any:
    if sub.keys is not None:
        raise Undecided("it has several sub-keys; `keys` has them all")
    return shown(sub.key)


def _keys(sub: SubMessage) -> Any:
    return () if isinstance(sub, Barrier) else shown(tuple(keys_of(sub)))


def _sub_key(sub: SubMessage) -> str:
    if len(keys_of(sub)) != 1:
        raise Undecided("it has several sub-keys; `sub_keys` has them all")
    return key_text(keys_of(sub)[0])


def _sub_keys(sub: SubMessage) -> tuple[str, ...]:
    return () if isinstance(sub, Barrier) else tuple(map(key_text, keys_of(sub)))


def _message(message: Message) -> View:
    # The view parses the value only when an expression reads it.
    ms = message.timestamp
    time = None if ms is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    fields = {name: getattr(message, name) for name in ("topic", "partition", "offset")}
    fields |= {"key": message.decoded_key, "headers": dict(message.headers), "timestamp": time}
    with suppress(ValueNotShipped):
        fields["value"] = message.meaning
    return View(fields)


_FACTS: dict[str, Callable[[SubMessage], Any]] = {
    "key": _key,
    "keys": _keys,
    "sub_key": _sub_key,
    "sub_keys": _sub_keys,
    "payload": lambda sub: shown(sub.content),
    "message": lambda sub: _message(sub.message),
    "index": lambda sub: sub.index,
    "barrier": lambda sub: isinstance(sub, Barrier),
}


NAMES = tuple(_FACTS)


def _fields(value: Any) -> dict[str, Any]:
    """Return the public attributes that an object holds itself. None of its code runs."""
    fields: dict[str, Any] = {}
    if not (isinstance(value, type) or callable(value) or type(value).__module__ == "builtins"):
        for kind in type(value).__mro__:
            # Getting the fields from the object would call __getattr__ and properties.
            for name, member in vars(kind).items() if "__slots__" in vars(kind) else ():
                if isinstance(member, MemberDescriptorType):
                    with suppress(AttributeError):  # The slot is empty.
                        fields[name] = member.__get__(value)
        with suppress(AttributeError, TypeError):
            fields |= object.__getattribute__(value, "__dict__")
    if not fields:
        raise Undecided(f"{named(value)} is not a value that expressions can read")
    return {name: each for name, each in fields.items() if not str(name).startswith("_")}


_OBJECT, _LIST = "an object", "a list"
_KINDS: dict[type, str] = {dict: _OBJECT, View: _OBJECT, list: _LIST, tuple: _LIST}


def named(value: Any) -> str:
    if value is None:
        return "null"
    if type(value) in _AS_THEY_ARE and not masking():
        return f"{type(value).__name__} {value!r}"[:60]
    return _KINDS.get(type(value), f"a {type(value).__name__}")
