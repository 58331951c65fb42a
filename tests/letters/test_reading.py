"""Reading a topic's records from its beginning to its end, with holes of every kind."""

from __future__ import annotations

import pytest

from drainer.errors import BrokerUnreachable, NotADeadLetter, TopicMissing
from drainer.kafka import reader, spans
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import find_letter, read_letters
from drainer.message import HeadersUnreadable
from drainer.policy.dead_letter import read_letter
from kafka.raw import produce_with_header
from kafka.topic import Topic
from scenarios.brokers import Broker


def values(cluster: Cluster, topic: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for message in read_letters(cluster, topic):
        assert message.value is not None
        found.setdefault(message.partition, []).append(message.value.decode())
    return found


def test_holes_deleted_records_and_aborted_ones_are_passed_over(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(["gone", "a"])
    topic.delete_before(1)
    topic.transact(["b"], commit=True)
    topic.transact(["aborted"], commit=False)
    assert values(cluster, topic_name) == {0: ["a", "b"]}
    with pytest.raises(NotADeadLetter, match=f"{topic_name}/0/2 is not a dead letter"):
        find_letter(cluster, topic_name, 0, 2)
    for hole in (0, 3, 4, 5, 99):
        with pytest.raises(NotADeadLetter, match=f"no record at {topic_name}/0/{hole}") as raised:
            find_letter(cluster, topic_name, 0, hole)
        assert "from 1 to below 6" in (raised.value.hint or "")


def test_a_topic_or_partition_that_is_not_there_is_reported(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    with pytest.raises(TopicMissing):
        list(read_letters(cluster, topic_name))
    Topic(bootstrap, topic_name)
    assert values(cluster, topic_name) == {}
    with pytest.raises(TopicMissing, match="no partition 7"):
        find_letter(cluster, topic_name, 7, 0)
    with pytest.raises(NotADeadLetter, match="there is no record"):
        find_letter(cluster, topic_name, 0, 0)


@pytest.mark.long
def test_a_broker_that_falls_silent_is_reported(
    own_broker: Broker, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "SPAN_SILENCE_S", 0.5)
    monkeypatch.setattr(reader, "BATCH_MESSAGES", 10)
    monkeypatch.setattr(spans, "PREFETCH_BYTES", 1)
    topic = Topic(own_broker.bootstrap_servers, topic_name)
    topic.produce("x" * 10_000 for _ in range(1000))
    with Cluster.connect(ClientSettings.load(own_broker.bootstrap_servers), 60) as cluster:
        reading = read_letters(cluster, topic_name)
        next(reading)
        own_broker.pause()
        try:
            with pytest.raises(BrokerUnreachable, match=f"can't read {topic_name}/0: no record"):
                list(reading)
        finally:
            own_broker.resume()


def test_a_record_with_a_header_that_no_client_can_read_is_left_alone(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    Topic(bootstrap, topic_name)
    produce_with_header(bootstrap, topic_name, b"value", b"\xff\xfe")
    (message,) = read_letters(cluster, topic_name)
    for _ in range(10):  # the client is another at each look
        with pytest.raises(HeadersUnreadable, match=f"{topic_name}/0/0"):
            _ = message.headers
    with pytest.raises(NotADeadLetter, match="not UTF-8"):
        read_letter(message)
