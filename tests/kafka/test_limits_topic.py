"""The test topic is found again by its name, and nothing else goes."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from drainer.kafka.cluster import Cluster
from drainer.limits.kafka import topic as topics
from drainer.limits.kafka.topic import (
    create_test_topic,
    delete_left_behind,
    delete_test_topics,
    find_left_behind,
    find_test_topics,
    live_traffic,
    new_topic_name,
)
from kafka.members import share_member
from kafka.topic import Topic, eventually


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
