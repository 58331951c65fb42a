"""Rows of Arrow batches: the chunks of a slice, as ``mapInArrow`` takes and returns them.

The chunks of a span are followed by a *count* for each shard: a row without a body, which has the
number and the checksum of the span's sub-messages in the shard. The number of its partition is
below 0 (``counted``), so a task gets all counts before the first chunk.
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

# By the name of a type in a schema: the type code of the module ``array``, and the type of Arrow.
_TYPES = {"int": ("i", pa.int32()), "long": ("q", pa.int64()), "binary": ("", pa.binary())}


class Row(NamedTuple):
    """A chunk, or a count.

    Attributes:
        offset: the offset of the first message, or the offset at which the span begins.
        subs: the number of sub-messages.
        checksum: a checksum that tells which sub-messages they are.
    """

    shard: int
    partition: int
    offset: int
    subs: int
    checksum: int
    body: bytes


def counted(partition: int) -> int:
    """Return the partition of a count from that of chunks, and the other way round."""
    return -1 - partition


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most ``BATCH_BYTES``. A larger row is a batch of its own."""
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
    """Yield the rows of batches that Spark brings."""
    for batch in batches:
        yield from starmap(Row, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def batch_of(rows: Iterable[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """Return rows as a batch, with a schema such as ``CHUNKS``."""
    named = [column.split() for column in schema.split(", ")]
    columns = zip(zip(*rows, strict=True), named, strict=True)
    arrays = [_column(values, kind) for values, (_, kind) in columns]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in named])


def _column(values: Sequence[Any], kind: str) -> pa.Array:
    # The first use of pa.array, which would be simpler, imports pandas and so takes half a second.
    code, arrow = _TYPES[kind]
    if code:
        buffers = [None, pa.py_buffer(array(code, values))]
    else:
        ends = array("i", accumulate(map(len, values), initial=0))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(arrow, len(values), buffers)
