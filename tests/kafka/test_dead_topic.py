"""The dead-letter topic: looked at first, made so that letters stay, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it is exported without __all__
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from core.letters import Sample
from drainer.errors import DeadLetterNotWritten, Refused, TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.dead_letters import (
    DeadLetterTopicInfo,
    check_dead_letter_topic,
    make_dead_letter_topic,
)
from drainer.letters.reading import read_letters
from drainer.model.settings import FailureSettings
from drainer.operations.policy import Policy
from kafka.sender import sending
from kafka.topic import WAIT_S, Topic, eventually
from scenarios.brokers import Broker
from scenarios.trust.rights import LEAST, Right, grant


def look(cluster: Cluster, name: str, partitions: int = 3) -> DeadLetterTopicInfo:
    return check_dead_letter_topic(cluster, name, drained="orders", partitions=partitions)


def test_looking_makes_nothing(cluster: Cluster, topic_name: str) -> None:
    assert look(cluster, topic_name) == DeadLetterTopicInfo(topic_name, False, 3)
    with pytest.raises(TopicMissing):
        cluster.topic(topic_name)


def test_one_that_is_there_is_left_as_it_is(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name, partitions=2, config={"retention.ms": "86400000"})
    make_dead_letter_topic(cluster, DeadLetterTopicInfo(topic_name, False, 5))
    found = look(cluster, topic_name)
    assert found == DeadLetterTopicInfo(topic_name, True, 2, 86_400_000, limit=1_048_588)


def test_a_compacted_topic_is_refused(cluster: Cluster, bootstrap: str, topic_name: str) -> None:
    Topic(bootstrap, topic_name, config={"cleanup.policy": "compact,delete"})
    with pytest.raises(Refused, match="it keeps only the last letter per sub-key") as raised:
        look(cluster, topic_name)
    assert "cleanup.policy" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("name", "text"),
    [("orders", "is the drained topic"), ("with space", None), ("x" * 250, None)],
)
def test_the_drained_topic_and_names_that_kafka_does_not_take_are_refused(
    cluster: Cluster, name: str, text: str | None
) -> None:
    with pytest.raises(Refused, match=text) as raised:
        look(cluster, name)
    assert "--tune dead-letter-topic" in (raised.value.hint or "")


# Rights, and a broker's own defaults.


@contextmanager
def defaults(cluster: Cluster, config: dict[str, str]) -> Iterator[None]:
    """Defaults of the broker for topics, while the block lasts."""

    def change(how: AlterConfigOpType) -> None:
        entries = [ConfigEntry(*each, incremental_operation=how) for each in config.items()]
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        cluster.admin.incremental_alter_configs([broker])[broker].result(WAIT_S)

    change(AlterConfigOpType.SET)
    try:
        yield
    finally:
        change(AlterConfigOpType.DELETE)


def test_it_is_made_so_that_no_letter_vanishes(own_cluster: Cluster, topic_name: str) -> None:
    cluster, short = own_cluster, {"log.retention.ms": "3600000", "log.retention.bytes": "1000000"}
    with defaults(cluster, {**short, "log.cleanup.policy": "compact"}):
        made = DeadLetterTopicInfo(topic_name, False, 5, limit=10_747_904)
        make_dead_letter_topic(cluster, made)
        eventually(lambda: look(cluster, topic_name).exists, "it is known")
        assert look(cluster, topic_name) == replace(made, exists=True)
        config = cluster.topic_config(topic_name)
    assert config["cleanup.policy"] == "delete"
    assert config["retention.ms"] == config["retention.bytes"] == "-1"


def may(broker: Broker, topic: str, operation: str) -> None:
    grant(broker, LEAST, [Right(operation, "topic", topic)])


def is_refused(cluster: Cluster, name: str, words: str) -> bool:
    """Whether it is refused with these words; rights take a moment to be known."""
    try:
        look(cluster, name)
    except Refused as error:
        return words in str(error) and "--tune dead-letter-topic" in (error.hint or "")
    return False


def test_a_topic_that_this_user_may_not_make_is_refused_before_anything_happens(
    ann: Cluster, topic_name: str
) -> None:
    assert is_refused(ann, topic_name, "this user may not")


def test_a_topic_that_this_user_may_only_read_is_refused(
    ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, topic_name, "READ")
    eventually(lambda: is_refused(ann, topic_name, "can't write dead letters"), "it is refused")


def test_who_may_write_but_not_see_the_configuration_can_use_it(
    ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    may(own_broker, topic_name, "WRITE")

    def usable() -> bool:
        try:
            return look(ann, topic_name).exists
        except Refused:
            return False

    eventually(usable, "it can be used")
    with sending(ann.settings, topic_name) as sender:
        sender.send(Sample().letter())
        assert sender.all_reported() == [None]
    found = look(ann, topic_name)
    assert found.hidden
    (warning,) = Policy(FailureSettings(), found).warnings
    assert f"Grant DESCRIBE_CONFIGS on topic {topic_name}" in warning
    with pytest.raises(Refused, match="may not read") as raised:
        list(read_letters(ann, topic_name))
    assert "READ" in (raised.value.hint or "")


def test_a_right_that_is_missing_is_the_error_of_a_letter(
    ann: Cluster, own_broker: Broker, topic_name: str
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name)
    with sending(ann.settings, topic_name) as sender:
        sender.send(Sample().letter())
        (error,) = sender.all_reported()
    assert isinstance(error, DeadLetterNotWritten)
    assert "Grant WRITE" in (error.hint or "")
