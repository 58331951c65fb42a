"""Groups beside the usual: of other kinds, with static members, with offsets in a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from command.conftest import distinct, is_refused
from command.process import Command, Outcome
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.sandbox.jars import classpath
from kafka.members import close_static, pending_offsets, share_member, streams_application
from kafka.topic import Topic, await_coordinators, eventually
from letters.libraries import jars
from scenarios.brokers import Broker, delete_group

UNKNOWN = "may be in use: it is a streams or share group, whose members drainer can't list"
SESSION_MS = "6000"
COUNT = 20


def inspected(command: Command, topic: Topic) -> Outcome:
    return command("inspect", *command.what(topic), "-o", "json")


def probed(command: Command, topic: Topic) -> list[str]:
    where = ("-b", command.bootstrap, "--topic", topic.name, "--group", command.group(topic))
    answer = command("probe", *where, "-o", "json").answer
    return [str(each["text"]) for each in answer["findings"] if each["check"] == "group"]


def assert_unknown(command: Command, topic: Topic) -> None:
    """Ensure that no command that only looks takes the group for absent or empty."""
    group = inspected(command, topic).answer["group"]
    assert (group["state"], group["kind"]) == ("unknown", "streams or share")
    assert UNKNOWN in command("inspect", *command.what(topic)).out
    assert any(UNKNOWN in each for each in probed(command, topic))


def test_a_share_group_is_refused_before_anything_is_handled(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    with share_member(topic, command.group(topic)):
        live = command.drain(topic, code=3)
        assert UNKNOWN in live.error
        is_refused(command, live)
        assert_unknown(command, topic)
        beside = command("run", *command.what(topic), "--from", "earliest", "--no-commit", code=3)
        assert UNKNOWN in beside.err
    assert UNKNOWN in command.drain(topic, code=3).error, "an empty one is one"
    assert command.left_behind == []


def test_a_share_group_that_came_since_a_preview_refuses_the_commit(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    running = command.begin(topic, gate=command.gate)
    command.wait_for(running, "begun", COUNT)
    with share_member(topic, command.group(topic)):
        command.gate.touch()
        ended = running.ends(4)
    assert f"group {command.group(topic)} is a share group" in ended.error
    plan = str(command.plan(topic))
    resume = [*command.resume_of(plan), *command.options()]
    for words in (resume, ["plan", "undo", plan, "--yes"]):
        assert UNKNOWN in command(*words, code=3).error
    assert UNKNOWN in command("plan", "verify", plan, code=7).out


def test_a_static_member_that_was_closed_is_named(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    close_static(topic, command.group(topic), "pod-7", group_protocol="consumer")
    refused = command.drain(topic, code=3)
    assert "checkout-7 on 127.0.0.1 (static member pod-7)" in refused.error
    assert "--wait-for-group" in refused.hint
    is_refused(command, refused)
    (member,) = inspected(command, topic).answer["group"]["members"]
    assert member["instance_id"] == "pod-7"


@pytest.mark.long
def test_a_static_member_that_was_closed_is_waited_for(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    close_static(topic, command.group(topic), "pod-7", session_timeout_ms=4000)
    outcome = command.drain(topic, "--wait-for-group", "60s")
    assert f"waiting: group {command.group(topic)} is in use: checkout-7" in outcome.err
    command.ensure_drained(topic, once=True)


@pytest.mark.long
def test_a_consumer_of_the_newer_protocol_is_waited_for_refused_and_named(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    consumer = topic.live_member(command.group(topic), "checkout-7", group_protocol="consumer")
    try:
        outcome = command.drain(topic, "--wait-for-group", "600ms", code=3)
    finally:
        consumer.close()
    assert "checkout-7" in outcome.error
    is_refused(command, outcome)
    command.drain(topic, "--wait-for-group", "30s")
    command.ensure_drained(topic, once=True)


@pytest.mark.long
def test_offsets_in_an_open_transaction_are_reported_as_such(command: Command) -> None:
    topic = command.topic(distinct(COUNT))
    group = command.group(topic)
    command.cluster.alter_committed(group, topic.name, {0: 5})
    with pending_offsets(topic, group, 12):
        refused = command.drain(topic, "--from", "committed", code=3)
        seen = inspected(command, topic)
        found = probed(command, topic)

    what = f"an open transaction is about to commit for group {group}: {topic.name}/0 (offset 5"
    assert what in refused.error
    assert "describe-producers --topic __consumer_offsets --partition" in refused.hint
    is_refused(command, refused)
    assert what in seen.err
    assert seen.answer["partitions"]["0"]["committed"] == 5
    assert any(what in each for each in found)
    assert any(f"{group} is empty, 16 offsets behind" in each for each in found)
    command.drain(topic, "--from", "committed")
    assert command.committed(topic) == {0: 22}, "the record that was aborted and its marker, too"


class OldBroker(Broker):
    """A broker that knows groups of the classic protocol alone."""

    def classpath(self) -> str:
        old = jars("org.apache.kafka", "kafka_2.13", "3.6.2")
        return classpath(tuple(sorted(old.glob("*.jar"))))


@pytest.fixture
def streams_broker(kafka_installed: None, tmp_path: Path) -> Iterator[Broker]:
    """A broker that soon forgets members of streams groups."""
    properties = {
        "group.streams.min.session.timeout.ms": SESSION_MS,
        "group.streams.session.timeout.ms": SESSION_MS,
        "group.streams.min.heartbeat.interval.ms": "1000",
        "group.streams.heartbeat.interval.ms": "1000",
    }
    with Broker(tmp_path / "broker", properties=properties, die_with_parent=True) as running:
        yield running


@pytest.mark.long
def test_a_streams_group_is_refused_while_its_application_runs(
    streams_broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    settings = ClientSettings.load(streams_broker.bootstrap_servers)
    with Cluster.connect(settings, 60) as cluster:
        command = Command(tmp_path / "home", cluster)
        topic = command.topic(distinct(COUNT))
        group = command.group(topic)
        with streams_application(topic, group, tmp_path / "state"):
            eventually(lambda: command.committed(topic) == {0: COUNT}, "it commits", 120)
            topic.produce(distinct(COUNT))
            eventually(lambda: command.committed(topic) == {0: 2 * COUNT}, "it commits", 120)
            refused = command.drain(topic, "--from", "committed", code=3)
            assert f"group {group} is in use: it is a streams group" in refused.error
            is_refused(command, refused)
            assert_unknown(command, topic)
        topic.produce(distinct(COUNT))
        drained = command.drain(topic, "--from", "committed", "--wait-for-group", "2m")
        assert f"waiting: group {group} is in use: it is a streams group" in drained.err
        assert f"group {group} has no members" in drained.err
        assert len(command.record.done()) == COUNT
        assert command.committed(topic) == {0: 3 * COUNT}
        command.close()


@pytest.mark.long
def test_a_broker_that_knows_only_classic_groups_is_believed(
    kafka_installed: None, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    with (
        OldBroker(tmp_path / "broker", die_with_parent=True) as old,
        Cluster.connect(ClientSettings.load(old.bootstrap_servers), 60) as cluster,
    ):
        Topic(old.bootstrap_servers, "fresh")
        await_coordinators(cluster)
        command = Command(tmp_path / "home", cluster)
        topic = command.topic(distinct(COUNT))
        member = topic.live_member(command.group(topic), "checkout-7")
        try:
            assert "checkout-7" in command.drain(topic, code=3).error
        finally:
            member.close()
        delete_group(cluster.settings, command.group(topic))
        assert "does not exist" in command.drain(topic).err
        command.ensure_drained(topic, once=True)
        command.close()
