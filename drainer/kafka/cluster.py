"""The cluster: requests about its topics and the bounds of their logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

# The module has no ``__all__``, so mypy takes what it imports for private.
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from drainer.errors import RightMissing, TopicMissing
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, Right, ensure_right, may_not
from drainer.kafka.group import HINT_TIMEOUT_S, NEAR_NAMES, Groups
from drainer.kafka.log import url_safe
from drainer.model.listed import listed

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
KNOWN_EVERY_S = 0.05  # While brokers do not know a new topic yet, they are asked this often.
MISSING_CONFIRM_S = 0.3  # A topic that seems to be missing is looked up again after this time.
NO_RECORD = -1  # Brokers return this offset if no record has the given time or a later one.


@dataclass(frozen=True, slots=True)
class Replicas:
    """The ids of the brokers that have a replica of a partition."""

    all: tuple[int, ...]
    in_sync: tuple[int, ...]  # The brokers that keep up with the leader.


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The description of a topic at some moment."""

    name: str
    # The id as Kafka's own tools print it. A topic that was deleted and created again has another.
    topic_id: str
    partitions: tuple[int, ...]
    leaders: Mapping[int, str]  # ``host:port`` by partition; empty without a leader.
    replicas: Mapping[int, Replicas] = field(default_factory=dict)

    def chosen(self, wanted: Iterable[int] | None) -> tuple[int, ...]:
        """Return the wanted partitions in ascending order; all partitions if None are given.

        Raises TopicMissing if one of them does not exist.
        """
        numbers = self.partitions if wanted is None else tuple(sorted(set(wanted)))
        if missing := [number for number in numbers if number not in self.partitions]:
            raise TopicMissing(
                f"{listed([f'{self.name}/{number}' for number in missing])} does not exist",
                hint=f"Choose partitions from {self.partitions[0]} to {self.partitions[-1]}.",
            )
        return numbers


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of a partition's log at some moment."""

    start: int  # The first offset that retention left.
    end: int  # The offset after the last record that the isolation level shows.
    high_watermark: int  # The offset after the last record of all.
    # The leader epoch of the last record before ``end``; None if it is not known.
    leader_epoch: int | None


class Cluster(Groups):
    """One connection to the cluster, for topics, groups, offsets and commits.

    A method repeats its request while a coordinator loads or when a connection breaks. It waits up
    to ``timeout_s`` for an answer, and longer if the cluster was reached before and is only slow.
    It raises BrokerUnreachable when no answer came, and Refused when this user does not have the
    right or the answer is unexpected.
    """

    def topic(self, name: str, right: Right = "READ") -> TopicInfo:
        """Describe a topic, and ensure that this user has a right on it.

        Raises:
            RightMissing: when this user does not have the right. If this user may not even see the
                topic, it may not exist.
            TopicMissing: when there is no topic of this name. The hint has similar names.
        """
        found = self.topics([name], right)[name]
        if isinstance(found, RightMissing):
            raise found
        if found is None:
            near = get_close_matches(name, self.topic_names(), n=NEAR_NAMES)
            raise TopicMissing(
                f"topic {name} does not exist at {self.settings.bootstrap_servers}",
                hint=f"Did you mean {' or '.join(near)}?"
                if near
                else "Check its name and the cluster.",
            )
        return found

    def topics(
        self, names: Iterable[str], right: Right = "READ"
    ) -> dict[str, TopicInfo | RightMissing | None]:
        """Describe topics in one request, as ``topic`` does.

        The value is None for a topic that does not exist, and an error for a topic on which this
        user does not have the right.
        """
        verb = "look at" if right == "DESCRIBE" else right.lower()
        found: dict[str, TopicInfo | RightMissing | None] = {}

        def attempt(left: float) -> None:
            wanted = TopicCollection([name for name in names if found.get(name) is None])
            answers = self.admin.describe_topics(
                wanted, request_timeout=left, include_authorized_operations=True
            )
            for name, answer in answers.items():
                what, needs = f"{verb} topic {name}", (right, f"topic {name}")
                try:
                    found[name] = _topic_info(name, self.wait(answer, left), what, needs)
                except RightMissing as error:
                    found[name] = error
                except KafkaException as error:
                    if error.args[0].code() in FORBIDDEN:
                        found[name] = may_not(what, *needs)
                    elif error.args[0].code() in NO_TOPIC | {KafkaError.TOPIC_EXCEPTION}:
                        found[name] = None
                    else:
                        raise

        names = tuple(names)
        what = f"{verb} topic {listed(names)}"
        self.request(what, attempt)
        if None in found.values():  # A broker that has just started may not know the topic yet.
            time.sleep(MISSING_CONFIRM_S)
            self.request(what, attempt)
        return found

    def topic_config(self, name: str) -> dict[str, str]:
        """Return the topic's configuration, with the brokers' defaults.

        It is empty when this user may not see it.
        """
        return self.topic_configs([name])[name]

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configurations of topics in one request, as ``topic_config`` does."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]

        def attempt(left: float) -> dict[str, dict[str, str]]:
            found = {}
            answers = self.admin.describe_configs(resources, request_timeout=left)
            for resource, answer in answers.items():
                try:
                    entries = self.wait(answer, left).values()
                except KafkaException as error:
                    if error.args[0].code() not in FORBIDDEN | NO_TOPIC:
                        raise
                    entries = ()  # This user does not have the right DESCRIBE_CONFIGS.
                found[resource.name] = {e.name: e.value for e in entries if e.value is not None}
            return found

        what = f"see the configuration of {listed([each.name for each in resources])}"
        return self.request(what, attempt) if resources else {}

    def topic_names(self) -> list[str]:
        """List the topics that this user sees, for a hint. It is empty if no answer comes soon."""
        try:
            return list(map(str, self.admin.list_topics(timeout=HINT_TIMEOUT_S).topics))
        except KafkaException:
            return []

    def log_bounds(
        self, topic: str, partitions: Iterable[int], isolation: str
    ) -> dict[int, LogBounds]:
        """Look up the bounds of the partitions' logs, as this isolation level shows them."""
        numbers = tuple(partitions)
        starts = self.log_starts(topic, numbers)
        # The ends are read last. So if an end is below its high watermark, the reason is an open
        # transaction, and not a record that was written between the two requests.
        marks = self.log_ends(topic, numbers)
        ends = self._offsets(topic, dict.fromkeys(numbers, LATEST), isolation)
        return {
            n: LogBounds(starts[n], ends[n][0], max(marks[n][0], ends[n][0]), ends[n][1])
            for n in numbers
        }

    def log_starts(
        self, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int]:
        """Look up the first offset that retention left, by partition."""
        earliest = dict.fromkeys(partitions, EARLIEST)
        found = self._offsets(topic, earliest, "read_uncommitted", timeout_s)
        return {number: offset for number, (offset, _) in found.items()}

    def log_ends(
        self, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, tuple[int, int | None]]:
        """Look up the offset after the last record, and that record's leader epoch, by partition.

        The epoch is None if it is not known.
        """
        latest = dict.fromkeys(partitions, LATEST)
        return self._offsets(topic, latest, "read_uncommitted", timeout_s)

    def offset_at(
        self, topic: str, partitions: Iterable[int], time_ms: int
    ) -> dict[int, int | None]:
        """Look up the offset of the first record that has a time or a later one, by partition.

        The offset is None for a partition that has no such record. On a compacted topic, brokers
        may wrongly report that there is none (``may_misplace_times``).
        """
        specs = dict.fromkeys(partitions, OffsetSpec.for_timestamp(time_ms))
        found = self._offsets(topic, specs, "read_uncommitted", least=NO_RECORD)
        return {n: None if offset == NO_RECORD else offset for n, (offset, _) in found.items()}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replicas: int = -1,
        kind: str = "",
        only_check: bool = False,
    ) -> None:
        """Create a topic, or only check that it could be created. An existing topic is not changed.

        By default, the broker decides the number of ``replicas``. Errors name the topic by its
        ``kind``, such as "dead-letter ".
        """
        new = NewTopic(name, partitions, replicas, config=dict(config or {}))

        def attempt(left: float) -> object:
            answers = self.admin.create_topics(
                [new], request_timeout=left, validate_only=only_check
            )
            return self.wait(answers[name], left)

        there = {KafkaError.TOPIC_ALREADY_EXISTS}
        what = f"create the {kind}topic {name}"
        self.find(what, attempt, there, needs=("CREATE", f"topic {name}"))

    def await_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until the brokers know a topic that was just created, for up to ``timeout_s``."""
        until_s = time.monotonic() + self.timeout_s
        while time.monotonic() < until_s:
            with suppress(TopicMissing):
                if len(self.topic(name, "DESCRIBE").partitions) >= partitions:
                    return
            time.sleep(KNOWN_EVERY_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. If it does not exist, nothing happens."""

        def attempt(left: float) -> object:
            return self.wait(self.admin.delete_topics([name], request_timeout=left)[name], left)

        self.find(f"delete topic {name}", attempt, NO_TOPIC, needs=("DELETE", f"topic {name}"))

    def _offsets(
        self,
        topic: str,
        specs: Mapping[int, OffsetSpec],
        isolation: str,
        timeout_s: float | None = None,
        least: int = 0,
    ) -> dict[int, tuple[int, int | None]]:
        """Look up the offset and the leader epoch of each partition.

        An offset below ``least`` means that no leader has answered, and the request is repeated.
        """

        def attempt(left: float) -> dict[int, tuple[int, int | None]]:
            answers = self.admin.list_offsets(
                {TopicPartition(topic, number): spec for number, spec in specs.items()},
                isolation_level=IsolationLevel[isolation.upper()],
                request_timeout=left,
            )
            found = {place.partition: self.wait(one, left) for place, one in answers.items()}
            # If a leader is away, librdkafka (2.16) sometimes returns -1001 instead of an error.
            if away := [n for n in specs if n not in found or found[n].offset < least]:
                text = f"no leader answers for {listed([f'{topic}/{n}' for n in sorted(away)])}"
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, text))
            return {n: (one.offset, one.leader_epoch) for n, one in found.items()}

        if not specs:
            return {}
        what, needs = f"read the offsets of topic {topic}", f"topic {topic}"
        found = self.find(what, attempt, NO_TOPIC, timeout_s, needs=("DESCRIBE", needs))
        if found is None:
            raise TopicMissing(f"topic {topic} or a partition of it does not exist")
        return found


def _topic_info(name: str, found: Any, what: str, needs: tuple[Right, str]) -> TopicInfo:
    ensure_right([one.name for one in found.authorized_operations or ()], what, *needs)
    leaders, replicas = {}, {}
    for p in sorted(found.partitions, key=lambda p: p.id):
        led = p.leader and p.leader.port > 0
        leaders[p.id] = f"{p.leader.host}:{p.leader.port}" if led else ""
        replicas[p.id] = Replicas(tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
    return TopicInfo(name, url_safe(str(found.topic_id)), tuple(leaders), leaders, replicas)


def written_topic(cluster: Cluster, name: str) -> TopicInfo:
    """Describe a topic that a handler writes to. Raises TopicMissing, and RightMissing."""
    try:
        return cluster.topic(name, "WRITE")
    except TopicMissing as error:
        raise TopicMissing(
            f"the topic {name} to write to does not exist at {cluster.settings.bootstrap_servers}",
            hint="Create it first, with the partitions and retention that it needs.",
        ) from error


def config_limit(value: str | None) -> int | None:
    """Return a limit in a topic's configuration; None if it is not known, or -1 for no limit."""
    return None if value is None or int(value) < 0 else int(value)
