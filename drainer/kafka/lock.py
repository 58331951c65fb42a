"""The lock of a drain on its group, which is the membership in a separate lock group.

Kafka does not fence two committers that are not members, so something else must keep drains apart.
The members of ``drainer.lock.GROUP`` are the drains that work for ``GROUP``. A drain checks that it
is the only member before it works, and the heartbeats of its client keep it a member for as long as
it lives. Drains that commit nothing use ``drainer.again.GROUP``, so they may run beside a drain
that commits.

The drain is a static member (KIP-345), so the next process of the same drain takes over its place
at once. A client that fails is replaced, because librdkafka fences itself when a coordinator that
was suspended answers the same join twice. That says nothing about the lock: only the coordinator
can tell whether the drain still has its place.
"""

from __future__ import annotations

import re
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.engine.runtime import boottime_s
from drainer.errors import BrokerUnreachable, DrainerError, LockHeld, LockLost, Refused
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, RETRIABLE, may_not, unreachable
from drainer.kafka.cluster import Cluster
from drainer.kafka.group import LOCK, LOCK_OF_REPEATS, Member, close_later
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.model.listed import round_duration
from drainer.text.escape import foreign

SESSION_TIMEOUT_MS = 6000  # The least that brokers allow by default.
# The earlier of two drains notices the later one within this time.
HEARTBEAT_MS = 1000
EXPIRY_MARGIN_S = 2.0  # A broker notices a dead member a little late.
# The lease is shorter than the session by a margin: this share of the session, but at most
# MARGIN_MOST_S. The margin is for clocks that run at different paces, and for a thread that runs
# late. Each time that the margin has passed, the lock is confirmed again.
MARGIN_SHARE = 1 / 6
MARGIN_MOST_S = 1.0
# How long to wait for a holder that shows no sign of life. The longest session of a drain is a
# little shorter.
SILENT_MOST_S = 180.0
ACQUIRE_TIMEOUT_S = 30.0  # By default, brokers delay the first join of a new group by 3 s.
RELEASE_TIMEOUT_S = 3.0
REGAIN_TIMEOUT_S = 120.0
REPLACE_AFTER_S = 10.0  # A client whose commits are not accepted for this long is replaced.
RETRY_S = 1.0
FIRST_NUMBER_MOST = 2**40
# A coordinator that has not answered for this long is silent. It is asked about every second. The
# shortest lease is longer. If a poll takes longer than SUSPENDED_S, this process was suspended.
SILENT_S, SUSPENDED_S = 4.0, 1.0
CHECK_EVERY_S = 0.2
CHECK_TIMEOUT_S = 1.0  # A check must be short, because the next poll of the client waits for it.
POLL_S = 0.02
POLL_INTERVAL_MS = 24 * 60 * 60 * 1000
MAX_SESSION_MS = "session.timeout.ms"
NEVER_S = float("-inf")
# The client id of a lock: the drain's id, maybe the process that has its plan, and the machine.
_CLIENT = re.compile(r"^drainer-(.+?)(?:\.[0-9a-f]{16})?@(.+)$")


class Membership(Enum):
    """What a drain knows of its membership in the lock group."""

    JOINING = "joining"
    MEMBER = "member"  # No other drain has joined since this one was alone.
    UNSURE = "unsure"  # The drain may have lost its place for a while. A check decides.
    LOST = "lost"  # Another drain has the lock, or had it for a while.


def lock_group(group: str, *, commits: bool = True) -> str:
    """Return the lock group of a group, for drains that commit or for those that don't."""
    return f"{LOCK if commits else LOCK_OF_REPEATS}{group}"


@dataclass(eq=False)
class GroupLock:
    """The right to drain for a group. It is acquired once, and heartbeats keep it.

    Attributes:
        topic: the drained topic. The lock subscribes to it, as members must, but reads nothing.
        drain_id: the id of this drain, by which errors of other drains name it. No other running
            process has this id, because this process has locked the plan. So a lock that an earlier
            process of the drain left behind is taken over at once.
        report: called with a line about the drain that holds the lock, before the wait for it.
        ensure_wanted: raises an error if a wait for the lock should end without it.
        session_s: if this process stops answering, other drains are kept out for at least this
            long. It is 0 when this process makes all calls of the handler.
        commits: whether the drain commits for the group.
    """

    cluster: Cluster
    group: str
    topic: str
    drain_id: str
    _: KW_ONLY
    report: Callable[[str], None] = lambda text: None
    ensure_wanted: Callable[[], None] = lambda: None
    session_s: float = 0.0
    commits: bool = True

    def __post_init__(self) -> None:
        self.client_id = f"drainer-{self.drain_id}@{socket.gethostname()}"
        self.instance_id = f"drainer-{uuid.uuid5(uuid.NAMESPACE_URL, self.client_id)}"
        # The reason why the lock is lost; None while it is not.
        self.lost: LockLost | None = None
        # The error for that, if the lock is lost while it is acquired.
        self._refusal: type[Refused] = Refused
        # ``confirmed_s`` is the time at which the last commit that the coordinator accepted was
        # sent. For the time of a session after that, the coordinator lets no other drain take the
        # place of this one. So calls of the handler may begin until ``sure_until_s``. Both times
        # are by ``boottime_s``.
        self.confirmed_s = self.sure_until_s = NEVER_S
        # When the coordinator has last answered, by ``boottime_s``; it counts only for a member.
        self._heard_s = NEVER_S
        self._lingers = False
        self._lock_group = lock_group(self.group, commits=self.commits)
        wanted_ms = int(self.cluster.settings.properties.get(MAX_SESSION_MS, SESSION_TIMEOUT_MS))
        self._session_s = max(wanted_ms / 1000, self.session_s)
        self._margin_s = min(MARGIN_MOST_S, MARGIN_SHARE * self._session_s)
        self._lease_s = self._session_s - self._margin_s
        self._log = ClientLog()
        self._membership = Membership.JOINING
        # When the drain became a member, or when it was last found to be the only one.
        self._member_since_s = 0.0
        self._thread: threading.Thread | None = None
        # Set when the drain has joined the lock group, or has lost the lock before that.
        self._joined = threading.Event()
        self._released = threading.Event()
        # The drain commits rising numbers to confirm that it is a member. The first number is
        # random, so that drains don't use the same numbers.
        self._first_number = self._number = secrets.randbelow(FIRST_NUMBER_MOST)
        # The committed numbers of earlier drains of the group, with their topics and partitions.
        self._earlier: frozenset[tuple[str, int, int]] = frozenset()

    def acquire(self) -> None:
        """Acquire the lock.

        If another drain holds it, this waits until that drain shows that it is alive, or until its
        session is over.

        Raises:
            LockHeld: when another drain that is alive holds the lock; the text names it.
            BrokerUnreachable: when the coordinator does not let this drain in.
            Refused: when this user may not use the lock group.
        """
        self._wait_until_free()
        try:
            self._join()
            self._ensure_alone()
        except BaseException:  # The caller does not release a lock that it did not get.
            self.release()
            raise

    def linger(self, lingers: bool) -> None:
        """Set whether a release keeps other drains out until the session is over.

        That is needed while other processes may still make calls for this drain.
        """
        self._lingers = lingers

    def release(self) -> None:
        """Release the lock, so that the next drain does not have to wait. It never raises."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._released.set()
            thread.join(RELEASE_TIMEOUT_S + 1)

    def _wait_until_free(self) -> None:
        started_s = boottime_s()
        # The numbers that holders commit, which rise while they live. A holder commits to the topic
        # that it drains, which may be another one.
        numbers: set[object] = set()
        while others := [m for m in self._members() if m.client_id != self.client_id]:
            if not numbers:
                self.report(
                    f"{_named(others)} holds the lock on group {self.group}: waiting up to"
                    f" {round_duration(SILENT_MOST_S)} to see whether it is alive; `drainer ps` has"
                    " it if it runs on this machine"
                )
            numbers.add(self.cluster.commits(self._lock_group))
            if len(numbers) > 2:
                raise self._taken_by(others)
            if boottime_s() - started_s > SILENT_MOST_S:
                raise LockHeld(
                    f"{_named(others)} holds the lock on group {self.group}, and has shown no sign"
                    f" of life for {round_duration(SILENT_MOST_S)}",
                    hint="It may be suspended. If it is dead, its session ends by itself: try"
                    " again after its session.timeout.ms.",
                )
            self.ensure_wanted()
            time.sleep(CHECK_EVERY_S)
        self._earlier = self.cluster.commits(self._lock_group)

    def _ensure_alone(self) -> None:
        # If several drains joined at the same moment, the first one by name waits until the others
        # have left. But if one of the others holds the lock already, it does not leave. So this
        # drain gives up after the time of a session.
        until_s = boottime_s() + self._session_s + EXPIRY_MARGIN_S
        while self.lost is None:
            members = self._members()
            names = {member.client_id for member in members}
            if names == {self.client_id} and boottime_s() < self.sure_until_s:
                return
            late = boottime_s() > until_s
            others = [m for m in members if m.client_id != self.client_id]
            if others and (late or min(names) != self.client_id):
                raise self._taken_by(others)
            if late:
                raise BrokerUnreachable(
                    f"lock group {self._lock_group} has no members, not even this drain",
                    hint="Try again: the cluster is reachable, but slow or not ready.",
                )
            self.ensure_wanted()
            time.sleep(POLL_S if names == {self.client_id} else CHECK_EVERY_S)
        raise self._refusal(str(self.lost), hint=self.lost.hint)

    def _members(self, timeout_s: float | None = None) -> Sequence[Member]:
        return self.cluster.group(self._lock_group, timeout_s).members

    def _taken_by(self, others: Sequence[Member]) -> LockHeld:
        held = LockHeld(
            f"{_named(others)} holds the lock on group {self.group} and is running",
            hint="Wait for it to end, or stop it: on its machine, `drainer ps` names its plan, and"
            " `drainer stop PLAN` prints how to resume it.",
        )
        found = [_CLIENT.match(member.client_id) for member in others]
        held.drains = [each[1] for each in found if each and each[2] == socket.gethostname()]
        return held

    def _join(self) -> None:
        started_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="drainer-lock", daemon=True)
        self._thread.start()
        if not self._joined.wait(ACQUIRE_TIMEOUT_S):
            waited_s, complaints = time.monotonic() - started_s, self._log.since(started_s)
            what = f"join group {self._lock_group}"
            servers = self.cluster.settings.bootstrap_servers
            raise unreachable(servers, waited_s, complaints, what)

    @property
    def silence(self) -> tuple[str, float] | None:
        """The brokers if the coordinator is silent, and since when; None if it answers."""
        heard_s = self._heard_s
        if self._over or heard_s < 0 or boottime_s() - heard_s <= SILENT_S:
            return None
        return f"broker {self.cluster.settings.bootstrap_servers}", heard_s

    @property
    def _over(self) -> bool:
        return self._membership is Membership.LOST or self._released.is_set()

    def _run(self) -> None:
        """Keep the lock until it is released or lost, with a new client whenever one fails."""
        started_s = boottime_s()
        try:
            while not self._over:
                try:
                    client = self._make_client()
                except BrokerUnreachable:  # At this moment, there is no token for the login.
                    time.sleep(RETRY_S)
                    continue
                try:
                    self._keep(client, started_s)
                    if self.lost or (self._released.is_set() and not self._lingers):
                        client.leave(lambda: self._members(RELEASE_TIMEOUT_S))
                except KafkaException as error:
                    self._on_error(error.args[0])
                finally:
                    close_later(client.consumer)
                if not self._over:
                    self._doubt()
                    time.sleep(RETRY_S)
        except Exception as error:  # The thread ends, so nothing keeps the lock any more.
            reason = foreign(repr(error))
            self._lose(f"the lock on group {self.group} failed: {reason}")

    def _make_client(self) -> _Client:
        settings = self.cluster.settings
        conf = settings.conf(
            self._log,
            group_id=self._lock_group,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            session_timeout_ms=round(self._session_s * 1000),
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            enable_auto_commit=False,
        )
        return _Client(settings, conf, self.topic)

    def _keep(self, client: _Client, started_s: float) -> None:
        """Poll a client until it has to be replaced, or the lock is released or lost."""
        joined_s = checked_s = boottime_s()
        while not self._over:
            polled_s = boottime_s()
            client.poll()
            now_s = boottime_s()
            if now_s - polled_s > SUSPENDED_S:  # The silence may have been this process's own.
                self._heard_s = now_s
            if client.expelled:
                client.expelled = False
                self._doubt()
            if client.in_group:
                self._joined.set()
                if self._membership is Membership.JOINING:
                    self._membership, self._member_since_s = Membership.MEMBER, now_s
                    self._heard_s = now_s
                elif self._membership is Membership.UNSURE and now_s - checked_s > CHECK_EVERY_S:
                    self._check_alone()
                    checked_s = self._member_since_s = boottime_s()
            if self._membership is Membership.MEMBER:
                self._confirm(client, now_s)
                if now_s - max(self._member_since_s, self.confirmed_s) > self._lease_s:
                    # This process may have been suspended. Or the coordinator has expelled it and
                    # let it in again, and the client has not reported that.
                    self._doubt()
            if now_s - max(joined_s, client.confirmed_s) > REPLACE_AFTER_S:
                return
            if now_s - max(started_s, self.confirmed_s) > self._session_s + REGAIN_TIMEOUT_S:
                self._lose(
                    f"the lock on group {self.group} was not confirmed for"
                    f" {REGAIN_TIMEOUT_S:.0f} s",
                    "Resume with the plan. Another drain may have taken the lock.",
                )

    def _confirm(self, client: _Client, now_s: float) -> None:
        """Note the answer to the last commit, and send the next one when it is due."""
        if client.confirmed_s > self.confirmed_s:
            self.confirmed_s = client.confirmed_s
            self._heard_s = now_s
            self.sure_until_s = self.confirmed_s + self._lease_s
        due = now_s - client.sent_s > self._margin_s
        if due and client.in_group and client.pending_s is None:
            self._number += 1
            client.commit(self._number, now_s)

    def _doubt(self) -> None:
        self._membership, self.sure_until_s = Membership.UNSURE, NEVER_S

    def _check_alone(self) -> None:
        # A member that was expelled can join again. If another drain has joined in between, the
        # lock belongs to that one.
        try:
            members = self._members(CHECK_TIMEOUT_S)
            commits = self.cluster.commits(self._lock_group, CHECK_TIMEOUT_S)
        except DrainerError:
            return  # It is checked again later, and no call begins until there is an answer.
        self._heard_s = boottime_s()
        others = [m for m in members if m.client_id != self.client_id]
        are_ours = all(
            topic == self.topic and self._first_number < number <= self._number
            for topic, _, number in commits - self._earlier
        )
        if others or not (are_ours or self.confirmed_s < 0):
            who = _named(others) if others else "another drain, which is gone by now,"
            self._refusal = LockHeld
            self._lose(
                f"{who} took the lock on group {self.group}, while this process was suspended or"
                " disconnected",
                f"{'Let that drain finish' if others else 'Resume with the plan'}. If it drains the"
                " same topic, both may have handled some sub-messages.",
            )
        elif members:
            self._membership = Membership.MEMBER

    def _on_error(self, error: KafkaError) -> None:
        """Give the lock up if a new client would get the same error, too."""
        if error.code() in FORBIDDEN:
            of_topic = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            resource = f"topic {self.topic}" if of_topic else f"group {self._lock_group}"
            missing = may_not(f"hold the lock on group {self.group}", "READ", resource)
            self._lose(str(missing), missing.hint)
        elif error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            self._lose(
                f"the lock on group {self.group} failed: {error.str()}",
                "Set session.timeout.ms to at least the broker's group.min.session.timeout.ms.",
            )
        elif error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            self._lose(
                f"no drain can lock group {self.group}: {self._lock_group} is of another kind",
                "Stop its members and delete that group: its name is drainer's.",
            )

    def _lose(self, what: str, hint: str | None = None) -> None:
        self.lost, self.sure_until_s = LockLost(what, hint=hint), NEVER_S
        self._membership = Membership.LOST
        self._joined.set()


class _Client:
    """One client in the lock group. Only the lock's thread uses it."""

    def __init__(self, settings: ClientSettings, conf: dict[str, Any], topic: str) -> None:
        self.in_group = False
        # The coordinator has expelled this member. The thread of the lock resets this.
        self.expelled = False
        # ``pending_s`` is the time at which a commit without an answer was sent, ``sent_s`` that of
        # the last commit, and ``confirmed_s`` that of the last one that was accepted.
        self.pending_s: float | None = None
        self.sent_s = self.confirmed_s = NEVER_S
        self._topic = topic
        self.consumer = settings.consumer(conf | {"on_commit": self._on_commit})
        self.consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self) -> None:
        """Serve the client. Raises KafkaException for an error that does not pass by itself."""
        message = self.consumer.poll(POLL_S)
        error = None if message is None else message.error()
        if error is not None and error.code() not in RETRIABLE | NO_TOPIC:
            raise KafkaException(error)

    def commit(self, number: int, now_s: float) -> None:
        """Begin to commit a number. The coordinator accepts it only from a member."""
        self.pending_s = self.sent_s = now_s
        self.consumer.commit(offsets=[TopicPartition(self._topic, 0, number)], asynchronous=True)

    def leave(self, members: Callable[[], Sequence[Member]]) -> None:
        """Leave the group, and wait until the coordinator no longer lists this member."""
        # A static member that only calls close() stays a member until its session is over. With
        # unsubscribe() it leaves the group, if the client is polled after that.
        until_s = boottime_s() + RELEASE_TIMEOUT_S
        with suppress(KafkaException, DrainerError):  # The drain ends, and reports why, anyway.
            member_id = self.consumer.memberid()
            self.consumer.unsubscribe()
            while boottime_s() < until_s:
                self.consumer.poll(0.01)
                if member_id not in [member.id for member in members()]:
                    return

    def _on_commit(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        sent_s, self.pending_s = self.pending_s, None
        if sent_s is not None and error is None and not any(each.error for each in offsets):
            self.confirmed_s = sent_s

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.assign([])  # The member reads nothing.
        self.in_group = True

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.unassign()
        self.in_group = False

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.expelled = True
        self._on_revoke(consumer, partitions)


def _named(members: Iterable[Member]) -> str:
    """Name the drains of a lock group: ``another drain (20261130-005347-a6d94d on db1)``."""
    named = (_CLIENT.sub(r"\1 on \2", member.client_id) for member in members)
    return f"another drain ({', '.join(named)})"
