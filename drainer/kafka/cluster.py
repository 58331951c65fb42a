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
    OffsetSpec,
)

from drainer.errors import BrokerUnreachable, GroupActive, Refused, TopicMissing
from drainer.kafka.answers import FORBIDDEN, HAS_MEMBERS, NO_TOPIC, NOT_WRITTEN, PASSING
from drainer.kafka.connection import TIMEOUT_S, Connection
from drainer.kafka.group import GroupInfo, Member
from drainer.kafka.log import url_safe
from drainer.kafka.offsets import CommittedOffset, OffsetReader
from drainer.kafka.settings import ClientSettings
from drainer.kafka.topic import LogBounds, Replicas, TopicInfo

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
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

    def topic(self, name: str) -> TopicInfo:
        """Look at a topic.

        Raises:
            TopicMissing: when there is none of this name; the hint has names that are near.
        """

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
            may = found.authorized_operations
            read, write = _allowed(may, AclOperation.READ), _allowed(may, AclOperation.WRITE)
            replicas = {
                p.id: Replicas(tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr))
                for p in found.partitions
            }
            return TopicInfo(name, topic_id, tuple(sorted(leaders)), leaders, read, write, replicas)

        info = self._ask(f"look at topic {name}", attempt)
        if info is None:  # a broker that came back a moment ago may not know it yet
            time.sleep(MISSING_CONFIRM_S)
            info = self._ask(f"look at topic {name}", attempt)
        if info is None:
            near = get_close_matches(name, self._topic_names(), n=NEAR_NAMES)
            raise TopicMissing(
                f"topic {name} does not exist",
                hint=f"is it {' or '.join(near)}?" if near else "check its name and the cluster",
            )
        return info

    def group(self, name: str, timeout_s: float | None = None) -> GroupInfo:
        """Look at a group; one that does not exist is ``dead``, and has no members."""

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
            return GroupInfo(
                name,
                _STATES.get(found.state, "unknown"),
                _KINDS.get(found.type, "unknown"),
                tuple(_member(member) for member in found.members),
                _allowed(found.authorized_operations, AclOperation.READ),
            )

        return self._ask(f"look at group {name}", attempt, timeout_s)

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
        found = self.commits(group, topic, partitions, timeout_s)
        return {n: None if commit is None else commit.offset for n, commit in found.items()}

    def commits(
        self, group: str, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, CommittedOffset | None]:
        """``committed`` with the metadata beside each offset."""
        numbers = sorted(partitions)
        if not numbers:
            return {}
        return self._ask(
            f"read the committed offsets of group {group}",
            lambda left: self._offsets_of.read(group, topic, numbers, left),
            timeout_s,
        )

    def alter_committed(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        timeout_s: float | None = None,
        metadata: Mapping[int, str] | None = None,
    ) -> set[int]:
        """Commit without membership, with metadata beside an offset or none.

        It is not asked for again once it may have happened: that might undo someone else's.
        Gives the partitions whose metadata the broker found too long, and committed without it.

        Raises:
            BrokerUnreachable: when no answer came; the commit may have happened, or may yet.
            GroupActive: when the group has members, which the text names.
            TopicMissing: when the topic or a partition does not exist.
        """
        texts = metadata or {}

        def write(places: Sequence[TopicPartition], left: float) -> set[int]:
            self._insist_on_answers(left)
            request = ConsumerGroupTopicPartitions(group, list(places))
            asked = self._connection.admin.alter_consumer_group_offsets(
                [request], request_timeout=left
            )
            try:
                # It does not raise what went wrong with a partition.
                return _too_long(self._wait(asked[group], left).topic_partitions)
            except KafkaException as error:
                if error.args[0].code() in NOT_WRITTEN:
                    raise
                raise self._no_commit(group, topic, error.args[0]) from error

        what = f"commit for group {group}"
        full = [TopicPartition(topic, n, o, texts.get(n, "")) for n, o in offsets.items()]
        too_long = self._ask(what, lambda left: write(full, left), timeout_s)
        if too_long:
            bare = [TopicPartition(topic, number, offsets[number]) for number in too_long]
            self._ask(what, lambda left: write(bare, left), timeout_s)
        return too_long

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
        starts = self._offsets(topic, numbers, EARLIEST, "read_uncommitted")
        ends = self._offsets(topic, numbers, LATEST, isolation)
        marks = self._offsets(topic, numbers, LATEST, "read_uncommitted")
        return {n: LogBounds(starts[n][0], ends[n][0], marks[n][0], ends[n][1]) for n in numbers}

    def offset_at(
        self, topic: str, partitions: Iterable[int], timestamp_ms: int
    ) -> dict[int, int | None]:
        """The first offset with this timestamp or a later one; None when all are earlier."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._offsets(topic, tuple(partitions), spec, "read_uncommitted")
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

        self._ask(f"remove group {name}", attempt, timeout_s)

    def _offsets(
        self, topic: str, numbers: Sequence[int], spec: OffsetSpec, isolation: str
    ) -> dict[int, tuple[int, int | None]]:
        def attempt(left: float) -> dict[int, tuple[int, int | None]]:
            asked = self._connection.admin.list_offsets(
                {TopicPartition(topic, number): spec for number in numbers},
                isolation_level=_ISOLATION[isolation],
                request_timeout=left,
            )
            found = {place.partition: self._wait(one, left) for place, one in asked.items()}
            return {number: (one.offset, one.leader_epoch) for number, one in found.items()}

        if not numbers:
            return {}
        try:
            return self._ask(f"read the offsets of topic {topic}", attempt)
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
        hint = "mend the cause, then try again"
        if code in FORBIDDEN:
            hint = "grant READ on the topic and on the group to this user, then try again"
        return Refused(f"the commit of group {group} on {topic} was refused: {said}", hint=hint)

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


def _allowed(operations: Sequence[Any] | None, needed: AclOperation) -> bool | None:
    return needed in operations or AclOperation.ALL in operations if operations else None


def _too_long(found: Sequence[TopicPartition] | None) -> set[int]:
    # The partitions that were not committed for that alone; anything else raises.
    failed = {place.partition: place.error for place in found or () if place.error is not None}
    for error in failed.values():
        if error.code() != KafkaError.OFFSET_METADATA_TOO_LARGE:
            raise KafkaException(error)
    return set(failed)
