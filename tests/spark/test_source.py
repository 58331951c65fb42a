"""Spark reads what a consumer reads: whatever the cuts, the holes and the columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from drainer.kafka.backlog import EARLIEST, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import FetchedBatch
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.spark import register
from drainer.spark.read.filters import narrowed
from drainer.spark.read.options import backlog_ranges
from drainer.spark.read.source import PUSHDOWN, PushingSource, record_batches
from kafka.reader import numbered
from kafka.topic import PASSWORD, USER, Topic
from scenarios.brokers import Broker

Load = Callable[..., DataFrame]


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, topic_name, partitions=2)


@pytest.fixture
def load(spark: SparkSession, bootstrap: str, topic_name: str) -> Load:
    """Reads the test's topic; ``from_`` is the option from."""

    def with_options(**options: str) -> DataFrame:
        reader = spark.read.format("drainer").option("bootstrap.servers", bootstrap)
        for name, value in {"topic": topic_name, **options}.items():
            reader = reader.option(name.rstrip("_"), value)
        return reader.load()

    return with_options


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def test_a_row_is_what_was_produced(load: Load, topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    producer.produce(topic.name, b"v", b"k", 1, headers=headers, timestamp=1234567)
    producer.produce(topic.name, None, None, 1)
    producer.flush()

    frame = load(includeHeaders="true")
    first, second = frame.orderBy("offset").collect()

    assert frame.drop("headers").schema == load().schema
    assert (first.topic, first.partition, first.offset) == (topic.name, 1, 0)
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(1234.567, UTC)
    assert first.timestampType == 0
    assert first.headers == [("h", b"1"), ("h", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)


def test_the_columns_are_those_of_spark_s_kafka_source(load: Load, topic: Topic) -> None:
    fields = "key binary, value binary, topic string, partition int, offset bigint"
    fields += ", timestamp timestamp, timestampType int"
    headers = "headers array<struct<key:string,value:binary>>"

    assert load().schema == StructType.fromDDL(fields)
    assert load(includeHeaders="true").schema == StructType.fromDDL(f"{fields}, {headers}")


def test_a_query_of_spark_s_kafka_source_runs_unchanged(
    spark: SparkSession, bootstrap: str, topic: Topic, topic_name: str
) -> None:
    other = Topic(bootstrap, f"{topic_name}-other")
    topic.produce(numbered(50))
    topic.produce(numbered(50), partition=1)
    topic.transact(["aborted"] * 5, commit=False)  # it shows these by default
    other.produce("abc")

    def query(**options: str) -> DataFrame:
        reader = spark.read.format("drainer").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    exact = query(
        assign=json.dumps({topic_name: [0, 1], other.name: [0]}),
        startingOffsets=json.dumps({topic_name: {0: 3, 1: 48}, other.name: {0: -2}}),
        endingOffsets=json.dumps({topic_name: {0: 6, 1: -1}, other.name: {0: 1}}),
        minPartitions="4",
        failOnDataLoss="true",
    )

    assert query(subscribe=f"{topic_name}, {other.name}").count() == 108
    assert places(exact.where(f"topic = '{topic_name}'")) == [
        (0, 3), (0, 4), (0, 5), (1, 48), (1, 49),
    ]  # fmt: skip
    assert places(exact.where(f"topic = '{other.name}'")) == [(0, 0)]


def test_several_tasks_read_one_partition_and_together_all_of_it(load: Load, topic: Topic) -> None:
    topic.produce(numbered(2000))
    topic.transact(["aborted"] * 500, commit=False)  # more than a task's share
    topic.produce(numbered(300))
    topic.produce(numbered(10), partition=1)
    kept = [(m.offset(), m.value()) for m in topic.read_all(2300)]

    frame = load(partitions="0", tasks="7").withColumn("task", spark_partition_id())
    rows = frame.select("task", "offset", "value").collect()

    assert sorted((row.offset, bytes(row.value)) for row in rows) == kept
    begins: dict[int, int] = {}
    for row in rows:
        assert row.offset > begins.get(row.task, -1)  # in order within a task
        begins[row.task] = row.offset
    assert len(begins) >= 5


def test_a_group_begins_at_its_committed_offset_and_is_left_alone(
    load: Load, topic: Topic, bootstrap: str
) -> None:
    topic.produce(numbered(5))
    group = f"g-{topic.name}"
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as cluster:
        cluster.alter_committed(group, topic.name, {0: 3}, 60)

        assert places(load(group=group)) == [(0, 3), (0, 4)]
        assert places(load(group=group, partitions="0", from_="1")) == [(0, n) for n in range(1, 5)]
        assert cluster.committed(group, topic.name, [0]) == {0: 3}


def test_the_end_is_frozen_by_load(load: Load, topic: Topic) -> None:
    topic.produce(numbered(5))
    frame = load()
    topic.produce(numbered(5))

    assert frame.count() == 5
    assert frame.where("offset > 2").select("value").count() == 2
    assert load().count() == 10


def test_a_task_that_spark_runs_again_reads_the_same(load: Load, topic: Topic) -> None:
    topic.produce(numbered(100))

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("once")

    frame = load(tasks="2", partitions="0").select("offset")

    rows = frame.mapInArrow(fail_once, "offset bigint").collect()

    assert sorted(row.offset for row in rows) == list(range(100))


def test_large_records_come_in_several_batches_of_bounded_bytes_and_the_columns_of_the_schema() -> (
    None
):
    schema = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("topic", pa.string())])
    sizes = [400, 400, 400, 5000, 1, 1, 999]
    records = [
        Message(topic="orders", partition=3, offset=10 + n, key=b"k", value=b"x" * size)
        for n, size in enumerate(sizes)
    ]
    batch = FetchedBatch(Origin("orders", "id", 3), records, {}, sum(sizes), 1)

    made = list(record_batches(batch, schema, batch_bytes=1000))

    assert [len(piece) for piece in made] == [2, 1, 1, 2, 1]
    assert all(piece.schema == schema for piece in made)
    assert [row["offset"] for piece in made for row in piece.to_pylist()] == list(range(10, 17))
    assert made[3].to_pylist()[0] == {"value": b"x", "offset": 14, "topic": "orders"}


def test_trouble_is_reported_in_drainer_s_words(load: Load, topic: Topic) -> None:
    topic.produce("abc")
    topic.delete_before(1)
    ends, starts = ({topic.name: each} for each in ({"0": 9, "1": 0}, {"1": 0, "2": 0}))
    for options, reported in (
        ({"topic": "no-such-topic"}, "drainer.errors.TopicMissing: topic no-such-topic does not"),
        ({"tsks": "4"}, "the option tsks is unknown\nhint: Did you mean tasks?"),
        ({"until": "5", "partitions": "0"}, "hint: Remove until to read to the end."),
        ({"endingOffsets": json.dumps(ends)}, "which holds [1, 3)\nhint: Choose"),
        (
            {"startingOffsets": json.dumps(starts)},
            f"these differ: {topic.name}/0, {topic.name}/2\nhint",
        ),
        ({"bootstrap.servers": ""}, "Name them with the option bootstrap.servers, or"),
    ):
        with pytest.raises(PySparkException) as raised:
            load(**options)
        assert reported in str(raised.value)
        # There is no command line.
        assert "--" not in str(raised.value).split("drainer.errors.")[-1]


BEGUN_MS = 1_700_000_000_000
LATER = datetime.fromtimestamp(BEGUN_MS / 1000 + 90, UTC)


@pytest.fixture
def stamped(topic: Topic) -> Topic:
    """A hundred records of partition 0, a second apart but for two that came late, 50 of 1."""
    stamps = [("k", BEGUN_MS + 1000 * n) for n in range(100)]
    topic.stamp([*stamps[:97], ("k", BEGUN_MS), ("k", BEGUN_MS), stamps[99]])
    topic.stamp([("k", BEGUN_MS)] * 50, partition=1)
    return topic


def test_filters_decide_which_offsets_need_not_be_read(stamped: Topic) -> None:
    left_of: dict[tuple[Filter, ...], dict[int, tuple[int, int]]] = {
        (GreaterThan(("offset",), 90), LessThanOrEqual(("offset",), 95)): {0: (90, 96)},
        (EqualTo(("partition",), 1),): {1: (0, 50)},
        (In(("partition",), (1, 7)), LessThan(("offset",), 10)): {1: (0, 11)},
        (In(("offset",), (60, 40, 45)),): {0: (40, 61), 1: (40, 50)},
        (GreaterThanOrEqual(("timestamp",), LATER),): {0: (90, 100)},
        (LessThan(("timestamp",), LATER),): {0: (0, 100), 1: (0, 50)},
        (Not(EqualTo(("partition",), 1)), IsNull(("key",))): {0: (0, 100), 1: (0, 50)},
        (EqualNullSafe(("partition",), None),): {0: (0, 100), 1: (0, 50)},
    }
    with Cluster.connect(ClientSettings(stamped.bootstrap)) as cluster:
        whole = backlog_ranges(freeze(cluster, stamped.name, None, from_=EARLIEST))
        for filters, left in left_of.items():
            found = narrowed(cluster, whole, filters)
            assert {each.origin.partition: (each.start, each.end) for each in found} == left


def test_what_a_filter_leaves_out_is_not_read(
    spark: SparkSession, pushdown: None, load: Load, stamped: Topic
) -> None:
    spark.dataSource.register(PushingSource)
    whole, by_offset, by_time = load(), load(), load()
    stamped.delete_before(90)

    assert places(by_offset.where("partition = 0 and offset >= 98")) == [(0, 98), (0, 99)]
    assert by_time.where(f"timestamp >= timestamp '{LATER}'").count() == 8
    with pytest.raises(PySparkException, match="deleted offsets 0 to 89 of"):
        whole.count()


def test_queries_of_one_frame_do_not_take_each_other_s_filters(
    spark: SparkSession, pushdown: None, load: Load, topic: Topic
) -> None:
    topic.produce(numbered(10))
    register(spark)
    frame = load()

    assert [frame.where("offset > 5").count(), frame.count()] == [4, 10]


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Spark hands filters to sources."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)
    register(spark)


def test_records_that_go_between_plan_and_read_fail_the_job(load: Load, topic: Topic) -> None:
    topic.produce("abc")
    frame = load()
    topic.delete_before(2)

    with pytest.raises(
        PySparkException, match=r"deleted offsets 0 to 1 of.*\n.*hint: Raise the topic"
    ):
        frame.count()


def test_secrets_are_in_the_file_only(
    spark: SparkSession,
    broker: Broker,
    topic_name: str,
    tmp_path: Path,
    events: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Topic(broker.bootstrap_servers, topic_name).produce("abc")
    file = tmp_path / "client.properties"

    def read(password: str) -> DataFrame:
        file.write_text(
            f"bootstrap.servers={broker.sasl_bootstrap_servers}\n"
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username={USER}\nsasl.password={password}\n"
        )
        reader = spark.read.format("drainer").option("topic", topic_name)
        return reader.option("client.config", str(file)).load()

    frame = read(PASSWORD)
    assert frame.count() == 3
    with pytest.raises(PySparkException) as raised:
        read("wrong-hush").count()

    frame.explain(extended=True)
    plan = capsys.readouterr().out
    assert "drainer" in plan
    logs = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "BatchScan drainer" in logs
    for shown in (plan, str(raised.value), logs):
        assert "hush" not in shown
    assert "BrokerUnreachable" in str(raised.value)


def test_a_client_s_file_is_found_where_spark_sends_it(
    spark: SparkSession, topic: Topic, bootstrap: str, tmp_path: Path
) -> None:
    topic.produce("ab")
    file = tmp_path / f"{topic.name}.properties"
    file.write_text(f"bootstrap.servers={bootstrap}\n")
    reader = spark.read.format("drainer").option("topic", topic.name)
    with pytest.raises(PySparkException, match=r"does not exist on .*\nhint: .*--files"):
        reader.option("client.config", file.name).load()

    spark.sparkContext.addFile(str(file))

    assert reader.option("client.config", file.name).load().count() == 2
