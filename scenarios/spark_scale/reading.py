"""Reads one partition as Spark's data source by more and more tasks, with all columns or two of
them.

It prints records per second, each the median of several reads, beside what one process reads
without Spark.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import SparkSession

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import read_range
from drainer.message import Origin
from drainer.spark import register, spark_session
from drainer.spark.reading.columns import COLUMNS, ddl
from scenarios.spark_scale.drains import Bench

TOPIC = "spark-scale"
RECORDS, RECORD_BYTES = 1_000_000, 100
TWO_COLUMNS = ("offset", "value")


def records(count: int, size: int) -> Iterator[tuple[bytes, bytes, int]]:
    for number in range(count):
        yield b"%d" % number, b"%d" % number + b"." * (size - len(str(number))), 0


def median_s(read: Callable[[], int], expected: int, times: int) -> float:
    """Return the seconds of one read. Each read has to give all records."""
    taken: list[float] = []
    for _ in range(times):
        begun_s = time.perf_counter()
        count = read()
        taken.append(time.perf_counter() - begun_s)
        if count != expected:
            raise SystemExit(f"read {count} records of {expected}")
    return statistics.median(taken)


def without_spark(settings: ClientSettings, count: int) -> int:
    with Cluster.connect(settings) as cluster:
        origin = Origin(TOPIC, cluster.topic(TOPIC).topic_id, 0)
    return sum(map(len, read_range(settings, origin, 0, count, reader="spark-scale")))


def by_tasks(spark: SparkSession, servers: str, tasks: int, columns: tuple[str, ...]) -> int:
    """Read everything into the JVM, and count it there."""
    reader = spark.read.format("drainer").schema(ddl(columns)).option("subscribe", TOPIC)
    reader = reader.option("kafka.bootstrap.servers", servers).option("minPartitions", str(tasks))
    return reader.load().count()  # There is no way to read without the columns of the schema.


def compare(made: Bench, master: str, tasks_tried: Sequence[int], times: int) -> None:
    """Print a table: without Spark, and by the number of tasks."""
    made.fill(TOPIC, lambda: records(RECORDS, RECORD_BYTES))
    settings = ClientSettings.load(made.bootstrap_servers)
    spark = spark_session(master, "spark-scale")
    register(spark)
    print(f"{RECORDS:,} records of {RECORD_BYTES} bytes in one partition\n")
    print("| read by | columns | seconds | records/s |\n|---|---|---|---|")

    def row(by: str, columns: str, read: Callable[[], int]) -> None:
        read()  # The first read starts what later ones find running.
        took_s = median_s(read, RECORDS, times)
        print(f"| {by} | {columns} | {took_s:.2f} | {RECORDS / took_s:,.0f} |", flush=True)

    try:
        row("one process, without Spark", "as records", lambda: without_spark(settings, RECORDS))
        for columns in (tuple(COLUMNS), TWO_COLUMNS):
            label = "all" if columns != TWO_COLUMNS else ", ".join(columns)
            for tasks in tasks_tried:

                def read(tasks: int = tasks, columns: tuple[str, ...] = columns) -> int:
                    return by_tasks(spark, made.bootstrap_servers, tasks, columns)

                row(f"{tasks} task{'s' * (tasks > 1)} on {master}", label, read)
    finally:
        spark.stop()
