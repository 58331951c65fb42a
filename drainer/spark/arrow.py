"""Batches of records as Arrow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from drainer.kafka.record import Batch, columns

BATCH_BYTES = 4 * 1024 * 1024
MILLISECONDS = pa.timestamp("ms", "UTC")


def record_batches(
    batch: Batch, schema: pa.Schema, batch_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """The columns that the schema names, in pieces of up to ``batch_bytes``, or one record."""
    for records in _pieces(batch, batch_bytes):
        made = columns(batch.origin, records, schema.names)
        arrays = [_array(made[field.name], field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array(values, MILLISECONDS).cast(field.type)
    return pa.array(values, field.type)


def _pieces(batch: Batch, batch_bytes: int) -> Iterator[Sequence[Any]]:
    if batch.bytes <= batch_bytes:
        yield batch.records
        return
    begin = held = 0
    for place, record in enumerate(batch.records):
        size = len(record) + batch.beside
        if held + size > batch_bytes and place > begin:
            yield batch.records[begin:place]
            begin, held = place, 0
        held += size
    yield batch.records[begin:]
