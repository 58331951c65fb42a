"""When retention reaches the head of a backlog, by what the topic is configured to and receives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from drainer.insight.statistics.retention_forecast import Doom, Retention, doom
from drainer.kafka.backlog import Backlog, PartitionBacklog
from drainer.kafka.cluster import Cluster, limit
from drainer.kafka.spans import first_messages
from drainer.message import Message

ARRIVALS_S = 300
READER = "drainer-inspect"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What decides how long records stay: the configuration, the heads, and what came lately.

    Attributes:
        retention: what the topic does with old records.
        heads: by partition, the oldest unprocessed message.
        before: by partition, the offset that was the next one ``ARRIVALS_S`` ago; None when no
            record is that young.
        taken_ms: when, milliseconds since 1970.
    """

    retention: Retention
    heads: Mapping[int, Message]
    before: Mapping[int, int | None]
    taken_ms: int

    def arrivals_per_s(self, part: PartitionBacklog) -> float:
        """Offsets added a second, lately."""
        before = self.before[part.partition]
        return 0.0 if before is None else max(0, part.log_end - before) / ARRIVALS_S

    def doom(self, part: PartitionBacklog, bytes_of_offset: float) -> Doom | None:
        """When the head of a partition's backlog may go at the earliest."""
        head = self.heads.get(part.partition)
        if head is None:
            return None
        return doom(
            self.retention,
            now_ms=self.taken_ms,
            timestamp_ms=head.timestamp,
            bytes_behind=(part.log_end - head.offset) * bytes_of_offset,
            bytes_per_s=self.arrivals_per_s(part) * bytes_of_offset,
        )


@dataclass(frozen=True, slots=True)
class Doomed:
    """The head of a backlog that goes first: which message, when, and by which setting."""

    partition: int
    offset: int
    in_s: float
    by: str

    def as_json(self) -> dict[str, object]:
        return {
            "seconds": round(self.in_s, 1),
            "by": self.by,
            "partition": self.partition,
            "offset": self.offset,
        }


def outlook(cluster: Cluster, backlog: Backlog, config: Mapping[str, str]) -> Outlook:
    """Reads the heads, and where the log was some minutes ago."""
    taken_ms = round(time.time() * 1000)
    return Outlook(
        Retention(
            config.get("cleanup.policy", ""),
            limit(config.get("retention.ms")),
            limit(config.get("retention.bytes")),
        ),
        _heads(cluster, backlog),
        cluster.offset_at(
            backlog.topic, dict.fromkeys(backlog.partitions, taken_ms - ARRIVALS_S * 1000)
        ),
        taken_ms,
    )


def first_doomed(
    cluster: Cluster, backlog: Backlog, bytes_of_offset: Mapping[int, float]
) -> Doomed | None:
    """The partition's head that retention may delete first; None when that can't be told."""
    if not backlog.offsets:
        return None
    found = outlook(cluster, backlog, cluster.topic_config(backlog.topic))
    doomed = [
        Doomed(number, found.heads[number].offset, end.in_s, end.by)
        for number, part in backlog.partitions.items()
        if (end := found.doom(part, bytes_of_offset.get(number, 0.0))) is not None
    ]
    return min(doomed, key=lambda each: each.in_s, default=None)


def _heads(cluster: Cluster, backlog: Backlog) -> Mapping[int, Message]:
    ranges = {n: (part.start, part.end) for n, part in backlog.partitions.items()}
    return first_messages(cluster.settings, backlog.topic, backlog.topic_id, READER, ranges)
