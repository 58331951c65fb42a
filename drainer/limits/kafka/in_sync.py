"""Which replicas of the test topic are in sync, looked at all the time."""

from __future__ import annotations

from collections.abc import Mapping

from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.watch import Watch

InSync = Mapping[int, frozenset[int]]  # the ids of brokers, by partition


class InSyncWatch(Watch[InSync]):
    """Looks with a connection of its own.

    ``usual`` is what was seen first, before there was any traffic. ``failure`` is set when the
    topic is there no more, or not for this client.

    Raises:
        BrokerUnreachable, TopicMissing: as ``Cluster``.
    """

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._cluster = Cluster.connect(settings)
        self._topic = topic
        super().__init__("in-sync", self._in_sync)
        replicas = self._cluster.topic(topic).replicas
        self.partitions = len(replicas)
        self._replicated = any(len(one.all) > 1 for one in replicas.values())
        self.usual = self._in_sync()

    def within(self, begin_s: float, end_s: float) -> list[tuple[float, InSync]]:
        """What was seen in that time; nothing without replicas to lose."""
        return super().within(begin_s, end_s) if self._replicated else []

    def close(self) -> None:
        super().close()
        self._cluster.close()

    def _in_sync(self) -> InSync:
        found = self._cluster.topic(self._topic).replicas
        return {number: frozenset(one.in_sync) for number, one in found.items()}
