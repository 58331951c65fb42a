"""Reading a dead-letter topic from its beginning to where it ends now, without a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.errors import BrokerUnreachable, NotADeadLetter, Refused, TopicMissing
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, PASSING, REJECTED
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.prefetch import fetch_bounds
from drainer.kafka.record import KafkaMessage
from drainer.message import Origin

READER = "drainer-dead-letters"  # the broker sees this name of a group; nobody is in it
PREFETCH_BYTES = 16 * 1024 * 1024
BATCH_MESSAGES = 500
CONSUME_S = 0.1
SILENCE_S = 10.0

Span = tuple[int, int]  # offsets [start, end)


def read_letters(cluster: Cluster, topic: str) -> Iterator[KafkaMessage]:
    """Every record of the topic, from the first one that is left to the end as it is now.

    Those of a partition come in their order; the partitions are mixed. Holds a few batches in
    memory, whatever the topic holds.

    Raises:
        TopicMissing: when there is none of this name.
        BrokerUnreachable: when no answer came.
        Refused: when it can't be read.
    """
    found = cluster.topic(topic)
    bounds = cluster.log_bounds(topic, found.partitions, cluster.settings.isolation)
    yield from _read(
        cluster, topic, found.topic_id, {n: (log.start, log.end) for n, log in bounds.items()}
    )


def letter_at(cluster: Cluster, topic: str, partition: int, offset: int) -> KafkaMessage:
    """The record at one place. Raises NotADeadLetter when there is none, and as read_letters."""
    found = cluster.topic(topic)
    if partition not in found.partitions:
        raise TopicMissing(f"topic {topic} has no partition {partition}")
    log = cluster.log_bounds(topic, [partition], cluster.settings.isolation)[partition]
    if log.start <= offset < log.end:
        for message in _read(cluster, topic, found.topic_id, {partition: (offset, log.end)}):
            if message.offset == offset:
                return message
            break
    raise NotADeadLetter(
        f"there is no record at {topic}/{partition}/{offset}",
        hint=f"partition {partition} holds offsets {log.start} to {log.end - 1}, with holes or not"
        if log.end > log.start
        else f"partition {partition} is empty",
    )


def _read(
    cluster: Cluster, topic: str, topic_id: str, spans: Mapping[int, Span]
) -> Iterator[KafkaMessage]:
    settings = cluster.settings
    origins = {number: Origin(topic, topic_id, number) for number in spans}
    left = {number: span for number, span in spans.items() if span[0] < span[1]}
    log = ClientLog(settings.redact)
    try:
        consumer = Consumer(
            settings.fetch_conf(log, READER, **fetch_bounds(PREFETCH_BYTES, settings.properties))
        )
    except (KafkaException, TypeError, ValueError) as error:
        raise settings.rejected(error) from None
    try:
        consumer.assign([TopicPartition(topic, n, start) for n, (start, _) in left.items()])
        heard_s = time.monotonic()
        while left:
            count = sum(end - position for position, end in left.values())
            records = consumer.consume(min(BATCH_MESSAGES, count), CONSUME_S)
            for record in records:
                number, offset = record.partition(), record.offset()
                answer = record.error()
                if answer is not None and answer.code() != KafkaError._PARTITION_EOF:
                    _heed(cluster, topic, answer)
                    continue
                heard_s = time.monotonic()
                if number not in left or offset is None:
                    continue
                end = left[number][1]
                if answer is None and offset < end:
                    yield KafkaMessage(origins[number], record, 0)
                    heard_s = time.monotonic()  # whoever reads may take a while
                position = offset + 1 if answer is None else offset
                left[number] = (position, end)
                if position >= end:
                    del left[number]
            if time.monotonic() - heard_s > SILENCE_S:
                said = [complaint.text for complaint in log.since(heard_s)]
                raise BrokerUnreachable(
                    f"topic {topic} can't be read any further:"
                    f" {said[-1] if said else 'the broker does not answer'}",
                    hint="try again",
                )
    finally:
        with suppress(KafkaException):
            consumer.close()


def _heed(cluster: Cluster, topic: str, answer: KafkaError) -> None:
    code = answer.code()
    if code in PASSING:
        return
    said = cluster.settings.redact(answer.str())
    if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        raise Refused(
            f"letters of {topic} were deleted while they were read", hint="say the same again"
        )
    if code in NO_TOPIC:
        raise TopicMissing(f"topic {topic} or a partition of it does not exist")
    hint = "mend the cause, then try again"
    if code in FORBIDDEN:
        hint = "grant READ on the topic to this user, then try again"
    elif code in REJECTED:
        hint = "check the login (sasl.*) of the properties"
    raise Refused(f"topic {topic} can't be read: {said}", hint=hint)
