"""Sub-messages with several sub-keys on Spark: what they connect goes together, the rest apart."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from drainer.errors import EXIT_INTERRUPTED
from drainer.spark import work
from spark.story import Op, Story
from spark.trouble import interrupt, trouble


@pytest.fixture(autouse=True)
def any_work_is_worth_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "WORTH_BYTES", 1)


def messages(count: int, seed: int, *, lanes: int, several: float) -> list[list[Op]]:
    drawn = random.Random(seed)

    def op() -> Op:
        if drawn.random() < several:
            return [f"k{drawn.randrange(lanes)}", f"k{drawn.randrange(lanes)}"]
        return f"k{drawn.randrange(lanes)}"

    return [[op() for _ in range(5)] for _ in range(count)]


def pids_by_wave(story: Story, every: int) -> list[set[int]]:
    """The processes that handled something, by so many messages."""
    found: dict[int, set[int]] = defaultdict(set)
    for line in story.lines:
        if line["what"] == "begin":
            found[line["place"][1] // every].add(line["pid"])
    return list(found.values())


def test_what_a_few_sub_messages_connect_leaves_the_rest_to_all_tasks(story: Story) -> None:
    story.fill(*(messages(200, n, lanes=2_000, several=0.01) for n in (1, 2)))

    summary = story.run(wave_bytes=9_000)

    story.ensure_done(summary)
    assert summary.engine_counts["waves"] > 2
    assert [len(pids) for pids in pids_by_wave(story, 100)] == [2, 2]
    assert story.plan.account.joins == {}


@pytest.mark.long
@pytest.mark.parametrize("tasks", [None, 3])
def test_a_drain_that_stops_amid_joined_lanes_is_resumed_by_either_engine(
    story: Story, tasks: int | None
) -> None:
    story.fill(*(messages(150, n, lanes=300, several=0.05) for n in (5, 6)))
    with trouble(story, interrupt(1)):
        stopped = story.run(concurrency=8, wave_bytes=9_000, wait_ms="10")
    assert stopped.exit_code == EXIT_INTERRUPTED
    assert story.plan.account.joins

    resumed = story.resume(tasks=tasks, wave_bytes=9_000)

    story.ensure_done(resumed)
    assert story.plan.account.joins == {}
