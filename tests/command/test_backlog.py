"""What part of the topic is drained, and in which order: --from, --until, --partition, --order."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from command.conftest import MakeTopic, committed, distinct, operations, same
from command.process import Command
from command.record import every_place
from drainer.kafka.cluster import Cluster
from kafka.topic import Topic

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def minute(number: int) -> str:
    return f"@{(NOON + timedelta(minutes=number)).isoformat()}"


@pytest.fixture
def timed(make_topic: MakeTopic) -> Topic:
    """Offset n was written n minutes after noon, up to 9."""
    topic = make_topic()
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


@pytest.mark.parametrize(
    ("from_", "until", "handled"),
    [
        (minute(4), "end", range(4, 10)),
        ("earliest", "7", range(7)),
    ],
)
def test_the_backlog_is_from_one_place_until_before_another(
    command: Command, timed: Topic, cluster: Cluster, from_: str, until: str, handled: range
) -> None:
    command.drain(timed, "--from", from_, "--until", until)
    assert offsets(command) == list(handled)
    assert committed(cluster, timed) == {0: handled.stop}


def test_what_is_passed_over_is_told_before_it_happens(
    command: Command, timed: Topic, cluster: Cluster
) -> None:
    cluster.alter_committed(command.group(timed), timed.name, {0: 2})
    outcome = command.drain(timed, "--from", "6")
    assert "warning: partition 0: 4 offsets before 6 are passed over" in outcome.err
    assert offsets(command) == [6, 7, 8, 9]


def test_a_range_that_can_not_be_is_refused(command: Command, timed: Topic) -> None:
    started = [
        (command.begin(timed, option, value), code, told)
        for option, value, code, told in (
            ("--from", "11", 3, "holds offsets 0 to 10"),
            ("--from", "yesterday", 2, "yesterday"),
            ("--partition", "5", 3, "/5 does not exist"),
            ("--partition", "-1", 2, "--partition"),
        )
    ]
    for running, code, told in started:
        assert told in running.ends(code).err
    assert command.left_behind == []


def test_what_arrives_during_the_drain_is_left_for_the_next(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(20))
    running = command.begin(topic, gate=command.gate)
    command.wait_for(running, "begun", 1)
    topic.produce(distinct(20))
    command.gate.touch()
    running.ends(0)
    assert committed(cluster, topic) == {0: 20}
    command.drain(topic, "--from", "committed")
    assert sorted(command.record.done()) == sorted(every_place(distinct(40)))


def test_only_the_partitions_that_are_named_are_drained(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(operations(20), partitions=4)
    answer = command.drain(
        topic, "--partition", "2", "--partition", "0", "--partition", "2", "--json"
    ).answer
    assert sorted(answer["partitions"]) == ["0", "2"]
    assert {partition for partition, _, _ in command.record.done()} == {0, 2}
    assert committed(cluster, topic) == {0: 20, 1: None, 2: 20, 3: None}


@pytest.mark.parametrize(("order", "values"), [("none", same(20)), ("key", distinct(20))])
def test_what_the_order_does_not_forbid_runs_at_once(
    command: Command, make_topic: MakeTopic, order: str, values: list[str]
) -> None:
    topic = make_topic()
    for number, value in enumerate(values):
        topic.produce([value], key=b"%d" % number if order == "key" else b"one key")
    running = command.begin(topic, "--order", order, "-c", "20", gate=command.gate)
    command.wait_for(running, "begun", 20)
    command.gate.touch()
    running.ends(0)
    assert len(command.record.done()) == 20


def test_the_order_stays_the_same_on_resume(command: Command, make_topic: MakeTopic) -> None:
    topic = make_topic(distinct(60))
    running = command.begin(topic, "--order", "partition", pause_ms=2)
    command.wait_for(running, "done", 10)
    running.kill()
    command.resume(topic, pause_ms=2)
    assert command.record.most_at_once() <= 2  # one line of the killed one stays open
    command.record.check_order()
    assert set(command.record.done()) == every_place(distinct(60))


def test_a_backlog_that_ends_on_markers_and_aborted_records_completes(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(5))
    topic.transact(['["committed"]'] * 3, commit=True)
    topic.transact(['["aborted"]'] * 4, commit=False)
    answer = command.drain(topic, "--json").answer
    end = 5 + (3 + 1) + (4 + 1)
    assert answer["messages"]["done"] == 8
    assert answer["partitions"]["0"]["end"] == end
    assert committed(cluster, topic) == {0: end}
    assert offsets(command) == list(range(8))


def test_an_open_transaction_ends_the_backlog_and_what_it_holds_back_is_told(
    command: Command, make_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = make_topic(distinct(5))
    producer = topic.open_transaction(['["undecided"]'] * 3)
    topic.produce(distinct(47))  # of others, and behind it
    what = ["-b", topic.bootstrap, "--topic", topic.name, "--group", command.group(topic)]

    looked = command("inspect", *what, "--json")
    drained = command.drain(topic, "--json")
    again = command.drain(topic, "--from", "committed")
    producer.abort_transaction(15)

    for answer in (looked.answer, drained.answer):
        held = answer["held_back"]["0"]
        assert (held["last_stable_offset"], held["offsets"]) == (5, 50)
        assert abs(held["since_ms"] / 1000 - time.time()) < 60
    assert "warning: an open transaction holds back 50 offsets" in looked.err
    assert "warning: an open transaction holds back 50 offsets" in drained.err  # the preview
    assert "Nothing to drain" in again.err
    for told in (drained.err, again.err):
        assert re.search("held back +50 offsets behind an open transaction", told)
    assert committed(cluster, topic) == {0: 5}
