"""What Spark reads is what a consumer reads: whatever the cuts, the holes and the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from drainer.kafka.cluster import Cluster
from drainer.kafka.record import Batch
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.sandbox import Broker
from drainer.spark.source import record_batches
from kafka.reader import numbered
from kafka.topic import PASSWORD, USER, Topic

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

    first, second = load().orderBy("offset").collect()

    assert (first.topic, first.partition, first.offset) == (topic.name, 1, 0)
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(1234.567, UTC)
    assert first.timestamp_type == "CreateTime"
    assert first.headers == [("h", b"1"), ("h", None)]
    assert first.leader_epoch == 0
    assert (second.key, second.value, second.headers) == (None, None, [])


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


def test_exact_ranges_are_read_and_nothing_beside_them(load: Load, topic: Topic) -> None:
    for partition in (0, 1):
        topic.produce(numbered(50), partition=partition)

    assert places(load(ranges='{"0": [3, 6], "1": [48, 50]}', tasks="2")) == [
        (0, 3), (0, 4), (0, 5), (1, 48), (1, 49),
    ]  # fmt: skip
    assert places(load(ranges='{"0": [7, 7]}')) == []
    assert places(load(partitions="1", from_="45", until="47")) == [(1, 45), (1, 46)]


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


def test_the_end_is_frozen_when_the_read_is_planned(load: Load, topic: Topic) -> None:
    topic.produce(numbered(5))
    frame = load()
    assert frame.count() == 5
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
    batch = Batch(Origin("orders", "id", 3), records, {}, sum(sizes), 1)

    made = list(record_batches(batch, schema, batch_bytes=1000))

    assert [len(piece) for piece in made] == [2, 1, 1, 2, 1]
    assert all(piece.schema == schema for piece in made)
    assert [row["offset"] for piece in made for row in piece.to_pylist()] == list(range(10, 17))
    assert made[3].to_pylist()[0] == {"value": b"x", "offset": 14, "topic": "orders"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "no-such-topic"}, "drainer.errors.TopicMissing: topic no-such-topic does not"),
        ({"tsks": "4"}, "the option tsks is unknown\nhint: is it tasks?"),
        (
            {"until": "5", "partitions": "0"},
            "hint: a backlog is what is there now: leave until out",
        ),
        ({"ranges": '{"0": [1, 9]}'}, "which ends at 3\nhint: only what is there"),
        ({"bootstrap.servers": ""}, "name them with the option bootstrap.servers, or"),
    ],
)
def test_trouble_is_reported_in_drainer_s_words(
    load: Load, topic: Topic, options: dict[str, str], told: str
) -> None:
    topic.produce("abc")
    topic.delete_before(1)

    with pytest.raises(PySparkException) as raised:
        load(**options).count()

    assert told in str(raised.value)
    assert "--" not in str(raised.value).split("drainer.errors.")[-1]  # there is no command line


def test_records_that_go_between_plan_and_read_fail_the_job(load: Load, topic: Topic) -> None:
    topic.produce("abc")
    frame = load()
    assert frame.count() == 3  # planned
    topic.delete_before(2)

    with pytest.raises(
        PySparkException, match=r"offsets 0 to 1 are gone.*\n.*hint: give the topic"
    ):
        frame.count()


def test_secrets_are_in_the_file_only(
    spark: SparkSession, broker: Broker, topic_name: str, tmp_path: Path, events: Path
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

    plan = frame._jdf.queryExecution().toString()
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
    with pytest.raises(PySparkException, match=r"no such file on .*\nhint: .*--files"):
        reader.option("client.config", file.name).load()

    spark.sparkContext.addFile(str(file))

    assert reader.option("client.config", file.name).load().count() == 2
