"""The connection to a cluster: a client for requests, with the patience to repeat them."""

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
from drainer.kafka.answers import FORBIDDEN, PASSING, Right, may_not, rejected_login, unreachable
from drainer.kafka.log import ClientLog, Complaint
from drainer.kafka.settings import ClientSettings

OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT_S = 10.0
SLOW_S = 30.0  # for a cluster that was reached, and of which there is no sign that it is away
REFUSED_PATIENCE_S = 2.0  # at first contact, for a port where nothing listens or an unknown host
ATTEMPT_S = 3.0
RETIRED_KEPT = 2  # a client must not go before its requests have ended
BACKOFF_S, BACKOFF_MAX_S = 0.05, 0.5
TURN_S = 0.05  # how often the client's own complaints are looked at while waiting

# After these, librdkafka's client may stay as it is for minutes: it waits for an old broker handle,
# or requests with the leader epoch that it has once seen.
STUCK = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)

T = TypeVar("T")


class Connection:
    """One client, whose requests are repeated until time is up; a context manager.

    A coordinator that loads or moves and a broken connection are no errors: they pass.
    """

    def __init__(self, settings: ClientSettings, timeout_s: float = TIMEOUT_S) -> None:
        self.settings = settings
        # How long an answer is waited for, unless a request has its own. A cluster that is merely
        # slow gets longer.
        self.timeout_s = timeout_s
        self.cluster_id = ""  # the cluster's id, as it was when this connected
        self._log = ClientLog()
        self._retired: deque[AdminClient] = deque(maxlen=RETIRED_KEPT)
        # The client, for the requests that only one module makes.
        self.admin = settings.admin(self._log)

    @classmethod
    def connect(cls, settings: ClientSettings, timeout_s: float = TIMEOUT_S) -> Self:
        """Reach the cluster, and find out why if that fails.

        Raises:
            BrokerUnreachable: within ``timeout_s``, and earlier when waiting would not help. Its
                text distinguishes an unknown host, a port where nothing listens, a login that was
                not accepted or has no token, and TLS.
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
        """Report the client's last complaints; the client goes with its last reference."""
        self.admin.poll(0)

    def request(
        self,
        what: str,
        attempt: Callable[[float], T],
        timeout_s: float | None = None,
        *,
        needs: tuple[Right, str] = ("DESCRIBE", "the cluster"),
    ) -> T:
        """Attempt a request until it works, time is up, or repeating it won't change the answer.

        ``what`` completes "this user may not ..."; ``attempt`` is given the seconds that it may
        take, and raises KafkaException. ``needs`` is the right that it takes, and on what.

        Raises BrokerUnreachable when time is up; RightMissing when the user has not the right;
        Refused with any other answer, which is its ``__cause__``.
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
                if answer.code() not in PASSING:
                    raise Refused(
                        f"Kafka refused to {what}: {answer.str()}",
                        hint="See Kafka's protocol guide for the error. Add --debug for details.",
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
        """Make a request as ``request`` does; None when Kafka answers with a code of ``absent``."""

        def tried(left: float) -> T | None:
            try:
                return attempt(left)
            except KafkaException as error:
                if error.args[0].code() in absent:
                    return None
                raise

        return self.request(what, tried, timeout_s, needs=needs)

    def wait(self, future: futures.Future[T], timeout_s: float) -> T:
        """Wait for the result of a request that was given ``timeout_s``.

        Meanwhile the client reports its complaints; one that waiting won't fix ends it early.

        Raises:
            BrokerUnreachable: when the login is rejected; at first contact also when no
                broker is there.
            KafkaException: what came instead of a result.
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
            if waited_s > timeout_s + 1:  # librdkafka should have done so long ago
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def ensure_answers(self, left_s: float) -> None:
        """Raises KafkaException when the cluster does not answer a request on any topic.

        It is not a request on the cluster itself: a single broker that comes back knows of none,
        and that ends the process (librdkafka 2.16, an assertion in rd_kafka_admin_response_parse).
        """
        topics = TopicCollection([OFFSETS_TOPIC])
        answers = self.admin.describe_topics(topics, request_timeout=left_s)
        try:
            self.wait(answers[OFFSETS_TOPIC], left_s)
        except KafkaException as error:  # another answer is one, too
            if error.args[0].code() in PASSING:
                raise

    def _renew(self) -> None:
        # When a broker comes back, librdkafka (2.16) now and then waits forever for the handle of
        # it that it has given up; a new client finds its way.
        with suppress(BrokerUnreachable):  # there is no token for its login, for now
            renewed = self.settings.admin(self._log)
            self._retired.append(self.admin)
            self.admin = renewed


def _is_away(complaints: Sequence[Complaint]) -> bool:
    """Whether there is more than silence: a broker that stands still has its requests time out, and
    counts as down then."""
    return any(
        complaint.code not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
        and "timed out" not in complaint.text
        for complaint in complaints
    )


def _no_broker_there(complaints: Sequence[Complaint]) -> bool:
    codes = {complaint.code for complaint in complaints}
    return KafkaError._ALL_BROKERS_DOWN in codes and len(codes) > 1
