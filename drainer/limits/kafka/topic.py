"""The test topics of ``drainer limits``, and the detection of other traffic on the cluster.

A topic is removed only if its name has exactly the form of ``new_topic_name``.
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

from drainer.errors import RightMissing
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, Right, may_not
from drainer.kafka.cluster import LATEST, Cluster, Replicas
from drainer.model.listed import listed

PREFIX = "drainer.limits."
REPLICAS_MOST = 3
WATCH_S = 2.5  # A topic whose end does not move within this time has no traffic.
RETENTION_MS = 15 * 60 * 1000
# A partition may grow larger than this, because brokers check its size only every 5 minutes.
PARTITION_BYTES = 512 * 1024 * 1024
SEGMENT_BYTES = 64 * 1024 * 1024
MESSAGE_BYTES_LEAST = 1024 * 1024
# A batch with one large message may be larger than its payload by this much.
BATCH_BYTES = 64 * 1024

_TOPIC = re.compile(r"drainer\.limits\.\d{8}-\d{6}-[0-9a-f]{6}")
_NO_ANSWER = NO_TOPIC | FORBIDDEN | {KafkaError.LEADER_NOT_AVAILABLE}
_IDLE = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


def new_topic_name(at: datetime | None = None) -> str:
    """Return the name of a new test topic, which no other run has."""
    at = at or datetime.now(UTC)
    return f"{PREFIX}{at:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def brokers_of(cluster: Cluster) -> tuple[int, ...]:
    """Return the ids of the brokers that are up."""
    return tuple(sorted(_metadata(cluster).brokers))


def ensure_removable(cluster: Cluster) -> None:
    """Ensure that this user may remove test topics, as far as that can be known beforehand.

    This deletes a topic that does not exist. Brokers then report a missing right only to a user who
    has no right on such a topic at all. Raises the same errors as ``delete_test_topics``.
    """
    delete_test_topics(cluster, (new_topic_name(),))


def create_test_topic(
    cluster: Cluster, name: str, partitions: int, message_bytes_most: int
) -> None:
    """Create a test topic, and wait until brokers know it. Kafka spreads its leaders evenly.

    Raises Refused when this user may not create it, or when Kafka rejects it.
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
        cluster.create_topic(name, partitions, config, replicas=replicas, kind="test ")
    cluster.await_topic(name, partitions)


def ensure_usable(cluster: Cluster, name: str) -> None:
    """Ensure that this user may write to, read and remove an existing topic.

    Raises RightMissing.
    """
    needed: tuple[Right, ...] = ("DELETE", "WRITE", "READ")
    for right in needed:
        with _needing(right):
            cluster.topic(name, right)


def replicas_of(cluster: Cluster, topics: Sequence[str]) -> dict[tuple[str, int], Replicas]:
    """Look up the replicas of each partition of these topics.

    Raises Refused when one of them does not exist.
    """

    def attempt(left: float) -> dict[tuple[str, int], Replicas]:
        futures = cluster.admin.describe_topics(TopicCollection(list(topics)), request_timeout=left)
        return {
            (topic, p.id): Replicas(tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
            for topic, one in futures.items()
            for p in cluster.wait(one, left).partitions
        }

    return cluster.request(f"look at {listed(topics)}", attempt)


def find_test_topics(cluster: Cluster) -> dict[str, int]:
    """Return the numbers of partitions of all test topics by name.

    Killed runs have left some of them behind, and running ones use the others.
    """
    return {name: count for name, count in _topics(cluster).items() if _TOPIC.fullmatch(name)}


def find_left_behind(cluster: Cluster, watch_s: float = WATCH_S) -> tuple[str, ...]:
    """List the test topics that nothing writes to. If there are test topics, it takes ``watch_s``.

    A topic counts as unused only if brokers report the end of each partition twice, and it has not
    moved. If no end is reported, a run may be using the topic, and have made brokers too busy to
    answer.
    """
    partitions = find_test_topics(cluster)
    if not partitions:
        return ()
    before = _ends(cluster, partitions)
    time.sleep(watch_s)
    after = _ends(cluster, partitions)
    in_use = {
        name
        for name, count in partitions.items()
        for n in range(count)
        if before.get((name, n)) is None or before[name, n] != after.get((name, n))
    }
    return tuple(sorted(partitions.keys() - in_use))


def delete_left_behind(cluster: Cluster, names: Collection[str]) -> tuple[str, ...]:
    """Remove those of these test topics that nothing writes to now, and return their names.

    They are watched again, because a run may have begun while the user was asked.
    """
    still = tuple(name for name in find_left_behind(cluster) if name in names) if names else ()
    delete_test_topics(cluster, still)
    return still


def delete_test_topics(cluster: Cluster, names: Collection[str]) -> None:
    """Remove test topics. A topic that does not exist is not an error.

    Raises:
        ValueError: when a name is not that of a test topic. Nothing is removed then.
        Refused: when this user may not remove the topics.
    """
    _ensure_test_topics(names)
    with _needing("DELETE"):
        for name in names:
            cluster.delete_topic(name)


def live_traffic(cluster: Cluster, watch_s: float = WATCH_S) -> tuple[str, ...]:
    """Describe in sentences how others use the cluster.

    The sentences name topics that are written to, groups with members, and groups of other kinds,
    whose members are unknown. To find the topics, the ends of all logs are read twice, ``watch_s``
    apart. Another run of ``drainer limits`` is live traffic, too. Kafka's own topics (``__…``) are
    left out, because clients that cause writes to them are found by their groups or other topics.
    """
    partitions = {n: count for n, count in _topics(cluster).items() if not n.startswith("__")}
    moving = _moving(cluster, partitions, watch_s)
    topics = [f"{name} receives {per_s:,.1f} messages/s" for name, per_s in moving.items()]
    return (*topics, *_active_groups(cluster))


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
        # list_groups returns groups of all kinds, but list_consumer_groups only some, with states.
        names = {str(each.id) for each in cluster.admin.list_groups(timeout=left)}
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
                if (end := cluster.wait(one, left).offset) >= 0:  # It is negative without a leader.
                    found[place.topic, place.partition] = end
            except KafkaException as error:
                # Nothing is written to a partition without a leader, or to one that was deleted
                # meanwhile.
                if error.args[0].code() not in _NO_ANSWER:
                    raise
        return found

    return cluster.request("read the ends of all logs", attempt) if places else {}


@contextmanager
def _needing(right: Right) -> Iterator[None]:
    """Name all test topics in an error about a missing right, because each run makes new names."""
    try:
        yield
    except RightMissing as error:
        what = f"{right.lower()} topics of drainer limits"
        raise may_not(what, right, f"topics that begin with {PREFIX}") from error.__cause__


def _ensure_test_topics(names: Collection[str]) -> None:
    if strangers := [name for name in names if not _TOPIC.fullmatch(name)]:
        raise ValueError(f"not of drainer limits: {', '.join(strangers)}")
