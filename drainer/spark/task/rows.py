"""Rows of Arrow batches: the chunks of a wave, as ``mapInArrow`` gives and takes them.

A slice ends with rows that have no body: of each shard how much it has there, which a task compares
before its first call; and its manifest, of the shard -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import NamedTuple

import pyarrow as pa

from drainer.spark.session.settings import BATCH_BYTES

CHUNKS = "shard int, partition int, offset long, subs long, checksum long, body binary"
OUTCOMES = "task int, outcome binary"
READ_ROWS = 1024
MANIFEST = -1  # in place of a shard

_CHUNKS = pa.schema(
    [
        ("shard", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("subs", pa.int64()),
        ("checksum", pa.int64()),
        ("body", pa.binary()),
    ]
)
_OUTCOMES = pa.schema([("task", pa.int32()), ("outcome", pa.binary())])


class Row(NamedTuple):
    """A chunk; without a body, all that the slice from ``offset`` on has of a shard."""

    shard: int
    partition: int
    offset: int  # the first
    subs: int = 0  # sub-messages
    checksum: int = 0  # of which they are
    body: bytes | None = None


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows in batches, each of up to ``BATCH_BYTES`` or one row."""
    batch: list[Row] = []
    filled = 0
    for row in rows:
        size = len(row.body or b"")
        if batch and (filled + size > BATCH_BYTES or len(batch) == READ_ROWS):
            yield _batch(batch, _CHUNKS)
            batch, filled = [], 0
        batch.append(row)
        filled += size
    if batch:
        yield _batch(batch, _CHUNKS)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches that Spark brings."""
    for batch in batches:
        yield from starmap(Row, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def outcome_batch(task: int, outcome: bytes) -> pa.RecordBatch:
    """The row of a task that has ended."""
    return _batch([(task, outcome)], _OUTCOMES)


def _batch(rows: list[Row] | list[tuple[int, bytes]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
