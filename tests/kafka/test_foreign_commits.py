"""Offsets that other clients committed, and that other clients read: Kafka's own, in Java."""

from __future__ import annotations

import socket
import struct

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


def test_metadata_beside_an_offset_is_no_part_of_it(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    """Clients but librdkafka's end it without a NUL: what is read of it then differs each time."""
    Topic(bootstrap, topic_name, partitions=7)
    group = f"g-{topic_name}"
    numbers = range(7)
    assert set(cluster.committed(group, topic_name, numbers).values()) == {None}
    for number in numbers:  # up to 3.6 of the 4 KiB that a broker takes
        commit_raw(bootstrap, group, topic_name, number, metadata="€é" * 3**number)
    for _ in range(20):
        assert cluster.committed(group, topic_name, numbers) == {n: n for n in numbers}
    moved = {n: n + 1 for n in numbers}
    committer = Committer(cluster, group, topic_name)
    assert committer.commit(moved, {n: {n} for n in numbers}) == moved


def commit_raw(bootstrap: str, group: str, topic: str, number: int, *, metadata: str) -> None:
    """Commits the partition's number as its offset: OffsetCommit, version 2, without a client."""

    def text(given: str) -> bytes:
        return struct.pack(">h", len(given.encode())) + given.encode()

    head = struct.pack(">hhi", 8, 2, 1) + text("raw")
    of_group = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    of_topic = struct.pack(">i", 1) + text(topic) + struct.pack(">iiq", 1, number, number)
    request = head + of_group + of_topic + text(metadata)
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            answer = stream.read(*struct.unpack(">i", stream.read(4)))
    assert answer.endswith(struct.pack(">ih", number, 0)), answer
