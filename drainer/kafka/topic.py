"""A topic and the logs of its partitions, as they were when the cluster was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Replicas:
    """Who has a partition: the ids of brokers, and of those that keep up with the leader."""

    all: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is now.

    Attributes:
        name: its name.
        topic_id: its id, as Kafka's own tools print it; another one after delete and create.
        partitions: their numbers, rising.
        leaders: ``host:port`` by partition.
        replicas: by partition.
    """

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    leaders: Mapping[int, str]
    replicas: Mapping[int, Replicas] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What a partition's log holds now.

    Attributes:
        start: the first offset that retention left.
        end: the offset behind the last record that this isolation level shows.
        high_watermark: the offset behind the last record of all.
        leader_epoch: the epoch of the record before the end; None when the broker does not say.
    """

    start: int
    end: int
    high_watermark: int
    leader_epoch: int | None
