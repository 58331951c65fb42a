"""Sub-messages with several sub-keys on Spark: what they connect goes together, the rest apart."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from drainer.errors import EXIT_INTERRUPTED
from drainer.spark import work
from spark.story import Op, Story
from spark.trouble import Trouble, interrupt, kill, states


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

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.engine_counts["waves"] > 2
    story.ensure_all()
    assert story.repeated == 0
    assert [len(pids) for pids in pids_by_wave(story, 100)] == [2, 2]
    assert story.plan.account.joins == {}


@pytest.mark.long
def test_transfers_between_accounts_end_as_in_one_process(story: Story) -> None:
    story.fill(*(messages(300, n, lanes=60, several=1.0) for n in (3, 4)))

    summary = story.run(wave_bytes=20_000)

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.engine_counts["waves"] > 2
    story.ensure_all()
    assert story.repeated == 0
    assert summary.sub_messages.done == len(story.everything)


@pytest.mark.long
@pytest.mark.parametrize("tasks", [None, 1, 3])
def test_a_drain_that_stops_amid_joined_lanes_is_resumed_by_anybody(
    story: Story, tasks: int | None
) -> None:
    story.fill(*(messages(150, n, lanes=300, several=0.05) for n in (5, 6)))
    with Trouble(story, interrupt(1)):
        stopped = story.run(concurrency=8, wave_bytes=9_000, wait_ms="10")
    assert stopped.exit_code == EXIT_INTERRUPTED
    assert story.plan.account.joins

    resumed = story.resume(tasks=tasks, wave_bytes=9_000)

    assert (resumed.exit_code, resumed.cause) == (0, None)
    story.ensure_all()
    assert story.repeated == 0
    assert resumed.sub_messages.done == len(story.everything)
    assert story.plan.account.joins == {}


@pytest.mark.long
def test_a_worker_that_is_killed_amid_joined_lanes_costs_what_it_had_in_flight(
    story: Story,
) -> None:
    story.fill(*(messages(150, n, lanes=300, several=0.05) for n in (7, 8)))
    with Trouble(story, kill):
        summary = story.run(wave_bytes=9_000, wait_ms="3")

    assert (summary.exit_code, summary.cause) == (0, None)
    story.ensure_all()
    assert summary.sub_messages.done == len(story.everything)
    assert states(story.folder) == []
