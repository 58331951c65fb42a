"""Which replicas of the test topic are in sync, looked at all the time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from drainer.errors import BrokerUnreachable, Refused
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings

LOOK_S = 0.25
KEEP_S = 600.0
PATIENCE_S = 5.0

InSync = Mapping[int, frozenset[int]]  # the ids of brokers, by partition


class InSyncWatch:
    """Looks at the topic four times a second, in a thread of its own, with a connection of its own.

    ``usual`` is what was seen first, before there was any traffic. ``gone`` is set when the topic
    is there no more, or not for this client.

    Raises:
        BrokerUnreachable, TopicMissing: as ``Cluster``.
    """

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._cluster = Cluster.connect(settings)
        self._topic = topic
        self._looks: deque[tuple[float, InSync]] = deque(maxlen=int(KEEP_S / LOOK_S))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="in-sync", daemon=True)
        replicas = self._cluster.topic(topic).replicas
        self.partitions = len(replicas)
        self.replicated = any(len(one.all) > 1 for one in replicas.values())
        self.usual = self._look()
        self.gone: Refused | None = None

    def start(self) -> None:
        self._thread.start()

    def within(self, begin_s: float, end_s: float) -> list[tuple[float, InSync]]:
        """What was seen in that time of the monotonic clock; nothing without replicas to lose."""
        if not self.replicated:
            return []
        return [look for look in list(self._looks) if begin_s <= look[0] <= end_s]

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)
        self._cluster.close()

    def _look(self) -> InSync:
        found = self._cluster.topic(self._topic).replicas
        return {number: frozenset(one.in_sync) for number, one in found.items()}

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self._looks.append((time.monotonic(), self._look()))
            except BrokerUnreachable:  # nobody could look then
                continue
            except Refused as error:
                self.gone = error
                return
