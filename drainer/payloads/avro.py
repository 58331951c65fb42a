"""Decodes Avro by the schema with which it was written. Both may come from strangers.

The decoder reads only those parts of a schema that the Avro specification names. It ignores others,
such as marks that a library leaves there for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException
from struct import Struct
from sys import getsizeof
from typing import Any
from uuid import UUID

import orjson

from drainer.payloads.body import CONTAINER_BYTES, NAME_BYTES, VALUE_BYTES, Body
from drainer.payloads.registry import Schema
from drainer.split.decoding import Undecodable

# Decimals of more bytes are not converted, because that takes time in proportion to the square of
# their length.
LONGEST_DECIMAL = 1_024
_EPOCH, _LOCAL = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)
_DIGITS = Context(prec=3 * LONGEST_DECIMAL)
_Read = Callable[[Body], Any]


def avro(schema: Schema) -> Callable[[bytes, bytes | None], tuple[Any, int]]:
    """Make a reader of bodies. Raises errors of any type if the schema can't be used."""
    types = _Types()
    for each in schema.files().values():
        types.reader(orjson.loads(each.text), "")
    read = types.reader(orjson.loads(schema.text), "")

    def read_body(data: bytes, _: bytes | None) -> tuple[Any, int]:
        body = Body(data)
        return read(body), body.made_bytes

    return read_body


class _Types:
    """Makes readers of types, and remembers those of types that have a name."""

    def __init__(self) -> None:
        self._named: dict[str, _Read] = {}

    def reader(self, schema: Any, space: str) -> _Read:
        """Make the reader of a type. A name without a namespace is in the namespace ``space``."""
        if isinstance(schema, list):
            return _union([self.reader(each, space) for each in schema])
        if isinstance(schema, str):
            named = self._named.get(f"{space}.{schema}") or self._named.get(schema)
            if (found := _PRIMITIVES.get(schema) or named) is None:
                raise Undecodable(f"it names the type {schema!r}, which is not there")
            return found
        match kind := schema["type"]:
            case "array":
                found = _array(self.reader(schema["items"], space))
            case "map":
                found = _map(self.reader(schema["values"], space))
            case "record" | "error":
                found = self._record(schema, space)
            case "enum":
                found = _enum([str(each) for each in schema["symbols"]])
                self._add(schema, space, found)
            case "fixed":
                size = int(schema["size"])
                found = _logical(kind, schema, lambda body: body.take(size))
                self._add(schema, space, found)
            case _:
                found = _logical(str(kind), schema, self.reader(kind, space))
        return found

    def _add(self, schema: Any, space: str, found: _Read) -> str:
        """Register the reader of a named type, and return the namespace of the types in it."""
        name = schema["name"]
        if "." not in name and (space := schema.get("namespace", space)):
            name = f"{space}.{name}"
        if name in self._named:
            raise Undecodable(f"it has two types {name!r}")
        self._named[name] = found
        return str(name.rpartition(".")[0])

    def _record(self, schema: Any, space: str) -> _Read:
        fields: dict[str, _Read] = {}

        def read(body: Body) -> dict[str, Any]:
            body.spend(size)
            return {name: read(body) for name, read in typed}

        # The record is added before its fields, because it may contain itself.
        space = self._add(schema, space, read)
        for field in schema["fields"]:
            fields[str(field["name"])] = self.reader(field["type"], space)
        if len(fields) < len(schema["fields"]):
            raise Undecodable(f"its record {schema['name']!r} has two fields of one name")
        typed, size = [*fields.items()], getsizeof(fields) + VALUE_BYTES * len(fields)
        return read


def _string(body: Body) -> str:
    data, at = body.data, body.at
    if (size := data[at]) & 0x81:  # The length has several bytes, or it is negative.
        return body.take(body.signed()).decode()
    body.at = end = at + 1 + (size >> 1)
    if end > body.size:
        raise IndexError
    return data[at + 1 : end].decode()


def _struct(kind: str) -> _Read:
    """Make the reader of a number of fixed size."""
    struct = Struct(kind)
    size, unpack = struct.size, struct.unpack_from

    def read(body: Body) -> Any:
        at = body.at
        body.at = at + size
        return unpack(body.data, at)[0]

    return read


_PRIMITIVES: dict[str, _Read] = {
    "null": lambda _: None,
    "boolean": _struct("?"),
    "int": Body.signed,
    "long": Body.signed,
    "float": _struct("<f"),
    "double": _struct("<d"),
    "bytes": lambda body: body.take(body.signed()),
    "string": _string,
}


def _one_of(body: Body, count: int) -> int:
    if not 0 <= (index := body.signed()) < count:
        raise Undecodable(f"the index {index} before byte {body.at:,} is not below {count}")
    return index


def _enum(symbols: list[str]) -> _Read:
    count = len(symbols)
    return lambda body: symbols[_one_of(body, count)]


def _union(types: list[_Read]) -> _Read:
    count = len(types)
    return lambda body: types[_one_of(body, count)](body)


def _blocks(body: Body, size: int) -> Iterator[int]:
    """Yield the number of values in each block of an array or map.

    The memory for them is counted before: ``size`` bytes for each value.
    """
    body.spend(CONTAINER_BYTES)
    while count := body.signed():
        if count < 0:
            count = -count
            body.signed()  # This is the length of the block in bytes, which is not needed.
        body.spend(count * size)
        yield count


def _array(read: _Read) -> _Read:
    def read_array(body: Body) -> list[Any]:
        found: list[Any] = []
        for count in _blocks(body, VALUE_BYTES):
            found += [read(body) for _ in range(count)]
        return found

    return read_array


def _map(read: _Read) -> _Read:
    def read_map(body: Body) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for count in _blocks(body, NAME_BYTES + 2 * VALUE_BYTES):
            for _ in range(count):
                name = _string(body)
                found[name] = read(body)
        return found

    return read_map


def _logical(kind: str, schema: Any, read: _Read) -> _Read:
    """Make the reader of a logical type. It leaves a value as it is if Python has none like it."""
    convert = _CONVERSIONS.get((kind, str(schema.get("logicalType"))))
    if convert is _decimal:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        # The specification says that a wrong logical type is ignored.
        is_right = type(precision) is type(scale) is int and 0 <= scale <= precision
        convert = (lambda data: _decimal(data, scale)) if is_right else None
    if convert is None:
        return read

    def read_logical(body: Body) -> Any:
        value = read(body)
        try:
            return convert(value)
        except (ValueError, OverflowError, DecimalException):
            return value

    return read_logical


def _decimal(data: bytes, scale: int = 0) -> Decimal:
    if len(data) > LONGEST_DECIMAL:
        raise OverflowError
    return _DIGITS.scaleb(Decimal(int.from_bytes(data, signed=True)), -scale)


def _time(since: timedelta) -> time:
    if since.days:
        raise OverflowError
    return (_LOCAL + since).time()


_CONVERSIONS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): UUID,
    ("int", "date"): lambda number: date.fromordinal(number + _LOCAL.toordinal()),
    ("int", "time-millis"): lambda number: _time(timedelta(milliseconds=number)),
    ("long", "time-micros"): lambda number: _time(timedelta(microseconds=number)),
    ("long", "timestamp-millis"): lambda number: _EPOCH + timedelta(milliseconds=number),
    ("long", "timestamp-micros"): lambda number: _EPOCH + timedelta(microseconds=number),
    ("long", "local-timestamp-millis"): lambda number: _LOCAL + timedelta(milliseconds=number),
    ("long", "local-timestamp-micros"): lambda number: _LOCAL + timedelta(microseconds=number),
}
