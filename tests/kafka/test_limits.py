"""The Kafka part of broker limits: producers hold their pace and count what brokers took, groups
read all of it, the test topic is found again by its name and nothing else goes, and replicas that
fall out of sync are seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka import topic as topics
from drainer.limits.kafka import traffic
from drainer.limits.kafka.topic import (
    create_test_topic,
    delete_left_behind,
    delete_test_topics,
    find_left_behind,
    find_test_topics,
    live_traffic,
    new_topic_name,
)
from drainer.limits.kafka.traffic import (
    GroupReader,
    PacedProducer,
    Readers,
    make_payloads,
)
from drainer.limits.kafka.watch import InSyncWatch
from drainer.limits.search.reading import changing_share
from drainer.limits.search.settings import Payload
from drainer.limits.search.trial import Point
from kafka.members import share_member
from kafka.topic import Topic, eventually
from scenarios.brokers import Brokers

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


@pytest.mark.parametrize(
    "name",
    [
        "drainer.limits.orders",
        "drainer.limits.20261121-190312",
        "my.drainer.limits.20261121-190312-a1b2c3",
        "drainer.limits.20261121-190312-a1b2c3.backup",
        "drainer.limits.20261121-190312-a1b2c3\n",
    ],
)
def test_a_name_that_only_looks_like_it_is_never_removed(cluster: Cluster, name: str) -> None:
    with pytest.raises(ValueError, match="not of drainer limits"):
        delete_test_topics(cluster, (new_topic_name(), name))


def test_a_test_topic_is_found_again_and_removed_and_a_stranger_s_is_not(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    at = datetime(2026, 11, 21, 19, 3, 12, tzinfo=UTC)
    name, stranger = new_topic_name(at), Topic(bootstrap, f"drainer.limits.{topic_name}")
    assert name.startswith("drainer.limits.20261121-190312-")
    assert name != new_topic_name(at)

    create_test_topic(cluster, name, 3, 2_000_000)

    assert cluster.topic(name).partitions == (0, 1, 2)
    assert int(cluster.topic_config(name)["max.message.bytes"]) > 2_000_000
    found = find_test_topics(cluster)
    assert name in found
    assert stranger.name not in found
    assert name in find_left_behind(cluster), "nothing writes to it"
    with pytest.raises(ValueError, match=stranger.name):
        delete_test_topics(cluster, (name, stranger.name))
    with pytest.raises(ValueError, match=stranger.name):
        create_test_topic(cluster, stranger.name, 1, 1000)

    delete_test_topics(cluster, (name,))

    eventually(lambda: name not in find_test_topics(cluster), "the topic is gone")
    delete_test_topics(cluster, (name,))  # and again, as after a crash amid it
    assert cluster.topic(stranger.name).partitions == (0,)
    stranger.delete()


def test_a_topic_without_evidence_that_its_run_is_over_is_not_left_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    still, moving, silent, begun = names = [new_topic_name() for _ in range(4)]
    ends = {(name, 0): 7 for name in names if name != silent}
    readings = [ends, ends | {(moving, 0): 8}, ends, ends | {(begun, 0): 8}]
    monkeypatch.setattr(topics, "_topics", lambda _: dict.fromkeys(names, 1))
    monkeypatch.setattr(topics, "_ends", lambda *_: readings.pop(0))
    deleted: list[str] = []
    monkeypatch.setattr(cluster, "delete_topic", deleted.append)

    asked = find_left_behind(cluster, watch_s=0)

    assert asked == tuple(sorted((still, begun)))
    assert delete_left_behind(cluster, asked) == (still,), "the other began while it was asked"
    assert deleted == [still]


def test_topics_that_move_and_groups_with_members_are_live_traffic(
    cluster: Cluster, bootstrap: str, topic_name: str, group: str
) -> None:
    moving, still = Topic(bootstrap, topic_name), Topic(bootstrap, f"{topic_name}-still")
    member = still.live_member(group)
    cluster.alter_committed(f"{group}-empty", still.name, {0: 0})
    over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        while not over.wait(0.01):
            producer.produce(moving.name, b"x")
            producer.poll(0)
        producer.flush()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        with share_member(still, f"{group}-share"):
            seen = live_traffic(cluster, watch_s=1.0)
    finally:
        over.set()
        writing.join()
        member.close()

    assert any(words.startswith(f"{moving.name} receives ") for words in seen)
    assert not any(words.startswith(f"{still.name} ") for words in seen)
    assert f"group {group} has members" in seen
    assert f"group {group}-share is a streams or share group" in seen
    assert f"group {group}-empty has members" not in seen


ALL = (0.0, float("inf"))
WAIT_S = 60.0


@pytest.fixture
def brokers(kafka_installed: None, tmp_path: Path) -> Iterator[Brokers]:
    with Brokers(tmp_path, 3, die_with_parent=True) as running:
        yield running


@pytest.mark.long
def test_a_broker_that_goes_is_a_change_for_as_long_as_it_is_away(brokers: Brokers) -> None:
    settings = ClientSettings.load(brokers.bootstrap_servers)
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 6, 1000)
        leaders = list(cluster.topic(name).leaders.values())
        assert sorted(leaders.count(address) for address in set(leaders)) == [2, 2, 2]
    watch = InSyncWatch(settings, [name])
    watch.start()
    eventually(lambda: len(watch.within(*ALL)) > 1, "it looks", WAIT_S)
    assert watch.usual == {(name, number): {1, 2, 3} for number in range(6)}
    assert changing_share(watch.within(*ALL), watch.usual) == 0

    brokers.each[2].stop()

    def alone() -> bool:
        looks = watch.within(*ALL)
        return len(looks) > 1 and set(looks[-2][1].values()) == {frozenset({1, 2})} == set(
            looks[-1][1].values()
        )

    eventually(alone, "two replicas are left", WAIT_S)
    last = watch.within(*ALL)[-2:]
    assert changing_share(last, watch.usual) == 1
    watch.halt()


def test_without_other_replicas_there_are_no_samples(settings: ClientSettings) -> None:
    name = new_topic_name()
    with Cluster.connect(settings, WAIT_S) as cluster:
        create_test_topic(cluster, name, 2, 1000)
    watch = InSyncWatch(settings, [name])
    watch.start()

    assert watch.within(*ALL) == []
    watch.halt()
