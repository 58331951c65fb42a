"""Avro by the schema that it was written with. Neither of them has to be from a friend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
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
MOST_LEADING = 1_000  # types that lead to recursion: there are as many for each of those records
MOST_NESTED = 250  # types in one another without recursion
MOST_WITHOUT_BYTES = 1_000  # values of a record
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
    _ensure_modest(named)
    names = {name: set(_names(each, named)) for name, each in named.items()}
    try:
        TopologicalSorter(names).prepare()
    except CycleError:
        needed = {name: _needed(name, names) for name in named}
        recursive = {name for name in named if name in needed[name]}
        parsed = _written_out(named, {name for name in named if recursive & needed[name]})
    read: Any = fastavro.schemaless_reader
    return lambda body, _: read(BytesIO(body), parsed, None)[_VALUE]


def _written_out(named: _Named, leading: Set[str]) -> Any:
    """The root without recursion: records that lead to some are there once for each level.

    One names those of the level below. What the lowest would name is undecodable.
    """
    if len(leading) > MOST_LEADING:
        raise Undecodable(f"it is recursive by more than {MOST_LEADING} types")
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


def _ensure_modest(named: _Named) -> None:
    """Ensure that the stack is enough, and that few bytes are not more values than memory has.

    Raises Undecodable.
    """
    known: dict[str, tuple[int, int]] = {}

    def measure(schema: Any) -> tuple[int, int]:
        """The values that a type has without any byte, and its types in one another."""
        if (name := _name(schema)) not in named:
            values, types, _ = of_inner(schema)
            if isinstance(schema, dict) and "items" in schema and values:
                raise Undecodable("it has an array of items without bytes")
            is_null = "null" in (schema, schema["type"] if isinstance(schema, dict) else None)
            return int(is_null), types
        if name not in known:
            known[name] = 0, 0  # as far as it contains itself: that is cut
            schema = named[name]
            values, types, is_empty = of_inner(schema)
            no_bytes = is_empty if "fields" in schema else schema.get("size") == 0
            known[name] = (1 + values) * no_bytes, types
        return known[name]

    def of_inner(schema: Any) -> tuple[int, int, bool]:
        """The same of all right within it, and whether none of them has bytes."""
        inner = [measure(each) for each in _inner(schema)]
        values = sum(values for values, _ in inner)
        types = 1 + max((types for _, types in inner), default=0)
        if values > MOST_WITHOUT_BYTES or types > MOST_NESTED:
            raise Undecodable("too many types are in one another, or values without bytes")
        return values, types, all(values for values, _ in inner)

    for name in named:
        measure(name)


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


def _names(schema: Any, named: _Named) -> Iterator[str]:
    """Names of types that a type names."""
    for each in _inner(schema):
        if (name := _name(each)) in named:
            yield name
        else:
            yield from _names(each, named)


def _needed(name: str, names: Mapping[str, Set[str]]) -> set[str]:
    """Names of the types that one needs, and these; its own if it contains itself."""
    found: set[str] = set()
    left = {name}
    while left:
        new = names[left.pop()] - found
        found |= new
        left |= new
    return found


def _cut(*_: Any) -> NoReturn:
    raise Undecodable(f"more than {NESTED} records of a recursive schema are in one another")


LOGICAL_READERS["null-drainer-cut"] = _cut
