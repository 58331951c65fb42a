"""Finished ranges in the metadata of commits, on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.core.handover import decode, encode
from drainer.core.progress import Range
from drainer.kafka.cluster import Cluster
from drainer.kafka.commit import Committer
from drainer.kafka.offsets import CommittedOffset
from drainer.sandbox import Broker
from kafka.topic import Topic

FOREIGN = "node-7 was here: {äöü}"
MANY = tuple((n, n + 1 + n * n % 11) for n in range(11, 20_000, 17))  # 64 bytes won't do


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    made = Topic(bootstrap, topic_name, partitions=2)
    made.produce("abcdefghij")
    return made


@pytest.fixture
def committer(cluster: Cluster, topic: Topic) -> Committer:
    return Committer(cluster, f"g-{topic.name}", topic.name)


def commit(cluster: Cluster, committer: Committer) -> CommittedOffset:
    found = cluster.commits(committer.group, committer.topic, [0])[0]
    assert found is not None
    return found


def told(cluster: Cluster, committer: Committer) -> tuple[Range, ...] | None:
    found = commit(cluster, committer)
    return decode(found.offset, found.metadata)


def count_writes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    writes: list[object] = []
    alter = cluster.alter_committed

    def counted(*arguments: Any, **named: Any) -> set[int]:
        writes.append(arguments)
        return alter(*arguments, **named)

    monkeypatch.setattr(cluster, "alter_committed", counted)
    return writes


def test_what_is_finished_above_the_offset_travels_with_it(
    cluster: Cluster, committer: Committer
) -> None:
    ranges = {0: [(4, 6), (8, 9)], 1: []}

    assert committer.commit({0: 3, 1: 0}, {0: {None}, 1: {None}}, ranges) == {0: 3, 1: 0}

    assert told(cluster, committer) == ((4, 6), (8, 9))
    found = cluster.commits(committer.group, committer.topic, [0, 1])
    assert found[1] == CommittedOffset(0, "")
    assert cluster.committed(committer.group, committer.topic, [0, 1]) == {0: 3, 1: 0}


def test_a_partition_without_a_commit_has_no_metadata_either(
    cluster: Cluster, committer: Committer
) -> None:
    assert cluster.commits(committer.group, committer.topic, [0]) == {0: None}


def test_it_is_committed_again_when_only_that_has_grown(
    cluster: Cluster, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer.commit({0: 3}, {0: {None}}, {0: [(4, 5)]})
    writes = count_writes(cluster, monkeypatch)

    assert committer.commit({0: 3}, {0: {3}}, {0: [(4, 7)]}) == {0: 3}

    assert told(cluster, committer) == ((4, 7),)
    assert len(writes) == 1


def test_nothing_is_committed_when_nothing_has_changed(
    cluster: Cluster, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer.commit({0: 3}, {0: {None}}, {0: [(4, 5)]})
    writes = count_writes(cluster, monkeypatch)

    assert committer.commit({0: 3}, {0: {3}}, {0: [(4, 5)]}) == {0: 3}
    assert committer.commit({0: 2}, {0: {3}}, {0: [(4, 5)]}) == {0: 3}

    assert writes == []
    assert told(cluster, committer) == ((4, 5),)


def test_at_the_end_nothing_is_left_to_tell(cluster: Cluster, committer: Committer) -> None:
    committer.commit({0: 3}, {0: {None}}, {0: [(4, 5)]})
    committer.commit({0: 10}, {0: {3}}, {0: []})
    assert commit(cluster, committer) == CommittedOffset(10, "")


def test_metadata_of_others_is_carried_along(cluster: Cluster, committer: Committer) -> None:
    cluster.alter_committed(committer.group, committer.topic, {0: 2}, metadata={0: FOREIGN})

    committer.commit({0: 5}, {0: {2}}, {0: [(7, 8)]})

    assert commit(cluster, committer) == CommittedOffset(5, FOREIGN)


def test_a_broker_with_little_room_gets_what_fits_and_the_offset_always(
    own_cluster: Cluster, own_broker: Broker, topic_name: str
) -> None:
    """It takes 64 bytes; the others of the same commit are not disturbed."""
    Topic(own_broker.bootstrap_servers, topic_name, partitions=2).produce("abcdefghij")
    committer = Committer(own_cluster, f"g-{topic_name}", topic_name)
    ranges = {0: MANY, 1: [(5, 6)]}

    assert committer.commit({0: 3, 1: 3}, {0: {None}, 1: {None}}, ranges) == {0: 3, 1: 3}

    found = own_cluster.commits(committer.group, committer.topic, [0, 1])
    assert found[0] == CommittedOffset(3, "")
    assert found[1] is not None
    assert decode(3, found[1].metadata) == ((5, 6),)
    for offset in range(4, 10):
        committer.commit({0: offset, 1: 3}, {0: {offset - 1}, 1: {3}}, ranges)
        assert own_cluster.committed(committer.group, committer.topic, [0]) == {0: offset}
    found_now = told(own_cluster, committer)
    assert found_now
    assert found_now == tuple((max(a, 9), b) for a, b in MANY if b > 9)[: len(found_now)]


def test_what_a_broker_had_no_room_for_is_not_tried_again(
    own_cluster: Cluster,
    own_broker: Broker,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name).produce("abcdefghij")
    committer = Committer(own_cluster, f"g-{topic_name}", topic_name)
    for _ in range(10):
        committer.commit({0: 3}, {0: {None, 3}}, {0: MANY})
    assert len(encode(3, MANY)) > 64
    writes = count_writes(own_cluster, monkeypatch)

    committer.commit({0: 3}, {0: {3}}, {0: MANY})

    assert writes == []
    assert told(own_cluster, committer)
