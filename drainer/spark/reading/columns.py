"""The columns of the data source, and records as Arrow batches of these columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drainer.errors import UsageError
from drainer.kafka.reader import FetchedBatch, columns
from drainer.kafka.spans import read_range
from drainer.spark.reading.options import OffsetRange, ReadOptions, explained

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BATCH_BYTES = 4 * 1024 * 1024
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
COLUMNS = {  # the types of each column in Spark and in Arrow
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "timestampType": ("int", pa.int32()),
    "headers": ("array<struct<key:string,value:binary>>", pa.list_(pa.field("element", _HEADER))),
    "leader_epoch": ("int", pa.int32()),
}
# Like Spark's own Kafka source, this one has the headers only on request.
DEFAULT = tuple(COLUMNS)[:7]
_MILLISECONDS = pa.timestamp("ms", "UTC")  # the resolution of Kafka's timestamps


def ddl(names: Sequence[str]) -> str:
    """Return the schema of columns in their order, as Spark's SQL writes it."""
    # A setting of Spark decides what a plain "timestamp" means.
    types = {name: COLUMNS[name][0].replace("timestamp", "timestamp_ltz") for name in names}
    return ", ".join(f"{name} {types[name]}" for name in names)


def ensure_columns(schema: StructType) -> None:
    """Raise UsageError if a schema has a column that no topic has, or that has the wrong type."""
    for field in schema:
        if field.name not in COLUMNS:
            raise UsageError(
                f"the schema has a column {field.name}, which no topic has",
                hint=f"Use {', '.join(COLUMNS)}.",
            )
        if (type_ := field.dataType.simpleString()) != (wanted := COLUMNS[field.name][0]):
            raise UsageError(
                f"the schema has {field.name} as {type_}, but it is {wanted}",
                hint="Remove columns that you don't need, and cast the others after reading.",
            )


def read_rows(
    options: ReadOptions, schema: StructType, range_: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Read a range in a task, and yield the columns of a schema."""
    arrow = pa.schema([(name, COLUMNS[name][1]) for name in schema.names])
    with explained():
        settings, group = options.settings(), options.group
        stream = read_range(settings, range_.origin, range_.start, range_.end, reader=group)
        for batch in stream:
            yield from record_batches(batch, arrow)


def record_batches(
    batch: FetchedBatch, schema: pa.Schema, batch_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the columns that the schema names, in batches of about ``batch_bytes``.

    A larger record is a batch of its own.
    """
    count = len(batch.records)
    step = max(1, count * batch_bytes // max(batch.bytes, batch_bytes))
    for begin in range(0, count, step):
        records = batch.records[begin : begin + step]
        made = columns(batch.origin, records, schema.names)
        arrays = [_array(made[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        return pa.array(values, _MILLISECONDS).cast(type_)
    return pa.array(values, type_)
