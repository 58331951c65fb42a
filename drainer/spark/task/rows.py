"""Rows of Arrow batches: the chunks of a wave, as ``mapInArrow`` takes and returns them.

Behind the chunks of a slice come rows without a body. One for each shard tells how much the slice
has of it, which the task that handles the shard compares before its first call. The last one, of
the shard -1, has the manifest of the slice.
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

# For the name of a type in a schema: the type code of the module ``array``, and the type of Arrow.
_TYPES = {"int": ("i", pa.int32()), "long": ("q", pa.int64()), "binary": ("", pa.binary())}


class Row(NamedTuple):
    """A chunk; or, with an empty body, how much the slice that begins at ``offset`` has of a shard.

    Attributes:
        offset: the offset of the first message.
        subs: the number of sub-messages.
        checksum: a checksum that tells which sub-messages they are.
    """

    shard: int
    partition: int
    offset: int
    subs: int = 0
    checksum: int = 0
    body: bytes = b""


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most ``BATCH_BYTES``, or of one row that is larger."""
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
    """Return rows as a batch. ``schema`` is written as ``mapInArrow`` takes it."""
    named = [column.split() for column in schema.split(", ")]
    columns = zip(zip(*rows, strict=True), named, strict=True)
    arrays = [_column(values, kind) for values, (_, kind) in columns]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in named])


def _column(values: Sequence[Any], kind: str) -> pa.Array:
    # pa.array would be simpler, but its first use imports pandas, which takes half a second.
    code, arrow = _TYPES[kind]
    if code:
        buffers = [None, pa.py_buffer(array(code, values))]
    else:
        ends = array("i", accumulate(map(len, values), initial=0))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(arrow, len(values), buffers)
