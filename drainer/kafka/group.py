"""Consumer groups: members, committed offsets, and commits that overwrite nobody else's."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.errors import BrokerUnreachable, GroupActive, OffsetsPending, Refused, TopicMissing
from drainer.kafka.answers import (
    FORBIDDEN,
    HAS_MEMBERS,
    NO_TOPIC,
    NOT_WRITTEN,
    RETRIABLE,
    Right,
    ensure_right,
    may_not,
)
from drainer.kafka.connection import OFFSETS_TOPIC, TIMEOUT_S, Connection
from drainer.kafka.coordinator import CoordinatorProcess
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.model.listed import listed

NEAR_NAMES = 3
HINT_TIMEOUT_S = 2.0
PROBE_METADATA = "x" * 32_000  # By default, brokers refuse metadata of more than 4 KiB.
# The name of a lock group is one of these prefixes, followed by the name of the drained group. The
# second one is for drains that commit nothing.
LOCK, LOCK_OF_REPEATS = "drainer.lock.", "drainer.again."
# Polls are short, because a poll in which the client makes a callback does not return early.
OFFSET_POLL_S = 0.01
CLOSE_S = 1.0
COMMIT_MOST_S = 30.0  # A client that gets no answer to a commit for this long is replaced.
PENDING_S = 1.0  # The timeout to find out whether a transaction blocked a read of offsets.

# The client can describe groups of consumers, both of the classic protocol and of KIP-848. It can
# only list groups of other kinds, and does not learn of which kind they are. The error with which a
# coordinator refuses a commit shows the kind.
GroupKind = Literal["consumer", "streams", "share", "streams or share"]
Commits = frozenset[tuple[str, int, int]]  # Committed offsets, each with its topic and partition.


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None  # Only a static member has one.

    def __str__(self) -> str:
        static = f" (static member {self.instance_id})" if self.instance_id else ""
        return f"{self.client_id} on {self.host}{static}"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The description of a group at some moment."""

    name: str
    state: str  # ``empty``, ``stable``, ``unknown``, ``dead`` (there is no such group), and others.
    members: tuple[Member, ...]
    kind: GroupKind = "consumer"

    @property
    def active(self) -> bool:
        """Whether the group has members, or some join or leave, so that a drain must not commit.

        A group that drainer can't describe counts as active.
        """
        return self.state not in {"empty", "dead"} or bool(self.members)

    @property
    def readers(self) -> str:
        """The members of an active group as a text, or what is known of them."""
        if self.kind != "consumer":
            return _OTHER_KINDS[self.kind][0]
        return listed(sorted(set(map(str, self.members)))) or "members join or leave"

    def in_use(self, *, again: bool = False) -> GroupActive:
        """Return the error for a group that is active. It names the members.

        ``again`` tells that it had no members before, so that something has started them again.
        """
        hint = _KEEP_AWAY if again else _STOP_FIRST
        text = f"is in use: {self.readers} (state {self.state})"
        if self.kind != "consumer":
            text, hint = _OTHER_KINDS[self.kind]
        elif static := sorted({each.instance_id for each in self.members if each.instance_id}):
            hint = _STATIC_STAYS.format(listed(static))
        return GroupActive(f"group {self.name} {text}", hint=hint)


_STOP_FIRST = (
    "Stop these consumers first; a killed one stays a member until its session times out, often"
    " 45 s. Two readers would handle messages twice and out of order."
)
_KEEP_AWAY = (
    "Stop what starts them again, then resume: KEDA by `kubectl annotate scaledobject NAME"
    " autoscaling.keda.sh/paused-replicas=0`, GitOps by suspending its sync, systemd by stopping"
    " timers and supervisors, too. With --wait-for-group 10m, a drain waits until they have left,"
    " and goes on."
)
_STATIC_STAYS = (
    "Stop these consumers first, if they run. {} stays a member for its session.timeout.ms after"
    " that, which Kafka does not report (45 s by default): wait with --wait-for-group 30m of"
    " `drainer run` or `resume`. To shorten that, start and close it once more with"
    " session.timeout.ms=6000."
)
# The texts and hints of errors about groups that the client can't describe.
_OTHER_KINDS: dict[GroupKind, tuple[str, str]] = {
    "streams": (
        "is in use: it is a streams group, whose members drainer can't list",
        "Stop its application first: kafka-streams-groups.sh --describe --members lists them.",
    ),
    "share": (
        "is a share group, which has no committed offsets to drain from",
        "Name another group with --group.",
    ),
    "streams or share": (
        "may be in use: it is a streams or share group, whose members drainer can't list",
        "Name another group with --group. A streams group can be drained once its application has"
        " stopped, and it has a committed offset on the topic (kafka-streams-groups.sh"
        " --reset-offsets).",
    ),
}


class Groups(Connection):
    """A client for requests about consumer groups. It joins none of them."""

    def __init__(self, settings: ClientSettings, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(settings, timeout_s)
        self._offsets_of = OffsetClient(settings)
        self._coordinator = CoordinatorProcess(settings)

    def close(self) -> None:
        """Close the connections."""
        self._offsets_of.close()
        self._coordinator.close()
        super().close()

    def group(self, name: str, timeout_s: float | None = None, right: Right = "READ") -> GroupInfo:
        """Describe a group. If it does not exist, its state is ``dead`` and it has no members.

        The client can't describe a streams group or a share group. Their state is ``unknown``.
        Raises RightMissing if this user does not have the right. With READ, a user may commit for
        the group and join it.
        """
        what = f"look at group {name}" if right == "DESCRIBE" else f"work for group {name}"
        needs: tuple[Right, str] = (right, f"group {name}")
        found = self.find(
            what,
            partial(self._coordinator.request, "describe", name),
            {KafkaError.GROUP_ID_NOT_FOUND},
            timeout_s,
            needs=needs,
        ) or {"state": "DEAD", "members": (), "operations": ()}
        ensure_right(found["operations"], what, *needs)
        # A group of another kind is described as dead, too. The list of groups shows whether it
        # exists. A lock group is not looked up in the list, because drainer joins it, which fails
        # if it is of another kind.
        lists = partial(self._coordinator.request, "list", name)
        may_exist = found["state"] == "DEAD" and not name.startswith((LOCK, LOCK_OF_REPEATS))
        if may_exist and self.request(what, lists, timeout_s, needs=needs):
            return GroupInfo(name, "unknown", (), "streams or share")
        members = (
            Member(member_id, client_id, host.lstrip("/"), instance_id)
            for member_id, client_id, host, instance_id, _ in found["members"]
        )
        return GroupInfo(name, found["state"].lower().replace("_", " "), tuple(members))

    def readers(self, group: str, topic: str) -> dict[int, str]:
        """Return the member that has each partition of a topic, if one has it."""
        describe = partial(self._coordinator.request, "describe", group)
        found = self.find(
            f"look at group {group}",
            describe,
            {KafkaError.GROUP_ID_NOT_FOUND},
            needs=("DESCRIBE", f"group {group}"),
        ) or {"members": ()}
        return {
            number: str(Member(member, client, host.lstrip("/"), instance))
            for member, client, host, instance, assigned in found["members"]
            for name, number in assigned
            if name == topic
        }

    def group_active(self, name: str) -> GroupActive:
        """Return the error for a commit that was refused because of members, with their names."""
        try:
            found = self.group(name)
        except Refused:
            found = GroupInfo(name, "unknown", ())
        # A share group refuses every commit, with or without members, so this is a streams group.
        kind: GroupKind = "consumer" if found.kind == "consumer" else "streams"
        return replace(found, kind=kind).in_use(again=True)

    def group_names(self) -> list[str]:
        """List the groups that this user sees, for a hint. It is empty if no answer comes soon."""
        try:
            answer = self.admin.list_consumer_groups(request_timeout=HINT_TIMEOUT_S)
            return [each.group_id for each in self.wait(answer, HINT_TIMEOUT_S).valid]
        except (KafkaException, Refused):
            return []

    def missing(self, name: str, what: str = "does not exist") -> str:
        """Describe a group that may be meant to be another one; the sentence names similar ones."""
        near = self.near_groups(name)
        return f"group {name} {what}{near and f'; {near}'}"

    def near_groups(self, name: str) -> str:
        """Return a question with the names of groups that are similar to this one, or ""."""
        own = (LOCK, LOCK_OF_REPEATS)
        others = [each for each in self.group_names() if each != name and not each.startswith(own)]
        near = get_close_matches(name, others, n=NEAR_NAMES)
        return f"did you mean {listed(near)}?" if near else ""

    def committed(
        self, group: str, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int | None]:
        """Read the group's committed offset by partition; None where it has none.

        If a transaction is about to commit offsets, this waits some seconds for its end. Raises
        OffsetsPending when it has not ended by then.
        """
        numbers = sorted(partitions)
        if not numbers:
            return {}

        def attempt(left: float) -> dict[int, int | None]:
            try:
                return self._offsets_of.read(group, topic, numbers, left)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    self._ensure_stable(group, topic, numbers)
                raise

        what = f"read the committed offsets of group {group}"
        return self.request(what, attempt, timeout_s, needs=("DESCRIBE", f"group {group}"))

    def listed(self, name: str = "") -> list[dict[str, Any]]:
        """Describe the groups of this name, or all groups that this user sees, in few requests.

        The result is that of ``groups`` of ``CoordinatorProcess.request``.
        """
        listing = partial(self._coordinator.request, "groups", name)
        found: list[dict[str, Any]] = self.request("list the groups", listing)
        return found

    def commits_of(self, groups: Sequence[str]) -> dict[str, Commits | KafkaError]:
        """Read all committed offsets of groups. The value is an error where that fails."""
        what = f"read the offsets of group {listed(groups)}"
        return self.request(what, partial(self._commits, groups))

    def commits(self, group: str, timeout_s: float | None = None) -> Commits:
        """Read all committed offsets of a group, each with its topic and partition."""

        def attempt(left: float) -> Commits:
            answer = self._commits([group], left)[group]
            if isinstance(answer, KafkaError):
                raise KafkaException(answer)
            return answer

        what = f"read the offsets of group {group}"
        return self.request(what, attempt, timeout_s, needs=("DESCRIBE", f"group {group}"))

    def _commits(self, groups: Sequence[str], left_s: float) -> dict[str, Commits | KafkaError]:
        first, *more = groups
        answers = self._coordinator.request("commits", first, left_s, *more)
        return {
            name: KafkaError(*each["error"])
            if isinstance(each, dict)
            else frozenset(map(tuple, each))
            for name, each in answers.items()
        }

    def _ensure_stable(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        # While a transaction is about to commit offsets, the client repeats its read until the time
        # is up, and does not say why. So this asks whether there is such a transaction.
        request = self._coordinator.request
        try:
            found, unstable = request("pending", group, PENDING_S, topic, partitions)
        except KafkaException:  # The cluster is slow or away.
            return
        if not unstable:
            return
        offsets = {number: offset if offset >= 0 else None for number, offset in found}
        places = [
            f"{topic}/{number} ({shown_offset(offsets[number])} until then)" for number in unstable
        ]
        pending = OffsetsPending(
            f"an open transaction is about to commit for group {group}: {listed(places)}",
            hint="Wait until its producer ends it, or brokers abort it after the producer's"
            " transaction.timeout.ms (15 min at most, by default). To find the producer: "
            f"kafka-transactions.sh describe-producers --topic {OFFSETS_TOPIC}"
            f"{self._offsets_place(group)}. To end a transaction that hangs, use its `abort`.",
        )
        pending.offsets = offsets
        raise pending

    def _offsets_place(self, group: str) -> str:
        """Return an option of Kafka's tool that names the partition with the group's offsets."""
        with suppress(KafkaException, ZeroDivisionError):  # This user may not see the topic.
            found = self.admin.list_topics(OFFSETS_TOPIC, HINT_TIMEOUT_S).topics[OFFSETS_TOPIC]
            return f" --partition {java_hash(group) % len(found.partitions)}"
        return ""

    def alter_committed(
        self, group: str, topic: str, offsets: Mapping[int, int], timeout_s: float | None = None
    ) -> None:
        """Commit without membership, forwards or backwards.

        A commit that may have happened is not repeated, since that could undo a commit of another.

        Raises:
            BrokerUnreachable: when no answer came. The commit may have happened, or may still
                happen.
            GroupActive: when the group has members; the text names them.
            TopicMissing: when the topic or a partition does not exist.
        """
        places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        self._commit(group, topic, places, timeout_s)

    def ensure_no_members(
        self, group: str, topic: str, committed: tuple[int, int], timeout_s: float | None = None
    ) -> None:
        """Ensure that the group has no members, by a commit that brokers refuse in any case.

        If the group has members, they refuse the commit for that reason, and otherwise because its
        metadata is too long. A broker may be configured to accept such metadata. So the commit is
        harmless: it repeats ``committed``, which is a partition and its committed offset.

        Raises GroupActive, BrokerUnreachable and TopicMissing as ``alter_committed`` does.
        """
        place = TopicPartition(topic, *committed, PROBE_METADATA)
        self._commit(group, topic, [place], timeout_s, KafkaError.OFFSET_METADATA_TOO_LARGE)

    def _commit(
        self,
        group: str,
        topic: str,
        places: list[TopicPartition],
        timeout_s: float | None,
        expected: int | None = None,
    ) -> None:
        def attempt(left: float) -> None:
            try:
                self._offsets_of.write(group, places, left)
            except KafkaException as error:
                code = error.args[0].code()
                if code in NOT_WRITTEN:
                    raise
                if code != expected:
                    raise self._no_commit(group, topic, error.args[0]) from error

        self.request(f"commit for group {group}", attempt, timeout_s)

    def _no_commit(self, group: str, topic: str, answer: KafkaError) -> Refused:
        code, text = answer.code(), answer.str()
        if code in RETRIABLE:
            return BrokerUnreachable(
                f"no answer to the commit of group {group}: {text}", hint="Try again."
            )
        if code in HAS_MEMBERS:
            return self.group_active(group)
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return GroupInfo(group, "unknown", (), "share").in_use()
        if code in NO_TOPIC:
            return TopicMissing(f"topic {topic} or a partition of it does not exist")
        if code in FORBIDDEN:
            of_topic = code == KafkaError.TOPIC_AUTHORIZATION_FAILED
            resource = f"topic {topic}" if of_topic else f"group {group}"
            return may_not(f"commit for group {group} on {topic}", "READ", resource)
        return Refused(
            f"Kafka refused the commit of group {group} on {topic}: {text}",
            hint="Fix the cause, then try again.",
        )


class OffsetClient:
    """Reads and writes committed offsets. It keeps the client of the group that it last worked for.

    The client is a consumer that joins no group. An AdminClient could do the same, but its requests
    to a coordinator may end the process (coordinator.py). Only one commit at a time is under way,
    so none overtakes another.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._log = ClientLog()
        self._group = ""
        self._consumer: Consumer | None = None
        self._client = object()  # The mark of the current client, which its answers carry.
        self._unanswered_since_s: float | None = None
        # The error with which the last commit was answered; None if it succeeded or has no answer.
        self._answer: KafkaError | None = None
        self._busy = threading.Lock()

    def read(
        self, group: str, topic: str, partitions: Sequence[int], timeout_s: float
    ) -> dict[int, int | None]:
        """Read the committed offset by partition; None where there is none.

        It waits for offsets that a transaction is about to commit. Raises KafkaException.
        """
        with self._busy:
            consumer = self._of(group)
            places = [TopicPartition(topic, number) for number in partitions]
            try:
                found = consumer.committed(places, timeout=timeout_s)
            except KafkaException as error:
                forbidden = self._forbidden(consumer)
                if self._unanswered_since_s is None:
                    self._drop()  # The next read makes a new client, which finds a moved broker.
                raise forbidden or error from None
            consumer.poll(0)  # The client passes its log lines on only when it is polled.
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset if place.offset >= 0 else None for place in found}

    def write(self, group: str, places: list[TopicPartition], timeout_s: float) -> None:
        """Commit offsets.

        Raises KafkaException, with _TIMED_OUT while this commit, or an earlier one, has no answer.
        """
        with self._busy:
            consumer, until_s = self._of(group), time.monotonic() + timeout_s
            self._await_answer(consumer, until_s)
            self._unanswered_since_s, self._answer = time.monotonic(), None
            consumer.commit(offsets=places, asynchronous=True)
            self._await_answer(consumer, until_s)
            if self._answer is not None:
                raise KafkaException(self._answer)

    def close(self) -> None:
        """Close the connection, unless an abandoned thread still waits for an answer."""
        if self._busy.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._busy.release()

    def _answered(
        self, client: object, error: KafkaError | None, places: Sequence[TopicPartition]
    ) -> None:
        if client is self._client:  # A client that was replaced may still get an answer.
            self._unanswered_since_s = None
            self._answer = error or next((p.error for p in places if p.error is not None), None)

    def _await_answer(self, consumer: Consumer, until_s: float) -> None:
        while self._unanswered_since_s is not None:
            if forbidden := self._forbidden(consumer, OFFSET_POLL_S):
                self._drop()
                raise forbidden
            now_s = time.monotonic()
            if self._unanswered_since_s is not None and now_s >= until_s:
                if now_s - self._unanswered_since_s > COMMIT_MOST_S:
                    self._drop()
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _forbidden(self, consumer: Consumer, wait_s: float = 0) -> KafkaException | None:
        # If this user may not look up the coordinator, the client waits until the time is up. Only
        # its events show the reason.
        while (event := consumer.poll(wait_s)) is not None:
            answer = event.error()
            if answer is not None and answer.code() in FORBIDDEN:
                return KafkaException(answer)
        return None

    def _of(self, group: str) -> Consumer:
        if self._consumer is None or group != self._group:
            self._drop()
            conf = self._settings.conf(
                self._log,
                group_id=group,
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            self._client = object()
            conf["on_commit"] = partial(self._answered, self._client)
            self._consumer, self._group = self._settings.consumer(conf), group
        return self._consumer

    def _drop(self) -> None:
        consumer, self._consumer, self._unanswered_since_s = self._consumer, None, None
        if consumer is not None:
            close_later(consumer)


def close_later(consumer: Consumer) -> None:
    """Close a consumer, but wait only CLOSE_S, because it may wait for the answer to a commit."""
    closing = threading.Thread(target=consumer.close, name="drainer-close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)


def java_hash(text: str) -> int:
    """Return Java's hash of a text, made positive. Kafka chooses a group's partition by it."""
    found = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        found = (31 * found + unit) & 0xFFFF_FFFF
    return min(found, 2**32 - found) % 2**31


def shown_offset(offset: int | None) -> str:
    """Return a committed offset in words; the offset is None if nothing was committed."""
    return "no offset" if offset is None else f"offset {offset}"
