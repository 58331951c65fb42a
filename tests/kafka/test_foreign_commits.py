"""Offsets that other clients committed, and that other clients read: Kafka's own, in Java."""

from __future__ import annotations

import pytest

from drainer.kafka.cluster import Cluster
from drainer.kafka.commit import Committer
from kafka.topic import Topic
from scenarios.trust import java_client

PARTITIONS = 40
READINGS = 100  # what a reading finds behind the text of another client differs from time to time


@pytest.mark.long
def test_metadata_of_other_clients_is_no_part_of_what_is_read_and_written(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name, partitions=PARTITIONS)
    group = f"g-{topic_name}"
    numbers = range(PARTITIONS)
    java_client.commit(bootstrap, group, topic.name, numbers, java_client.texts(PARTITIONS))

    found = dict(zip(numbers, numbers, strict=True))
    for _ in range(READINGS):
        assert cluster.committed(group, topic.name, numbers) == found

    moved = {n: n + 1 for n in numbers}
    assert Committer(cluster, group, topic.name).commit(moved, {n: {n} for n in numbers}) == moved
    written = {n: (offset, "") for n, offset in moved.items()}
    assert java_client.read(bootstrap, group, topic.name, PARTITIONS) == written
