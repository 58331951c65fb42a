"""The earliest time at which retention may delete the head of a backlog.

The time follows from the topic's configuration and its arrivals, because no client can see where
segments end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drainer.kafka.backlog import Backlog, PartitionBacklog
from drainer.kafka.cluster import Cluster, config_limit
from drainer.kafka.spans import first_messages
from drainer.message import Message

ARRIVALS_S = 300
READER = "drainer-inspect"


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention settings of a topic.

    Attributes:
        policy: ``delete``, ``compact`` or both; empty if the user may not see the configuration.
        ms: Kafka deletes records that are older than this; None for no limit.
        bytes: Kafka keeps this many bytes of a partition; None for no limit.
    """

    policy: str
    ms: int | None
    bytes: int | None

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Retention:
        """Return the retention of a topic with this configuration."""
        return cls(
            config.get("cleanup.policy", ""),
            config_limit(config.get("retention.ms")),
            config_limit(config.get("retention.bytes")),
        )

    @property
    def deletes(self) -> bool:
        """Whether Kafka deletes records by their age or by the size of the log."""
        limited = self.ms is not None or self.bytes is not None
        return "delete" in self.policy and limited

    def deletes_in(
        self, *, age_s: float | None, bytes_behind: float, bytes_per_s: float
    ) -> tuple[float, str] | None:
        """Return seconds until a record may be deleted, and by which setting; None for never.

        The result is a lower bound. Kafka deletes whole segments: by age once the newest record of
        a segment is too old, and by size once the segments after it are large enough. This function
        assumes the worst, that the record is the last one of its segment. Besides, Kafka checks
        only every log.retention.check.interval.ms.

        Args:
            age_s: age of the record; None if it has no timestamp.
            bytes_behind: bytes of the log from this record to its end.
            bytes_per_s: bytes that are added to the log each second.
        """
        if not self.deletes:
            return None
        found: list[tuple[float, str]] = []
        if self.ms is not None and age_s is not None:
            found.append((max(0.0, self.ms / 1000 - age_s), "retention.ms"))
        if self.bytes is not None:
            room = self.bytes - bytes_behind
            if room <= 0:
                found.append((0.0, "retention.bytes"))
            elif bytes_per_s > 0:
                found.append((room / bytes_per_s, "retention.bytes"))
        return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Expiry:
    """The earliest time at which Kafka may delete the head of a partition's backlog.

    Attributes:
        offset: the offset of the head.
        in_s: seconds from now; 0 if Kafka may delete the head at any moment.
        by: the setting because of which Kafka deletes it.
    """

    partition: int
    offset: int
    in_s: float
    by: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """Facts that decide how long records stay: configuration, heads, and recent arrivals.

    Attributes:
        heads: the oldest unprocessed message of each partition.
        before: by partition, the end of the log ``ARRIVALS_S`` ago; None if no record has arrived
            since then.
        taken_ms: the time at which these facts were read, in milliseconds since 1970.
    """

    retention: Retention
    heads: Mapping[int, Message]
    before: Mapping[int, int | None]
    taken_ms: int

    def arrivals_per_s(self, part: PartitionBacklog) -> float:
        """Return the offsets that were added each second, over the last ``ARRIVALS_S``."""
        before = self.before.get(part.partition)
        return 0.0 if before is None else max(0, part.log_end - before) / ARRIVALS_S

    def age_s(self, partition: int) -> float | None:
        """Return the age of a partition's head in seconds; None without a head or a timestamp."""
        head = self.heads.get(partition)
        if head is None or head.timestamp is None:
            return None
        return max(0.0, (self.taken_ms - head.timestamp) / 1000)

    def expiry(self, part: PartitionBacklog, bytes_per_offset: float) -> Expiry | None:
        """Return the earliest deletion of a partition's head; None if none is foreseen."""
        head = self.heads.get(part.partition)
        if head is None:
            return None
        found = self.retention.deletes_in(
            age_s=self.age_s(part.partition),
            bytes_behind=(part.log_end - head.offset) * bytes_per_offset,
            bytes_per_s=self.arrivals_per_s(part) * bytes_per_offset,
        )
        return None if found is None else Expiry(part.partition, head.offset, *found)


def outlook(cluster: Cluster, backlog: Backlog, config: Mapping[str, str]) -> Outlook:
    """Read the heads of a backlog, and the ends of its partitions ``ARRIVALS_S`` ago."""
    taken_ms = round(time.time() * 1000)
    ranges = {n: (part.start, part.end) for n, part in backlog.partitions.items()}
    return Outlook(
        Retention.of(config),
        first_messages(cluster.settings, backlog.topic, backlog.topic_id, READER, ranges),
        cluster.offset_at(backlog.topic, backlog.partitions, taken_ms - ARRIVALS_S * 1000),
        taken_ms,
    )


def first_expiry(
    cluster: Cluster, backlog: Backlog, bytes_per_offset: Mapping[int, float]
) -> Expiry | None:
    """Return the earliest deletion of a backlog's head by retention; None if none is foreseen."""
    if not backlog.offsets:
        return None
    found = outlook(cluster, backlog, cluster.topic_config(backlog.topic))
    return earliest_expiry(
        found.expiry(part, bytes_per_offset.get(number, 0.0))
        for number, part in backlog.partitions.items()
    )


def earliest_expiry(expiries: Iterable[Expiry | None]) -> Expiry | None:
    """Return the expiry that comes first; None if there is none."""
    return min(filter(None, expiries), key=lambda each: each.in_s, default=None)
