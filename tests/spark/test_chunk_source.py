"""The chunks that Spark gives a task: they must be those of its share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from builders import a_plan
from drainer.errors import Interrupted
from drainer.model.claims import Shard, Stream
from drainer.spark.state.state import TaskInput
from drainer.spark.task.rows import Row
from drainer.spark.task.source import AHEAD_BYTES, ChunkBatch, TaskSource, chunk_batches

SHARD = Shard(1, 2)
SHARE = {0: TaskInput(0, 40, 5, 11), 1: TaskInput(0, 10, 1, 3)}
COUNTS = Row(1, -2, 0, 1, 3, b""), Row(1, -1, 0, 5, 11, b"")
FIRST, SECOND, OTHER = (
    Row(1, 0, 4, 2, 5, b"chunk"),
    Row(1, 0, 20, 3, 6, b"chunk"),
    Row(1, 1, 7, 1, 3, b"chunk"),
)


def read(*rows: Row, counts: tuple[Row, ...] = COUNTS) -> list[ChunkBatch]:
    """Return the batches of a task that is given these rows."""
    return list(chunk_batches((*counts, *rows), a_plan(40, 10), SHARD, SHARE))


def test_a_task_that_gets_all_of_its_share_reaches_the_end() -> None:
    *chunks, end = read(FIRST, SECOND, OTHER)
    assert len(chunks) == 3
    assert end.reached == {Stream(0, SHARD): 40, Stream(1, SHARD): 10}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([FIRST, OTHER], id="a chunk is missing"),
        pytest.param([FIRST, SECOND, SECOND, OTHER], id="a chunk comes twice"),
        pytest.param([FIRST, SECOND._replace(checksum=7), OTHER], id="a chunk has other contents"),
        pytest.param([FIRST, SECOND], id="a partition is missing"),
    ],
)
def test_a_task_that_gets_something_else_stops_the_drain(rows: list[Row]) -> None:
    with pytest.raises(Interrupted, match="were read, or others"):
        read(*rows)


def test_a_task_that_is_given_other_counts_makes_no_call() -> None:
    for counts in ((), COUNTS[:1], (COUNTS[0], COUNTS[1]._replace(checksum=12))):
        given = chunk_batches((*counts, FIRST, SECOND, OTHER), a_plan(40, 10), SHARD, SHARE)
        with pytest.raises(Interrupted, match="were read, or others"):
            next(given)


@pytest.mark.parametrize("row", [FIRST._replace(shard=0), FIRST._replace(partition=2)])
def test_a_task_takes_no_chunk_of_another_one(row: Row) -> None:
    with pytest.raises(Interrupted, match="which are not its own"):
        read(row, FIRST, SECOND, OTHER)


def test_a_source_takes_no_more_than_a_few_mebibytes_ahead() -> None:
    """And it goes on as the engine takes batches, up to the error by which Spark ends."""
    taken, notified = list[int](), threading.Semaphore(0)

    def batches() -> Iterator[ChunkBatch]:
        for number in range(40):
            taken.append(number)
            yield ChunkBatch({0: number}, bytes(AHEAD_BYTES // 10))
        raise OSError("the disk is full")

    source = TaskSource(batches(), notified.release)
    source.start()
    for number in range(40):
        assert notified.acquire(timeout=10)
        assert len(taken) - number <= 12
        batch = source.next_batch()
        assert batch is not None
        assert batch.reached == {0: number}
    assert notified.acquire(timeout=10)
    assert "the disk is full" in str(source.failure)
    source.stop()
