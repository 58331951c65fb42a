"""The test topic of ``drainer limits``: made, found again, and removed by name.

Nothing is removed whose name is not exactly what ``new_topic_name`` makes.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

from drainer.errors import Refused, RightMissing
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, Right, may_not
from drainer.kafka.cluster import LATEST, Cluster, Replicas
from drainer.model.listed import listed

PREFIX = "drainer.limits."
REPLICAS_MOST = 3
WATCH_S = 2.5
RETENTION_MS = 15 * 60 * 1000
PARTITION_BYTES = 512 * 1024 * 1024  # brokers look every 5 minutes whether it is more
SEGMENT_BYTES = 64 * 1024 * 1024
MESSAGE_BYTES_LEAST = 1024 * 1024
BATCH_BYTES = 64 * 1024  # that a batch has beside the payload of a large message, and more

_TOPIC = re.compile(r"drainer\.limits\.\d{8}-\d{6}-[0-9a-f]{6}")
_NO_ANSWER = NO_TOPIC | FORBIDDEN | {KafkaError.LEADER_NOT_AVAILABLE}
_IDLE = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


def new_topic_name(at: datetime | None = None) -> str:
    """A name that no other run has."""
    at = at or datetime.now(UTC)
    return f"{PREFIX}{at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def brokers_of(cluster: Cluster) -> tuple[int, ...]:
    """The ids of the brokers that are up."""
    return tuple(sorted(_metadata(cluster).brokers))


def ensure_removable(cluster: Cluster) -> None:
    """Ensure that this user may remove test topics, as far as brokers report it beforehand.

    They do to a user who has no right at all to a topic. Raises as ``delete_test_topics``.
    """
    delete_test_topics(cluster, (new_topic_name(),))


def create_test_topic(
    cluster: Cluster, name: str, partitions: int, message_bytes_most: int
) -> None:
    """Creates the topic, which brokers spread evenly, and waits until they know it.

    Raises Refused when this user may not create it, or Kafka rejects it.
    """
    _ensure_test_topics([name])
    replicas = min(REPLICAS_MOST, len(brokers_of(cluster)))
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": str(PARTITION_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
        "file.delete.delay.ms": "1000",
        "max.message.bytes": str(max(MESSAGE_BYTES_LEAST, message_bytes_most) + BATCH_BYTES),
        "min.insync.replicas": str(max(1, replicas - 1)),
    }
    with _needing("CREATE"):
        # No other process has this name.
        cluster.create_topic(name, partitions, config, replicas=replicas, kind="test ")
    until_s = time.monotonic() + cluster.timeout_s
    while (
        len(cluster.topic(name, "DESCRIBE").partitions) < partitions and time.monotonic() < until_s
    ):
        time.sleep(0.05)


def ensure_usable(cluster: Cluster, name: str) -> None:
    """Ensure that this user may remove the topic, which is there, and use it.

    Raises RightMissing.
    """
    needed: tuple[Right, ...] = ("DELETE", "WRITE", "READ")
    for right in needed:
        with _needing(right):
            cluster.topic(name, right)


def replicas_of(cluster: Cluster, topics: Sequence[str]) -> dict[tuple[str, int], Replicas]:
    """Replicas of each partition of some topics. Raises Refused when one is not there."""

    def attempt(left: float) -> dict[tuple[str, int], Replicas]:
        futures = cluster.admin.describe_topics(TopicCollection(list(topics)), request_timeout=left)
        return {
            (topic, p.id): Replicas(tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
            for topic, one in futures.items()
            for p in cluster.wait(one, left).partitions
        }

    return cluster.request(f"look at {listed(topics)}", attempt)


def old_partitions(cluster: Cluster, topic: str) -> tuple[int, ...]:
    """The partitions of a topic that have messages.

    Raises Refused when this user may not read it, it is not there, or none has.
    """
    numbers = cluster.topic(topic).partitions
    bounds = cluster.log_bounds(topic, numbers, "read_uncommitted")
    found = tuple(number for number in numbers if bounds[number].start < bounds[number].end)
    if not found:
        raise Refused(f"topic {topic} has no old messages", hint="Name the topic of the backlog.")
    return found


def find_test_topics(cluster: Cluster) -> tuple[str, ...]:
    """Test topics that runs have left behind, or are using now."""
    return tuple(sorted(name for name in _topics(cluster) if _TOPIC.fullmatch(name)))


def delete_test_topics(cluster: Cluster, names: Collection[str]) -> None:
    """Remove test topics; a missing one is not an error.

    Raises:
        ValueError: when a name is not one of ours; nothing is removed then.
        Refused: when this user may not.
    """
    _ensure_test_topics(names)
    with _needing("DELETE"):
        for name in names:
            cluster.delete_topic(name)


def live_traffic(cluster: Cluster, watch_s: float = WATCH_S) -> tuple[str, ...]:
    """Describe how others use the cluster, in sentences.

    They name topics that are written to, groups with members, and groups that may have members,
    because the client can't describe them. The ends of all logs are read twice, ``watch_s`` apart.
    Another run of ``drainer limits`` is live traffic, too. Kafka's own topics (``__…``) are left
    out, because whoever writes to them is noticed anyway.
    """
    partitions = {n: count for n, count in _topics(cluster).items() if not n.startswith("__")}
    moving = _moving(cluster, partitions, watch_s)
    topics = [f"{name} receives {per_s:,.1f} messages/s" for name, per_s in moving.items()]
    return (*topics, *_active_groups(cluster))


def moving_topics(
    cluster: Cluster, names: Collection[str], watch_s: float = WATCH_S
) -> dict[str, float]:
    """Messages/s of those topics that are written to."""
    partitions = {name: count for name, count in _topics(cluster).items() if name in names}
    return _moving(cluster, partitions, watch_s)


def _moving(cluster: Cluster, partitions: Mapping[str, int], watch_s: float) -> dict[str, float]:
    before, begun_s = _ends(cluster, partitions), time.monotonic()
    time.sleep(watch_s)
    after, took_s = _ends(cluster, partitions), time.monotonic() - begun_s
    written: dict[str, int] = {}
    for (name, number), end in after.items():
        grown = end - before.get((name, number), end)
        if grown > 0:
            written[name] = written.get(name, 0) + grown
    return {name: count / took_s for name, count in sorted(written.items())}


def _metadata(cluster: Cluster) -> Any:
    return cluster.request("list the topics", lambda left: cluster.admin.list_topics(timeout=left))


def _topics(cluster: Cluster) -> dict[str, int]:
    return {name: len(found.partitions) for name, found in _metadata(cluster).topics.items()}


def _active_groups(cluster: Cluster) -> list[str]:
    def attempt(left: float) -> list[str]:
        names = {str(each.id) for each in cluster.admin.list_groups(timeout=left)}  # of all kinds
        future = cluster.admin.list_consumer_groups(request_timeout=left)
        states = {each.group_id: each.state for each in cluster.wait(future, left).valid}
        members = sorted(name for name, state in states.items() if state not in _IDLE)
        others = [f"group {name} is a streams or share group" for name in sorted(names - {*states})]
        return [*(f"group {name} has members" for name in members), *others]

    return cluster.request("list the groups", attempt)


def _ends(cluster: Cluster, partitions: Mapping[str, int]) -> dict[tuple[str, int], int]:
    places = [TopicPartition(name, n) for name, count in partitions.items() for n in range(count)]

    def attempt(left: float) -> dict[tuple[str, int], int]:
        futures = cluster.admin.list_offsets(dict.fromkeys(places, LATEST), request_timeout=left)
        found = {}
        for place, one in futures.items():
            try:
                if (end := cluster.wait(one, left).offset) >= 0:  # else its leader is away
                    found[place.topic, place.partition] = end
            except KafkaException as error:
                # Without a leader nothing is written to it; and it may be deleted meanwhile.
                if error.args[0].code() not in _NO_ANSWER:
                    raise
        return found

    return cluster.request("read the ends of all logs", attempt) if places else {}


@contextmanager
def _needing(right: Right) -> Iterator[None]:
    """Names all of ours where one is refused: the next run's have other names."""
    try:
        yield
    except RightMissing as error:
        what = f"{right.lower()} topics of drainer limits"
        raise may_not(what, right, f"topics that begin with {PREFIX}") from error.__cause__


def _ensure_test_topics(names: Collection[str]) -> None:
    if strangers := [name for name in names if not _TOPIC.fullmatch(name)]:
        raise ValueError(f"not of drainer limits: {', '.join(strangers)}")
