"""Drains on Spark that are stopped or paused. ``scenarios.spark_chaos`` kills their processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.control import client
from drainer.engine.control import Pause, Unpause
from drainer.errors import Interrupted, Refused
from drainer.model.status import Status
from drainer.spark.assign.status import SparkStatus
from drainer.spark.session.session import Session
from drainer.store.place import parse_place
from kafka.topic import eventually
from spark.story import HANDLER, Story
from spark.test_drain import messages
from spark.trouble import interrupt, states, trouble

pytestmark = pytest.mark.long

CONCURRENCY = 20


def test_lanes_that_a_stop_leaves_are_not_parked(story: Story) -> None:
    story.fill([[f"k{number}", f"j{number}"] for number in range(100)])
    with trouble(story, interrupt(1), after=20):
        stopped = story.run(concurrency=2, pause_ms="100")  # a stop may take seconds to arrive

    assert stopped.sub_messages.pending
    assert (stopped.parked.total, stopped.last.failures.parked_lanes) == (0, 0)


def test_a_slice_that_was_read_while_the_drain_is_paused_is_handled_afterwards(
    story: Story,
) -> None:
    story.fill([["a", "b"]] * 30)
    story.handler = f"{HANDLER}:Slow"
    plan = parse_place(str(story.plan_path))

    def paused() -> bool:
        with suppress(Refused):  # The drain may still be starting.
            client.request(plan, Pause(None))
            return True
        return False

    def pause(_: int) -> None:
        eventually(paused, "the drain can be paused")
        try:
            eventually(lambda: any(map(slices, story.statuses)), "the slice is read")
            assert story.record.begun() == []
        finally:
            client.request(plan, Unpause())

    with trouble(story, pause, on="split", after=1):
        summary = story.run(split_s="0.02")

    story.ensure_done(summary)


def slices(status: Status) -> int:
    return status.engine_status.slice if isinstance(status.engine_status, SparkStatus) else 0


@pytest.mark.parametrize(
    ("met", "open_s", "split_s"),
    [("open", "1", "0"), ("split", "0", "0.02")],
    ids=["while a handler is opened", "while the first slice is read"],
)
def test_a_stop_before_anything_is_handled_leaves_nothing(
    story: Story,
    spark: SparkSession,
    ensure_let_go: Callable[[], None],
    met: str,
    open_s: str,
    split_s: str,
) -> None:
    story.fill(messages(150, 21), messages(100, 22))
    story.handler = f"{HANDLER}:Slow"
    with trouble(story, interrupt(1), on=met, after=1), suppress(Interrupted):
        story.run(concurrency=CONCURRENCY, open_s=open_s, split_s=split_s)

    assert story.record.begun() == []
    if not Session(spark).is_remote:
        tracker = spark.sparkContext.statusTracker()
        eventually(lambda: not tracker.getActiveJobsIds(), "all jobs end")
    opened = story.record.pids("open")
    eventually(lambda: not any(is_open(story, pid) for pid in opened), "no handler stays open")
    assert states(story.folder) == []
    ensure_let_go()


def is_open(story: Story, pid: int) -> bool:
    """Return whether a process is alive and has not closed its handler."""
    opened, closed = story.record.pids("open"), story.record.pids("close")
    return Path(f"/proc/{pid}").exists() and opened.count(pid) > closed.count(pid)
