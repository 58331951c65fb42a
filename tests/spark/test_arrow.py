"""Arrow batches hold what the records hold, and no more of them than fits."""

from __future__ import annotations

import pyarrow as pa
from confluent_kafka import Message

from drainer.kafka.record import Batch
from drainer.message import Origin
from drainer.spark.arrow import record_batches

ORIGIN = Origin("orders", "id", 3)


def batch_of(sizes: list[int]) -> Batch:
    records = [
        Message(topic="orders", partition=3, offset=10 + n, key=b"k", value=b"x" * size)
        for n, size in enumerate(sizes)
    ]
    return Batch(ORIGIN, records, {}, sum(sizes), 1)


def test_large_records_come_in_several_batches_of_bounded_bytes() -> None:
    schema = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    sizes = [400, 400, 400, 5000, 1, 1, 999]

    made = list(record_batches(batch_of(sizes), schema, batch_bytes=1000))

    assert [len(piece) for piece in made] == [2, 1, 1, 2, 1]
    assert [o for piece in made for o in piece["offset"].to_pylist()] == list(range(10, 17))


def test_only_the_columns_of_the_schema_are_made_in_its_order() -> None:
    schema = pa.schema([("value", pa.binary()), ("partition", pa.int32()), ("topic", pa.string())])

    (made,) = record_batches(batch_of([1, 2]), schema)

    assert made.schema == schema
    assert made.to_pylist() == [
        {"value": b"x", "partition": 3, "topic": "orders"},
        {"value": b"xx", "partition": 3, "topic": "orders"},
    ]
