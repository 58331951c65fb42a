"""The log of a drain that follows it, on a real broker: what may become the backlog's new end."""

from __future__ import annotations

from contextlib import suppress

import pytest

from builders import a_partition, a_plan, changed
from drainer.errors import BrokerUnreachable, LogCut
from drainer.kafka.cluster import Cluster
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.following import FollowedLog
from drainer.kafka.settings import ClientSettings
from drainer.model.account import PartitionPlan
from drainer.model.plan import OffsetPlan
from kafka.test_commit import check, produce
from kafka.topic import Topic, eventually
from scenarios.brokers import Broker
from scenarios.trust.cut_log import cut_log


def planned(cluster: Cluster, topic: Topic) -> OffsetPlan:
    """A plan of a drain of all that the topic's one partition has now."""
    end, epoch = cluster.log_ends(topic.name, [0])[0]
    return changed(
        a_plan(),
        topic=topic.name,
        topic_id=cluster.topic(topic.name).topic_id,
        group=topic.name,
        partitions={0: a_partition(0, end, leader_epoch=epoch)},
    )


def look(log: FollowedLog) -> dict[int, PartitionPlan]:
    """Look at the log once the broker, which has just started, answers."""
    found: dict[int, PartitionPlan] = {}

    def looked() -> bool:
        with suppress(BrokerUnreachable):
            found.update(log.ends())
        return bool(found)

    eventually(looked, "the partition has a leader")
    return found


@pytest.mark.long
def test_a_log_that_was_cut_and_has_grown_again_is_no_new_end(
    own_broker: Broker, topic_name: str
) -> None:
    """The records that took the place of the lost ones were never read, and never will be."""
    settings = ClientSettings.load(own_broker.bootstrap_servers)
    topic = Topic(own_broker.bootstrap_servers, topic_name, partitions=1)
    produce(topic, 6)
    with Cluster.connect(settings) as cluster:
        early = planned(cluster, topic)
        produce(topic, 4)
        plan = planned(cluster, topic)
        cut, kept = FollowedLog(cluster, plan), FollowedLog(cluster, early)
        committer = GroupCommitter(cluster, topic.name, topic.name)
        assert cut.ends()[0].end == 10

        cut_log(own_broker, topic.name, 0, 6)  # the broker restarts
        check(committer, early.terms.topic_id, early.account.log_ends)  # its end was not cut
        produce(topic, 10)

        with pytest.raises(LogCut, match=rf"{topic.name}/0 lost records below 10"):
            look(cut)
        with pytest.raises(LogCut, match=rf"{topic.name}/0 lost records below 10"):
            check(committer, plan.terms.topic_id, plan.account.log_ends)  # its end has moved
        found = look(kept)[0]
        assert found.end == 16
        committer.check(plan.terms.topic_id, {0: (16, found.leader_epoch)})
