"""A log that loses its end: by an unclean election on three brokers, or by a change of its files on
one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drainer.kafka.cluster import Cluster, TopicInfo
from scenarios.brokers import Broker
from scenarios.chaos.drain import Backlog, Pace, Spread, until
from scenarios.chaos.stage import Stage
from scenarios.trust.cut_log import cut_log

CUT_AT, WRITTEN, LATER = 300, 700, 600  # Offsets and counts of records.
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@dataclass(frozen=True, slots=True)
class CutLog:
    """A backlog of ``WRITTEN`` records. Only the leader has those from ``CUT_AT`` on."""

    stage: Stage
    backlog: Backlog
    leader: Broker
    follower: Broker | None

    @classmethod
    @contextmanager
    def on(cls, stage: Stage, pace: Pace) -> Iterator[CutLog]:
        """Write the log. If there are several brokers, the only follower is down from ``CUT_AT``
        on, until the cut."""
        alone = len(stage.brokers.each) == 1
        spread = Spread(replicas=1 if alone else 2, config=UNCLEAN)
        try:
            with stage.backlog(CUT_AT, pace, spread) as backlog:
                [leader, *followers] = _replicas(stage, backlog)
                log = cls(stage, backlog, leader, next(iter(followers), None))
                if log.follower is not None:
                    log.follower.kill()
                    until(lambda: len(log.look().replicas[0].in_sync) == 1)
                backlog.grow(WRITTEN - CUT_AT)
                try:
                    yield log
                finally:
                    _start(stage)  # Without the broker, its topic can't be deleted.
        finally:
            _start(stage)

    def cut(self) -> int:
        """Cut the log, and return its new end."""
        follower = self.follower
        if follower is None:
            cut_log(self.leader, self.backlog.topic, 0, CUT_AT)
        else:
            self.leader.kill()
            follower.start()
            until(lambda: self.look().leaders[0] == follower.bootstrap_servers)
            self.leader.start()
        with Cluster.connect(self.stage.settings, 60) as cluster:
            return cluster.log_bounds(self.backlog.topic, [0], "read_uncommitted")[0].end

    def look(self) -> TopicInfo:
        with Cluster.connect(self.stage.settings, 60) as cluster:
            return cluster.topic(self.backlog.topic)

    @property
    def committed(self) -> int | None:
        """Return the committed offset of the group."""
        with Cluster.connect(self.stage.settings, 60) as cluster:
            return cluster.committed(self.backlog.group, self.backlog.topic, [0])[0]


def _replicas(stage: Stage, backlog: Backlog) -> list[Broker]:
    """Return the brokers that have the partition, the leader first."""
    with Cluster.connect(stage.settings) as cluster:
        topic = cluster.topic(backlog.topic)
    brokers = [stage.brokers.each[number - 1] for number in topic.replicas[0].all]
    return sorted(brokers, key=lambda each: each.bootstrap_servers != topic.leaders[0])


def _start(stage: Stage) -> None:
    stage.brokers.launch()
    stage.brokers.wait_ready()
