"""The chunks that Spark gives a task: they must be those of its share."""

from __future__ import annotations

import threading

import pytest

from builders import a_plan
from drainer.errors import DrainerError, Interrupted
from drainer.model.claims import Shard
from drainer.spark.state.state import TaskInput
from drainer.spark.task.rows import Row
from drainer.spark.task.source import ChunkSource

SHARD = Shard(1, 2)
SHARE = {0: TaskInput(0, 40, 5, 11), 1: TaskInput(0, 10, 1, 3)}
COUNTS = Row(1, -2, 0, 1, 3, b""), Row(1, -1, 0, 5, 11, b"")
FIRST, SECOND, OTHER = (
    Row(1, 0, 4, 2, 5, b"chunk"),
    Row(1, 0, 20, 3, 6, b"chunk"),
    Row(1, 1, 7, 1, 3, b"chunk"),
)


def failure_of(*rows: Row, counts: tuple[Row, ...] = COUNTS) -> DrainerError | None:
    """Return the error that ends the source; None if it reaches the ends of the share.

    If the counts differ, no chunk may have come before the error.
    """
    notified = threading.Semaphore(0)
    source = ChunkSource((*counts, *rows), a_plan(40, 10), SHARD, SHARE, notified.release)
    source.start()
    while notified.acquire(timeout=10):
        if source.failure is not None:
            assert counts == COUNTS or source.next_batch() is None
            return source.failure
        batch = source.next_batch()
        if batch is not None and batch.origin is None:
            return None
    raise AssertionError("the source does not end")


def test_a_task_that_gets_all_of_its_share_reaches_the_end() -> None:
    assert failure_of(FIRST, SECOND, OTHER) is None


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
    failure = failure_of(*rows)
    assert isinstance(failure, Interrupted)
    assert "were read, or others" in str(failure)


def test_a_task_that_is_given_other_counts_makes_no_call() -> None:
    for counts in ((), COUNTS[:1], (COUNTS[0], COUNTS[1]._replace(checksum=12))):
        failure = failure_of(FIRST, SECOND, OTHER, counts=counts)
        assert "were read, or others" in str(failure)


@pytest.mark.parametrize("row", [FIRST._replace(shard=0), FIRST._replace(partition=2)])
def test_a_task_takes_no_chunk_of_another_one(row: Row) -> None:
    failure = failure_of(row, FIRST, SECOND, OTHER)
    assert isinstance(failure, Interrupted)
    assert "which are not its own" in str(failure)
