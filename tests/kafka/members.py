"""Members of groups of every kind, by real clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka.topic import WAIT_S, Topic, eventually
from letters.libraries import KAFKA, jars, running


@contextmanager
def share_member(topic: Topic, group: str) -> Iterator[None]:
    """A consumer in a share group."""
    consumer = ShareConsumer(
        {"bootstrap.servers": topic.bootstrap, "group.id": group, "log_level": 0}
    )
    consumer.subscribe([topic.name])

    def joined() -> bool:
        consumer.poll(0.1)
        return is_listed(topic.bootstrap, group)

    try:
        eventually(joined, "the consumer is in the share group")
        yield
    finally:
        consumer.close()


@contextmanager
def streams_application(topic: Topic, group: str, state: Path) -> Iterator[None]:
    """A Kafka Streams application in a streams group, killed at the end; it commits as it reads."""
    library = jars("org.apache.kafka", "kafka-streams", KAFKA)
    program = Path(__file__).with_name("StreamsMember.java")
    with running([f"{library}/*"], program, topic.bootstrap, group, topic.name, state):
        yield


def is_listed(bootstrap: str, group: str) -> bool:
    """Whether brokers list a group of this name, of whatever kind."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    with suppress(KafkaException):  # a fresh broker's coordinators take a moment
        return bool(admin.list_groups(group, WAIT_S))
    return False


def close_static(topic: Topic, group: str, instance: str, **settings: str | int) -> None:
    """A static member that joins and is closed: it stays a member until its session is over."""
    names = {"group_instance_id": instance, **settings}
    topic.live_member(group, "checkout-7", **names).close()


@contextmanager
def pending_offsets(topic: Topic, group: str, offset: int) -> Iterator[None]:
    """A producer whose open transaction has an offset of partition 0; it aborts at last."""
    with_group = topic.live_member(group)
    try:
        producer = topic.open_transaction(["x"])
        places = [TopicPartition(topic.name, 0, offset)]
        producer.send_offsets_to_transaction(places, with_group.consumer_group_metadata(), WAIT_S)
    finally:
        with_group.close()
    try:
        yield
    finally:
        producer.abort_transaction(WAIT_S)
