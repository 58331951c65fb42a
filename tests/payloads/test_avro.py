"""Avro whose schemas or bodies were made to end the process that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pytest

from drainer.decoding import Undecodable
from drainer.payloads.avro import NESTED, avro
from drainer.payloads.registry import Schema

LEAF = {
    "type": "record",
    "name": "Leaf",
    "fields": [{"name": "back", "type": ["string", "Tree"]}],
}
TREE: dict[str, Any] = {
    "type": "record",
    "name": "t.Tree",
    "aliases": ["Old"],
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "of", "type": ["null", "Tree"], "default": None},
        {"name": "leaves", "type": {"type": "map", "values": {"type": "array", "items": LEAF}}},
    ],
}
SMALL: dict[str, Any] = {"kind": "A", "of": None, "leaves": {"": []}}
LEVEL = b"\0\2"  # of kind A, and it has another one
EMPTY = {"type": "record", "name": "E", "fields": []}
NO_BYTES = {"type": "fixed", "name": "E", "size": 0}


def reader(schema: object, *references: object) -> Callable[[bytes], Any]:
    """A reader of bodies."""
    known = [(f"r{at}", Schema("AVRO", json.dumps(each))) for at, each in enumerate(references)]
    read = avro(Schema("AVRO", json.dumps(schema), tuple(known)))
    return lambda body: read(body, None)


def test_a_recursive_schema_is_read_as_fastavro_reads_it() -> None:
    schema = fastavro.parse_schema(json.loads(json.dumps(TREE)))
    leaves = {"x": [{"back": "no"}, {"back": ("t.Tree", SMALL)}]}
    written = BytesIO()
    fastavro.schemaless_writer(written, schema, {**SMALL, "kind": "B", "leaves": leaves})
    body = written.getvalue()
    expected = fastavro.schemaless_reader(BytesIO(body), schema, None)
    assert reader(TREE)(body) == reader("t.Tree", TREE)(body) == expected
    assert reader(["null", "t.Tree"], TREE)(b"\2" + body) == expected


def test_a_body_nested_deeper_than_the_stack_allows_is_undecodable() -> None:
    for_ever = {"type": "record", "name": "L", "fields": [{"name": "l", "type": "L"}]}
    assert reader(TREE)(LEVEL * (NESTED - 1) + b"\0\0" + b"\0" * NESTED)
    for schema, body in [
        (TREE, LEVEL * 100_000),
        (for_ever, b""),
        ({"type": "map", "values": TREE}, b"\2\0" + LEVEL * NESTED),
    ]:
        with pytest.raises(Undecodable, match="are in one another"):
            reader(schema)(body)
    wide = json.loads('{"type": "array", "items": ' * 100 + '"L"' + "}" * 100)
    with pytest.raises(Undecodable, match="nests too many types"):
        reader({**for_ever, "fields": [{"name": "l", "type": wide}]})


@pytest.mark.parametrize("items", ["null", EMPTY, NO_BYTES])
def test_a_few_bytes_are_not_more_values_than_memory_has(items: object) -> None:
    with pytest.raises(Undecodable, match="items without bytes"):
        reader(["null", {"type": "map", "values": {"type": "array", "items": items}}])


def test_types_without_bytes_do_not_multiply() -> None:
    marked = [{"name": "a", "type": EMPTY}, {"name": "b", "type": "E"}]
    for more, found in ([], {}), ([{"name": "c", "type": "int"}], {"c": 1}):
        read = reader({"type": "record", "name": "Marked", "fields": [*marked, *more]})
        assert read(b"\2") == {"a": {}, "b": {}, **found}
    nulls = [{"name": f"n{n}", "type": "null"} for n in range(900)]
    wide = {"type": "record", "name": "Wide", "fields": nulls}
    fields = [{"name": "w", "type": wide}, {"name": "v", "type": "Wide"}]
    for more in [], [{"name": "c", "type": "boolean"}]:
        items = {"type": "record", "name": "R", "fields": [*fields, *more]}
        with pytest.raises(Undecodable, match="values without bytes"):
            reader({"type": "map", "values": items})


def test_types_nested_deeper_than_the_stack_allows_are_undecodable() -> None:
    def chain(length: int) -> list[dict[str, Any]]:
        found = [{"type": "record", "name": "R0", "fields": [{"name": "v", "type": "int"}]}]
        for n in range(1, length):
            array = {"type": "array", "items": {"type": "array", "items": f"R{n - 1}"}}
            fields = [{"name": "v", "type": array}]
            found.append({"type": "record", "name": f"R{n}", "fields": fields})
        return found

    assert reader("R49", *chain(50))(b"\0") == {"v": []}
    with pytest.raises(Undecodable, match="too many types"):
        reader("R99", *chain(100))


def test_a_union_knows_the_types_that_it_refers_to() -> None:
    number = [{"name": "n", "type": "int"}]
    types = [{"type": "record", "name": f"t.{name}", "fields": number} for name in "AB"]
    assert reader(["t.A", "t.B"], *types)(b"\2\4") == {"n": 2}
