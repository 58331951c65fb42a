"""Avro by the schema that it was written with. Neither of them has to be from a friend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from io import BytesIO
from typing import Any, NoReturn

import fastavro
import orjson
from fastavro.read import LOGICAL_READERS

from drainer.decoding import Undecodable
from drainer.payloads.registry import Schema

# Records of a recursive schema in one another, as many as Protobuf allows, and types in each. The
# stack of fastavro's reader overflows at some 10,000 types in one another: the process ends.
NESTED, NESTED_TYPES = 100, 16
_TOO_DEEP = {"type": "null", "logicalType": "drainer-cut"}  # stands for what is nested deeper
_INNER = "items", "values"  # of arrays and maps
_ROOT, _VALUE = "drainer_root", "value"
_Named = Mapping[str, Any]  # types as fastavro has parsed them, by their full names


def avro(schema: Schema) -> Callable[[bytes, bytes | None], Any]:
    """Make a reader of bodies. Raises errors of any type where the schema is of no use."""
    named: dict[str, Any] = {}
    for each in schema.files().values():
        fastavro.parse_schema(orjson.loads(each.text), named_schemas=named)
    # In a record: else a union or an array would not know the types that it names.
    root = _record(_ROOT, {_VALUE: orjson.loads(schema.text)})
    parsed: Any = fastavro.parse_schema(root, named_schemas=named)
    _ensure_bytes(named)
    needed = {name: _needed(name, named) for name in named}
    recursive = {name for name in named if name in needed[name]}
    if recursive & needed[_ROOT]:
        parsed = _written_out(named, {name for name in named if recursive & needed[name]})
    read: Any = fastavro.schemaless_reader
    return lambda body, _: read(BytesIO(body), parsed, None)[_VALUE]


def _written_out(named: _Named, leading: Set[str]) -> Any:
    """The root without recursion: records that lead to some are there once for each level.

    One names those of the level below. What the lowest would name is undecodable.
    """
    known = {name: schema for name, schema in named.items() if name not in leading}

    def below(level: int, schema: Any, types: int = 0) -> Any:
        if types > NESTED_TYPES:
            raise Undecodable("it is recursive, and nests too many types")
        if (name := _name(schema)) in leading:
            return f"{name}__{level - 1}" if level else _TOO_DEEP
        if name in named or isinstance(schema, str):
            return name
        if isinstance(schema, list):
            return [below(level, each, types + 1) for each in schema]
        inner = {at: below(level, schema[at], types + 1) for at in _INNER if at in schema}
        return {**schema, **inner}

    def record(name: str, level: int, own: str) -> Any:
        fields = {each["name"]: below(level, each["type"]) for each in named[name]["fields"]}
        return fastavro.parse_schema(_record(own, fields), named_schemas=known)

    for level in range(NESTED):
        for name in leading - {_ROOT}:
            record(name, level, f"{name}__{level}")
    return record(_ROOT, NESTED, _ROOT)


def _ensure_bytes(named: _Named) -> None:
    """Ensure that few bytes don't stand for more values than memory has. Raises Undecodable."""
    known: dict[str, bool] = {}

    def is_empty(schema: Any) -> bool:
        """Whether it is read from no bytes."""
        if (name := _name(schema)) in named:
            if name not in known:
                known[name] = False  # as far as it contains itself: that is cut
                known[name] = named_is_empty(named[name])
            return known[name]
        inner = [is_empty(each) for each in _inner(schema)]
        if isinstance(schema, dict) and "items" in schema and all(inner):
            raise Undecodable("it has an array of items without bytes")
        return "null" in (schema, schema["type"] if isinstance(schema, dict) else None)

    def named_is_empty(schema: dict[str, Any]) -> bool:
        inner = _inner(schema)
        empty = [is_empty(each) for each in inner]
        if "fields" not in schema or not all(empty):
            return schema.get("size") == 0
        if any(_name(each) in named for each in inner):
            raise Undecodable("it has types without bytes in one another")
        return True

    for name in named:
        is_empty(name)


def _record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    typed = [{"name": name, "type": schema} for name, schema in fields.items()]
    return {"type": "record", "name": name, "fields": typed}


def _name(schema: Any) -> Any:
    """The name of a type, of Avro's own or not; None if it has none."""
    if isinstance(schema, dict):
        return schema.get("name")
    return schema if isinstance(schema, str) else None


def _inner(schema: Any) -> list[Any]:
    """The types right within a type."""
    if isinstance(schema, str):
        return []
    if isinstance(schema, list):
        return schema
    fields = [each["type"] for each in schema.get("fields", ())]
    return fields + [schema[at] for at in _INNER if at in schema]


def _needed(name: str, named: _Named) -> set[str]:
    """Names of the types that one needs, and these; its own if it contains itself."""
    found: set[str] = set()
    left = _inner(named[name])
    while left:
        schema = left.pop()
        if (known := _name(schema)) not in named:
            left += _inner(schema)
        elif known not in found:
            found.add(known)
            left += _inner(named[known])
    return found


def _cut(*_: Any) -> NoReturn:
    raise Undecodable(f"more than {NESTED} records of a recursive schema are in one another")


LOGICAL_READERS["null-drainer-cut"] = _cut
