"""While a drain runs, the world goes on: what a drain waits out, and what it stops for."""

from __future__ import annotations

import json
import signal

import pytest

from command.conftest import distinct
from command.process import Command, Running
from drainer.kafka.cluster import Cluster
from drainer.kafka.lock import lock_group
from kafka.topic import Topic, eventually

SMALL = ("--buffer", "64KiB", "-c", "4")
SESSION = ("-X", "session.timeout.ms=1500")
BIG = 1000  # bytes a message: more of them than fit into the buffers
COUNT = 2000


@pytest.fixture
def topic(command: Command) -> Topic:
    return command.topic(distinct(COUNT, BIG))


def blocking(command: Command, topic: Topic, *more: str, gated: int = 100) -> Running:
    """A drain that is at work, and held up in the middle."""
    running = command.begin(topic, *SMALL, *more, gate=command.gate, gated=f"{gated:0{BIG}}")
    command.wait_for(running, "done", gated)
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


def stop_until_its_lock_is_gone(running: Running, cluster: Cluster, group: str) -> None:
    running.signal(signal.SIGSTOP)
    eventually(
        lambda: not cluster.group(lock_group(group)).members, "the lock's session is over", 30
    )


@pytest.mark.long
def test_one_that_was_stopped_until_another_took_its_lock_gives_way(command: Command) -> None:
    topic = command.topic(distinct(50))
    first = command.begin(topic, *SESSION, gate=command.gate)
    command.wait_for(first, "begun", 50)
    stop_until_its_lock_is_gone(first, command.cluster, command.group(topic))
    second = command.begin(topic, *SESSION, "--plan", "another.json", gate=command.gate)
    command.wait_for(second, "begun", 100)
    first.signal(signal.SIGCONT)
    outcome = first.ends(4)
    assert "took the lock" in outcome.error
    assert "let that one finish" in outcome.hint
    assert not command.record.done(), "calls of each wait: neither has moved the group"
    command.gate.touch()
    second.ends(0)
    assert command.committed(topic) == {0: 50}
