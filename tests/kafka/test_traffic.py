"""Producers hold their pace and count what brokers took; groups read all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka import traffic
from drainer.limits.kafka.traffic import (
    GroupReader,
    PacedProducer,
    Readers,
    make_payloads,
)
from drainer.limits.search.settings import Payload
from drainer.limits.search.trial import Point
from kafka.topic import Topic, eventually

POINT = Point(200, 1, 1000.0)


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    return Topic(bootstrap, topic_name, 4)


def producer_of(settings: ClientSettings, topic: Topic) -> PacedProducer:
    pool = make_payloads(POINT.message_bytes)[:100]
    places = [(topic.name, number) for number in range(4)]
    return PacedProducer(settings, places, POINT, pool, 0, None)


def acknowledged(producer: PacedProducer) -> int:
    producer.send_up_to(0)  # which takes the brokers' answers
    return producer.acknowledged


def test_payloads_are_of_the_size_and_random_or_all_the_same() -> None:
    random = make_payloads(1000)

    assert {len(payload) for payload in random} == {1000}
    assert len(set(random)) == len(random) > 1000
    assert len(make_payloads(50_000_000)) == 2
    assert make_payloads(100, Payload.CONSTANT) == [bytes(100)]


def test_producers_compress_as_the_client_is_configured_to(bootstrap: str, topic_name: str) -> None:
    topic = Topic(bootstrap, topic_name, 1, {"max.message.bytes": "2000"})  # of a batch
    settings = ClientSettings.load(bootstrap, overrides=("compression.type=gzip",))
    point = replace(POINT, message_bytes=10_000)
    places = [(topic.name, 0)]
    pool = make_payloads(10_000, Payload.CONSTANT)
    producer = PacedProducer(settings, places, point, pool, 0, None)
    producer.connect()

    producer.send_up_to(10)
    eventually(lambda: acknowledged(producer) + producer.errors == 10, "all is answered")

    assert producer.acknowledged == 10


def test_what_is_due_is_sent_to_all_partitions_and_acknowledged(
    cluster: Cluster, settings: ClientSettings, topic: Topic
) -> None:
    producer = producer_of(settings, topic)
    producer.connect()
    for burst in range(1, 9):
        producer.send_up_to(50 * burst)
        producer.send_up_to(50 * burst)  # not again

    eventually(lambda: acknowledged(producer) == 400, "all is there")

    assert producer.offered == 400
    bounds = cluster.log_bounds(topic.name, range(4), "read_uncommitted")
    assert [bounds[number].end for number in range(4)] == [100] * 4
    assert {len(m.value() or b"") for m in topic.read_all(100, 2)} == {200}


def test_a_producer_that_was_kept_from_sending_does_not_make_up_for_it(
    settings: ClientSettings, topic: Topic
) -> None:
    producer = producer_of(settings, topic)

    producer.send_up_to(10_000)  # ten seconds late
    assert producer.offered == 500

    producer.send_up_to(10_100)
    assert producer.offered == 600


def test_what_finds_no_room_is_passed_over(
    settings: ClientSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "QUEUE_S", 0.2)  # 200 messages
    unreachable = ClientSettings.load("127.0.0.1:1")
    producer = producer_of(unreachable, topic)
    for burst in range(1, 9):
        producer.send_up_to(50 * burst)

    assert producer.offered == 200
    assert producer.acknowledged == 0
    producer.halt()


def test_readers_read_what_comes_after_they_began_and_commit_nothing(
    cluster: Cluster, settings: ClientSettings, topic: Topic, group: str
) -> None:
    topic.produce(["before"] * 10)
    read = [0, 0]

    def reader(number: int, *partitions: int) -> tuple[int, GroupReader]:
        places = [(topic.name, partition) for partition in partitions]
        return number, GroupReader(settings, f"{group}.{number}", places)

    readers = Readers([reader(0, 0, 1), reader(0, 2, 3), reader(1, 0, 2)], read)
    readers.start()
    for number in range(4):
        topic.produce(["later"] * 25, number)

    eventually(lambda: read == [100, 50], "both groups have read theirs")
    readers.halt()
    assert set(cluster.committed(f"{group}.0", topic.name, range(4)).values()) == {None}
