"""Rows of Arrow batches: the chunks of a wave, as ``mapInArrow`` gives and takes them.

A slice ends with rows that have no body: of each shard how much it has there, which a task compares
before its first call; and its manifest, of the shard -1.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, starmap
from typing import Any, NamedTuple

import pyarrow as pa

from drainer.spark.session.settings import BATCH_BYTES

CHUNKS = "shard int, partition int, offset long, subs long, checksum long, body binary"
OUTCOMES = "task int, outcome binary"
READ_ROWS = 1024
MANIFEST = -1  # in place of a shard

# By the name of a type in a schema: that of the module array, and Arrow's.
_TYPES = {"int": ("i", pa.int32()), "long": ("q", pa.int64()), "binary": ("", pa.binary())}


class Row(NamedTuple):
    """A chunk; with an empty body, all that the slice from ``offset`` on has of a shard."""

    shard: int
    partition: int
    offset: int  # the first
    subs: int = 0  # sub-messages
    checksum: int = 0  # of which they are
    body: bytes = b""


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows in batches, each of up to ``BATCH_BYTES`` or one row."""
    batch: list[Row] = []
    filled = 0
    for row in rows:
        size = len(row.body)
        if batch and (filled + size > BATCH_BYTES or len(batch) == READ_ROWS):
            yield batch_of(batch, CHUNKS)
            batch, filled = [], 0
        batch.append(row)
        filled += size
    if batch:
        yield batch_of(batch, CHUNKS)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of batches that Spark brings."""
    for batch in batches:
        yield from starmap(Row, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def batch_of(rows: Iterable[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """Rows as a batch; ``schema`` as ``mapInArrow`` takes it."""
    named = [column.split() for column in schema.split(", ")]
    columns = zip(zip(*rows, strict=True), named, strict=True)
    arrays = [_column(values, kind) for values, (_, kind) in columns]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in named])


def _column(values: Sequence[Any], kind: str) -> pa.Array:
    # Not pa.array: its first use imports pandas where that is installed, for half a second.
    code, arrow = _TYPES[kind]
    if code:
        buffers = [None, pa.py_buffer(array(code, values))]
    else:
        ends = array("i", accumulate(map(len, values), initial=0))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(arrow, len(values), buffers)
