"""The cluster as a drain asks it: topics, groups, committed offsets and the bounds of logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports without saying so
    AclOperation,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from drainer.errors import BrokerUnreachable, GroupActive, Refused, TopicMissing
from drainer.kafka.answers import (
    FORBIDDEN,
    HAS_MEMBERS,
    NO_TOPIC,
    NOT_WRITTEN,
    PASSING,
    Right,
    may_not,
)
from drainer.kafka.connection import TIMEOUT_S, Connection
from drainer.kafka.group import GroupInfo, Member
from drainer.kafka.log import url_safe
from drainer.kafka.offsets import OffsetReader
from drainer.kafka.settings import ClientSettings
from drainer.kafka.topic import LogBounds, Replicas, TopicInfo

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
OFFSETS_RETENTION = "offsets.retention.minutes"
MISSING_CONFIRM_S = 0.3
NEAR_NAMES = 3
HINT_GROUPS, HINT_GROUPS_TRIED, HINT_TIMEOUT_S = 5, 40, 2.0

_STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "preparing rebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "completing rebalance",
    ConsumerGroupState.STABLE: "stable",
    ConsumerGroupState.DEAD: "dead",
    ConsumerGroupState.EMPTY: "empty",
}
_KINDS = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
_ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}


class Cluster:
    """One connection to the cluster for questions and commits; a context manager.

    Every method waits up to ``timeout_s`` for an answer, asking again while a coordinator loads or
    a connection breaks. All of them raise BrokerUnreachable when no answer came, and Refused when
    the user has no right to ask, or Kafka answers what nobody expected.
    """

    def __init__(self, connection: Connection) -> None:
        self.settings = connection.settings
        self._connection = connection
        self._offsets_of = OffsetReader(connection.settings)
        self._ask = connection.ask
        self._wait = connection.wait

    @classmethod
    def connect(cls, settings: ClientSettings, timeout_s: float = TIMEOUT_S) -> Cluster:
        """Reach the cluster, and find out why if that fails.

        Raises:
            BrokerUnreachable: within ``timeout_s``, and earlier when waiting would not help. Its
                text tells apart an unknown host, a port where nothing listens, a login that was
                not accepted, and TLS.
            UsageError: when librdkafka rejects the settings.
        """
        return cls(Connection.open(settings, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connection(self) -> Connection:
        """For the questions that only one module asks."""
        return self._connection

    def close(self) -> None:
        """Let the connection go."""
        self._offsets_of.close()
        self._connection.close()

    def cluster_id(self) -> str:
        """The cluster's id, as it was when this connected."""
        return self._connection.cluster_id

    def topic(self, name: str, right: Right = "READ") -> TopicInfo:
        """Look at a topic that is there to be read, or for what else ``right`` says.

        Raises:
            RightMissing: when this user has not that right. Who may not even see a topic is not
                told whether there is one.
            TopicMissing: when there is none of this name; the hint has names that are near.
        """
        what = f"look at topic {name}" if right == "DESCRIBE" else f"{right.lower()} topic {name}"

        def attempt(left: float) -> TopicInfo | None:
            asked = self._connection.admin.describe_topics(
                TopicCollection([name]), request_timeout=left, include_authorized_operations=True
            )
            try:
                found = self._wait(asked[name], left)
            except KafkaException as error:
                if error.args[0].code() in NO_TOPIC | {KafkaError.TOPIC_EXCEPTION}:
                    return None
                raise
            leaders = {
                p.id: f"{p.leader.host}:{p.leader.port}" if p.leader and p.leader.port > 0 else ""
                for p in found.partitions
            }
            topic_id = url_safe(str(found.topic_id))
            _insist(found.authorized_operations, what, right, f"topic {name}")
            replicas = {
                p.id: Replicas(tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
                for p in found.partitions
            }
            return TopicInfo(name, topic_id, tuple(sorted(leaders)), leaders, replicas)

        needs = (right, f"topic {name}")
        info = self._ask(what, attempt, needs=needs)
        if info is None:  # a broker that came back a moment ago may not know it yet
            time.sleep(MISSING_CONFIRM_S)
            info = self._ask(what, attempt, needs=needs)
        if info is None:
            near = get_close_matches(name, self._topic_names(), n=NEAR_NAMES)
            raise TopicMissing(
                f"topic {name} does not exist",
                hint=f"is it {' or '.join(near)}?" if near else "check its name and the cluster",
            )
        return info

    def group(self, name: str, timeout_s: float | None = None, right: Right = "READ") -> GroupInfo:
        """Look at a group; one that does not exist is ``dead``, and has no members.

        READ on a group is what it takes to commit for it or to join it. Raises RightMissing when
        this user has not the right.
        """
        what = f"look at group {name}" if right == "DESCRIBE" else f"work for group {name}"

        def attempt(left: float) -> GroupInfo:
            self._insist_on_answers(left)
            asked = self._connection.admin.describe_consumer_groups(
                [name], request_timeout=left, include_authorized_operations=True
            )
            try:
                found = self._wait(asked[name], left)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return GroupInfo(name, "dead", "unknown", ())
                raise
            _insist(found.authorized_operations, what, right, f"group {name}")
            return GroupInfo(
                name,
                _STATES.get(found.state, "unknown"),
                _KINDS.get(found.type, "unknown"),
                tuple(_member(member) for member in found.members),
                bool(found.is_simple_consumer_group),
            )

        return self._ask(what, attempt, timeout_s, needs=(right, f"group {name}"))

    def group_active(self, name: str) -> GroupActive:
        """The error that names the group's members, to be raised where they are in the way."""
        try:
            members = ", ".join(str(member) for member in self.group(name).members)
        except Refused:
            members = ""
        return GroupActive(
            f"group {name} has members: {members or 'they left in the meantime'}",
            hint="make sure that no consumer of this group runs, then try again",
        )

    def committed(
        self, group: str, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int | None]:
        """The group's committed offset by partition; None where it has none.

        Offsets that a transaction is about to commit are waited for.
        """
        numbers = sorted(partitions)
        if not numbers:
            return {}
        return self._ask(
            f"read the committed offsets of group {group}",
            lambda left: self._offsets_of.read(group, topic, numbers, left),
            timeout_s,
            needs=("DESCRIBE", f"group {group}"),
        )

    def offsets_kept_s(self) -> float | None:
        """How long brokers keep the offsets of an empty group; None when they don't say.

        The least that one of them is set to. To see it takes DESCRIBE_CONFIGS on the cluster; it is
        good to know, and not worth an error or a long wait.
        """

        def attempt(left: float) -> float | None:
            admin = self._connection.admin
            found = self._wait(admin.describe_cluster(request_timeout=left), left)
            nodes = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in found.nodes]
            # One request may ask one broker.
            asked = [admin.describe_configs([n], request_timeout=left)[n] for n in nodes]
            entries = [self._wait(each, left).get(OFFSETS_RETENTION) for each in asked]
            minutes = [float(entry.value) for entry in entries if entry and entry.value]
            return min(minutes) * 60 if minutes else None

        try:
            return self._ask("see the configuration of the brokers", attempt, HINT_TIMEOUT_S)
        except Refused:
            return None

    def alter_committed(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        timeout_s: float | None = None,
    ) -> None:
        """Commit without membership.

        It is not asked for again once it may have happened: that might undo someone else's.

        Raises:
            BrokerUnreachable: when no answer came; the commit may have happened, or may yet.
            GroupActive: when the group has members, which the text names.
            TopicMissing: when the topic or a partition does not exist.
        """
        places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]

        def attempt(left: float) -> None:
            self._insist_on_answers(left)
            request = ConsumerGroupTopicPartitions(group, places)
            asked = self._connection.admin.alter_consumer_group_offsets(
                [request], request_timeout=left
            )
            try:
                for place in self._wait(asked[group], left).topic_partitions or ():
                    if place.error is not None:
                        raise KafkaException(place.error)
            except KafkaException as error:
                if error.args[0].code() in NOT_WRITTEN:
                    raise
                raise self._no_commit(group, topic, error.args[0]) from error

        self._ask(f"commit for group {group}", attempt, timeout_s)

    def groups_with_offsets(
        self, topic: str, partitions: Iterable[int], near: str = ""
    ) -> tuple[str, ...]:
        """Some groups that have a committed offset on this topic: a hint, quick, not thorough.

        Those with names like ``near`` are looked at first.
        """
        numbers = tuple(partitions)
        until = time.monotonic() + HINT_TIMEOUT_S
        found: list[str] = []
        try:
            listed = self._wait(
                self._connection.admin.list_consumer_groups(request_timeout=HINT_TIMEOUT_S),
                HINT_TIMEOUT_S,
            )
            names = sorted(
                (group.group_id for group in listed.valid),
                key=lambda name: SequenceMatcher(None, name, near).quick_ratio(),
                reverse=True,
            )
            for name in names[:HINT_GROUPS_TRIED]:
                left = until - time.monotonic()
                if len(found) == HINT_GROUPS or left <= 0:
                    break
                if any(o is not None for o in self.committed(name, topic, numbers, left).values()):
                    found.append(name)
        except (KafkaException, Refused):
            pass  # a hint is not worth an error
        return tuple(found)

    def log_bounds(
        self, topic: str, partitions: Iterable[int], isolation: str
    ) -> dict[int, LogBounds]:
        """What the partitions' logs hold now, as this isolation level shows it."""
        numbers = tuple(partitions)
        earliest, latest = dict.fromkeys(numbers, EARLIEST), dict.fromkeys(numbers, LATEST)
        starts = self._offsets(topic, earliest, "read_uncommitted")
        # The ends last: what they then lack of the marks is held back, and not new.
        marks = self._offsets(topic, latest, "read_uncommitted")
        ends = self._offsets(topic, latest, isolation)
        return {
            n: LogBounds(starts[n][0], ends[n][0], max(marks[n][0], ends[n][0]), ends[n][1])
            for n in numbers
        }

    def offset_at(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """By partition, what the broker takes for the first record of a time or later; None for
        none. On a compacted topic that may be wrong: see kafka/times.py."""
        specs = {n: OffsetSpec.for_timestamp(time_ms) for n, time_ms in times_ms.items()}
        found = self._offsets(topic, specs, "read_uncommitted")
        return {number: None if offset < 0 else offset for number, (offset, _) in found.items()}

    def delete_group(self, name: str, timeout_s: float | None = None) -> None:
        """Remove an empty group; nothing happens when it does not exist."""

        def attempt(left: float) -> None:
            asked = self._connection.admin.delete_consumer_groups([name], request_timeout=left)
            try:
                self._wait(asked[name], left)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

        self._ask(f"remove group {name}", attempt, timeout_s, needs=("DELETE", f"group {name}"))

    def _offsets(
        self, topic: str, specs: Mapping[int, OffsetSpec], isolation: str
    ) -> dict[int, tuple[int, int | None]]:
        def attempt(left: float) -> dict[int, tuple[int, int | None]]:
            asked = self._connection.admin.list_offsets(
                {TopicPartition(topic, number): spec for number, spec in specs.items()},
                isolation_level=_ISOLATION[isolation],
                request_timeout=left,
            )
            found = {place.partition: self._wait(one, left) for place, one in asked.items()}
            return {number: (one.offset, one.leader_epoch) for number, one in found.items()}

        if not specs:
            return {}
        try:
            needs: tuple[Right, str] = ("DESCRIBE", f"topic {topic}")
            return self._ask(f"read the offsets of topic {topic}", attempt, needs=needs)
        except Refused as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].code() in NO_TOPIC:
                raise TopicMissing(f"topic {topic} or a partition of it does not exist") from None
            raise

    def _insist_on_answers(self, left: float) -> None:
        # A question to a coordinator that is open when a broker comes back may end the process
        # (librdkafka issue 4605). So none is put to a cluster that doesn't answer any other.
        self._wait(self._connection.admin.describe_cluster(request_timeout=left), left)

    def _no_commit(self, group: str, topic: str, answer: KafkaError) -> Refused:
        code, said = answer.code(), self.settings.redact(answer.str())
        if code in PASSING:
            return BrokerUnreachable(
                f"the commit of group {group} got no answer: {said}", hint="try again"
            )
        if code in HAS_MEMBERS:
            return self.group_active(group)
        if code in NO_TOPIC:
            return TopicMissing(f"topic {topic} or a partition of it does not exist")
        if code in FORBIDDEN:
            of_topic = code == KafkaError.TOPIC_AUTHORIZATION_FAILED
            resource = f"topic {topic}" if of_topic else f"group {group}"
            return may_not(f"commit for group {group} on {topic}", "READ", resource)
        return Refused(
            f"the commit of group {group} on {topic} was refused: {said}",
            hint="fix the cause, then try again",
        )

    def _topic_names(self) -> list[str]:
        try:
            return list(map(str, self._connection.admin.list_topics(timeout=HINT_TIMEOUT_S).topics))
        except KafkaException:
            return []  # only a hint


def _member(member: Any) -> Member:
    return Member(
        member.member_id,
        member.client_id,
        member.host.lstrip("/"),
        member.group_instance_id,
        tuple(sorted((tp.topic, tp.partition) for tp in member.assignment.topic_partitions)),
    )


def _insist(operations: Sequence[Any] | None, what: str, right: Right, resource: str) -> None:
    # A broker without an authorizer names all of them, an old one none.
    if operations and not {AclOperation[right], AclOperation.ALL} & set(operations):
        raise may_not(what, right, resource)
