"""A range is read exactly, or there is an error: never a part of it that looks like the whole."""

from __future__ import annotations

import pytest

from drainer.errors import BrokerUnreachable, RecordsDeleted, TopicGone, TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.kafka.stream import read_range
from drainer.message import Origin
from kafka.reader import numbered
from kafka.topic import Topic


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, topic_name)


def origin_of(cluster: Cluster, topic: Topic) -> Origin:
    return Origin(topic.name, cluster.topic(topic.name).topic_id, 0)


def offsets(
    cluster: Cluster, origin: Origin, start: int, end: int, silence_s: float = 30
) -> list[int]:
    stream = read_range(cluster.settings, origin, start, end, reader="a-test", silence_s=silence_s)
    return [message.offset for batch in stream for message in batch.messages]


def test_ranges_that_begin_and_end_on_holes_give_what_is_between(
    cluster: Cluster, topic: Topic
) -> None:
    topic.produce("ab")
    topic.transact("xxxx", commit=False)  # 2 to 5, and the marker at 6
    topic.produce("cd")
    origin = origin_of(cluster, topic)

    assert offsets(cluster, origin, 0, 9) == [0, 1, 7, 8]
    assert offsets(cluster, origin, 0, 4) == [0, 1]
    assert offsets(cluster, origin, 3, 8) == [7]
    assert offsets(cluster, origin, 3, 5) == []
    assert offsets(cluster, origin, 5, 5) == []


def test_retention_that_passes_by_while_it_reads_is_an_error_and_no_gap(
    cluster: Cluster, topic: Topic
) -> None:
    topic.produce(numbered(60, size=900_000))
    stream = read_range(cluster.settings, origin_of(cluster, topic), 0, 60, reader="a-test")
    read = [message.offset for message in next(stream).messages]
    topic.delete_before(59)

    with pytest.raises(RecordsDeleted, match=f"{topic.name}/0 before they were read"):
        read.extend(message.offset for batch in stream for message in batch.messages)
    assert read == list(range(len(read)))


def test_a_log_that_ends_before_the_range_is_an_error_and_no_end(
    cluster: Cluster, topic: Topic
) -> None:
    topic.produce("abc")

    with pytest.raises(BrokerUnreachable, match=f"{topic.name}/0 can't .* from offset 3 on"):
        offsets(cluster, origin_of(cluster, topic), 0, 10, silence_s=0.2)


def test_a_topic_that_was_made_again_is_not_read(cluster: Cluster, topic: Topic) -> None:
    topic.produce("abc")
    origin = origin_of(cluster, topic)
    topic.delete()
    with pytest.raises(TopicMissing, match=topic.name):
        offsets(cluster, origin, 0, 3)
    topic.create()
    topic.produce("xyz")

    with pytest.raises(TopicGone, match=f"{topic.name} was deleted and recreated"):
        offsets(cluster, origin, 0, 3)


def test_no_broker_is_told_before_the_first_record() -> None:
    nowhere = ClientSettings.load("127.0.0.1:1")

    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        next(read_range(nowhere, Origin("orders", "id", 0), 0, 3, reader="a-test"))
