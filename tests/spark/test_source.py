"""Spark reads what a consumer reads, however ranges are cut and whatever columns are chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from drainer.errors import UsageError
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import FetchedBatch
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.spark.reading.columns import record_batches
from drainer.spark.reading.source import NoStream
from kafka.raw import produce_with_header
from kafka.reader import numbered
from kafka.topic import PASSWORD, USER, Topic
from scenarios.brokers import Broker
from spark.connect import classic

SERVERS, GROUP = "kafka.bootstrap.servers", "kafka.group.id"
Load = Callable[..., DataFrame]


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, topic_name, partitions=2)


@pytest.fixture
def load(spark: SparkSession, bootstrap: str, topic_name: str) -> Load:
    """A function that reads the test's topic with options."""

    def with_options(**options: str) -> DataFrame:
        named = {} if "assign" in options else {"subscribe": topic_name}
        reader = spark.read.format("drainer").option(SERVERS, bootstrap)
        return reader.options(**(named | options)).load()

    return with_options


COMMITTED = {"kafka.isolation.level": "read_committed"}


def only(topic: Topic, partition: int) -> str:
    return json.dumps({topic.name: [partition]})


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
    load: Load, bootstrap: str, topic: Topic
) -> None:
    other = Topic(bootstrap, f"{topic.name}-other")
    topic.produce(numbered(50))
    topic.produce(numbered(50), partition=1)
    topic.transact(["aborted"] * 5, commit=False)  # By default, Spark's source returns these.
    other.produce("abc")

    exact = load(
        assign=json.dumps({topic.name: [0, 1], other.name: [0]}),
        startingOffsets=json.dumps({topic.name: {0: 3, 1: 48}, other.name: {0: -2}}),
        endingOffsets=json.dumps({topic.name: {0: 6, 1: -1}, other.name: {0: 1}}),
        minPartitions="4",
        failOnDataLoss="true",
    )

    assert load(subscribe=f"{topic.name}, {other.name}").count() == 108
    assert load(**COMMITTED).count() == 100
    assert places(exact.where(f"topic = '{topic.name}'")) == [
        (0, 3), (0, 4), (0, 5), (1, 48), (1, 49),
    ]  # fmt: skip
    assert places(exact.where(f"topic = '{other.name}'")) == [(0, 0)]


def test_a_time_is_the_first_record_of_it_or_later(load: Load, topic: Topic) -> None:
    begun_ms = 1_700_000_000_000
    for partition in (0, 1):
        topic.stamp([("k", begun_ms + 1000 * n) for n in range(10)], partition=partition)
    end = datetime.fromtimestamp(begun_ms / 1000 + 4, UTC).isoformat()
    starts = {"0": begun_ms + 2500, "1": end}

    by_partition = load(startingOffsetsByTimestamp=json.dumps({topic.name: starts}))

    assert places(load(startingTimestamp=str(begun_ms + 1500), endingTimestamp=end)) == [
        (0, 2), (0, 3), (1, 2), (1, 3),
    ]  # fmt: skip
    assert places(by_partition) == [
        *((0, n) for n in range(3, 10)),
        *((1, n) for n in range(4, 10)),
    ]


@pytest.mark.long
def test_several_tasks_read_one_partition_and_together_all_of_it(load: Load, topic: Topic) -> None:
    topic.produce(numbered(2000))
    topic.transact(["aborted"] * 500, commit=False)  # This is more than a task's share.
    topic.produce(numbered(300))
    topic.produce(numbered(10), partition=1)
    kept = [(m.offset(), m.value()) for m in topic.read_all(2300)]

    frame = load(assign=only(topic, 0), minPartitions="7", **COMMITTED)
    frame = frame.withColumn("task", spark_partition_id())
    rows = frame.select("task", "offset", "value").collect()

    assert sorted((row.offset, bytes(row.value)) for row in rows) == kept
    begins: dict[int, int] = {}
    for row in rows:
        assert row.offset > begins.get(row.task, -1)  # A task reads in order.
        begins[row.task] = row.offset
    assert len(begins) >= 5


def test_a_group_begins_at_its_committed_offset_and_is_left_alone(
    load: Load, topic: Topic, bootstrap: str
) -> None:
    topic.produce(numbered(5))
    group = f"g-{topic.name}"
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as cluster:
        cluster.alter_committed(group, topic.name, {0: 3}, 60)

        committed = load(**{GROUP: group}, startingOffsets="committed-or-earliest")
        assert places(committed) == [(0, 3), (0, 4)]
        assert places(load(**{GROUP: group})) == [(0, n) for n in range(5)]
        assert cluster.committed(group, topic.name, [0]) == {0: 3}


@classic  # A Connect server plans each query anew.
def test_the_end_is_frozen_by_load(load: Load, topic: Topic) -> None:
    topic.produce(numbered(5))
    frame = load()
    topic.produce(numbered(5))

    assert frame.count() == 5
    assert frame.where("offset > 2").select("value").count() == 2
    assert load().count() == 10


@pytest.mark.parametrize(("size", "rows"), [(400, [2, 2, 1]), (5000, [1] * 5), (1, [5])])
def test_records_come_in_batches_of_bounded_bytes_and_the_columns_of_the_schema(
    size: int, rows: list[int]
) -> None:
    schema = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("topic", pa.string())])
    value = b"x" * size
    records = [
        Message(topic="orders", partition=3, offset=n, key=b"k", value=value) for n in range(5)
    ]
    batch = FetchedBatch(Origin("orders", "id", 3), records, {}, 5 * size, 1)

    made = list(record_batches(batch, schema, batch_bytes=1000))

    assert [len(piece) for piece in made] == rows
    assert all(piece.schema == schema for piece in made)
    assert [row for piece in made for row in piece.to_pylist()] == [
        {"value": value, "offset": n, "topic": "orders"} for n in range(5)
    ]


@classic  # A Connect server plans each query anew.
@pytest.mark.long
def test_trouble_is_reported_in_drainer_s_words(load: Load, topic: Topic) -> None:
    topic.produce("abc")
    topic.delete_before(1)
    ends, starts = ({topic.name: each} for each in ({"0": 9, "1": 0}, {"1": 0, "2": 0}))
    for options, reported in (
        ({"subscribe": "no-such-topic"}, "drainer.errors.TopicMissing: topic no-such-topic does"),
        ({"minPartition": "4"}, "the option minpartition is unknown\nhint: Did you mean minPartit"),
        ({"endingOffsets": json.dumps(ends)}, "which holds [1, 3)\nhint: Choose"),
        (
            {"startingOffsets": json.dumps(starts)},
            f"these differ: {topic.name}/0, {topic.name}/2\nhint",
        ),
        (
            {"startingOffsets": "committed", GROUP: "new"},
            "choose a start: startingOffsets=committed-or-earliest, committed-or-end, earliest, or",
        ),
        ({SERVERS: ""}, f"Name them with the option {SERVERS}, or"),
    ):
        with pytest.raises(PySparkException) as raised:
            load(**options).collect()
        assert reported in str(raised.value)
        # A hint must name no option of the command line.
        assert "--" not in str(raised.value).split("drainer.errors.")[-1]


def test_before_pyspark_4_2_a_stream_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(UsageError, match=r"needs PySpark 4\.2.*\nhint: Update PySpark, or use"):
        NoStream().latestOffset()


def test_a_header_s_name_that_is_not_text_fails_the_job(load: Load, topic: Topic) -> None:
    produce_with_header(topic.bootstrap, topic.name, b"v", b"\xff")

    assert load().count() == 1
    with pytest.raises(PySparkException, match="can't read the headers"):
        load(includeHeaders="true").collect()


@pytest.mark.long
@classic  # A Connect server plans each query anew.
def test_records_that_go_between_plan_and_read_fail_the_job(load: Load, topic: Topic) -> None:
    topic.produce("abc")
    frame = load()
    topic.delete_before(2)

    with pytest.raises(
        PySparkException, match=r"deleted offsets 0 to 1 of.*\n.*hint: Raise the topic"
    ):
        frame.count()


@pytest.mark.long
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
        reader = spark.read.format("drainer").option("subscribe", topic_name)
        return reader.option("clientConfig", str(file)).load()

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


@pytest.mark.long
@classic  # A Connect server plans each query anew.
def test_a_client_s_file_is_found_where_spark_sends_it(
    spark: SparkSession, topic: Topic, bootstrap: str, tmp_path: Path
) -> None:
    topic.produce("ab")
    file = tmp_path / f"{topic.name}.properties"
    file.write_text(f"bootstrap.servers={bootstrap}\n")
    reader = spark.read.format("drainer").option("subscribe", topic.name)
    with pytest.raises(PySparkException, match=r"does not exist on .*\nhint: .*--files"):
        reader.option("clientConfig", file.name).load()

    spark.sparkContext.addFile(str(file))

    assert reader.option("clientConfig", file.name).load().count() == 2
