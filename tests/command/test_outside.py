"""While a drain runs, the world goes on: what a drain waits out, and what it stops for."""

from __future__ import annotations

import json

import pytest

from command.conftest import distinct
from command.process import Command, Running
from kafka.topic import Topic

SMALL = ("--tune", "buffer=64KiB", "-c", "4")
BIG = 1000  # bytes a message: more of them than fit into the buffers
COUNT = 2000


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(COUNT, BIG))


def blocking(command: Command, topic: Topic, *more: str) -> Running:
    """A drain that is at work, and held up in the middle."""
    running = command.begin(topic, *SMALL, *more, gate=command.gate, gated=f"{100:0{BIG}}")
    command.wait_for(running, "done", 100)
    return running


def places(*ranges: range) -> set[tuple[int, int, int]]:
    return {(0, offset, 0) for offsets in ranges for offset in offsets}


def test_retention_that_overtakes_a_drain_loses_nothing_that_was_read(command: Command) -> None:
    count = 3 * COUNT  # for the client has some MB of its own
    topic = command.topic(distinct(count, BIG))
    running = blocking(command, topic, "-o", "json")
    topic.delete_before(count - 100)
    command.gate.touch()

    printed = running.ends(4)

    watermark = printed.answer["partitions"]["0"]["watermark"]
    assert watermark > 100, "nothing was read ahead"
    assert f"deleted offsets {watermark} to {count - 101} of" in printed.error
    assert "--accept-gap" in printed.resume_words
    assert command.committed(topic) == {0: watermark}
    assert set(command.record.done()) == places(range(watermark))

    refused = command.resume(topic, code=3)
    verified = command("plan", "verify", str(command.plan(topic)), code=7)
    gap = f"offsets {watermark}-{count - 101} of partition 0, at most {count - 100 - watermark:,}"
    assert gap in refused.error
    assert gap in verified.out + verified.err
    assert "--accept-gap" in refused.hint

    outcome = command.resume(topic, "--accept-gap", "-o", "json", code=6)
    assert outcome.answer["partitions"]["0"]["lost"] == [[watermark, count - 100]]
    assert outcome.answer["messages"]["done"] == watermark + 100
    assert command.committed(topic) == {0: count}
    assert set(command.record.done()) == places(range(watermark), range(count - 100, count))
    verified = command("plan", "verify", str(command.plan(topic)))
    assert gap in verified.out + verified.err


def test_a_consumer_that_joins_the_group_stops_it(command: Command, topic: Topic) -> None:
    running = blocking(command, topic)
    consumer = topic.live_member(command.group(topic), "checkout-7")
    try:
        outcome = running.ends(4)
    finally:
        consumer.close()
    assert "checkout-7" in outcome.error
    assert json.loads(command.plan(topic).read_text())["claims"]["all"]["0"]["watermark"] >= 100
    command.gate.touch()
    command.resume(topic)
    assert command.committed(topic) == {0: COUNT}
