"""The same cases for a real broker and for the fake that other tests run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from drainer.errors import (
    GroupActive,
    GroupJoined,
    LogCut,
    OffsetMoved,
    RecordsDeleted,
    TopicMissing,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.reader import RangeReader
from drainer.kafka.settings import ClientSettings
from fake_kafka import FakeCluster, FakeKafka, FakeSettings, Log
from kafka.topic import Topic, eventually
from scenarios.brokers import delete_group

TOPIC_ID = "0pBNPmLQTQ6kMBJIlPOBWg"


@dataclass(frozen=True)
class Kafka:
    """A topic of two partitions, and a group that is new."""

    cluster: Cluster
    topic: Any  # a ``Topic`` or a ``FakeKafka``, which write and delete alike
    name: str
    group: str
    settings: Callable[[str], ClientSettings]  # of an isolation level

    def bounds(self, isolation: str = "read_committed") -> tuple[int, int, int]:
        log = self.cluster.log_bounds(self.name, [0], isolation)[0]
        return log.start, log.end, log.high_watermark

    def committed(self) -> dict[int, int | None]:
        return self.cluster.committed(self.group, self.name, [0, 1])

    def commit(self, offsets: dict[int, int]) -> None:
        self.cluster.alter_committed(self.group, self.name, offsets)

    def forget_group(self) -> None:
        """Remove the group with its offsets, as brokers do after some days."""
        if isinstance(self.topic, FakeKafka):
            self.topic.committed = dict.fromkeys(self.topic.committed)
        else:
            delete_group(self.cluster.settings, self.group)

    def read(self, start: int, end: int, isolation: str = "read_committed") -> list[str]:
        """All that a range shows, read to its end."""
        topic_id = self.cluster.topic(self.name).topic_id
        reader = RangeReader(
            *(self.settings(isolation), self.name, topic_id, self.group),
            prefetch_bytes=1_000_000,
            batch_bytes=100_000,
        )
        found: list[str] = []
        with closing(reader):
            reader.assign({0: (start, end)})
            reached: dict[int, int] = {}
            while reader.open:
                for batch in reader.poll():
                    found += [(message.value or b"").decode() for message in batch.messages]
                    reached |= batch.reached
                reader.ensure_progress(30)
        assert reached == {0: end}
        return found


@contextmanager
def real(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    bootstrap, name = request.getfixturevalue("bootstrap"), request.getfixturevalue("topic_name")
    cluster = request.getfixturevalue("cluster")

    def settings(isolation: str) -> ClientSettings:
        return ClientSettings.load(bootstrap, None, [f"isolation.level={isolation}"])

    yield Kafka(cluster, Topic(bootstrap, name, partitions=2), name, f"g-{name}", settings)


@contextmanager
def fake(_: pytest.FixtureRequest) -> Iterator[Kafka]:
    kafka = FakeKafka("orders", TOPIC_ID, "billing", {0: Log(), 1: Log()})

    def settings(isolation: str) -> ClientSettings:
        return FakeSettings("fake:9092", {"isolation.level": isolation}, kafka=kafka)

    cluster = FakeCluster(kafka, settings("read_committed"))
    yield Kafka(cluster, kafka, kafka.topic, kafka.group, settings)


@pytest.fixture(params=[fake, real], ids=["fake", "broker"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    with request.param(request) as made:
        yield made


def test_an_empty_log_begins_and_ends_at_zero(kafka: Kafka) -> None:
    assert kafka.bounds() == kafka.bounds("read_uncommitted") == (0, 0, 0)


def test_markers_take_offsets_and_what_was_aborted_is_not_shown(kafka: Kafka) -> None:
    kafka.topic.produce("ab")
    kafka.topic.transact("cd", commit=True)
    kafka.topic.transact("ef", commit=False)
    assert kafka.bounds() == kafka.bounds("read_uncommitted") == (0, 8, 8)
    assert kafka.read(0, 8) == list("abcd")
    assert kafka.read(0, 8, "read_uncommitted") == list("abcdef")
    assert kafka.read(1, 4) == list("bcd")


def test_an_open_transaction_ends_what_is_shown_as_committed(kafka: Kafka) -> None:
    kafka.topic.produce("abc")
    _producer = kafka.topic.open_transaction("de")
    assert kafka.bounds() == (0, 3, 5)
    assert kafka.bounds("read_uncommitted") == (0, 5, 5)
    assert kafka.read(0, 3) == list("abc")
    assert kafka.read(0, 5, "read_uncommitted") == list("abcde")


def test_deleted_records_move_the_start_and_can_not_be_read(kafka: Kafka) -> None:
    kafka.topic.produce("abcdef")
    kafka.topic.delete_before(4)
    assert kafka.bounds() == (4, 6, 6)
    assert kafka.cluster.log_starts(kafka.name, [0, 1]) == {0: 4, 1: 0}
    assert kafka.read(4, 6) == list("ef")
    with pytest.raises(RecordsDeleted, match="offsets 2 to 3"):
        kafka.read(2, 6)


def test_an_offset_past_the_log_is_a_cut_log(kafka: Kafka) -> None:
    kafka.topic.produce("abc")
    with pytest.raises(LogCut):
        kafka.read(7, 9)


def test_committed_offsets_go_forwards_backwards_and_away_with_the_group(kafka: Kafka) -> None:
    kafka.topic.produce("abcdef")
    assert kafka.cluster.group(kafka.group).state == "dead"
    assert kafka.committed() == {0: None, 1: None}
    kafka.commit({0: 4})
    assert kafka.committed() == {0: 4, 1: None}
    kafka.commit({0: 2, 1: 0})
    assert kafka.committed() == {0: 2, 1: 0}
    assert kafka.cluster.group(kafka.group).state == "empty"
    kafka.forget_group()
    assert kafka.committed() == {0: None, 1: None}
    assert kafka.cluster.group(kafka.group).state == "dead"


def test_beside_a_member_nothing_is_committed(kafka: Kafka) -> None:
    kafka.topic.produce("abcdef")
    kafka.commit({0: 2})
    kafka.cluster.ensure_no_members(kafka.group, kafka.name, (0, 2))
    member = kafka.topic.live_member(kafka.group, "checkout-7")
    info = kafka.cluster.group(kafka.group)
    assert (info.active, info.state) == (True, "stable")
    assert list(map(str, info.members)) == ["checkout-7 on 127.0.0.1"]
    with pytest.raises(GroupActive, match="checkout-7"):
        kafka.commit({0: 4})
    with pytest.raises(GroupActive, match="checkout-7"):
        kafka.cluster.ensure_no_members(kafka.group, kafka.name, (0, 2))
    assert kafka.committed() == {0: 2, 1: None}
    member.close()
    eventually(lambda: not kafka.cluster.group(kafka.group).active, "the member is gone")
    kafka.commit({0: 4})
    assert kafka.committed() == {0: 4, 1: None}


def test_a_topic_that_does_not_exist_takes_no_commit(kafka: Kafka) -> None:
    with pytest.raises(TopicMissing):
        kafka.cluster.topic(f"{kafka.name}-no")
    with pytest.raises(TopicMissing):
        kafka.cluster.alter_committed(kafka.group, f"{kafka.name}-no", {0: 1})
    with pytest.raises(TopicMissing):
        kafka.commit({7: 1})


def test_a_committer_moves_a_group_forwards_and_nothing_twice(kafka: Kafka) -> None:
    committer = GroupCommitter(kafka.cluster, kafka.group, kafka.name)
    assert committer.commit({0: 3, 1: 0}, {0: {None}, 1: {None}}) == {0: 3, 1: 0}
    assert committer.commit({0: 7}, {0: {3}}) == {0: 7}
    for offset in (5, 7):
        assert committer.commit({0: offset}, {0: {7}}) == {0: 7}
    assert kafka.committed() == {0: 7, 1: 0}


def test_a_committer_does_not_overwrite_another(kafka: Kafka) -> None:
    committer = GroupCommitter(kafka.cluster, kafka.group, kafka.name)
    committer.commit({0: 3}, {0: {None}})
    kafka.commit({0: 2})
    with pytest.raises(OffsetMoved, match=rf"offset 2 .* {kafka.name}/0 .*left offset 3"):
        committer.commit({0: 5}, {0: {3}})
    assert kafka.committed() == {0: 2, 1: None}


def test_a_committer_writes_offsets_that_expired_again(kafka: Kafka) -> None:
    committer = GroupCommitter(kafka.cluster, kafka.group, kafka.name)
    committer.commit({0: 3, 1: 2}, {0: {None}, 1: {None}})
    for _ in range(2):
        kafka.forget_group()
        assert committer.commit({0: 5, 1: 2}, {0: {3, 5}, 1: {2}}) == {0: 5, 1: 2}
        assert kafka.committed() == {0: 5, 1: 2}


def test_a_committer_stops_for_a_member_and_names_it(kafka: Kafka) -> None:
    committer = GroupCommitter(kafka.cluster, kafka.group, kafka.name)
    committer.commit({0: 3}, {0: {None}})
    member = kafka.topic.live_member(kafka.group, "checkout-7")
    for offset in (5, 3):  # although nothing is to be moved, the second time
        with pytest.raises(GroupJoined, match="checkout-7 on 127"):
            committer.commit({0: offset}, {0: {3}})
    member.close()
    assert kafka.committed() == {0: 3, 1: None}
