"""The lock: one drain at a time works for a group, wherever the others run.

A drain is the only member of a group of its own. Kafka keeps track of whether it lives, and a
newcomer sees it in the group's description. Of two that join at the same moment, the one that looks
later sees the other; neither can push the other out. The instance id is the drain's own, so that
it takes the place of a dead process of itself at once.

A member for which other processes make calls commits the next number as the group's offset, each
second or once the last one was answered. The answer confirms that the coordinator has begun a new
session for it since the question was sent, and a newcomer sees by the number that the holder is
alive. Others commit 0, once: a commit that is under way when a broker comes back may end the
process (librdkafka issue 4605).
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from drainer.engine.runtime import uptime_s
from drainer.errors import BrokerUnreachable, DrainerError, LockHeld, LockLost, Refused
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, PASSING, may_not, unreachable
from drainer.kafka.cluster import LOCK, Cluster, Member
from drainer.kafka.log import ClientLog

SESSION_TIMEOUT_MS = 6000  # the least that brokers allow by default
HEARTBEAT_MS = 1000  # how late the earlier of two drains notices, at worst
EXPIRY_MARGIN_S = 2.0  # a broker notices a dead member a little late
CONFIRM_EVERY_S = 1.0
SILENT_MOST_S = 180.0  # the longest session of any drain, and some
ACQUIRE_TIMEOUT_S = 30.0  # brokers hold a new group's first join back for 3 s, by default
RELEASE_TIMEOUT_S = 3.0
REGAIN_TIMEOUT_S = 120.0
LOOK_EVERY_S = 0.2
LOOK_TIMEOUT_S = 1.0  # for a look amid polling
POLL_S = 0.05
POLL_INTERVAL_MS = 24 * 60 * 60 * 1000
MAX_SESSION_MS = "session.timeout.ms"


def lock_group(group: str) -> str:
    """The group whose only member holds the lock."""
    return f"{LOCK}{group}"


class GroupLock:
    """The right to drain for a group; heartbeats keep it, and end with the process.

    Args:
        cluster: to see who holds it.
        group: the group that is drained.
        topic: its topic; the lock subscribes to it, as members must, and reads nothing of it.
        drain_id: of this drain; it names the holder to others. No other process that lives may
            have it (its plan file is locked by us): a lock that an earlier one left behind is taken
            over at once.
        say: gets a sentence when it has to wait.
        session_s: how long others are to be kept out, at least, when this process falls silent; 0
            when all calls are its own.

    Attributes:
        confirmed_s: when the last question was sent that the coordinator answered as to its
            member, by ``uptime_s``: it lets no other one in for a session from then on.
        stays: whether a release leaves the place taken until the session is over, for calls that
            other processes make for this drain may go on for a while.
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
        self.lost: LockLost | None = None
        # Since when the coordinator has not confirmed the lock, by ``uptime_s``; None while it is
        # held for sure. It comes back by itself, or is lost after a while.
        self.unsure_since_s: float | None = None
        self.confirmed_s = float("-inf")
        self.stays = False
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._say = say
        asked_ms = int(cluster.settings.properties.get(MAX_SESSION_MS, SESSION_TIMEOUT_MS))
        self._session_ms = max(asked_ms, int(session_s * 1000))
        self._confirms = session_s > 0
        self._log = ClientLog(cluster.settings.redact)
        self._thread: threading.Thread | None = None
        self._joined = threading.Event()
        self._leaving = False
        self._ending = False
        self._in_group = False
        self._was_out = False  # others may have taken the lock since
        self._asked_s: float | None = None  # when the commit was sent that has no answer yet

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
            self._insist_alone()
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
        numbers: set[int] = set()
        said = False
        while others := self._others():
            if number := self._number():
                numbers.add(number)
            # One that commits no more than 0 has the shortest session.
            most_s = SILENT_MOST_S if numbers else self._session_ms / 1000 + EXPIRY_MARGIN_S
            if len(numbers) > 1 or uptime_s() - begun_s > most_s:
                raise self._held(others)
            if not said:
                said = True
                self._say(
                    f"{_named(others)} holds the lock on group {self._group}: waiting to see"
                    " whether it is alive"
                )
            time.sleep(LOOK_EVERY_S)

    def _number(self) -> int | None:
        """The last one that a holder has committed."""
        return self._cluster.committed(lock_group(self._group), self._topic, (0,))[0]

    def _insist_alone(self) -> None:
        # Of those that joined at the same moment the first by name waits for the others to leave.
        # One among them may hold the lock: then all leave.
        until = uptime_s() + self._session_ms / 1000 + EXPIRY_MARGIN_S
        while self.lost is None:
            members = self._members()
            names = {member.client_id for member in members}
            if names == {self.client_id}:
                return
            late = uptime_s() > until
            if names and (late or min(names) != self.client_id):
                raise self._held([m for m in members if m.client_id != self.client_id])
            if late:
                raise BrokerUnreachable(
                    f"lock group {lock_group(self._group)} has no members, not even this drain",
                    hint="Try again: the cluster is reachable, but slow or not ready.",
                )
            time.sleep(LOOK_EVERY_S)
        raise Refused(str(self.lost), hint=self.lost.hint)

    def _members(self, timeout_s: float | None = None) -> Sequence[Member]:
        return self._cluster.group(lock_group(self._group), timeout_s).members

    def _others(self) -> list[Member]:
        return [each for each in self._members() if each.client_id != self.client_id]

    def _held(self, others: Sequence[Member]) -> LockHeld:
        return LockHeld(
            f"{_named(others)} holds the lock on group {self._group} and is running",
            hint="Wait for it to end, or stop it with Ctrl-C and resume its plan.",
        )

    def _join(self) -> None:
        settings = self._cluster.settings
        conf = settings.conf(
            self._log,
            group_id=lock_group(self._group),
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            enable_auto_commit=False,
        )
        consumer = settings.consumer(conf | {"on_commit": self._answered})
        self._joined.clear()
        self._leaving = self._ending = self._in_group = self._was_out = False
        self.unsure_since_s = self.lost = self._asked_s = None
        self.confirmed_s = float("-inf")
        begun = time.monotonic()
        # All calls are from one thread: librdkafka's Python client locks others out meanwhile.
        self._thread = threading.Thread(
            target=self._hold, args=(consumer,), name="drainer-lock", daemon=True
        )
        self._thread.start()
        if not self._joined.wait(ACQUIRE_TIMEOUT_S):
            waited_s, said = time.monotonic() - begun, self._log.since(begun)
            what = f"join group {lock_group(self._group)}"
            raise unreachable(settings.bootstrap_servers, waited_s, said, what)

    def _hold(self, consumer: Consumer) -> None:
        try:
            consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._cast_out,
            )
            polled_s = looked_s = uptime_s()
            asked_s, number = float("-inf"), 0 if self._confirms else -1
            while not self._ending and self.lost is None:
                message = consumer.poll(POLL_S)
                if message is not None:
                    self._heed(message)
                now_s = uptime_s()
                if now_s - polled_s > self._session_ms / 1000:  # this process stood still
                    self._was_out = True
                    self._doubt()
                polled_s = now_s
                # Not before it is in again: to look for a coordinator that is away may end the
                # process (librdkafka issue 4605).
                if self._was_out and self._in_group and now_s - looked_s > LOOK_EVERY_S:
                    self._look_for_others()
                    polled_s = looked_s = uptime_s()
                may_ask = self._in_group and not self._was_out and self._asked_s is None
                is_asked = number < 0 or (self._confirms and now_s - asked_s > CONFIRM_EVERY_S)
                if may_ask and is_asked:
                    number += 1
                    self._asked_s = asked_s = now_s
                    at = TopicPartition(self._topic, 0, number)
                    consumer.commit(offsets=[at], asynchronous=True)
                since_s = self.unsure_since_s
                if since_s is not None and uptime_s() - since_s > REGAIN_TIMEOUT_S:
                    self._lose(
                        f"the lock on group {self._group} was not confirmed for"
                        f" {REGAIN_TIMEOUT_S:.0f} s",
                        "another drain may have taken it; resume with the plan",
                    )
            if (self._ending and not self.stays) or self._was_out:
                self._leave(consumer)
        except Exception as error:  # whatever it is, the lock is not held any more
            said = error.args[0].str() if isinstance(error, KafkaException) else repr(error)
            said = self._cluster.settings.redact(said)
            self._lose(f"the lock on group {self._group} failed: {said}")
        finally:
            consumer.close()

    def _leave(self, consumer: Consumer) -> None:
        # close() keeps the place of a static member until its session is over; unsubscribe()
        # gives it up, if it is polled until the broker has noticed.
        self._leaving = True
        consumer.unsubscribe()
        until = uptime_s() + RELEASE_TIMEOUT_S
        while uptime_s() < until:
            consumer.poll(0.01)
            try:
                members = self._members(RELEASE_TIMEOUT_S)
            except Refused:
                return
            if self.client_id not in [member.client_id for member in members]:
                return

    def _answered(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        asked_s, self._asked_s = self._asked_s, None
        if asked_s is not None and error is None and not any(each.error for each in offsets):
            self.confirmed_s = asked_s

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.assign([])  # a member that reads nothing
        self._in_group = True
        self._settle()
        self._joined.set()

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.unassign()
        self._in_group = False
        if not self._leaving:
            self._doubt()

    def _cast_out(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._was_out = True
        self._revoked(consumer, partitions)

    def _doubt(self) -> None:
        if self.unsure_since_s is None:
            self.unsure_since_s = uptime_s()

    def _settle(self) -> None:
        if self._in_group and not self._was_out:
            self.unsure_since_s = None

    def _look_for_others(self) -> None:
        # The broker lets whoever was out in again, beside those who came since: it is theirs now.
        try:
            members = self._members(LOOK_TIMEOUT_S)
        except DrainerError:
            return  # it is asked again, and nothing is committed until there is an answer
        if others := [m for m in members if m.client_id != self.client_id]:
            self._lose(
                f"{_named(others)} took the lock on group {self._group}, while this process stood"
                " still or was cut off",
                "let that one finish; what both handled in between is handled twice",
            )
        elif members:
            self._was_out = False
            self._settle()

    def _heed(self, message: Message) -> None:
        answer = message.error()
        if answer is None or answer.code() in PASSING | NO_TOPIC:
            return
        said = self._cluster.settings.redact(answer.str())
        if answer.code() in {KafkaError._FATAL, KafkaError._FENCED, KafkaError.FENCED_INSTANCE_ID}:
            self._lose(
                f"another drain took the lock on group {self._group}: {said}",
                "Find where it runs, and let it end: it has this drain's name.",
            )
        elif answer.code() in FORBIDDEN:
            of_topic = answer.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            resource = f"topic {self._topic}" if of_topic else f"group {lock_group(self._group)}"
            missing = may_not(f"hold the lock on group {self._group}", "READ", resource)
            self._lose(str(missing), missing.hint)
        else:
            hint = None
            if answer.code() == KafkaError.INVALID_SESSION_TIMEOUT:
                hint = (
                    "Set session.timeout.ms to at least the broker's group.min.session.timeout.ms."
                )
            self._lose(f"the lock on group {self._group} failed: {said}", hint)

    def _lose(self, what: str, hint: str | None = None) -> None:
        self.lost = LockLost(what, hint=hint)
        self._joined.set()


def _named(members: Iterable[Member]) -> str:
    return "another drain (" + ", ".join(map(str, members)) + ")"
