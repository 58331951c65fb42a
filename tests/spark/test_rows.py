"""Rows from the tasks that split to those that handle: nothing is lost or changed on the way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from drainer.core.progress import checksum_keys
from drainer.errors import Interrupted, SplitFailed
from drainer.message import Message, Origin, SubMessage
from drainer.spark.rows import (
    ROW_SCHEMA,
    SPARK_SCHEMA,
    Expected,
    Manifest,
    RoutedMessage,
    RowBuilder,
    messages_of,
)


def message(offset: int, partition: int = 0, **fields: Any) -> Message:
    return Message(
        Origin("orders", "id", partition),
        offset,
        fields.get("key", b"k"),
        fields.get("value", b"v"),
        fields.get("timestamp"),
        fields.get("headers", ()),
    )


def rows(*places: tuple[int, int], claim: int = 0) -> pa.RecordBatch:
    """One row for each (partition, offset)."""
    builder = RowBuilder()
    for partition, offset in places:
        builder.add(claim, message(offset, partition), 3, 0b11, whole=False)
    return builder.take()


def there_and_back(sent: Message, subs: int, bits: int) -> RoutedMessage:
    builder = RowBuilder()
    builder.add(1, sent, subs, bits, whole=bits == (1 << subs) - 1)
    (found,) = messages_of(builder.take(), "orders", "id")
    return found


def test_the_two_schemas_name_the_same_columns() -> None:
    assert [
        each.split()[0]
        for each in SPARK_SCHEMA.replace("<key: string, value: binary>", "").split(",")
    ] == ROW_SCHEMA.names


@pytest.mark.parametrize(
    "fields",
    [
        {"key": None, "value": None},
        {"key": b"", "value": b"", "timestamp": 0},
        {"value": b"\x00\xff" * 70_000, "timestamp": 1_700_000_000_000},
        {"headers": [("a", b"1"), ("a", None), ("", b""), ("ü", b"\xff")]},
    ],
)
def test_a_message_comes_out_as_it_went_in(fields: dict[str, object]) -> None:
    sent = message(7, 0, **fields)

    found = there_and_back(sent, 1, 1)

    for name in ("origin", "offset", "key", "value", "timestamp", "size"):
        assert getattr(found, name) == getattr(sent, name)
    assert list(found.headers) == list(sent.headers)


def test_the_bits_of_ten_thousand_sub_messages_arrive() -> None:
    bits = sum(1 << index for index in range(0, 10_000, 3))

    found = there_and_back(message(7), 10_000, bits)

    assert found.bits == bits


def test_another_split_of_as_many_sub_messages_is_found_out() -> None:
    builder = RowBuilder()
    builder.add(0, message(7), 3, 0b001, whole=False, checksum=checksum_keys(["a", "b", "c"]))
    (found,) = messages_of(builder.take(), "orders", "id")

    assert found.not_meant([SubMessage(key) for key in "abc"]) == 0b110
    with pytest.raises(SplitFailed, match="orders/0/7 gave 3 sub-messages"):
        found.not_meant([SubMessage(key) for key in "bac"])
    with pytest.raises(SplitFailed, match="gives 2"):
        found.not_meant([SubMessage(key) for key in "ab"])


def test_rows_are_given_partition_by_partition() -> None:
    expected = Expected(0, 12)

    parts = expected.take(rows((0, 5), (0, 6), (1, 0), (4, 1), (4, 2), (4, 9)))
    expected.insist_on_all()

    found = [[(m.partition, m.offset) for m in messages_of(p, "orders", "id")] for p in parts]
    assert found == [[(0, 5), (0, 6)], [(1, 0)], [(4, 1), (4, 2), (4, 9)]]
    assert expected.take(rows()) == []


@pytest.mark.parametrize(("told", "text"), [(3, "1 fewer"), (1, "1 more")])
def test_rows_that_are_not_those_that_were_told_of_are_no_end(told: int, text: str) -> None:
    expected = Expected(0, told)
    expected.take(rows((0, 5)))

    with pytest.raises(Interrupted, match=text):
        expected.insist_on_all()


def test_rows_of_another_claim_are_not_handled() -> None:
    with pytest.raises(Interrupted, match="rows of others"):
        Expected(1, 2).take(rows((0, 5), claim=0))


def test_a_manifest_comes_out_as_it_went_in() -> None:
    manifest = Manifest(3, 10, 90, 70, ((10, 20), (22, 23)), {0: 5, 7: 1}, (12, 13), 999)

    assert Manifest.decode(manifest.encode()) == manifest
