"""A stream reads each record once, in micro-batches whose offsets are in the query's checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StructField, StructType

from drainer.errors import UsageError
from drainer.message import Origin
from drainer.spark.reading.options import OffsetRange, ReadOptions
from drainer.spark.reading.stream import StreamReader
from kafka.reader import numbered
from kafka.topic import Topic, eventually
from spark.connect import classic

WAIT_S = 120
HERE = Path(__file__).parents[1]


class Stream:
    """A query that writes the place of each record to a folder, a file for each micro-batch."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path) -> None:
        self.spark = spark
        self.topic = topic
        self.checkpoint = folder / "checkpoint"
        self.batches = folder / "batches"
        self.batches.mkdir()

    def start(self, *, fails: bool = False, **options: str) -> StreamingQuery:
        batches = str(self.batches)

        def write(frame: DataFrame, number: int) -> None:
            found = sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))
            if fails:
                raise ValueError("the sink is away")
            (Path(batches) / f"{number}.json").write_text(json.dumps(found))

        named = {} if "assign" in options else {"subscribe": self.topic.name}
        reader = self.spark.readStream.format("drainer").options(**(named | options))
        frame = reader.option("kafka.bootstrap.servers", self.topic.bootstrap).load()
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(write).trigger(availableNow=True).start()

    def run(self, *, fails: bool = False, **options: str) -> None:
        query = self.start(fails=fails, **options)
        if not query.awaitTermination(WAIT_S):
            query.stop()
            pytest.fail("the query does not end")

    def error(self, *, fails: bool = False, **options: str) -> str:
        with pytest.raises(StreamingQueryException) as raised:
            self.run(fails=fails, **options)
        return str(raised.value)

    def rows(self) -> list[list[tuple[str, int, int]]]:
        """The topics, partitions and offsets of the records in each micro-batch."""
        paths = sorted(self.batches.iterdir(), key=lambda path: int(path.stem))
        return [[tuple(row) for row in json.loads(path.read_text())] for path in paths]

    def read(self) -> list[list[tuple[int, int]]]:
        """The partitions and offsets of the records in each micro-batch."""
        return [[row[1:] for row in rows] for rows in self.rows()]

    def offsets(self, batch: int) -> Any:
        """The offset that Spark has in the checkpoint for the end of a micro-batch."""
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, topic_name, partitions=2)


@pytest.fixture
def stream(spark: SparkSession, topic: Topic, tmp_path: Path) -> Iterator[Stream]:
    made = Stream(spark, topic, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()


def test_micro_batches_share_the_limit_and_end_where_the_log_ended(
    stream: Stream, topic: Topic
) -> None:
    topic.produce(numbered(9))
    topic.produce(numbered(3), partition=1)

    stream.run(startingOffsets="earliest", maxOffsetsPerTrigger="4", minPartitions="3")

    assert stream.read() == [
        [(0, 0), (0, 1), (0, 2), (1, 0)],
        [(0, 3), (0, 4), (0, 5), (1, 1)],
        [(0, 6), (0, 7), (0, 8), (1, 2)],
    ]
    assert stream.offsets(0)[topic.name]["began"] == {"0": 0, "1": 0}
    assert stream.offsets(1)[topic.name].keys() == {"id", "offsets"}
    assert stream.offsets(2)[topic.name]["offsets"] == {"0": 9, "1": 3}
    topic.produce(numbered(1))
    stream.run(startingOffsets="earliest")
    assert stream.read()[3:] == [[(0, 9)]]


def test_a_stream_begins_at_the_end_unless_told_otherwise_and_never_moves_its_beginning(
    stream: Stream, topic: Topic
) -> None:
    topic.produce(numbered(5))

    assert "the sink is away" in stream.error(fails=True)
    topic.produce(numbered(2))
    stream.run()

    assert stream.read() == [[], [(0, 5), (0, 6)]]
    assert stream.offsets(0)[topic.name]["began"] == {"0": 5, "1": 0}


def test_a_micro_batch_that_failed_is_repeated_with_the_same_records(
    stream: Stream, topic: Topic
) -> None:
    topic.produce(numbered(3))
    begin = json.dumps({topic.name: {"0": 1, "1": -2}})

    assert "the sink is away" in stream.error(fails=True, startingOffsets=begin)
    topic.produce(numbered(3))
    topic.delete_before(1)
    stream.run()
    topic.delete_before(6)  # The start is gone by now, which matters to a new query only.
    topic.produce(numbered(1))
    stream.run(startingOffsets=begin)

    assert stream.read() == [[(0, 1), (0, 2)], [(0, 3), (0, 4), (0, 5)], [(0, 6)]]


@classic  # On Connect the function runs in the server's process.
def test_a_query_that_reads_what_is_available_ends_at_the_end_as_of_its_start(
    spark: SparkSession, stream: Stream, topic: Topic
) -> None:
    topic.produce(numbered(4))
    seen: list[int] = []

    def write(frame: DataFrame, _: int) -> None:
        seen.append(frame.count())
        topic.produce(numbered(2))

    reader = spark.readStream.format("drainer").option("subscribe", topic.name)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2")
    frame = reader.option("kafka.bootstrap.servers", topic.bootstrap).load()
    query = frame.writeStream.foreachBatch(write).trigger(availableNow=True).start()

    assert query.awaitTermination(WAIT_S)
    assert seen == [2, 2]


def test_partitions_and_topics_that_come_later_are_read_from_their_first_record_on(
    stream: Stream, topic: Topic, bootstrap: str
) -> None:
    other = Topic(bootstrap, f"{topic.name}-other")
    other.produce("abc")
    other.delete_before(1)
    topic.produce(numbered(1))
    stream.run()

    topic.grow(3)
    topic.produce(numbered(2), partition=2)
    stream.run()
    stream.run(subscribe=f"{topic.name},{other.name}")

    assert stream.rows() == [
        [],
        [(topic.name, 2, 0), (topic.name, 2, 1)],
        [(other.name, 0, 1), (other.name, 0, 2)],
    ]
    named = stream.error(assign=json.dumps({topic.name: [0, 1]}))
    assert f"the checkpoint has {topic.name}/2, {other.name}/0, which this query does not" in named


def test_what_is_lost_is_refused(stream: Stream, topic: Topic) -> None:
    topic.produce(numbered(4))
    stream.run(startingOffsets="earliest")
    topic.produce(numbered(4))
    topic.delete_before(6)

    refused = stream.error()
    assert f"retention deleted offsets 4 to 5 of {topic.name}/0 before the stream read" in refused
    assert "hint: Raise the topic's retention. To read what is left, start the query" in refused

    topic.delete()
    topic.create()
    topic.produce(numbered(9))
    assert f"topic {topic.name} was deleted and created again" in stream.error()
    assert stream.read() == [[(0, 0), (0, 1), (0, 2), (0, 3)]]


@pytest.mark.long
def test_a_stream_goes_on_while_records_come_and_shows_where_the_log_ends(
    spark: SparkSession, stream: Stream, topic: Topic, tmp_path: Path
) -> None:
    reader = spark.readStream.format("drainer").option("subscribe", topic.name)
    frame = reader.option("kafka.bootstrap.servers", topic.bootstrap).load()
    writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "other"))
    query = writer.start(str(tmp_path / "rows"))
    eventually((tmp_path / "other" / "commits" / "0").exists, "the first batch ends")

    for number in range(3):
        topic.produce([f"value {number}"], partition=number % 2)
        there = partial(_has, spark, tmp_path / "rows", number + 1)
        eventually(there, "the record is there")
    query.processAllAvailable()

    progress = json.loads(json.dumps(query.lastProgress, default=str))
    query.stop()
    latest = progress["sources"][0]["latestOffset"]
    assert json.loads(latest)[topic.name]["offsets"] == {"0": 2, "1": 1}


def _has(spark: SparkSession, folder: Path, count: int) -> bool:
    rows = spark.read.schema("value string").parquet(str(folder))
    return rows.distinct().count() == count


@pytest.mark.long
@classic  # The query has a session of its own.
def test_a_kill_loses_no_record_and_repeats_only_the_micro_batch_that_had_not_ended(
    topic: Topic, tmp_path: Path
) -> None:
    topic.produce(numbered(300))
    topic.produce(numbered(200), partition=1)
    command = [sys.executable, "-m", "spark.streaming", topic.bootstrap, topic.name, str(tmp_path)]
    log = tmp_path / "log"

    def lines() -> list[tuple[int, ...]]:
        return [tuple(map(int, line.split())) for line in log.read_text().splitlines()]

    def reads(count: int) -> bool:
        return len(lines()) > count

    log.touch()
    for kills in range(3):
        killed = subprocess.Popen(command, cwd=HERE, start_new_session=True)
        try:
            eventually(partial(reads, 60 * (kills + 1)), "it reads", WAIT_S)
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
    subprocess.run([*command, "--rest"], cwd=HERE, check=True, timeout=WAIT_S)

    batches: dict[int, set[tuple[int, int]]] = {}
    for batch, partition, offset in lines():
        batches.setdefault(batch, set()).add((partition, offset))
    places = [place for found in batches.values() for place in found]
    assert sorted(places) == [*((0, n) for n in range(300)), *((1, n) for n in range(200))]
    assert len(lines()) - len(places) <= 3 * 21  # Each kill repeats at most one batch.


# --- offsets ---


def reader_of(**options: str) -> StreamReader:
    parsed = ReadOptions.parse({"subscribe": "orders", **options})
    return StreamReader(parsed, StructType([StructField("value", BinaryType())]))


def of(offsets: dict[str, int], began: dict[str, int] | None = None, id: str = "x") -> Any:
    more = {} if began is None else {"began": began}
    return {"orders": {"id": id, "offsets": offsets, **more}}


def test_the_two_offsets_of_a_micro_batch_are_all_that_decides_what_it_reads() -> None:
    first = of({"0": 7, "1": 5}, {"0": 3, "1": 5})
    second = of({"0": 9, "1": 5, "2": 1}, {"2": 0})

    def ranges(start: Any, end: Any) -> list[OffsetRange]:
        return [each.value for each in reader_of(minPartitions="1").partitions(start, end)]

    zero, two = Origin("orders", "x", 0), Origin("orders", "x", 2)
    assert ranges({}, first) == [OffsetRange(zero, 3, 7)]
    assert ranges(first, second) == [OffsetRange(zero, 7, 9), OffsetRange(two, 0, 1)]
    assert ranges(second, second) == []


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ({"orders": {"0": 5}}, {"orders": {"0": 9}}, "an offset of another kind"),  # of Spark's own
        (of({"0": 9}), of({"0": 5}), "one of them is not of this query"),
        (of({"0": 3}), of({"0": 5}, id="y"), "one of them is not of this query"),
        (of({"0": 3}), of({"0": 5, "1": 5}), "one of them is not of this query"),
    ],
)
def test_a_checkpoint_of_another_query_is_refused(start: Any, end: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        reader_of().partitions(start, end)
    assert "checkpointLocation" in (raised.value.hint or "")
