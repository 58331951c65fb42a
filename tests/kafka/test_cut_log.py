"""A log that lost its end, as after an unclean leader election."""

from __future__ import annotations

from contextlib import suppress

import pytest

from drainer.errors import CommitDelayed, LogCut
from drainer.kafka.cluster import Cluster
from drainer.kafka.group import GroupCommitter
from drainer.kafka.loss import LogCheck, cut_logs
from drainer.kafka.settings import ClientSettings
from kafka.reader import Reader
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker
from scenarios.trust.cut_log import cut_log


def produce(topic: Topic, count: int, partition: int = 0) -> None:
    for number in range(count):  # a batch each, for logs are cut between batches
        topic.produce([str(number)], partition=partition)


def ten_and_four(broker: Broker, name: str) -> tuple[ClientSettings, Topic]:
    """A topic with so many records on its two partitions."""
    topic = Topic(broker.bootstrap_servers, name, partitions=2)
    produce(topic, 10)
    produce(topic, 4, partition=1)
    return ClientSettings.load(broker.bootstrap_servers), topic


def check(committer: GroupCommitter, topic_id: str) -> None:
    """Checks once the broker, which has just started, answers for all partitions."""

    def checked() -> bool:
        with suppress(CommitDelayed):
            committer.check(topic_id)
            return True
        return False

    eventually(checked, "the partitions have a leader")


def test_each_commit_checks_the_log_up_to_the_end_of_the_backlog(
    own_broker: Broker, topic_name: str
) -> None:
    """All of it was handled and committed long ago: the group's offset means other records now."""
    settings, topic = ten_and_four(own_broker, topic_name)
    with Cluster.connect(settings) as cluster:
        topic_id = cluster.topic(topic.name).topic_id
        ends = cluster.log_ends(topic.name, [0, 1])
        committer = GroupCommitter(cluster, topic.name, topic.name, ends)
        committer.check(topic_id)
        own_broker.stop()
        own_broker.start()
        check(committer, topic_id)  # another epoch, and the same records

        cut_log(own_broker, topic.name, 0, 6)
        with pytest.raises(LogCut, match=rf"{topic.name}/0 lost records below 10"):
            check(committer, topic_id)
        produce(topic, 10)
        with pytest.raises(LogCut, match=rf"{topic.name}/0 lost records below 10") as raised:
            committer.check(topic_id)
        assert raised.value.exit_code == 8

        known = GroupCommitter(
            cluster, topic.name, topic.name, cluster.log_ends(topic.name, [0, 1])
        )
        known.check(topic_id)  # what is there now is what it was planned for
        topic.delete_before(8)
        LogCheck(cluster, topic.name, topic.name, {0: (3, 0)}).check()  # retention took it


def test_a_cut_log_stops_the_reading_and_one_that_has_grown_again_is_recognized(
    own_broker: Broker, topic_name: str
) -> None:
    settings, topic = ten_and_four(own_broker, topic_name)
    with Cluster.connect(settings) as cluster:
        logs = cluster.log_bounds(topic.name, [0, 1], settings.isolation)
    ends = {number: (log.end, log.leader_epoch or 0) for number, log in logs.items()}
    assert cut_logs(settings, topic.name, "readers", ends) == {}

    cut_log(own_broker, topic.name, 0, 6)
    with (
        Reader(settings, topic.name, {0: (0, 10), 1: (0, 4)}) as reader,
        pytest.raises(LogCut, match=r"/0 lost records: its log ends at 6, below 10"),
    ):
        reader.read()
    assert len(reader.messages) == 10

    produce(topic, 10)
    [(number, text)] = cut_logs(settings, topic.name, "readers", ends).items()
    assert number == 0
    assert "broker end offset is 6" in text
