"""Avro: what fits its schema is read, and neither schema nor body ends the process."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.message import Message, Origin
from drainer.payloads.avro import LONGEST_DECIMAL, avro
from drainer.payloads.body import FREE_BYTES
from drainer.payloads.registry import Schema
from drainer.split.decoding import Decoding, Undecodable

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
EVERYTHING: list[Any] = [
    *("boolean", "int", "long", "float", "double", "bytes", "string"),
    {"type": "fixed", "name": "F", "size": 3},
    {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    ["null", "string", {"type": "array", "items": ["null", "F"]}],
    {"type": "map", "values": "C"},
]
RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(EVERYTHING)],
}
INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(
    lambda at: at.replace(fold=0)
)
VALUES: list[st.SearchStrategy[Any]] = [
    *(st.booleans(), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)),
    *(st.floats(width=32), st.floats(), st.binary(max_size=200), st.text(max_size=200)),
    *(st.binary(min_size=3, max_size=3), st.sampled_from(["RED", "BLUE"])),
    INSTANTS.map(lambda at: at.replace(microsecond=0, fold=0, tzinfo=UTC)),
    *(INSTANTS, st.dates(date(1, 1, 1))),
    st.times().map(lambda at: at.replace(microsecond=0, fold=0)),
    *(st.times().map(lambda at: at.replace(fold=0)), st.uuids()),
    st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-2)),
    st.none() | st.text() | st.lists(st.none() | st.binary(min_size=3, max_size=3)),
    st.dictionaries(st.text(), st.sampled_from(["RED", "BLUE"])),
]


def reader(schema: object, *references: object) -> Callable[[bytes], Any]:
    """A reader of bodies."""
    known = [(f"r{at}", Schema("AVRO", json.dumps(each))) for at, each in enumerate(references)]
    read = avro(Schema("AVRO", json.dumps(schema), tuple(known)))
    return lambda body: read(body, None)[0]


def written(schema: Any, value: Any) -> bytes:
    """Bytes that fastavro writes."""
    body = BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.schemaless_writer(body, parsed, value)
    return body.getvalue()


@given(st.tuples(*VALUES))
def test_values_of_all_types_are_read_as_fastavro_wrote_them(values: tuple[Any, ...]) -> None:
    record = {f"f{at}": each for at, each in enumerate(values)}
    found = reader(RECORD)(written(RECORD, record))
    assert repr(found) == repr(record)  # so that NaN and -0.0 are compared


@given(st.binary())
def test_any_bytes_are_a_value_or_a_clear_failure(body: bytes) -> None:
    for schema in (RECORD, TREE):
        with suppress(Undecodable, UnicodeDecodeError, IndexError, struct.error):
            reader(schema)(body)


def test_a_recursive_schema_is_read_as_fastavro_reads_it() -> None:
    leaves = {"x": [{"back": "no"}, {"back": ("t.Tree", SMALL)}]}
    value = {**SMALL, "kind": "B", "leaves": leaves}
    body = written(TREE, value)
    expected = fastavro.schemaless_reader(
        BytesIO(body), fastavro.parse_schema(json.loads(json.dumps(TREE))), None
    )
    assert reader(TREE)(body) == reader("t.Tree", TREE)(body) == expected
    assert reader(["null", "t.Tree"], TREE)(b"\2" + body) == expected


def test_a_body_that_is_nested_without_end_is_undecodable() -> None:
    for_ever = {"type": "record", "name": "L", "fields": [{"name": "l", "type": "L"}]}
    for schema, body in [(TREE, LEVEL * 100_000), (for_ever, b"")]:
        read = reader(schema)
        split = Decoding(lambda data, *_, read=read: read(data), None).before(None)
        with pytest.raises(Undecodable, match="no value can be made of it: RecursionError"):
            split(Message(Origin("orders", "id", 0), 0, None, body))


@pytest.mark.parametrize("items", ["null", EMPTY, NO_BYTES])
def test_a_few_bytes_are_not_more_values_than_memory_has(items: object) -> None:
    read = reader({"type": "array", "items": items})
    assert len(read(b"\x80\1\0")) == 64  # values without bytes are no fault
    for count in (b"\xfe\xff\xff\xff\x0f", b"\xfe" + b"\xff" * 8 + b"\1"):
        with pytest.raises(
            Undecodable, match=f"bytes become values of more than {FREE_BYTES // 10**6},"
        ):
            read(count + b"\0")


def test_records_of_nulls_do_not_multiply() -> None:
    nulls = [{"name": f"n{n}", "type": "null"} for n in range(900)]
    wide = {"type": "record", "name": "Wide", "fields": nulls}
    read = reader({"type": "array", "items": wide})
    assert len(read(b"\x14\0")) == 10
    with pytest.raises(Undecodable, match="become values of more than"):
        read(b"\xfe\xff\x7f" + b"\0")
    chain: Any = "boolean"
    for level in range(200):
        fields = [{"name": "a", "type": chain}]
        chain = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(Undecodable, match="become values of more than"):
        reader({"type": "array", "items": chain})(b"\xd0\x0f" + b"\0" * 1_000)


def test_a_schema_is_what_the_specification_names_in_it() -> None:
    marks = {"__fastavro_parsed": True, "__named_schemas": {"R": {"type": "R"}}, "logicalType": []}
    fields = [{"name": "n", "type": "int", "type_": "x"}]
    record = {"type": "record", "name": "R", "fields": fields, **marks}
    assert reader(record)(b"\2") == {"n": 1}
    itself = {"type": "R", "name": "R", **marks}
    wrong: list[Any] = [itself, ["null", itself], {"type": "array", "items": itself}, marks]
    for schema in wrong:
        with pytest.raises((Undecodable, KeyError)):
            reader(schema)
    twice = {**record, "fields": [*fields, *fields]}
    for twofold in (twice, [record, record]):
        with pytest.raises(Undecodable, match="two"):
            reader(twofold)


NO_VALUES: list[tuple[str, Any, Any, Any]] = [
    ("timestamp-micros", "long", 9223371331200000000, datetime(1970, 1, 1, tzinfo=UTC)),
    ("timestamp-micros", "long", -9223372036832400000, datetime(1970, 1, 1, tzinfo=UTC)),
    ("timestamp-millis", "long", 2**62, datetime(1970, 1, 1, tzinfo=UTC)),
    ("local-timestamp-millis", "long", 2**62, datetime(1970, 1, 1)),
    ("local-timestamp-micros", "long", 2**62, datetime(1970, 1, 1)),
    ("date", "int", 2932902, date(1970, 1, 1)),
    ("date", "int", -800000, date(1970, 1, 1)),
    ("time-millis", "int", 86_400_000, clock()),
    ("time-millis", "int", -1, clock()),
    ("time-micros", "long", 86_400_000_001, clock()),
    ("uuid", "string", "not-a-uuid", None),
]


@pytest.mark.parametrize(("logical", "kind", "value", "at_zero"), NO_VALUES)
def test_what_python_has_no_value_for_is_the_number_or_text(
    logical: str, kind: str, value: Any, at_zero: Any
) -> None:
    schema = {"type": kind, "logicalType": logical}
    assert reader(schema)(written(kind, value)) == value
    if at_zero is None:
        assert reader(schema)(written(kind, str(UUID(int=7)))) == UUID(int=7)
    else:
        assert reader(schema)(written(kind, 0)) == at_zero


def test_symbols_and_decimals_are_read_as_java_reads_them() -> None:
    symbols = {"type": "enum", "name": "E", "symbols": ["A", "B-C"]}
    assert reader(symbols)(b"\2") == "B-C"
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    assert reader(decimal)(b"\x08\x7f\xff\xff\xff") == Decimal("21474836.47")  # all of its digits
    assert reader(decimal)(b"\0") == 0
    wrong = {**decimal, "scale": 5}  # which the specification wants to be ignored
    assert reader(wrong)(b"\2\1") == b"\1"
    with pytest.raises(Undecodable, match="index 2 before byte 1 is not below 2"):
        reader(symbols)(b"\4")
    with pytest.raises(Undecodable, match="index -1 before"):
        reader(["null", "int"])(b"\1")


def test_a_decimal_that_would_take_seconds_is_its_bytes() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10**6, "scale": 2}
    most = b"\x7f" * LONGEST_DECIMAL
    assert isinstance(reader(decimal)(written("bytes", most)), Decimal)
    large = b"\x7f" * 300_000
    begun_s = time.process_time()
    assert reader(decimal)(written("bytes", large)) == large
    assert time.process_time() - begun_s < 1  # it was 13.7 s


def test_a_union_knows_the_types_that_it_refers_to() -> None:
    number = [{"name": "n", "type": "int"}]
    types = [{"type": "record", "name": f"t.{name}", "fields": number} for name in "AB"]
    assert reader(["t.A", "t.B"], *types)(b"\2\4") == {"n": 2}
    inner = {"type": "record", "name": "In", "fields": [{"name": "s", "type": "X"}]}
    fixed = {"type": "fixed", "name": "X", "size": 1}
    fields = [{"name": "x", "type": fixed}, {"name": "in", "type": inner}]
    outer = {"type": "record", "name": "Out", "namespace": "a-b.c", "fields": fields}
    assert reader(outer)(b"ab") == {"x": b"a", "in": {"s": b"b"}}
