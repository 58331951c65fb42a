"""A limit per sub-key on Spark counts on: from wave to wave, from task to task, over resumes."""

from __future__ import annotations

from collections import Counter

import pytest

from drainer.errors import EXIT_INTERRUPTED
from drainer.model.rules import LIMIT, RuleSettings
from spark.story import Op, Place, Story
from spark.test_drain import messages
from spark.trouble import Trouble, interrupt, kill, states

CONCURRENCY = 20


def handled(story: Story) -> Counter[str]:
    """How many of each sub-key were handled; those that were repeated count once."""
    ops = {place: _op(story, place) for place in set(story.places("end"))}
    return Counter(str(op) for op in ops.values())


def there(story: Story) -> Counter[str]:
    return Counter(str(_op(story, place)) for place in story.everything)


def _op(story: Story, place: Place) -> Op:
    partition, offset, index = place
    return story.messages[partition][offset][index]


def ensure_limit(story: Story, most: int) -> None:
    """None of the sub-keys has too few or too many."""
    assert handled(story) == {key: min(most, count) for key, count in there(story).items()}


def test_the_limit_counts_on_from_wave_to_wave(story: Story) -> None:
    story.fill(messages(250, 31), messages(150, 32))

    summary = story.run(wave_bytes=6_000, rules=RuleSettings(max_per_key=9))

    assert (summary.exit_code, summary.cause) == (0, None)
    assert summary.engine_counts["waves"] > 2
    ensure_limit(story, 9)
    over = sum(max(0, count - 9) for count in there(story).values())
    assert summary.last.rules is not None
    assert summary.last.rules.skipped_by == {LIMIT: over}
    assert summary.sub_messages.skipped == over
    assert story.plan.account.ruled.asked_by == {}
    assert states(story.folder) == []


@pytest.mark.long
def test_a_task_that_is_killed_has_told_what_it_counted(story: Story) -> None:
    story.fill([["hot", f"k{n % 50}", "hot"] for n in range(400)])
    with Trouble(story, kill, skips=True):
        summary = story.run(
            concurrency=CONCURRENCY, wait_ms="3", rules=RuleSettings(max_per_key=150)
        )

    assert (summary.exit_code, summary.cause) == (0, None)
    ensure_limit(story, 150)
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
            rules=RuleSettings(max_per_key=150),
        )
    assert stopped.exit_code == EXIT_INTERRUPTED

    resumed = story.resume(tasks=tasks)

    assert (resumed.exit_code, resumed.cause) == (0, None)
    ensure_limit(story, 150)
    assert story.repeated == 0
    assert resumed.sub_messages.finished == len(story.everything)
