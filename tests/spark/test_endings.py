"""How drains on Spark end while some tasks work and others wait for their share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from drainer.errors import EXIT_HALTED, EXIT_INTERRUPTED
from drainer.model.claims import key_hash
from drainer.model.settings import FailureSettings
from scenarios.fill import create_topic
from spark.story import HANDLER, Story, value_of
from spark.trouble import interrupt, states, trouble

# Keys of the shard of the hot lane, and of the other one, if there are two.
BESIDE, APART = (
    [key for key in (f"k{n}" for n in range(1_000, 3_000)) if key_hash(key) % 2 == shard]
    for shard in (key_hash("hot") % 2, 1 - key_hash("hot") % 2)
)
LENGTH = 10  # A slice has this many messages.
SLICE_BYTES = LENGTH * (len(b"one") + len(value_of(["hot", APART[0]])))


def test_a_failure_of_one_task_ends_all_tasks_at_once(story: Story) -> None:
    story.fill([[BESIDE[0]], *([key] for key in APART[:400])])

    summary = story.run(
        concurrency=4, bad=BESIDE[0], pause_ms="100", failures=FailureSettings(retries=0)
    )

    assert summary.exit_code == EXIT_HALTED
    assert len(story.record.begun()) < 200, "all of it takes 10 s"


def test_a_backlog_of_holes_alone_is_drained(story: Story, bootstrap: str) -> None:
    create_topic(story.settings, story.topic, 1)
    story.messages = {0: []}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": story.topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(story.topic, value_of(["hot"]), partition=0)
    producer.flush()
    producer.abort_transaction()

    summary = story.run()

    story.ensure_done(summary)
    assert story.committed == {0: 2}


@pytest.mark.long
def test_a_stop_while_a_slice_is_read_again_ends_the_reading_and_handles_nothing(
    story: Story,
) -> None:
    """The first message connects both shards, so that the slice is read again, undivided."""
    story.handler = f"{HANDLER}:Splits"
    story.fill([[[BESIDE[0], APART[0]]], *([key] for key in APART[:200])])

    with trouble(story, interrupt(1), on="split", after=5):
        stopped = story.run(split_s="0.1")

    assert stopped.exit_code == EXIT_INTERRUPTED
    assert len(story.record.pids("split")) < 150, "all of it takes 20 s"
    assert story.record.begun() == []
    assert states(story.folder) == []
    story.ensure_done(story.resume())


def stop_and_open(gate: Path) -> Callable[[int], None]:
    """Return a function that stops this process once a task waits, and then opens the gate."""

    def act(pid: int) -> None:
        threading.Event().wait(2)  # Until the next task of the hot lane has its slot, and waits.
        interrupt(1)(pid)
        threading.Event().wait(1)
        gate.touch()

    return act


@pytest.mark.long
def test_a_stop_lets_calls_end_while_another_task_waits_for_its_share(
    story: Story, tmp_path: Path
) -> None:
    story.fill([["hot", key] for key in APART[: 4 * LENGTH]])
    gate = tmp_path / "gate"

    options: dict[str, Any] = {"gate": str(gate), "gated": "hot", "pause_ms": "2500"}
    # The hot lane has begun, and of the other keys all of the first slice and four of the next.
    with trouble(story, stop_and_open(gate), on="begun", after=1 + LENGTH + 4):
        stopped = story.run(concurrency=4, slice_bytes=SLICE_BYTES, **options)

    assert stopped.exit_code == EXIT_INTERRUPTED
    assert set(story.record.begun()) == set(story.record.done()), "each call has ended"
    options["pause_ms"] = "10"
    story.ensure_done(story.resume(**options))


@pytest.mark.long
def test_a_stop_closes_the_handler_of_a_task_that_waits_for_its_share(
    story: Story, tmp_path: Path
) -> None:
    story.fill([["hot", key] for key in APART[: 2 * LENGTH]])
    gate = tmp_path / "gate"

    options: dict[str, Any] = {"gate": str(gate), "gated": "hot", "pause_ms": "10"}
    with trouble(story, stop_and_open(gate), on="done", after=2 * LENGTH):
        stopped = story.run(concurrency=4, slice_bytes=SLICE_BYTES, **options)

    assert stopped.exit_code == EXIT_INTERRUPTED
    opened, closed = story.record.pids("open"), story.record.pids("close")
    assert sorted(opened) == sorted(closed)
    assert set(story.record.pids("done")) <= set(closed)
