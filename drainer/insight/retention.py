"""The earliest time at which retention may delete the head of a backlog.

It follows from the topic's configuration and arrivals: no client can see where segments end.
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
    """Retention settings of a topic."""

    # ``delete``, ``compact`` or both; empty when the user may not see the configuration.
    policy: str
    ms: int | None  # records older than this are deleted; None for never
    bytes: int | None  # a partition keeps this much; None for all

    @property
    def deletes(self) -> bool:
        """Whether records go by age or size."""
        limited = self.ms is not None or self.bytes is not None
        return "delete" in self.policy and limited

    def deletes_in(
        self, *, age_s: float | None, bytes_behind: float, bytes_per_s: float
    ) -> tuple[float, str] | None:
        """Seconds until a record may be deleted, and the setting that does it; None for never.

        It is a lower bound. Kafka deletes whole segments: by age once the newest record of the
        segment is too old, by size once what follows the segment is enough. Both come later than
        what is assumed here, that the record is the last one of its segment. And it looks every
        log.retention.check.interval.ms only.

        Args:
            age_s: of the record; None when it has no timestamp.
            bytes_behind: what the log holds from the record on.
            bytes_per_s: what is added to the log.
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
    """When retention may delete the head of a partition's backlog: which message, and why."""

    partition: int
    offset: int
    in_s: float  # seconds from now, 0 when it may happen at any moment
    by: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """Facts that decide how long records stay: configuration, heads, and recent arrivals."""

    retention: Retention
    heads: Mapping[int, Message]  # by partition, the oldest unprocessed message
    # By partition, the offset that was the next one ``ARRIVALS_S`` ago; None when no record is that
    # young.
    before: Mapping[int, int | None]
    taken_ms: int  # when, milliseconds since 1970

    def arrivals_per_s(self, part: PartitionBacklog) -> float:
        """Offsets added a second, lately."""
        before = self.before.get(part.partition)
        return 0.0 if before is None else max(0, part.log_end - before) / ARRIVALS_S

    def age_s(self, partition: int) -> float | None:
        """Age of the head of a partition's backlog; None without a head, or a timestamp."""
        head = self.heads.get(partition)
        if head is None or head.timestamp is None:
            return None
        return max(0.0, (self.taken_ms - head.timestamp) / 1000)

    def expiry(self, part: PartitionBacklog, bytes_of_offset: float) -> Expiry | None:
        """When the head of a partition's backlog may go at the earliest."""
        head = self.heads.get(part.partition)
        if head is None:
            return None
        found = self.retention.deletes_in(
            age_s=self.age_s(part.partition),
            bytes_behind=(part.log_end - head.offset) * bytes_of_offset,
            bytes_per_s=self.arrivals_per_s(part) * bytes_of_offset,
        )
        return None if found is None else Expiry(part.partition, head.offset, *found)


def outlook(cluster: Cluster, backlog: Backlog, config: Mapping[str, str]) -> Outlook:
    """Reads the heads, and where the log was some minutes ago."""
    taken_ms = round(time.time() * 1000)
    ranges = {n: (part.start, part.end) for n, part in backlog.partitions.items()}
    return Outlook(
        Retention(
            config.get("cleanup.policy", ""),
            config_limit(config.get("retention.ms")),
            config_limit(config.get("retention.bytes")),
        ),
        first_messages(cluster.settings, backlog.topic, backlog.topic_id, READER, ranges),
        cluster.offset_at(backlog.topic, backlog.partitions, taken_ms - ARRIVALS_S * 1000),
        taken_ms,
    )


def first_expiry(
    cluster: Cluster, backlog: Backlog, bytes_of_offset: Mapping[int, float]
) -> Expiry | None:
    """The partition's head that retention may delete first; None when that is not known."""
    if not backlog.offsets:
        return None
    found = outlook(cluster, backlog, cluster.topic_config(backlog.topic))
    return earliest_expiry(
        found.expiry(part, bytes_of_offset.get(number, 0.0))
        for number, part in backlog.partitions.items()
    )


def earliest_expiry(expiries: Iterable[Expiry | None]) -> Expiry | None:
    """The expiry that comes first; None without any."""
    return min(filter(None, expiries), key=lambda each: each.in_s, default=None)
