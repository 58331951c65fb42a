"""The lock that one drain has on its group: the membership of a lock group of its own.

Kafka fences no two committers that are not members, so something has to keep drains apart. The
members of ``drainer.lock.GROUP`` are the drains that work for ``GROUP``: a drain looks whether it
is alone there before it works, and its client's heartbeats keep its place for as long as it lives.

The place is that of a static member (KIP-345): the next process of the same drain takes it over at
once. The client is replaced when it fails, for librdkafka fences itself when a coordinator that
stood still answers the same join twice. Whether the place is still ours, the coordinator reports.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.engine.runtime import uptime_s
from drainer.errors import BrokerUnreachable, DrainerError, LockHeld, LockLost, Refused
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, PASSING, may_not, unreachable
from drainer.kafka.cluster import LOCK, Cluster, Member
from drainer.kafka.log import ClientLog
from drainer.kafka.offsets import close_later

SESSION_TIMEOUT_MS = 6000  # the least that brokers allow by default
HEARTBEAT_MS = 1000  # how late the earlier of two drains notices, at worst
EXPIRY_MARGIN_S = 2.0  # a broker notices a dead member a little late
MARGIN_SHARE = 1 / 6  # of a session: for clocks that run at different paces, and a late thread;
MARGIN_MOST_S = 1.0  # and as often a member is confirmed
SILENT_MOST_S = 180.0  # the longest session of any drain, and some
ACQUIRE_TIMEOUT_S = 30.0  # brokers hold a new group's first join back for 3 s, by default
RELEASE_TIMEOUT_S = 3.0
REGAIN_TIMEOUT_S = 120.0
REPLACE_AFTER_S = 10.0  # for a client that does not get in again
RETRY_S = 1.0
FIRST_NUMBER_MOST = 2**40
LOOK_EVERY_S = 0.2
LOOK_TIMEOUT_S = 1.0  # for a look amid polling
POLL_S = 0.02
POLL_INTERVAL_MS = 24 * 60 * 60 * 1000
MAX_SESSION_MS = "session.timeout.ms"


class Standing(Enum):
    """What a drain knows of its place in the lock group."""

    JOINING = "joining"  # for the first time, or after an ordinary rebalance
    OUT = "out"  # others may have come since it had a place
    MEMBER = "member"


def lock_group(group: str) -> str:
    """The group whose only member holds the lock."""
    return f"{LOCK}{group}"


class GroupLock:
    """The right to drain for a group; heartbeats keep it, and end with the process.

    Args:
        topic: its topic; the lock subscribes to it, as members must, and reads nothing of it.
        drain_id: of this drain; it names the holder to others. No other process that lives may
            have it (its plan file is locked by us): a lock that an earlier one left behind is taken
            over at once.
        session_s: how long others are to be kept out, at least, when this process falls silent; 0
            when all calls are its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        drain_id: str,
        *,
        say: Callable[[str], None] = lambda text: None,
        session_s: float = 0.0,
    ) -> None:
        self.client_id = f"drainer-{drain_id}@{socket.gethostname()}"
        self.instance_id = f"drainer-{uuid.uuid5(uuid.NAMESPACE_URL, self.client_id)}"
        # Why the lock is not held any more; None while it is, or may come back.
        self.lost: LockLost | None = None
        # Until when calls may begin, by ``uptime_s``.
        # When the last question was sent that the coordinator answered as to its member, by
        # ``uptime_s``: it lets no other one in for a session from then on.
        self.confirmed_s = self.sure_until_s = float("-inf")
        # Whether a release leaves the place taken until the session is over, for calls that other
        # processes make for this drain may go on for a while.
        self.stays = False
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._say = say
        asked_ms = int(cluster.settings.properties.get(MAX_SESSION_MS, SESSION_TIMEOUT_MS))
        self._session_ms = max(asked_ms, int(session_s * 1000))
        self._margin_s = min(MARGIN_MOST_S, MARGIN_SHARE * self._session_ms / 1000)
        self._lease_s = self._session_ms / 1000 - self._margin_s
        self._log = ClientLog(cluster.settings.redact)
        self._standing = Standing.JOINING
        self._member_since_s = 0.0  # or since others were looked for
        self._thread: threading.Thread | None = None
        self._joined = threading.Event()
        self._ending = False
        # Of the questions to the coordinator: nobody else begins with the same.
        self._first_number = self._number = secrets.randbelow(FIRST_NUMBER_MOST)

    def acquire(self) -> None:
        """Take the lock; a holder that may be dead gets its session's time to show that it isn't.

        Raises:
            LockHeld: when another drain holds it; the text names it.
            BrokerUnreachable: when the group's coordinator does not let us in.
            Refused: when this user may not use the lock's group.
        """
        self._wait_until_free()
        try:
            self._join()
            self._ensure_alone()
        except BaseException:  # Ctrl-C too: whoever failed to take the lock won't release it
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back, so that the next drain need not wait. Never raises."""
        thread = self._thread
        if thread is None:
            return
        self._ending = True
        thread.join(RELEASE_TIMEOUT_S + 1)
        self._thread = None

    def _wait_until_free(self) -> None:
        begun_s = uptime_s()
        numbers: set[int | None] = set()
        said = False
        while others := [m for m in self._members() if m.client_id != self.client_id]:
            numbers.add(self._last_number())
            if len(numbers) > 2 or uptime_s() - begun_s > SILENT_MOST_S:
                raise self._held(others)
            if not said:
                said = True
                self._say(
                    f"{_named(others)} holds the lock on group {self._group}: waiting to see"
                    " whether it is alive"
                )
            time.sleep(LOOK_EVERY_S)

    def _last_number(self, timeout_s: float | None = None) -> int | None:
        """The last one that a holder has committed."""
        return self._cluster.committed(lock_group(self._group), self._topic, (0,), timeout_s)[0]

    def _ensure_alone(self) -> None:
        # Of those that joined at the same moment the first by name waits for the others to leave.
        # One among them may hold the lock: then all leave.
        until = uptime_s() + self._session_ms / 1000 + EXPIRY_MARGIN_S
        while self.lost is None:
            members = self._members()
            names = {member.client_id for member in members}
            if names == {self.client_id} and uptime_s() < self.sure_until_s:
                return
            late = uptime_s() > until
            others = [m for m in members if m.client_id != self.client_id]
            if others and (late or min(names) != self.client_id):
                raise self._held(others)
            if late:
                raise BrokerUnreachable(
                    f"lock group {lock_group(self._group)} has no members, not even this drain",
                    hint="Try again: the cluster is reachable, but slow or not ready.",
                )
            time.sleep(POLL_S if names == {self.client_id} else LOOK_EVERY_S)
        raise Refused(str(self.lost), hint=self.lost.hint)

    def _members(self, timeout_s: float | None = None) -> Sequence[Member]:
        return self._cluster.group(lock_group(self._group), timeout_s).members

    def _held(self, others: Sequence[Member]) -> LockHeld:
        return LockHeld(
            f"{_named(others)} holds the lock on group {self._group} and is running",
            hint="Wait for it to end, or stop it with Ctrl-C and resume its plan.",
        )

    def _join(self) -> None:
        self._joined.clear()
        self._ending, self.lost, self._standing = False, None, Standing.JOINING
        self.confirmed_s = self.sure_until_s = float("-inf")
        begun = time.monotonic()
        self._thread = threading.Thread(target=self._hold, name="drainer-lock", daemon=True)
        self._thread.start()
        if not self._joined.wait(ACQUIRE_TIMEOUT_S):
            waited_s, said = time.monotonic() - begun, self._log.since(begun)
            what = f"join group {lock_group(self._group)}"
            raise unreachable(self._cluster.settings.bootstrap_servers, waited_s, said, what)

    def _hold(self) -> None:
        """Keeps the lock, with one client after the other, until it is given back or lost."""
        since_s = uptime_s()
        try:
            while not self._ending and self.lost is None:
                client = _Client(self)
                try:
                    self._attend(client, since_s)
                    if (self._ending and not self.stays) or self.lost is not None:
                        client.leave(lambda: self._members(RELEASE_TIMEOUT_S))
                except KafkaException as error:
                    self._heed(error.args[0])
                finally:
                    close_later(client.consumer)
                if not self._ending and self.lost is None:
                    self._fall_out()
                    time.sleep(RETRY_S)
        except Exception as error:  # whatever it is, the lock is not held any more
            said = self._cluster.settings.redact(repr(error))
            self._lose(f"the lock on group {self._group} failed: {said}")

    def _attend(self, client: _Client, since_s: float) -> None:
        """Polls a client until it is to be replaced, or the lock is given back or lost."""
        begun_s = looked_s = uptime_s()
        while not self._ending and self.lost is None:
            client.poll()
            now_s = uptime_s()
            if client.was_cast_out:
                client.was_cast_out = False
                self._fall_out()
            if client.in_group:
                self._joined.set()
                if self._standing is Standing.JOINING:
                    self._standing, self._member_since_s = Standing.MEMBER, now_s
                elif self._standing is Standing.OUT and now_s - looked_s > LOOK_EVERY_S:
                    self._standing = self._look_for_others()
                    looked_s = self._member_since_s = uptime_s()
            if self._standing is Standing.MEMBER:
                self._confirm(client, now_s)
                if now_s - max(self._member_since_s, self.confirmed_s) > self._lease_s:
                    # This process may have stood still, or was cast out and let in again unnoticed.
                    self._fall_out()
            if now_s - max(begun_s, client.confirmed_s) > REPLACE_AFTER_S:
                return
            if now_s - max(since_s, self.confirmed_s) > self._session_ms / 1000 + REGAIN_TIMEOUT_S:
                self._lose(
                    f"the lock on group {self._group} was not confirmed for"
                    f" {REGAIN_TIMEOUT_S:.0f} s",
                    "another drain may have taken it; resume with the plan",
                )

    def _confirm(self, client: _Client, now_s: float) -> None:
        """Asks the coordinator, by a commit as its member, and counts the answer to the last."""
        if client.confirmed_s > self.confirmed_s:
            self.confirmed_s = client.confirmed_s
            self.sure_until_s = self.confirmed_s + self._lease_s
        if client.in_group and client.asked_s is None and now_s - client.last_s > self._margin_s:
            self._number += 1
            client.ask(self._topic, self._number, now_s)

    def _fall_out(self) -> None:
        self._standing, self.sure_until_s = Standing.OUT, float("-inf")

    def _look_for_others(self) -> Standing:
        # The coordinator lets whoever was out in again, beside those who came since: it is theirs.
        try:
            members = self._members(LOOK_TIMEOUT_S)
            number = self._last_number(LOOK_TIMEOUT_S)
        except DrainerError:
            return Standing.OUT  # it is asked again, and nothing begins until there is an answer
        others = [m for m in members if m.client_id != self.client_id]
        is_ours = number is None or self._first_number < number <= self._number
        if others or not (is_ours or self.confirmed_s < 0):
            who = _named(others) if others else "another drain, which is gone by now,"
            self._lose(
                f"{who} took the lock on group {self._group}, while this process stood still or was"
                " cut off",
                "let that one finish; what both handled in between is handled twice",
            )
        return Standing.MEMBER if members else Standing.OUT

    def _heed(self, answer: KafkaError) -> None:
        """Loses the lock by an answer that another client would get, too."""
        if answer.code() in FORBIDDEN:
            of_topic = answer.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            resource = f"topic {self._topic}" if of_topic else f"group {lock_group(self._group)}"
            missing = may_not(f"hold the lock on group {self._group}", "READ", resource)
            self._lose(str(missing), missing.hint)
        elif answer.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            said = self._cluster.settings.redact(answer.str())
            self._lose(
                f"the lock on group {self._group} failed: {said}",
                "Set session.timeout.ms to at least the broker's group.min.session.timeout.ms.",
            )

    def _lose(self, what: str, hint: str | None = None) -> None:
        self.lost, self.sure_until_s = LockLost(what, hint=hint), float("-inf")
        self._joined.set()


class _Client:
    """One client in the lock group, for the lock's thread."""

    def __init__(self, lock: GroupLock) -> None:
        # Whether the coordinator took its place away; whoever notices clears it.
        self.in_group = self.was_cast_out = False
        # When the question was sent that has no answer yet; None without one.
        self.asked_s: float | None = None
        # When the last one was sent that was answered as to a member.
        self.last_s = self.confirmed_s = float("-inf")
        settings = lock._cluster.settings
        conf = settings.conf(
            lock._log,
            group_id=lock_group(lock._group),
            group_instance_id=lock.instance_id,
            client_id=lock.client_id,
            session_timeout_ms=lock._session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            enable_auto_commit=False,
        )
        self.consumer = settings.consumer(conf | {"on_commit": self._answered})
        self.consumer.subscribe(
            [lock._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._cast_out
        )

    def poll(self) -> None:
        """Serves the client. Raises KafkaException with what does not pass by itself."""
        message = self.consumer.poll(POLL_S)
        answer = None if message is None else message.error()
        if answer is not None and answer.code() not in PASSING | NO_TOPIC:
            raise KafkaException(answer)

    def ask(self, topic: str, number: int, now_s: float) -> None:
        """Begin to commit a number: only a member may."""
        self.asked_s = self.last_s = now_s
        self.consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=True)

    def leave(self, members: Callable[[], Sequence[Member]]) -> None:
        """Give the place up, and wait until the coordinator has noticed."""
        # close() keeps the place of a static member until its session is over; unsubscribe()
        # gives it up, if it is polled meanwhile.
        until_s = uptime_s() + RELEASE_TIMEOUT_S
        with suppress(KafkaException, DrainerError):  # why it ends is known, and told by others
            member_id = self.consumer.memberid()
            self.consumer.unsubscribe()
            while uptime_s() < until_s:
                self.consumer.poll(0.01)
                if member_id not in [member.id for member in members()]:
                    return

    def _answered(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        asked_s, self.asked_s = self.asked_s, None
        if asked_s is not None and error is None and not any(each.error for each in offsets):
            self.confirmed_s = asked_s

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.assign([])  # a member that reads nothing
        self.in_group = True

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.unassign()
        self.in_group = False

    def _cast_out(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.was_cast_out = True
        self._revoked(consumer, partitions)


def _named(members: Iterable[Member]) -> str:
    return "another drain (" + ", ".join(map(str, members)) + ")"
