"""The hand-over to consumers, as the user of the command sees it."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import Consumer

from command.conftest import distinct
from command.process import Command
from drainer.kafka.lock import lock_group
from kafka.topic import Topic

COUNT = 3


def takes_over(command: Command, topic: Topic) -> Consumer:
    """Return a consumer that has committed one of two new messages."""
    topic.produce(distinct(2))
    member = topic.live_member(command.group(topic), "indexer-7")
    while (message := member.poll(1.0)) is None or message.error():
        pass
    member.commit(message=message, asynchronous=False)
    return member


def test_a_drain_says_where_consumers_begin(command: Command) -> None:
    topic = command.topic(distinct(COUNT), partitions=2)
    outcome = command.drain(topic)
    start = (
        f"Start the consumers of {command.group(topic)} now. They begin at"
        f" offset {COUNT} of partition 0, {COUNT} of partition 1."
    )
    assert start in " ".join(outcome.out.split())
    assert command.drain(topic, "--from", "committed", "-o", "json").answer["hand_over"] is None


def test_without_consumers_the_drain_is_done_and_not_handed_over(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    outcome = command.drain(topic, "--hand-over", "1s", "-o", "json", code=7)
    command.ensure_drained(topic, once=True)
    found = outcome.answer["hand_over"]
    assert found["verdict"] == "not handed over: 1 partition (after 1s)"
    assert found["partitions"]["0"]["state"] == "no-reader"
    assert (outcome.answer["status"], outcome.answer["resume"]) == ("done", None)
    assert (
        f"They begin at offset {COUNT} of partition 0. drainer watches them for up to 1s"
        in outcome.err
    )
    assert "Drained, but not handed over" in outcome.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 7), (signal.SIGTERM, 4)])
def test_a_signal_ends_the_watch_and_the_lock_is_gone_by_then(
    number: signal.Signals, code: int, command: Command
) -> None:
    """The pod that comes after an evicted one watches again."""
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, "--hand-over", "2m", "-o", "json")
    running.prints("drainer watches them")
    assert command.cluster.group(lock_group(command.group(topic))).members == ()
    running.signal(number)
    ended = running.ends(code, within_s=20)
    assert f"interrupted by {number.name}" in ended.answer["hand_over"]["verdict"]
    assert (ended.answer["status"], ended.answer["resume"]) == ("done", None)


def test_a_watch_that_was_killed_is_made_up_for_until_the_hand_over_was_seen(
    command: Command,
) -> None:
    topic = command.topic(distinct(COUNT))
    words = ("--or-resume", "-o", "json", "--hand-over")
    killed = command.begin(topic, *words, "1m")
    killed.prints("drainer watches them")
    killed.kill()

    unseen = command.drain(topic, *words, "1s", code=7).answer
    command.ensure_drained(topic, once=True)
    again = command.begin(topic, *words, "1m")
    again.prints("drainer watches them")
    member = takes_over(command, topic)
    seen = again.ends(0).answer
    member.close()
    over = command.drain(topic, *words, "1m")

    assert unseen["hand_over"]["verdict"] == "not handed over: 1 partition (after 1s)"
    assert seen["hand_over"]["is_good"]
    assert "drainer watches them" not in over.err, "the plan has it"
    assert over.answer["hand_over"] is None
    assert [each["ended_before"] for each in (unseen, seen, over.answer)] == [
        next(each["at"] for each in over.answer["history"] if each["what"] == "ended")
    ] * 3
    assert over.answer["history"][-1]["what"] == "handed over"


def test_a_consumer_that_takes_over_leaves_the_exit_code_0(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, "--hand-over", "1m", "-o", "json")
    running.prints("drainer watches them")
    member = takes_over(command, topic)
    found = running.ends(0).answer["hand_over"]
    member.close()
    assert found["is_good"]
    assert found["verdict"] == "handed over: offsets show no gap, no overlap in 1 partition"
    assert found["partitions"]["0"]["detail"].startswith("the first commit is ")
    assert found["partitions"]["0"]["reader"] == "indexer-7 on 127.0.0.1"
