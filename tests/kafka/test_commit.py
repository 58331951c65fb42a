"""Committing without membership, and noticing whoever else does, and a log that lost its end, as
after an unclean leader election."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from drainer.errors import CommitDelayed, LogCut, OffsetMoved, TopicGone
from drainer.kafka.cluster import Cluster
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.loss import LogCheck, cut_logs
from drainer.kafka.settings import ClientSettings
from kafka.reader import Reader
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker
from scenarios.trust.cut_log import cut_log


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> Topic:
    made = Topic(bootstrap, topic_name, partitions=2)
    made.produce("abcdefghij")
    return made


@pytest.fixture
def committer(cluster: Cluster, topic: Topic) -> GroupCommitter:
    return GroupCommitter(cluster, f"g-{topic.name}", topic.name)


def committed(cluster: Cluster, committer: GroupCommitter) -> int | None:
    return cluster.committed(committer.group, committer.topic, [0])[0]


def test_a_foreign_commit_right_after_one_is_reported_with_what_was_written(
    cluster: Cluster, committer: GroupCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = cluster.alter_committed

    def write_and_be_overtaken(group: str, topic: str, moves: dict[int, int], *more: Any) -> None:
        write(group, topic, moves, *more)
        write(group, topic, {0: 2})

    monkeypatch.setattr(cluster, "alter_committed", write_and_be_overtaken)
    with pytest.raises(OffsetMoved, match=r"offset 2 committed.*left offset 5") as raised:
        committer.commit({0: 5}, {0: {None}})
    assert raised.value.left == {0: 5}


def test_a_commit_that_only_looks_for_members_moves_nothing_even_if_it_is_taken(
    cluster: Cluster, committer: GroupCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer.commit({0: 7}, {0: {None}})
    monkeypatch.setattr("drainer.kafka.group.PROBE_METADATA", "brokers may be set to take this")
    assert committer.commit({0: 7}, {0: {7}}) == {0: 7}
    assert committed(cluster, committer) == 7


def test_nothing_is_committed_when_the_lease_ends_amid_a_commit(
    cluster: Cluster, topic: Topic
) -> None:
    sure = [True]
    committer = GroupCommitter(cluster, f"g-{topic.name}", topic.name, is_sure=lambda: sure[0])
    committer.commit({0: 3}, {0: {None}})
    sure[0] = False
    with pytest.raises(CommitDelayed, match="lock"):
        committer.commit({0: 5}, {0: {3}})
    assert committed(cluster, committer) == 3


def test_a_topic_that_was_made_again_is_another_one(
    cluster: Cluster, committer: GroupCommitter, topic: Topic
) -> None:
    topic_id = cluster.topic(topic.name).topic_id
    committer.check(topic_id, {})
    committer.commit({0: 3}, {0: {None}})
    topic.delete()
    with pytest.raises(TopicGone, match="was deleted"):
        committer.check(topic_id, {})
    with pytest.raises(TopicGone):
        committer.commit({0: 5}, {0: {3}})
    topic.create()
    with pytest.raises(TopicGone, match="recreated"):
        committer.check(topic_id, {})


def test_a_commit_whose_answer_was_lost_may_have_happened(
    own_broker: Broker, own_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Topic(own_broker.bootstrap_servers, topic_name).produce("abcdefghij")
    committer = GroupCommitter(own_cluster, f"g-{topic_name}", topic_name, timeout_s=0.5)
    eventually(lambda: _try(committer, 3, None), "the coordinator is ready")
    write = own_cluster.alter_committed

    def write_frozen(*arguments: Any, **named: Any) -> None:
        own_broker.pause()  # once the offset was read, before it is written
        write(*arguments, **named)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(own_cluster, "alter_committed", write_frozen)
            with pytest.raises(CommitDelayed):
                committer.commit({0: 5}, {0: {3}})
            with pytest.raises(CommitDelayed):
                committer.commit({0: 6}, {0: {3}})
    finally:
        own_broker.resume()
    # Whether 3 or 5 is found now, it was this drain that left it there.
    eventually(lambda: _try(committer, 6, 3), "the commit gets through")
    assert committed(own_cluster, committer) == 6


def _try(committer: GroupCommitter, offset: int, expected: int | None) -> bool:
    try:
        committer.commit({0: offset}, {0: {expected}})
    except CommitDelayed:
        return False
    return True


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
    committer = GroupCommitter(cluster, group, topic_name)
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


def produce(topic: Topic, count: int, partition: int = 0) -> None:
    for number in range(count):  # a batch each, for logs are cut between batches
        topic.produce([str(number)], partition=partition)


def check(
    committer: GroupCommitter, topic_id: str, ends: Mapping[int, tuple[int, int | None]]
) -> None:
    """Check once the broker, which has just started, answers for all partitions."""

    def checked() -> bool:
        with suppress(CommitDelayed):
            committer.check(topic_id, ends)
            return True
        return False

    eventually(checked, "the partitions have a leader")


@pytest.mark.long
def test_a_log_that_was_cut_is_noticed_by_reading_and_committing_also_when_it_has_grown_again(
    own_broker: Broker, topic_name: str
) -> None:
    """All of it was handled and committed long ago: the group's offset means other records now."""
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    topic, whole = (
        Topic(own_broker.bootstrap_servers, f"{topic_name}-{n}", partitions=2) for n in range(2)
    )
    for each in (topic, whole):
        produce(each, 10)
        produce(each, 4, partition=1)
    with Cluster.connect(settings) as cluster:
        ids = {each.name: cluster.topic(each.name).topic_id for each in (topic, whole)}

        def committer(of: Topic) -> GroupCommitter:
            return GroupCommitter(cluster, of.name, of.name)

        cut, kept = committer(topic), committer(whole)
        planned = {each.name: cluster.log_ends(each.name, [0, 1]) for each in (topic, whole)}
        logs = cluster.log_bounds(topic.name, [0, 1], settings.isolation)
        ends = {number: (log.end, log.leader_epoch or 0) for number, log in logs.items()}
        cut.check(ids[topic.name], planned[topic.name])
        kept.check(ids[whole.name], planned[whole.name])
        assert cut_logs(settings, topic.name, "readers", ends) == {}

        cut_log(own_broker, topic.name, 0, 6)  # the broker restarts
        check(kept, ids[whole.name], planned[whole.name])  # another epoch, and the same records
        lost = rf"{topic.name}/0 lost records below 10"
        with pytest.raises(LogCut, match=lost):
            check(cut, ids[topic.name], planned[topic.name])
        with (
            Reader(settings, topic.name, {0: (0, 10), 1: (0, 4)}) as reader,
            pytest.raises(LogCut, match=r"/0 lost records: its log ends at 6, below 10"),
        ):
            reader.read()
        assert len(reader.messages) == 10

        produce(topic, 10)
        with pytest.raises(LogCut, match=lost) as raised:
            cut.check(ids[topic.name], planned[topic.name])
        assert raised.value.exit_code == 8
        [(number, text)] = cut_logs(settings, topic.name, "readers", ends).items()
        assert (number, "broker end offset is 6" in text) == (0, True)

        now = cluster.log_ends(topic.name, [0, 1])
        committer(topic).check(ids[topic.name], now)  # what is there is what it was planned for
        topic.delete_before(8)
        LogCheck(cluster, topic.name, topic.name).check({1: (4, None)})  # its epoch is not known
        LogCheck(cluster, topic.name, topic.name).check({0: (3, 0)})  # retention took it
