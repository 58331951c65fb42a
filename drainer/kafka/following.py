"""The topic of a drain that follows it: which partitions there are now, and where they end."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from drainer.errors import BrokerUnreachable, OffsetMoved, TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.fetch import MovingEnds
from drainer.kafka.loss import LogCheck, raised_as_running, recreated
from drainer.model.account import PartitionPlan
from drainer.model.plan import OffsetPlan


class FollowedLog:
    """Looks up the ends of the partitions of a plan, and tells them to the fetch thread.

    Partitions that are added to the topic join the drain, unless its partitions were chosen.
    """

    def __init__(self, cluster: Cluster, plan: OffsetPlan) -> None:
        self.moving = MovingEnds()
        self._cluster, self._terms = cluster, plan.terms
        self._known = dict(plan.account.partitions)
        self._log_check = LogCheck(cluster, plan.terms.topic, plan.terms.group)
        self._takes_added = plan.takes_added

    def ends(self) -> Mapping[int, PartitionPlan]:
        with raised_as_running(self._terms.topic):
            topic = self._cluster.topic(self._terms.topic)
            if topic.topic_id != self._terms.topic_id:
                raise recreated(topic.name)
            try:
                added = set(topic.partitions) - self._known.keys()
                self._look(added if self._takes_added else set())
            except TopicMissing as error:
                # The topic exists. So it was just deleted, as the next look will show, or a broker
                # does not know yet that partitions were added.
                raise BrokerUnreachable(str(error), hint=error.hint) from error
        return dict(self._known)

    def _look(self, added: Set[int]) -> None:
        cluster, terms = self._cluster, self._terms
        known = {**self._known, **(self._joined(added) if added else {})}
        logs = cluster.log_bounds(terms.topic, known, terms.isolation)
        # After an election, a log may have been cut below the end that is known, and have grown
        # again. That is checked before its new end and epoch replace those that show it.
        if elected := {
            n: (part.end, part.leader_epoch)
            for n, part in known.items()
            if part.leader_epoch != logs[n].leader_epoch
        }:
            self._log_check.check(elected)
        for n, part in known.items():
            end = max(part.start, part.end, logs[n].end)
            self._known[n] = replace(part, end=end, leader_epoch=logs[n].leader_epoch)

    def _joined(self, numbers: Set[int]) -> dict[int, PartitionPlan]:
        """Return the plans of partitions that were added to the topic.

        They begin at the group's committed offset, or else where the log begins. All records of an
        added partition were written after the drain was planned, so those that were deleted before
        are lost to it. Raises OffsetMoved if the committed offset is not in the log.
        """
        topic, group = self._terms.topic, self._terms.group
        logs = self._cluster.log_bounds(topic, numbers, "read_uncommitted")
        committed = dict[int, int | None].fromkeys(numbers)
        if self._terms.commits:
            committed = self._cluster.committed(group, topic, numbers)
        found = {}
        for number, log in logs.items():
            prior = committed[number]
            if prior is not None and not log.start <= prior <= log.end:
                raise OffsetMoved(
                    f"group {group} is at {prior} on {topic}/{number}, which was added to the topic"
                    f" and has offsets {log.start} to {log.end}: something else commits for this"
                    " group",
                    hint="Find and stop the other writer, and reset that offset. Then resume.",
                )
            begin = max(log.start, prior or 0)
            lost = ((0, begin),) if begin and prior is None else ()
            found[number] = PartitionPlan(begin, begin, prior, prior, log.leader_epoch, lost)
        return found

    def read_to(self, partitions: Mapping[int, PartitionPlan]) -> None:
        self.moving.move({n: (part.start, part.end) for n, part in partitions.items()})

    def finish(self) -> None:
        self.moving.finish()
