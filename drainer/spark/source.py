"""The data source ``drainer``: ranges of a topic as rows, several tasks to a partition."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
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

from drainer.errors import UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.spans import read_range
from drainer.spark.arrow import record_batches
from drainer.spark.options import ReadOptions
from drainer.spark.ranges import OffsetRange, plan_ranges
from drainer.spark.wording import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "drainer"
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType()),
        StructField("timestamp_type", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
        StructField("leader_epoch", IntegerType()),
    ]
)
READER = "drainer-spark"  # the name of a group that nobody is in


class Slice(InputPartition):
    """What one task reads; the same at every attempt."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(range_)
        self.range = range_


class DrainerSource(DataSource):
    """``spark.read.format("drainer")``; docs/spark.md has the options."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with told():
            ReadOptions.parse(self.options).settings()  # a slip is told before anything is planned
        return SCHEMA

    def reader(self, schema: StructType) -> RangeReader:
        with told():
            return RangeReader(ReadOptions.parse(self.options), schema)


class RangeReader(DataSourceReader):
    """Plans on the driver, and reads in tasks. It is sent to them, so it holds no secret.

    Raises:
        UsageError: when the schema has columns that a topic has not, or has with another type.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        _check(schema)
        self._options = options
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[Slice]:
        with told(), Cluster.connect(self._options.settings()) as cluster:
            return [Slice(range_) for range_ in plan_ranges(cluster, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):
            return  # Spark makes one up where there are none
        range_ = partition.range
        reader = self._options.group or READER
        with told():
            settings = self._options.settings()
            stream = read_range(settings, range_.origin, range_.start, range_.end, reader=reader)
            for batch in stream:
                yield from record_batches(batch, self._schema)


def register(spark: SparkSession) -> None:
    """Make the source known to a session, as ``drainer``."""
    spark.dataSource.register(DrainerSource)


def _check(schema: StructType) -> None:
    known = {field.name: field for field in SCHEMA}
    for field in schema:
        if field.name not in known:
            raise UsageError(
                f"the schema names a column {field.name}, and a topic has none",
                hint=f"there are {', '.join(known)}",
            )
        wanted = known[field.name].dataType
        if field.dataType != wanted:
            raise UsageError(
                f"the schema has {field.name} as {field.dataType.simpleString()}, and it is"
                f" {wanted.simpleString()}",
                hint="leave columns out that you don't need, and cast the others after reading",
            )
