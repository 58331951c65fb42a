"""What became of records that can't be read: looked up, so that the error says it."""

from __future__ import annotations

from confluent_kafka import KafkaError

from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Interrupted,
    RecordsDeleted,
    Refused,
    TopicGone,
    TopicMissing,
)
from drainer.kafka.answers import FORBIDDEN, REJECTED
from drainer.kafka.cluster import Cluster
from drainer.kafka.connection import TIMEOUT_S
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin


def check_topic(settings: ClientSettings, origin: Origin, timeout_s: float = TIMEOUT_S) -> None:
    """Make sure that the topic is there and the same, as far as the cluster says so now.

    Raises:
        TopicGone: when it was deleted, or deleted and made again.
        Interrupted: when this user may not look any more.
    """
    try:
        with Cluster.connect(settings, timeout_s) as cluster:
            found = cluster.topic(origin.topic)
    except TopicMissing:
        raise TopicGone(
            f"topic {origin.topic} was deleted while it was drained",
            hint="its backlog is gone with it; this drain can't go on",
        ) from None
    except BrokerUnreachable:
        return  # an error that comes again is looked into again
    except Refused as error:
        raise Interrupted(str(error), hint=error.hint) from error
    if found.topic_id != origin.topic_id:
        raise made_again(origin)


def made_again(origin: Origin) -> TopicGone:
    """The error for a topic of the same name with another id."""
    return TopicGone(
        f"topic {origin.topic} was deleted and made again while it was drained",
        hint="the new one holds other records; this drain can't go on",
    )


def out_of_range(settings: ClientSettings, origin: Origin, position: int) -> DrainerError:
    """The error for an offset that the partition does not hold any more, or never did."""
    place = f"{origin.topic}/{origin.partition}"
    try:
        check_topic(settings, origin)
        with Cluster.connect(settings) as cluster:
            numbers = [origin.partition]
            log = cluster.log_bounds(origin.topic, numbers, "read_uncommitted")[origin.partition]
    except TopicGone as gone:
        return gone
    except Refused as error:
        return Interrupted(
            f"{place} has no record at offset {position}, and what became of it can't be asked:"
            f" {error}",
            hint=error.hint,
        )
    if position < log.start:
        return RecordsDeleted(
            f"retention deleted records of {place} before they were read: offsets {position} to"
            f" {log.start - 1} are gone, the log starts at {log.start} now",
            hint="give the topic more retention; what is left, a new drain takes with"
            " --from earliest and another --plan",
        )
    return Interrupted(
        f"{place} lost its records from offset {log.high_watermark} on, and {position} was next:"
        " its log was truncated",
        hint="find out what happened to its brokers before going on",
    )


def unreadable(settings: ClientSettings, place: str, answer: KafkaError) -> Interrupted:
    """The error for an answer that reading again won't change."""
    hint = "mend the cause, then resume with the plan"
    if answer.code() in FORBIDDEN:
        hint = "grant READ on the topic to this user, then resume with the plan"
    elif answer.code() in REJECTED:
        hint = "check the login (sasl.*) of the properties, then resume with the plan"
    said = settings.redact(answer.str())
    return Interrupted(f"can't read {place} any further: {said}", hint=hint)
