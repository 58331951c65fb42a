"""The connection to a cluster: a client that repeats its requests while the cluster is away."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from concurrent import futures
from contextlib import suppress
from typing import Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from drainer.errors import BrokerUnreachable, Refused
from drainer.kafka.answers import (
    FORBIDDEN,
    RETRIABLE,
    STUCK,
    Right,
    may_not,
    rejected_login,
    unreachable,
)
from drainer.kafka.log import ClientLog, Complaint
from drainer.kafka.settings import ClientSettings

OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT_S = 10.0
# How long to wait for a cluster that was reached before, if it seems to be slow and not away.
SLOW_S = 30.0
# How long the first request waits if nothing listens on the port, or if the host is unknown.
REFUSED_PATIENCE_S = 2.0
ATTEMPT_S = 3.0  # The longest timeout of one attempt.
RETIRED_KEPT = 2  # This many replaced clients are kept, because their requests may still run.
BACKOFF_S, BACKOFF_MAX_S = 0.05, 0.5
# How often a connection that waits for an answer checks the complaints of its client.
TURN_S = 0.05

T = TypeVar("T")


class Connection:
    """A client that repeats its requests until the time is up. It is a context manager.

    A request is repeated when a connection breaks, or while a coordinator loads or moves.
    """

    def __init__(self, settings: ClientSettings, timeout_s: float = TIMEOUT_S) -> None:
        self.settings = settings
        # How long to wait for an answer, unless a request has its own timeout. A cluster that was
        # reached before and is only slow gets SLOW_S.
        self.timeout_s = timeout_s
        self.cluster_id = ""  # Empty until the cluster was reached for the first time.
        self._log = ClientLog()
        self._retired: deque[AdminClient] = deque(maxlen=RETIRED_KEPT)
        # Other modules call the client directly for requests that only one of them makes.
        self.admin = settings.admin(self._log)

    @classmethod
    def connect(cls, settings: ClientSettings, timeout_s: float = TIMEOUT_S) -> Self:
        """Connect to the cluster, and find the cause if that fails.

        Raises:
            BrokerUnreachable: within ``timeout_s``, or earlier when waiting would not help. Its
                text tells apart an unknown host, a port where nothing listens, a login that was
                rejected or has no token, and TLS.
            UsageError: when librdkafka rejects the settings.
        """
        made = cls(settings, timeout_s)

        def attempt(left: float) -> str:
            made.ensure_answers(left)
            return made.admin.cluster_id(timeout=left)

        made.cluster_id = made.request("look at the cluster", attempt)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the client's last complaints. The client is freed with the last reference to it."""
        self.admin.poll(0)

    def request(
        self,
        what: str,
        attempt: Callable[[float], T],
        timeout_s: float | None = None,
        *,
        needs: tuple[Right, str] = ("DESCRIBE", "the cluster"),
    ) -> T:
        """Repeat a request until it succeeds, the time is up, or the answer can't change any more.

        Args:
            what: completes the sentence "this user may not ...".
            attempt: makes the request within the seconds that it is called with, or raises
                KafkaException.
            timeout_s: replaces the timeout of the connection.
            needs: the right that the request needs, and on which resource.

        Raises:
            BrokerUnreachable: when the time is up.
            RightMissing: when this user does not have the right.
            Refused: for any other answer, which is the ``__cause__`` of the error.
        """
        patience_s = slow_s = self.timeout_s if timeout_s is None else timeout_s
        if timeout_s is None and self.cluster_id:
            slow_s = max(patience_s, SLOW_S)
        started_s = time.monotonic()
        backoff_s = BACKOFF_S
        while True:
            left = started_s + slow_s - time.monotonic()
            try:
                return attempt(max(TURN_S, min(ATTEMPT_S, left)))
            except KafkaException as error:
                answer: KafkaError = error.args[0]
                waited_s, complaints = time.monotonic() - started_s, self._log.since(started_s)
                if answer.code() in FORBIDDEN:
                    raise may_not(what, *needs) from error
                if answer.code() not in RETRIABLE:
                    raise Refused(
                        f"Kafka refused to {what}: {answer.str()}",
                        hint="See Kafka's protocol guide, or run `drainer --debug …`.",
                    ) from error
                if answer.code() in STUCK:
                    self._renew()
                if waited_s + backoff_s >= (patience_s if _is_away(complaints) else slow_s):
                    known = f"{what} ({answer.str()})"
                    raise unreachable(
                        self.settings.bootstrap_servers,
                        waited_s,
                        complaints,
                        known if self.cluster_id else "",
                    ) from error
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def find(
        self,
        what: str,
        attempt: Callable[[float], T],
        absent: Container[int],
        timeout_s: float | None = None,
        *,
        needs: tuple[Right, str] = ("DESCRIBE", "the cluster"),
    ) -> T | None:
        """Make a request as ``request`` does; return None if the answer is a code in ``absent``."""

        def tried(left: float) -> T | None:
            try:
                return attempt(left)
            except KafkaException as error:
                if error.args[0].code() in absent:
                    return None
                raise

        return self.request(what, tried, timeout_s, needs=needs)

    def wait(self, future: futures.Future[T], timeout_s: float) -> T:
        """Wait for the result of a request that has the timeout ``timeout_s``.

        The wait ends early if a complaint of the client shows that no result will come.

        Raises:
            BrokerUnreachable: when the login is rejected, and at first contact also when there is
                no broker.
            KafkaException: when the request failed.
        """
        started_s = time.monotonic()
        while True:
            try:
                return future.result(TURN_S)
            except futures.TimeoutError:
                pass
            finally:
                self.admin.poll(0)
            waited_s = time.monotonic() - started_s
            complaints = self._log.since(started_s)
            at_first = not self.cluster_id and waited_s > REFUSED_PATIENCE_S
            if rejected_login(complaints) or (at_first and _no_broker_there(complaints)):
                raise unreachable(self.settings.bootstrap_servers, waited_s, complaints)
            if waited_s > timeout_s + 1:  # librdkafka should have raised this error by now.
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def ensure_answers(self, left_s: float) -> None:
        """Raise KafkaException when the cluster does not answer a request about a topic.

        A request about the cluster itself is not possible here. A single broker that has just come
        back knows of no broker, and librdkafka (2.16) ends the process when it answers that (an
        assertion in rd_kafka_admin_response_parse).
        """
        topics = TopicCollection([OFFSETS_TOPIC])
        answers = self.admin.describe_topics(topics, request_timeout=left_s)
        try:
            self.wait(answers[OFFSETS_TOPIC], left_s)
        except KafkaException as error:  # Any other error is an answer of a broker.
            if error.args[0].code() in RETRIABLE:
                raise

    def _renew(self) -> None:
        # When a broker comes back, librdkafka (2.16) sometimes waits forever for its old connection
        # to it. A new client does not.
        with suppress(BrokerUnreachable):  # At this moment there may be no token for the login.
            renewed = self.settings.admin(self._log)
            self._retired.append(self.admin)
            self.admin = renewed


def _is_away(complaints: Sequence[Complaint]) -> bool:
    """Return whether a complaint shows that a broker is away, and not only slow.

    If a broker is suspended, requests to it time out, and librdkafka counts it as down. So neither
    a timeout nor the complaint that all brokers are down shows that it is away.
    """
    return any(
        complaint.code not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
        and "timed out" not in complaint.text
        for complaint in complaints
    )


def _no_broker_there(complaints: Sequence[Complaint]) -> bool:
    codes = {complaint.code for complaint in complaints}
    return KafkaError._ALL_BROKERS_DOWN in codes and len(codes) > 1
