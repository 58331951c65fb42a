"""Drains on Spark: the laws, the plan, and failures."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from drainer.errors import EXIT_DEAD_LETTERS, EXIT_HALTED
from drainer.model.settings import FailureSettings, OnFailure
from kafka.sender import letters_in
from spark.story import Op, Story
from spark.trouble import states


def messages(count: int, seed: int, *, keys: int = 40, ops: int = 5) -> list[list[Op]]:
    drawn = random.Random(seed)
    return [
        [f"k{int(keys * drawn.random() ** 2)}" for _ in range(drawn.randrange(ops * 2))]
        for _ in range(count)
    ]


def test_everything_is_handled_in_the_order_of_its_sub_keys_wave_by_wave(
    story: Story, ensure_let_go: Callable[[], None]
) -> None:
    drawn = random.Random(8)
    mixed = messages(200, 5)
    for offset in (10, 11, 140):
        mixed[offset] = ["k1", "|", "k2"]
    for offset in (25, 160):
        mixed[offset] = [[f"k{drawn.randrange(40)}", f"k{drawn.randrange(40)}"], "k3"]
    story.fill(messages(300, 4), mixed)

    summary = story.run(wave_bytes=8_000)

    story.ensure_done(summary)
    assert summary.engine_counts["waves"] > 2
    assert summary.messages.done == 500
    assert story.committed == {0: 300, 1: 200}
    assert story.plan.account.complete
    assert story.plan.account.state is None
    assert states(story.folder) == []
    opened = [line["pid"] for line in story.lines if line["what"] == "open"]
    closed = [line["pid"] for line in story.lines if line["what"] == "close"]
    assert len(opened) == len(set(opened))
    assert sorted(opened) == sorted(closed)
    ensure_let_go()


def test_dead_letters_and_skipped_ones_are_counted_as_in_one_process(story: Story) -> None:
    story.fill(messages(200, 11))
    rule = "sub_key == 'k7'"
    policy = FailureSettings(
        retries=1,
        retry_delay_s=0.01,
        on_failure=OnFailure.DEAD_LETTER,
        breaker=False,
        skip=(rule,),
    )

    summary = story.run(failures=policy, fail="k3", skip="k5", wave_bytes=6_000)

    flat = [(offset, op) for offset, ops in enumerate(story.messages[0]) for op in ops]
    dead = [offset for offset, op in flat if op == "k3"]
    skipped = [offset for offset, op in flat if op in ("k5", "k7")]
    assert summary.engine_counts["waves"] > 1
    assert summary.last.rules.skipped_by == {rule: sum(op == "k7" for _, op in flat)}
    assert sum(summary.last.rules.skipped_for.values()) == sum(op == "k5" for _, op in flat)
    assert ["k7"] not in [line.get("keys") for line in story.lines]
    assert summary.exit_code == EXIT_DEAD_LETTERS
    assert (summary.sub_messages.dead, summary.sub_messages.skipped) == (len(dead), len(skipped))
    assert summary.messages.dead == len(set(dead))
    assert summary.messages.skipped == len(set(skipped) - set(dead))
    assert summary.messages.done == 200 - len(set(dead) | set(skipped))
    assert summary.last.failures.failures == 2 * len(dead)
    story.ensure_order()


@pytest.mark.long
def test_messages_that_split_rejects_are_written_by_the_tasks_that_handle(story: Story) -> None:
    mixed = [messages(150, 21), messages(100, 22)]
    rejected = {(0, 17), (0, 18), (0, 120), (1, 33)}
    for number, offset in rejected:
        mixed[number][offset] = ["k1", "!", "k2"]
    mixed[0][60] = ["k3", "|", "k4"]
    story.fill(*mixed)
    policy = FailureSettings(on_failure=OnFailure.DEAD_LETTER)

    summary = story.run(failures=policy, wave_bytes=8_000)

    assert summary.exit_code == EXIT_DEAD_LETTERS
    assert summary.conserved
    assert (summary.messages.dead, summary.messages.done) == (4, 246)
    assert (summary.sub_messages.dead, summary.sub_messages.unsplit) == (4, 4)
    letters = letters_in(story.settings.bootstrap_servers, f"{story.topic}.{story.group}.dead")
    assert sorted((each.message_partition, each.message_offset) for each in letters) == sorted(
        rejected
    ), "one of each"
    assert {each.payload for each in letters} == {b'{"ops":["k1","!","k2"]}'}
    assert {place[:2] for place in story.everything - set(story.places("end"))} == rejected
    story.ensure_order()
    assert story.committed == {0: 150, 1: 100}


@pytest.mark.long
def test_parking_cuts_the_wave_of_the_partition_where_split_rejects_a_message(
    story: Story,
) -> None:
    mixed = [messages(200, 23), messages(60, 24)]
    mixed[0][70] = mixed[0][90] = ["k1", "!", "k2"]
    story.fill(*mixed)
    policy = FailureSettings(on_split_failure=OnFailure.PARK)

    parked = story.run(failures=policy)

    assert parked.exit_code == EXIT_HALTED
    assert parked.conserved
    (lane,) = parked.parked.shown()
    assert (lane["key"], lane["place"]) == ("partition 0", f"{story.topic}/0/70[0]")
    expected = {place for place in story.everything if place[0] == 1 or place[1] < 70}
    assert set(story.places("end")) == expected
    assert story.committed == {0: 70, 1: 60}

    assert story.resume(repaired="1").exit_code == 0
    story.ensure_all()
    assert story.repeated == 0


def test_a_failure_halts_all_tasks_and_either_engine_goes_on(story: Story) -> None:
    story.fill(messages(400, 12))

    halted = story.run(failures=FailureSettings(retries=0), fail="k7", wait_ms="2")

    assert halted.exit_code == EXIT_HALTED
    assert "k7 fails" in str(halted.cause)
    assert halted.sub_messages.pending or halted.sub_messages.read < len(story.everything)

    in_process = story.resume(tasks=None)

    story.ensure_done(in_process, repeated=None)
