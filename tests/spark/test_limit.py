"""A limit per sub-key on Spark counts on: from wave to wave, from task to task, over resumes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.errors import EXIT_DEAD_LETTERS, EXIT_INTERRUPTED
from drainer.kafka.settings import ClientSettings
from drainer.policy.rules.rule_filter import KeyLimit
from drainer.policy.rules.settings import LIMIT, OverLimit, RuleSettings
from spark.story import Op, Place, Story
from spark.test_drain import messages
from spark.trouble import Trouble, interrupt, kill, states

CONCURRENCY = 20


@pytest.fixture
def story(spark: SparkSession, bootstrap: str, topic_name: str, tmp_path: Path) -> Story:
    return Story(ClientSettings(bootstrap), topic_name, tmp_path)


def handled(story: Story) -> Counter[str]:
    """How many of each sub-key were handled; those that were repeated count once."""
    ops = {place: _op(story, place) for place in set(story.places("end"))}
    return Counter(str(op) for op in ops.values())


def there(story: Story) -> Counter[str]:
    return Counter(str(_op(story, place)) for place in story.everything)


def _op(story: Story, place: Place) -> Op:
    partition, offset, index = place
    return story.messages[partition][offset][index]


def insist_on_limit(story: Story, most: int) -> None:
    """None of the sub-keys has too few or too many."""
    assert handled(story) == {key: min(most, count) for key, count in there(story).items()}


def test_the_limit_counts_on_from_wave_to_wave(story: Story) -> None:
    story.fill(messages(500, 31), messages(300, 32))

    summary = story.run(wave_bytes=12_000, rules=RuleSettings(limit_per_key=9))

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.engine_counts["waves"] > 2
    insist_on_limit(story, 9)
    over = sum(max(0, count - 9) for count in there(story).values())
    assert summary.rules is not None
    assert summary.rules.skipped_by == {LIMIT: over}
    assert summary.sub_messages.skipped == over
    assert story.plan.ruled.asked_by == {}
    assert states(story.folder) == []


@pytest.mark.long
def test_what_one_task_handles_between_two_waves_is_counted(story: Story) -> None:
    drawn = random.Random(33)
    mixed: list[list[Op]] = messages(150, 34, keys=12)
    for offset in range(5, 150, 50):
        mixed[offset] = [sorted(f"k{drawn.randrange(12)}" for _ in range(2)), "k1", "|", "k2"]
    story.fill(mixed)

    summary = story.run(wave_bytes=8_000, tasks=3, rules=RuleSettings(limit_per_key=30))

    assert (summary.exit_code, summary.cause) == (0, None)
    limit = KeyLimit(30)
    passed = [
        place
        for place in sorted(story.everything)
        for op in [_op(story, place)]
        if op == "|" or limit.passes(op if isinstance(op, list) else [op])
    ]
    assert sorted(story.places("end")) == passed
    assert len(passed) < len(story.everything)


@pytest.mark.long
def test_above_the_limit_letters_are_written_once(story: Story) -> None:
    story.fill(messages(200, 35))
    rules = RuleSettings(limit_per_key=5, over_limit=OverLimit.DEAD_LETTER)

    summary = story.run(wave_bytes=4_000, rules=rules)

    assert summary.exit_code == EXIT_DEAD_LETTERS
    over = sum(max(0, count - 5) for count in there(story).values())
    assert summary.sub_messages.dead == over
    assert summary.rules is not None
    assert summary.rules.dead_by == {LIMIT: over}
    insist_on_limit(story, 5)


@pytest.mark.long
def test_a_task_that_is_killed_has_told_what_it_counted(story: Story) -> None:
    story.fill([["hot", f"k{n % 50}", "hot"] for n in range(400)])
    with Trouble(story, kill, skips=True):
        summary = story.run(
            concurrency=CONCURRENCY, wait_ms="3", rules=RuleSettings(limit_per_key=150)
        )

    assert (summary.exit_code, summary.cause) == (0, None)
    insist_on_limit(story, 150)
    assert handled(story)["hot"] == 150
    assert summary.sub_messages.finished == len(story.everything)


@pytest.mark.long
@pytest.mark.parametrize("tasks", [None, 3])
def test_a_resume_counts_on_whoever_goes_on(story: Story, tasks: int | None) -> None:
    story.fill([["hot", f"k{n % 50}", "hot"] for n in range(400)])
    with Trouble(story, interrupt(1), skips=True):
        stopped = story.run(
            concurrency=CONCURRENCY,
            wait_ms="3",
            wave_bytes=20_000,
            rules=RuleSettings(limit_per_key=150),
        )
    assert stopped.exit_code == EXIT_INTERRUPTED

    resumed = story.resume(tasks=tasks)

    assert (resumed.exit_code, resumed.cause) == (0, None)
    insist_on_limit(story, 150)
    assert story.repeated == 0
    assert resumed.sub_messages.finished == len(story.everything)


@pytest.mark.long
def test_what_was_begun_in_one_process_goes_on(story: Story) -> None:
    story.fill([["hot", f"k{n % 50}", "hot"] for n in range(400)])
    with Trouble(story, interrupt(1), skips=True):
        stopped = story.run(
            tasks=None, concurrency=2, wait_ms="3", rules=RuleSettings(limit_per_key=150)
        )
    assert stopped.exit_code == EXIT_INTERRUPTED

    resumed = story.resume(tasks=3, wave_bytes=5_000)

    assert (resumed.exit_code, resumed.cause) == (0, None)
    assert handled(story)["hot"] == 150
    insist_on_limit(story, 150)


@pytest.mark.long
def test_a_second_signal_leaves_a_state_from_which_a_resume_counts_on(story: Story) -> None:
    ops: list[list[Op]] = [["hot", f"k{n % 50}", "hot"] for n in range(400)]
    story.fill([*ops, ["slow"]])
    with Trouble(story, interrupt(2), skips=True):
        story.run(
            concurrency=CONCURRENCY,
            wait_ms="3",
            slow="slow",
            rules=RuleSettings(limit_per_key=150),
        )
    assert states(story.folder) == [f"{story.plan_path.name}.state"]

    resumed = story.resume(tasks=3)

    assert (resumed.exit_code, resumed.cause) == (0, None)
    insist_on_limit(story, 150)
