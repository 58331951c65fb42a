"""The data source ``drainer``, which reads ranges of topics as rows."""

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

from drainer.errors import DrainerError, RecordsDeleted, UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import FetchedBatch, columns
from drainer.kafka.spans import read_range
from drainer.spark.reading.options import OffsetRange, ReadOptions, cut_evenly, plan_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "drainer"
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

# Errors give advice for the command line. Here it is replaced by advice for a program.
_WORDS = (
    ("-b HOST:PORT, DRAINER_BOOTSTRAP_SERVER,", "the option kafka.bootstrap.servers,"),
    ("earliest, OFFSET or @TIME", "earliest, or a startingTimestamp"),
    ("drain the rest, use --from ", "read the rest, use startingOffsets="),
    ("--from ", "startingOffsets="),
    ("--until end", "endingOffsets=latest"),
    ("with --partition", "with assign"),
    (" Start a new drain with another --plan.", ""),
)


class DrainerSource(DataSource):
    """The source of ``spark.read.format("drainer")``, described in docs/reference/data-source.md.

    Its constructor, which ``load()`` calls, fixes the offsets. So all queries on the DataFrame read
    the same.
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

    def schema(self) -> str:
        return ddl((*DEFAULT, "headers") if self._read.headers else DEFAULT)

    def reader(self, schema: StructType) -> SourceReader:
        with explained():
            return SourceReader(self._read, self._ranges, schema)

    def streamReader(self, schema: StructType) -> NoStream:  # noqa: N802
        return NoStream()


class SourceReader(DataSourceReader):
    """Reads ranges in tasks.

    Raises UsageError if the schema has a column that no topic has, or that has the wrong type.
    """

    def __init__(
        self, options: ReadOptions, ranges: Sequence[OffsetRange], schema: StructType
    ) -> None:
        _check(schema)
        self._options = options
        self._ranges = ranges
        self._schema = pa.schema([(name, COLUMNS[name][1]) for name in schema.names])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in cut_evenly(self._ranges, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        range_: OffsetRange | None = partition.value
        if range_ is None:
            return  # If there are no partitions, Spark makes one without a value.
        with explained():
            settings, group = self._options.settings(), self._options.group
            stream = read_range(settings, range_.origin, range_.start, range_.end, reader=group)
            for batch in stream:
                yield from record_batches(batch, self._schema)


class NoStream(DataSourceStreamReader):
    """Refuses to be a stream. The first call that Spark makes raises the error."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        with explained():
            raise UsageError(
                "a stream can't read the format drainer, which reads a range of offsets once",
                hint="Use spark.read, or Spark's own source for a stream:"
                ' spark.readStream.format("kafka").',
            )

    def latestOffset(self, *_: Any, **__: Any) -> dict[str, int]:  # noqa: N802
        return self.initialOffset()  # PySpark 4.0 calls this method first.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a stream that never begins has nothing to read")


def register(spark: SparkSession) -> None:
    """Register the source as ``drainer`` with a session, classic or of Spark Connect."""
    spark.dataSource.register(DrainerSource)


def ddl(names: Sequence[str]) -> str:
    """Return the schema of columns in their order, as Spark's SQL writes it."""
    return ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)


def _check(schema: StructType) -> None:
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


@contextmanager
def explained() -> Iterator[None]:
    """Put the hint of a drainer error into its text, since Spark only shows the text."""
    try:
        yield
    except DrainerError as error:
        hint = error.hint
        if isinstance(error, RecordsDeleted) and "--accept-gap" in (hint or ""):
            hint = (
                "Raise the topic's retention. To read what is left, use startingOffsets=earliest."
            )
        text = str(error) if hint is None else f"{error}\nhint: {hint}"
        for command, option in _WORDS:
            text = text.replace(command, option)
        shown = type(error)(text, hint=hint)
        shown.args = (text,)  # The constructor escapes line breaks.
        raise shown from None


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
