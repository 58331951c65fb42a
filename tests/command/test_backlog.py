"""Choice of what is drained, and in which order: --from, --until, --partition, --order."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from command.conftest import distinct, operations
from command.process import Command
from command.record import every_place
from kafka.topic import Topic

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def minute(number: int) -> str:
    return f"@{(NOON + timedelta(minutes=number)).isoformat()}"


@pytest.fixture
def timed(command: Command) -> Topic:
    """Offset n was written n minutes after noon, up to 9."""
    topic = command.topic()
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    for number in range(10):
        at = NOON + timedelta(minutes=number)
        producer.produce(
            topic.name, f'["{number}"]', partition=0, timestamp=round(at.timestamp() * 1000)
        )
    assert producer.flush(15) == 0
    return topic


def offsets(command: Command) -> list[int]:
    return sorted(offset for _, offset, _ in command.record.done())


def test_the_backlog_is_from_one_place_until_before_another_in_the_order_that_was_asked(
    command: Command, timed: Topic
) -> None:
    command.cluster.alter_committed(command.group(timed), timed.name, {0: 2})
    more = ("--order", "none", "-c", "5")
    running = command.begin(timed, "--from", minute(4), "--until", "9", *more, gate=command.gate)
    command.wait_for(running, "begun", 5)  # all have one message key
    command.gate.touch()
    assert "--from skips offsets: 2 of partition 0" in running.ends(0).err
    assert offsets(command) == [4, 5, 6, 7, 8]
    assert command.committed(timed) == {0: 9}


def test_what_arrives_during_the_drain_is_left_for_the_next(command: Command) -> None:
    topic = command.topic(distinct(20))
    running = command.begin(topic, gate=command.gate)
    command.wait_for(running, "begun", 1)
    topic.produce(distinct(20))
    command.gate.touch()
    running.ends(0)
    assert command.committed(topic) == {0: 20}
    command.drain(topic, "--from", "committed")
    assert sorted(command.record.done()) == sorted(every_place(distinct(40)))


def test_only_the_partitions_that_are_named_are_drained(command: Command) -> None:
    topic = command.topic(operations(20), partitions=4)
    answer = command.drain(
        topic, "--partition", "2", "--partition", "0", "--partition", "2", "-o", "json"
    ).answer
    assert sorted(answer["partitions"]) == ["0", "2"]
    assert {partition for partition, _, _ in command.record.done()} == {0, 2}
    assert command.committed(topic) == {0: 20, 1: None, 2: 20, 3: None}


def test_an_open_transaction_ends_the_backlog_and_what_it_holds_back_is_told(
    command: Command,
) -> None:
    topic = command.topic(distinct(2))
    topic.transact(['["aborted"]'] * 2, commit=False)
    producer = topic.open_transaction(['["undecided"]'] * 3)
    topic.produce(distinct(47))  # of others, and behind it
    what = ["-b", topic.bootstrap, "--topic", topic.name, "--group", command.group(topic)]

    looked = command("inspect", *what)
    drained = command.drain(topic, "-o", "json")
    again = command.drain(topic, "--from", "committed")
    producer.abort_transaction(15)

    (blocking,) = drained.answer["held"]
    assert (blocking["partition"], blocking["offset"], blocking["offsets"]) == (0, 5, 50)
    assert "warning: an open transaction blocks 50 offsets" in looked.err
    assert "warning: an open transaction blocks 50 offsets" in drained.err  # the preview
    assert "Nothing to drain" in again.out
    assert re.search("excluded +50 offsets behind an open transaction", again.out)
    assert command.committed(topic) == {0: 5}
