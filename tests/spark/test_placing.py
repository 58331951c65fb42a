"""Each row goes to the task of its number, even on a version of Spark that can only hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from drainer.spark.session.session import Session


@pytest.mark.parametrize("version", [(4, 0), (4, 1)])
@pytest.mark.parametrize("tasks", [3, pytest.param(24, marks=pytest.mark.long)])
def test_a_row_is_in_the_partition_whose_number_it_has(
    spark: SparkSession, tasks: int, version: tuple[int, int]
) -> None:
    rows = spark.range(0, 2 * tasks, 1, 2).selectExpr("id", f"int(id % {tasks}) AS task")

    def partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            number = pa.array([context.partitionId()] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([batch.column(1), number], ["task", "found"])

    session = Session(spark)
    session.version = version
    with session.draining():
        placed = session.placed(rows, tasks, "task").mapInArrow(partition, "task int, found int")
        found = placed.collect()

    assert len(found) == 2 * tasks
    assert [row.task for row in found] == [row.found for row in found]


def test_settings_of_a_session_are_changed_until_its_last_drain_ends(spark: SparkSession) -> None:
    def settings() -> list[str | None]:
        names = ("adaptive.enabled", "execution.arrow.maxRecordsPerBatch")
        return [spark.conf.get(f"spark.sql.{name}") for name in names]

    before = settings()
    first, second = Session(spark).draining(), Session(spark).draining()
    with second:
        with first:
            assert settings() == ["false", "64"]
        assert settings() == ["false", "64"]
    assert settings() == before != ["false", "64"]
