"""The first record of a time or later, where brokers know it and where they don't."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from drainer.errors import Refused
from drainer.kafka import times
from drainer.kafka.backlog import AtTime, Earliest, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.sandbox import Broker
from kafka.topic import Topic, eventually

NOON_MS = 1_772_366_400_000
ROLL_S = 0.15
LARGE = b"v" * 100_000  # six of these keep a segment from being cleaned into one with another


def at(minute: float) -> int:
    return NOON_MS + round(minute * 60_000)


def stamps(*minutes: float) -> list[tuple[str, int]]:
    return [(f"k{number}", at(minute)) for number, minute in enumerate(minutes)]


def first(cluster: Cluster, topic: Topic, minute: float) -> int | None:
    logs = cluster.log_bounds(topic.name, range(topic.partitions), "read_committed")
    topic_id = cluster.topic(topic.name).topic_id
    return times.first_since(cluster, topic.name, topic_id, logs, at(minute))[0]


@pytest.fixture
def compacted(broker: Broker, topic_name: str) -> Iterator[tuple[Cluster, Topic]]:
    """Offset 16, of minute 10, was compacted away; 17 is of minute 11, and what lies before 16 of
    minute 9 or earlier. Of the batch of 16 its time is left, as of the last of any producer."""
    topic = Topic(
        broker.bootstrap_servers,
        topic_name,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.0",
        },
    )
    topic.stamp(stamps(*range(10)))
    topic.stamp([(f"g{number}", at(9)) for number in range(6)], LARGE)
    topic.stamp([("last", at(10))])
    time.sleep(ROLL_S)  # a segment is closed by the next record after its time
    topic.stamp([(f"f{number}", at(11)) for number in range(6)], LARGE)
    topic.stamp([("last", at(20))])
    time.sleep(ROLL_S)
    topic.stamp([("active", at(30))])
    with Cluster.connect(ClientSettings.load(topic.bootstrap), 60) as cluster:

        def forgotten() -> bool:
            return cluster.offset_at(topic.name, {0: at(9.5)})[0] is None

        eventually(forgotten, "the cleaner has been here, and the broker names no record", 30)
        yield cluster, topic


def test_records_that_the_broker_does_not_name_on_a_compacted_topic_are_found(
    compacted: tuple[Cluster, Topic],
) -> None:
    cluster, topic = compacted
    for minute, offset in ((9.5, 17), (10, 17), (9, 9), (11, 17), (12, 23), (30, 24)):
        assert first(cluster, topic, minute) == offset
    assert first(cluster, topic, 31) is None
    began = freeze(cluster, topic.name, "g", from_=AtTime(at(10))).partitions[0]
    ended = freeze(cluster, topic.name, "g", None, Earliest(), AtTime(at(10))).partitions[0]
    assert (began.start, began.end) == (17, 25)
    assert (ended.start, ended.end) == (0, 17)


@pytest.mark.parametrize(("minute", "offset"), [(0, 0), (5, 0), (6, 3), (9, 3), (10, None)])
def test_where_times_fall_and_rise_the_first_by_offset_is_meant(
    cluster: Cluster, bootstrap: str, topic_name: str, minute: int, offset: int | None
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.stamp(stamps(5, 1, 3, 9, 2))
    assert first(cluster, topic, minute) == offset


def test_times_may_be_those_of_the_broker(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    begun_ms = round(time.time() * 1000)
    topic = Topic(bootstrap, topic_name, config={"message.timestamp.type": "LogAppendTime"})
    topic.stamp(stamps(1, 2, 3))
    assert first(cluster, topic, 3) == 0
    logs = cluster.log_bounds(topic.name, [0], "read_committed")
    topic_id = cluster.topic(topic.name).topic_id
    assert times.first_since(cluster, topic.name, topic_id, logs, begun_ms) == {0: 0}
    assert times.first_since(cluster, topic.name, topic_id, logs, begun_ms + 60_000) == {0: None}


def test_what_would_take_too_many_records_to_find_out_is_refused(
    cluster: Cluster, bootstrap: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.stamp(stamps(9, 8, 7, 6, 5))
    monkeypatch.setattr(times, "ROUNDS", (1, 2))
    with pytest.raises(Refused, match=r"can't be settled.*those from 0 to 2 are all") as refused:
        first(cluster, topic, 10)
    assert "offset" in (refused.value.hint or "")
    assert first(cluster, topic, 9) == 0


def test_a_record_behind_an_open_transaction_is_none_of_the_backlog(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.stamp(stamps(1, 2))
    producer = topic.open_transaction("a")
    assert first(cluster, topic, 3) is None
    assert first(cluster, topic, 2) == 1
    producer.abort_transaction()


def test_each_partition_has_a_first_record_of_its_own(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=3)
    topic.stamp(stamps(1, 5), partition=0)
    topic.stamp(stamps(5, 6), partition=1)
    found = freeze(cluster, topic.name, "g", from_=AtTime(at(5))).partitions
    assert {number: part.start for number, part in found.items()} == {0: 1, 1: 0, 2: 0}
