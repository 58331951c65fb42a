"""Rights on a broker with an authorizer: a missing one is named, and no more is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drainer.errors import RightMissing
from drainer.kafka.cluster import Cluster
from drainer.letters.originals import Originals
from drainer.letters.reading import read_letters
from drainer.model.finding import Level
from drainer.probe.probe import probe
from kafka.topic import Topic
from letters.test_originals import letter, no_wait
from scenarios.brokers import Broker
from scenarios.trust.case import Stage
from scenarios.trust.rights import ATTEMPTS, LEAST, Right, grant, try_least_rights


def may(broker: Broker, operation: str, kind: str, name: str) -> None:
    grant(broker, LEAST, [Right(operation, kind, name)])


def test_a_group_that_may_not_be_seen_is_no_slow_cluster(
    ann: Cluster, own_broker: Broker, topic_name: str, group: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, "READ", "topic", topic_name)

    with pytest.raises(RightMissing, match=f"DESCRIBE on group {group} is missing") as raised:
        ann.committed(group, topic_name, [0])

    assert f"Grant DESCRIBE on group {group}" in (raised.value.hint or "")


def test_a_group_that_may_only_be_seen_is_not_worked_for(
    ann: Cluster, own_broker: Broker, group: str
) -> None:
    may(own_broker, "DESCRIBE", "group", group)

    assert ann.group(group, right="DESCRIBE").name == group
    with pytest.raises(RightMissing, match=f"READ on group {group} is missing"):
        ann.group(group)


def test_a_commit_names_the_resource_that_it_is_refused_for(
    ann: Cluster, own_broker: Broker, topic_name: str, group: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, "READ", "group", group)
    with pytest.raises(RightMissing, match=f"READ on topic {topic_name} is missing"):
        ann.alter_committed(group, topic_name, {0: 0})

    may(own_broker, "READ", "topic", topic_name)
    with pytest.raises(RightMissing, match="READ on group another is missing"):
        ann.alter_committed("another", topic_name, {0: 0})


def test_reading_takes_no_right_on_any_group(
    ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    topic.produce(map(str, range(100)), key=b"k")
    may(own_broker, "READ", "topic", topic_name)

    # The client looks for a coordinator beside its first fetch; which is answered first is chance.
    for _ in range(5):
        assert len(list(read_letters(ann, topic_name))) == 100


def test_a_letter_of_a_topic_that_may_not_be_read_stops_no_other(
    ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    for name in (topic_name, f"{topic_name}.hidden"):
        Topic(own_broker.bootstrap_servers, name).produce(["v"], key=b"k")
    may(own_broker, "READ", "topic", topic_name)
    names = topic_name, f"{topic_name}.hidden", f"{topic_name}.unknown"
    messages = [letter(name, 0).message(n) for n, name in enumerate(names)]
    originals = Originals(ann.settings, {})

    assert originals.prepare(messages, no_wait) == 3

    assert [originals.letter(each).why_not_redriven for each in messages] == [
        None,
        *(f"this user may not read its original: it needs READ on topic {n}" for n in names[1:]),
    ]


def test_a_probe_names_each_right_and_what_needs_it(
    ann: Cluster, own_broker: Broker, topic_name: str, group: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, "READ", "topic", topic_name)
    may(own_broker, "DESCRIBE", "group", group)
    names = {"TOPIC": topic_name, "GROUP": group, "DEAD": f"{topic_name}.{group}.dead"}

    found = {each.text: each for each in probe(ann.settings, names, {}) if each.check == "right"}

    assert found[f"READ on topic {topic_name}"].level is Level.OK
    commands = "run, run --engine spark, resume, resume --engine spark, plan undo and 4 more"
    work = found[f"READ on group {group} is missing, for {commands}"]
    assert (work.level, work.hint) == (Level.BAD, f"Grant READ on group {group} to this user.")
    again = found[f"READ on group drainer.again.{group} is missing, for run --no-commit"]
    assert again.level is Level.WARN
    dead = [each for text, each in found.items() if f"on topic {names['DEAD']} is missing" in text]
    assert [each.level for each in dead] == [Level.WARN]


@pytest.mark.long
def test_a_redrive_that_may_not_write_warns_of_what_that_means(
    own_broker: Broker, tmp_path: Path
) -> None:
    (attempt,) = (each for each in ATTEMPTS if each.command == "redrive")
    parks = replace(attempt, words=f"{attempt.words} --on-failure park --letter-reason none")

    text = try_least_rights(Stage(own_broker, tmp_path), parks, without="WRITE")

    warning = "without WRITE on"
    assert text.count(warning) == 2, "before and after it"
