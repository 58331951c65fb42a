"""While a drain runs, the world goes on: what a drain waits out, and what it stops for."""

from __future__ import annotations

import json

import pytest

from command.conftest import MakeTopic, committed, distinct
from command.process import FAST, Command, Running
from command.record import every_place
from drainer.kafka.cluster import Cluster
from drainer.sandbox import Broker
from kafka.topic import Topic, eventually

SMALL = ("--buffer", "64KiB", "-c", "4", *FAST)
BIG = 1000  # bytes a message: more of them than fit into the buffers
COUNT = 2000


@pytest.fixture
def topic(make_topic: MakeTopic) -> Topic:
    return make_topic(distinct(COUNT, BIG))


def held(command: Command, topic: Topic, *more: str, gated: int = 100) -> Running:
    """A drain that is at work, and held up in the middle."""
    running = command.begin(topic, *SMALL, *more, gate=command.gate, gated=f"{gated:0{BIG}}")
    command.wait_for(running, "done", gated)
    return running


def test_records_that_retention_takes_from_under_it_stop_it_and_are_told(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    running = held(command, topic, "--json")
    topic.delete_before(COUNT - 100)
    command.gate.touch()
    outcome = running.ends(4)
    assert "retention deleted records" in outcome.error
    assert "--from earliest" in outcome.hint
    answer = outcome.answer
    assert answer["status"] == "interrupted"
    assert answer["messages"]["done"] < COUNT
    watermark = answer["partitions"]["0"]["watermark"]
    assert committed(cluster, topic) == {0: watermark}
    assert set(command.record.done()) == {(0, offset, 0) for offset in range(watermark)}


def test_what_retention_left_is_drained_as_the_hint_says(command: Command, topic: Topic) -> None:
    running = held(command, topic)
    topic.delete_before(COUNT - 100)
    command.gate.touch()
    told = running.ends(4)
    refused = command.resume(topic, code=3)
    assert "retention deleted" in refused.error
    command.drain(topic, "--plan", "another.json")
    assert {(0, offset, 0) for offset in range(COUNT - 100, COUNT)} <= set(command.record.done())
    for outcome in (told, refused):
        assert "--from earliest" in outcome.hint
        assert "--plan" in outcome.hint, "without it, the unfinished plan is in the way"


def test_a_topic_deleted_while_draining_stops_it(command: Command, topic: Topic) -> None:
    running = held(command, topic)
    topic.delete()
    outcome = running.ends(4)
    assert f"topic {topic.name} was deleted" in outcome.error
    assert "was deleted" in command.resume(topic, code=3).error


def test_a_topic_made_again_while_draining_stops_it_and_its_records_are_not_handled(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    running = held(command, topic)
    topic.delete()
    topic.create()
    topic.produce(['["of another topic"]'] * COUNT)
    command.gate.touch()
    outcome = running.ends(4)
    assert f"topic {topic.name} was deleted" in outcome.error
    assert all(line.keys != ("of another topic",) for line in command.record.lines())
    assert committed(cluster, topic) == {0: None}
    assert "made again" in command.resume(topic, code=3).error


def test_a_broker_that_restarts_is_waited_for(
    own_command: Command, own_broker: Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(distinct(COUNT, BIG), at=own_broker.bootstrap_servers)
    running = held(own_command, topic)
    own_broker.kill()
    try:
        own_command.gate.touch()
        running.says("warning: trouble")
    finally:
        own_broker.start()
    running.ends(0)
    assert sorted(own_command.record.done()) == sorted(every_place(distinct(COUNT, BIG)))


def test_a_group_moved_by_someone_else_stops_it_and_is_left_where_it_was_put(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    running = held(command, topic)
    eventually(lambda: committed(cluster, topic) == {0: 100}, "it has committed", 30)
    cluster.alter_committed(command.group(topic), topic.name, {0: 7})
    command.gate.touch()
    outcome = running.ends(4)
    assert "offset 7" in outcome.error
    assert committed(cluster, topic) == {0: 7}
    again = command.resume(topic, code=3)
    assert "somebody else moved it" in again.error or "someone else" in again.error
    assert committed(cluster, topic) == {0: 7}


def test_once_the_group_is_put_back_resume_goes_on(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    running = held(command, topic)
    eventually(lambda: committed(cluster, topic) == {0: 100}, "it has committed", 30)
    cluster.alter_committed(command.group(topic), topic.name, {0: 7})
    running.ends(4)
    cluster.alter_committed(command.group(topic), topic.name, {0: 100})
    command.gate.touch()
    command.resume(topic)
    assert set(command.record.done()) == every_place(distinct(COUNT, BIG))
    assert set(command.record.repeats()) <= {(0, 100 + n, 0) for n in range(200)}


def test_a_consumer_that_joins_the_group_stops_it(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    running = held(command, topic)
    consumer = topic.live_member(command.group(topic), "checkout-7")
    try:
        outcome = running.ends(4)
    finally:
        consumer.close()
    assert "checkout-7" in outcome.error
    assert json.loads(command.plan(topic).read_text())["claims"]["all"]["0"]["watermark"] >= 100
    command.gate.touch()
    command.resume(topic)
    assert committed(cluster, topic) == {0: COUNT}


def test_a_plan_folder_that_vanishes_stops_it(
    command: Command, topic: Topic, cluster: Cluster
) -> None:
    folder = command.folder / "plans"
    folder.mkdir()
    running = held(command, topic, "--plan", "plans/plan.json")
    folder.rename(command.home / "gone")
    running.says("stopping")
    command.gate.touch()
    outcome = running.ends(4)
    assert "plan" in outcome.error
    folder.symlink_to(command.home / "gone")
    command("resume", "plans/plan.json", "--yes", *command.options())
    assert set(command.record.done()) == every_place(distinct(COUNT, BIG))
