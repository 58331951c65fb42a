"""The data source ``drainer``: ranges of a topic as rows, several tasks to a partition."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from drainer.errors import DrainerError, RecordsDeleted, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.columns import columns
from drainer.kafka.reader import FetchedBatch
from drainer.kafka.spans import read_range
from drainer.spark.read.options import OffsetRange, ReadOptions, cut_evenly, plan_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "drainer"
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
# The columns of Spark's Kafka source, which has headers only on request, and one.
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
        StructField("leader_epoch", IntegerType()),
    ]
)
_ARROW_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _ARROW_HEADER)),
    "leader_epoch": pa.int32(),
}
WITHOUT_HEADERS = 7
BATCH_BYTES = 4 * 1024 * 1024
MILLISECONDS = pa.timestamp("ms", "UTC")

# The same advice, for someone who has options and no command line, and no plan to resume.
_WORDS = (
    ("-b HOST:PORT, DRAINER_BOOTSTRAP_SERVER,", "the option bootstrap.servers,"),
    ("Remove --until", "Remove until"),
    ("--from ", "from="),
    ("--until ", "until="),
    ("with --partition", "with partitions="),
    (" Start a new drain with another --plan.", ""),
)


class SourceSlice(InputPartition):
    """Range that one task reads; the same at every attempt."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)
        self.range = range_


class DrainerSource(DataSource):
    """``spark.read.format("drainer")``; docs/reference/data-source.md has the options.

    What it reads is fixed when it is made, by ``load()``: all queries that begin there read the
    same.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with explained():
            self._read = ReadOptions.parse(options)
            with Cluster.connect(self._read.settings()) as cluster:
                self._ranges = plan_ranges(cluster, self._read)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return StructType(SCHEMA.fields[: WITHOUT_HEADERS + self._read.headers])

    def reader(self, schema: StructType) -> SourceReader:
        with explained():
            return SourceReader(self._read, self._ranges, schema)

    def streamReader(self, schema: StructType) -> NoStream:  # noqa: N802
        return NoStream()


class SourceReader(DataSourceReader):
    """Reads ranges in tasks.

    Raises UsageError when the schema has columns that a topic has not, or has with another type.
    """

    def __init__(
        self, options: ReadOptions, ranges: Sequence[OffsetRange], schema: StructType
    ) -> None:
        _check(schema)
        self._options = options
        self._ranges = ranges
        self._schema = pa.schema([(field.name, ARROW[field.name]) for field in schema])

    def partitions(self) -> list[SourceSlice]:
        return [SourceSlice(range_) for range_ in cut_evenly(self._ranges, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourceSlice):
            return  # Spark makes one up where there are none
        range_, reader = partition.range, self._options.reader
        with explained():
            settings = self._options.settings()
            stream = read_range(settings, range_.origin, range_.start, range_.end, reader=reader)
            for batch in stream:
                yield from record_batches(batch, self._schema)


class NoStream(DataSourceStreamReader):
    """Refuses to be a stream, in the first call that Spark makes and whose error it shows."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        with explained():
            raise UsageError(
                "a stream can't read the format drainer, which reads a range of offsets once",
                hint="Use spark.read, or Spark's own source for a stream:"
                ' spark.readStream.format("kafka").',
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a stream that never begins has nothing to read")


def register(spark: SparkSession) -> None:
    """Make the source known to a session, as ``drainer``."""
    spark.dataSource.register(DrainerSource)


def _check(schema: StructType) -> None:
    known = {field.name: field for field in SCHEMA}
    for field in schema:
        if field.name not in known:
            raise UsageError(
                f"the schema has a column {field.name}, which no topic has",
                hint=f"Use {', '.join(known)}.",
            )
        wanted = known[field.name].dataType
        if field.dataType != wanted:
            raise UsageError(
                f"the schema has {field.name} as {field.dataType.simpleString()}, but it is"
                f" {wanted.simpleString()}",
                hint="Remove columns that you don't need, and cast the others after reading.",
            )


def _reworded(text: str) -> str:
    for command, option in _WORDS:
        text = text.replace(command, option)
    return text


@contextmanager
def explained() -> Iterator[None]:
    """Lets drainer's errors out with their hint in the text: Spark shows an error's text alone."""
    try:
        yield
    except DrainerError as error:
        hint = error.hint
        if isinstance(error, RecordsDeleted) and "--accept-gap" in (hint or ""):
            hint = "Raise the topic's retention. To read what is left, use from=earliest."
        text = _reworded(str(error) if hint is None else f"{error}\nhint: {hint}")
        raise type(error)(text, hint=hint) from None


def record_batches(
    batch: FetchedBatch, schema: pa.Schema, batch_bytes: int = BATCH_BYTES
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


def _pieces(batch: FetchedBatch, batch_bytes: int) -> Iterator[Sequence[Any]]:
    if batch.bytes <= batch_bytes:
        yield batch.records
        return
    begin = filled = 0
    for place, record in enumerate(batch.records):
        size = len(record) + batch.beside
        if filled + size > batch_bytes and place > begin:
            yield batch.records[begin:place]
            begin, filled = place, 0
        filled += size
    yield batch.records[begin:]
