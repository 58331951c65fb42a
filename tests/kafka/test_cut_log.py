"""A log that lost its end, as after an unclean leader election."""

from __future__ import annotations

from contextlib import suppress

import pytest

from drainer.errors import CommitDelayed, LogCut
from drainer.kafka.cluster import Cluster
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.loss import LogCheck, cut_logs
from drainer.kafka.settings import ClientSettings
from kafka.reader import Reader
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker
from scenarios.trust.cut_log import cut_log


def produce(topic: Topic, count: int, partition: int = 0) -> None:
    for number in range(count):  # a batch each, for logs are cut between batches
        topic.produce([str(number)], partition=partition)


def check(committer: GroupCommitter, topic_id: str) -> None:
    """Check once the broker, which has just started, answers for all partitions."""

    def checked() -> bool:
        with suppress(CommitDelayed):
            committer.check(topic_id)
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
            return GroupCommitter(cluster, of.name, of.name, cluster.log_ends(of.name, [0, 1]))

        cut, kept = committer(topic), committer(whole)
        logs = cluster.log_bounds(topic.name, [0, 1], settings.isolation)
        ends = {number: (log.end, log.leader_epoch or 0) for number, log in logs.items()}
        cut.check(ids[topic.name])
        assert cut_logs(settings, topic.name, "readers", ends) == {}

        cut_log(own_broker, topic.name, 0, 6)  # the broker restarts
        check(kept, ids[whole.name])  # another epoch, and the same records
        lost = rf"{topic.name}/0 lost records below 10"
        with pytest.raises(LogCut, match=lost):
            check(cut, ids[topic.name])
        with (
            Reader(settings, topic.name, {0: (0, 10), 1: (0, 4)}) as reader,
            pytest.raises(LogCut, match=r"/0 lost records: its log ends at 6, below 10"),
        ):
            reader.read()
        assert len(reader.messages) == 10

        produce(topic, 10)
        with pytest.raises(LogCut, match=lost) as raised:
            cut.check(ids[topic.name])
        assert raised.value.exit_code == 8
        [(number, text)] = cut_logs(settings, topic.name, "readers", ends).items()
        assert (number, "broker end offset is 6" in text) == (0, True)

        committer(topic).check(ids[topic.name])  # what is there now is what it was planned for
        topic.delete_before(8)
        LogCheck(cluster, topic.name, topic.name, {0: (3, 0)}).check()  # retention took it
