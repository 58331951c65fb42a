"""Kafka's error codes: which requests to repeat, and the error that drainer raises otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from confluent_kafka import KafkaError

from drainer.errors import BrokerUnreachable, RightMissing
from drainer.kafka.log import Complaint


def _codes(names: str) -> frozenset[int]:
    """Return the codes of the errors that have these names in Kafka's client."""
    return frozenset(getattr(KafkaError, name) for name in names.split())


# After one of these errors, the same request may succeed later: the network failed, the cluster is
# busy, or a coordinator or leader moves or loads. _PARTIAL is the answer when some brokers did not
# list their groups, and _NOENT when a partition has no leader, for example because its broker was
# away for a long time.
RETRIABLE = _codes("""
    _TRANSPORT _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE _RESOLVE _WAIT_COORD _WAIT_CACHE
    _DESTROY_BROKER _INTR _PARTIAL _NOENT REQUEST_TIMED_OUT NETWORK_EXCEPTION
    BROKER_NOT_AVAILABLE LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REPLICA_NOT_AVAILABLE
    FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH OFFSET_NOT_AVAILABLE KAFKA_STORAGE_ERROR
    NOT_CONTROLLER NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS
    UNSTABLE_OFFSET_COMMIT NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
    THROTTLING_QUOTA_EXCEEDED
""")

# A client that only reads looks up the coordinator of the group that it names, but does not need
# it. So it ignores the error if this user may not look it up.
RETRIABLE_BY_READERS = RETRIABLE | {KafkaError.GROUP_AUTHORIZATION_FAILED}

# After these errors, librdkafka's client may be stuck for minutes: it waits for an old broker
# handle, or makes requests with an outdated leader epoch.
STUCK = _codes("_TIMED_OUT _TIMED_OUT_QUEUE _TRANSPORT FENCED_LEADER_EPOCH")

FORBIDDEN = _codes("""
    TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
""")

# Kafka calls a right an operation. READ, WRITE and DELETE include DESCRIBE.
Right = Literal["DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "CREATE", "DELETE"]

NO_TOPIC = _codes("""
    UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID _UNKNOWN_TOPIC
    _UNKNOWN_PARTITION
""")

# These answers to a commit mean that it has certainly not happened.
NOT_WRITTEN = frozenset({KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS})

# These answers to a commit without membership mean that the group has members.
HAS_MEMBERS = _codes("""
    UNKNOWN_MEMBER_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID
    STALE_MEMBER_EPOCH NON_EMPTY_GROUP
""")

# The broker rejected the credentials. Repeating the request does not help, since every broker gets
# the same ones.
REJECTED = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"

# A login that failed with one of these texts may succeed on the next connection, or with the next
# token. For example, a broker refuses a second login on a connection within a second of the first,
# but a client whose token is about to expire logs in again that soon.
_RETRIABLE_LOGINS = (
    "not valid in current SASL state",
    "mechanism handshake failed: Local:",
    _NO_TOKEN,
)


def granting(right: str, resource: str) -> str:
    """Return the hint for a missing right, such as ``READ`` on ``topic orders``."""
    return f"Grant {right} on {resource} to this user"


def may_not(what: str, right: str, resource: str) -> RightMissing:
    """Return the error for a missing right. ``what`` is what the user may not do without it."""
    return RightMissing(
        f"this user may not {what}: {right} on {resource} is missing",
        hint=f"{granting(right, resource)}, if the name is right.",
    )


def rejected_login(complaints: Sequence[Complaint]) -> Complaint | None:
    """Return the latest complaint that the credentials were rejected; None if there is none.

    Failed logins that may succeed later are ignored.
    """
    found = (c for c in reversed(complaints) if c.code in REJECTED)
    return next((c for c in found if not any(map(c.text.__contains__, _RETRIABLE_LOGINS))), None)


# The first cause that matches any complaint is reported. {servers} are the bootstrap servers.
_CAUSES: tuple[tuple[Callable[[Complaint], bool], str, str], ...] = (
    (
        lambda c: _NO_TOKEN in c.text,
        "no login to {servers}",
        "Check that the issuer of its tokens answers.",
    ),
    (
        lambda c: c.code in REJECTED,
        "{servers} rejected the login",
        "Check security.protocol, sasl.mechanism, sasl.username and sasl.password.",
    ),
    (
        lambda c: "SSL" in c.text or c.code == KafkaError._SSL,
        "no TLS connection to {servers}",
        "Check that the listener speaks TLS. Check security.protocol and ssl.ca.location.",
    ),
    (
        lambda c: "/bootstrap:" not in c.text and c.code != KafkaError._ALL_BROKERS_DOWN,
        "{servers} answered, but a broker that it names does not",
        "If that broker has died, start it, or try again in a minute, when the cluster no longer"
        " names it. If it runs, set its advertised.listeners to one that this machine reaches.",
    ),
    (
        lambda c: c.code == KafkaError._RESOLVE,
        "unknown host",
        "Check the name, this machine's DNS, and your VPN.",
    ),
    (
        lambda c: "Connection refused" in c.text,
        "nothing listens on {servers}",
        "Check the port, and that the broker runs.",
    ),
    (
        lambda c: "isconnected" in c.text,
        "{servers} accepts connections, then closes them",
        "Check security.protocol: the listener may expect TLS or a login.",
    ),
)


def unreachable(
    servers: str, waited_s: float, complaints: Sequence[Complaint], request: str = ""
) -> BrokerUnreachable:
    """Return the error for brokers that don't answer. The client's complaints show the cause.

    ``request`` names the request that failed, if the cluster was reached before.
    """
    for matches, what, hint in _CAUSES:
        for complaint in filter(matches, reversed(complaints)):
            text = f"{what.format(servers=servers)}: {complaint.text}"
            return BrokerUnreachable(text, hint=hint)
    if request:
        return BrokerUnreachable(
            f"could not {request} within {waited_s:.3g} s",
            hint="Try again: the cluster is reachable, but slow or not ready.",
        )
    return BrokerUnreachable(
        f"no answer from {servers} in {waited_s:.3g} s",
        hint="Check the address, and the firewalls on the way.",
    )


def ensure_right(operations: Sequence[str], what: str, right: Right, resource: str) -> None:
    """Raise RightMissing when the allowed operations of a resource don't include this right."""
    # A broker without an authorizer lists all operations, and an old broker lists none.
    if operations and not {right, "ALL"} & set(operations):
        raise may_not(what, right, resource)
