"""The data source ``drainer``, which reads topics as rows: ranges of offsets, or a stream."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark import __version__ as version
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    RightMissing,
    TopicMissing,
    UsageError,
)
from drainer.kafka.cluster import Cluster
from drainer.spark.reading.columns import DEFAULT, ddl, ensure_columns, read_rows
from drainer.spark.reading.options import (
    OffsetRange,
    ReadOptions,
    cut_evenly,
    explained,
    plan_ranges,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "drainer"


class DrainerSource(DataSource):
    """The source of ``format("drainer")``, described in docs/reference/data-source.md.

    Its constructor, which ``load()`` calls, fixes the offsets of a batch. So all queries on the
    DataFrame read the same. Spark does not say whether it loads a batch or a stream, and a stream
    may go on from a checkpoint although its ``startingOffsets`` are gone. So the constructor keeps
    an error about the offsets for ``reader``.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with explained():
            self._read = ReadOptions.parse(options)
            self._ranges: list[OffsetRange] = []
            self._refused: DrainerError | None = None
            with Cluster.connect(self._read.settings()) as cluster:
                try:
                    self._ranges = plan_ranges(cluster, self._read)
                except (BrokerUnreachable, RightMissing, TopicMissing):
                    raise
                except DrainerError as error:
                    self._refused = error

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl((*DEFAULT, "headers") if self._read.headers else DEFAULT)

    def reader(self, schema: StructType) -> SourceReader:
        with explained():
            self._read.ensure_batch()
            if self._refused is not None:
                raise self._refused
            return SourceReader(self._read, self._ranges, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if find_spec("pyspark.sql.streaming.datasource") is None:
            return NoStream()
        # The module needs PySpark 4.2.
        from drainer.spark.reading.stream import StreamReader  # noqa: PLC0415

        return StreamReader(self._read, schema)


class SourceReader(DataSourceReader):
    """Reads ranges in tasks.

    Raises UsageError if the schema has a column that no topic has, or that has the wrong type.
    """

    def __init__(
        self, options: ReadOptions, ranges: Sequence[OffsetRange], schema: StructType
    ) -> None:
        ensure_columns(schema)
        self._options = options
        self._ranges = ranges
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(each) for each in cut_evenly(self._ranges, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no partitions, Spark makes one without a value.
        if partition.value is not None:
            yield from read_rows(self._options, self._schema, partition.value)


class NoStream(DataSourceStreamReader):
    """Refuses to be a stream before PySpark 4.2, which has no limit on what a micro-batch reads.

    The first call that Spark makes raises the error, since the constructor can't: Spark would show
    an error of its own instead.
    """

    def latestOffset(self, *_: Any, **__: Any) -> dict[str, int]:  # noqa: N802
        with explained():
            raise UsageError(
                f"a stream of the format drainer needs PySpark 4.2, and this is {version}",
                hint="Update PySpark, or use spark.read, or Spark's own source for a stream:"
                ' spark.readStream.format("kafka").',
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a stream that never begins has nothing to read")


def register(spark: SparkSession) -> None:
    """Register the source as ``drainer`` with a session, classic or of Spark Connect."""
    spark.dataSource.register(DrainerSource)
