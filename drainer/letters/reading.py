"""Reading a dead-letter topic from its beginning to its current end, without a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from drainer.errors import NotADeadLetter, TopicMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import KafkaMessage
from drainer.kafka.spans import Span, read_spans
from drainer.model.listed import counted
from drainer.policy.dead_letter import Letter, ReadLetter, read_letter
from drainer.policy.exact_json import Encoding, encode_payload
from drainer.split.decoding import Decoding
from drainer.text.mask import describe

READER = "drainer-dead-letters"
TOLD_APART = 100_000  # At most this many sub-messages are told apart, so that memory is bounded.


def read_letters(
    cluster: Cluster,
    topic: str,
    spans: Sequence[Span] | None = None,
    since: Mapping[int, int] | None = None,
) -> Iterator[KafkaMessage]:
    """Yield the records of a topic up to its current end, or only those in ``spans``.

    ``since`` has the offset of each partition at which reading begins. The records of a partition
    come in order, and the partitions are mixed. However large the topic is, only a few batches are
    in memory.

    Raises TopicMissing; BrokerUnreachable if no answer comes; Refused if the topic can't be read.
    """
    found = cluster.topic(topic)
    if spans is None:
        bounds = cluster.log_bounds(topic, found.partitions, cluster.settings.isolation)
        after = since or {}
        spans = [Span(n, max(log.start, after.get(n, 0)), log.end) for n, log in bounds.items()]
    for batch in read_spans(cluster.settings, topic, found.topic_id, READER, spans):
        yield from batch.messages


def find_letter(
    cluster: Cluster, topic: str, partition: int, offset: int, read: ReadLetter = read_letter
) -> Letter:
    """Return the dead letter at a place, unmasked.

    Raises NotADeadLetter if there is none, and the errors of ``read_letters``.
    """
    if partition not in cluster.topic(topic).partitions:
        raise TopicMissing(f"topic {topic} has no partition {partition}")
    log = cluster.log_bounds(topic, [partition], cluster.settings.isolation)[partition]
    if log.start <= offset < log.end:
        for message in read_letters(cluster, topic, [Span(partition, offset, offset + 1)]):
            return read(message)
    raise NotADeadLetter(
        f"there is no record at {topic}/{partition}/{offset}",
        hint=f"Give an offset from {log.start} to below {log.end}.",
    )


class SubMessageCount:
    """Counts the sub-messages that letters are about.

    If drainer is killed, the topic may get a second letter for a sub-message.
    """

    def __init__(self) -> None:
        self.letters = self.repeats = 0
        self._seen: set[int] = set()

    def add(self, letter: Letter) -> None:
        """Count a letter.

        Letters of different drains are never about the same sub-message, and neither are two
        letters that other tools wrote.
        """
        self.letters += 1
        if letter.drain_id and len(self._seen) < TOLD_APART:
            before = len(self._seen)
            self._seen.add(hash((letter.drain_id, letter.id)))
            self.repeats += len(self._seen) == before

    @property
    def sub_messages(self) -> int | None:
        """The number of sub-messages; None if there are too many to tell."""
        return self.letters - self.repeats if len(self._seen) < TOLD_APART else None

    @property
    def words(self) -> str:
        """Return `` of 21 sub-messages`` if there are more letters than that; else nothing."""
        known = self.sub_messages
        return "" if known in (None, self.letters) else f" of {counted(known, 'sub-message')}"


def decode_letter(letter: Letter, decoding: Decoding) -> tuple[Letter, str | None]:
    """Return a letter with its message decoded, and the reason if a part of it can't be decoded.

    If the letter is about a part of a message, its payload was decoded before.
    """
    message, why = letter.message(), None
    try:
        decoding.decoded(message)
    except Exception as error:  # Decoders and registries may raise anything.
        why = describe(error)
    payload, key = message.meaning, message.decoded_key
    if payload is not message.value:
        _, encoding = encode_payload(payload)
        encoding = Encoding.LITERAL if encoding is Encoding.REPR else encoding
        letter = replace(letter, payload=payload, payload_encoding=encoding)
    if key is not message.key:
        letter = replace(letter, message_key=str(key).encode(errors="backslashreplace"))
    return letter, why
