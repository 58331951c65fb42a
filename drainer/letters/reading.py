"""Reading a dead-letter topic from its beginning to where it ends now, without a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drainer.errors import NotADeadLetter, TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.record import KafkaMessage
from drainer.kafka.spans import Span, first_messages, read_spans
from drainer.policy.dead_letter import Letter, read_letter

READER = "drainer-dead-letters"


def read_letters(
    cluster: Cluster, topic: str, spans: Sequence[Span] | None = None
) -> Iterator[KafkaMessage]:
    """Every record of these spans; by default of the whole topic, to the end as it is now.

    Those of a partition come in their order; the partitions are mixed. Holds a few batches in
    memory, whatever the topic holds.

    Raises:
        TopicMissing: when there is none of this name.
        BrokerUnreachable: when no answer came.
        Refused: when it can't be read.
    """
    found = cluster.topic(topic)
    if spans is None:
        bounds = cluster.log_bounds(topic, found.partitions, cluster.settings.isolation)
        spans = [Span(number, log.start, log.end) for number, log in bounds.items()]
    for batch in read_spans(cluster.settings, topic, found.topic_id, READER, spans):
        yield from batch.messages


def letter_at(cluster: Cluster, topic: str, partition: int, offset: int) -> KafkaMessage:
    """The record at one place. Raises NotADeadLetter when there is none, and as read_letters."""
    found = cluster.topic(topic)
    if partition not in found.partitions:
        raise TopicMissing(f"topic {topic} has no partition {partition}")
    log = cluster.log_bounds(topic, [partition], cluster.settings.isolation)[partition]
    if log.start <= offset < log.end:
        ranges = {partition: (offset, offset + 1)}
        letters = first_messages(cluster.settings, topic, found.topic_id, READER, ranges)
        if partition in letters:
            return letters[partition]
    raise NotADeadLetter(
        f"there is no record at {topic}/{partition}/{offset}",
        hint=f"partition {partition} holds offsets {log.start} to {log.end - 1}, with holes or not"
        if log.end > log.start
        else f"partition {partition} is empty",
    )


def find_letter(cluster: Cluster, topic: str, partition: int, offset: int) -> Letter:
    """The dead letter at one place. Raises NotADeadLetter, and as ``read_letters``."""
    return read_letter(letter_at(cluster, topic, partition, offset)).masked()
