"""Functions that read one or several ranges of a topic to their ends."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from drainer.errors import Interrupted, Passing, Unresumable
from drainer.kafka.cluster import Cluster
from drainer.kafka.loss import recreated
from drainer.kafka.reader import FetchedBatch, KafkaMessage, RangeReader
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.model.ranges import Range
from drainer.policy.rate_cap import RateLimiter

PREFETCH_BYTES = 16 * 1024 * 1024
HEADS_BYTES = 128 * 1024  # If only first records are wanted, what is read ahead is thrown away.
BATCH_BYTES = 4 * 1024 * 1024
SPAN_SILENCE_S = 10.0
SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets ``[start, end)`` of a partition to read. Some of them may be holes.

    If ``most_bytes`` is given, reading ends once the messages have this size together. At least one
    message is read.
    """

    partition: int
    start: int
    end: int
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """The next messages of a span, and how far it has come."""

    span: Span
    # The messages by rising offset. There may be none, when the batch only reports ``reached``.
    messages: Sequence[KafkaMessage]
    reached: int  # Nothing of the span is left to read below this offset.


def read_spans(
    settings: ClientSettings,
    topic: str,
    topic_id: str,
    reader: str,
    spans: Sequence[Span],
    prefetch_bytes: int = PREFETCH_BYTES,
) -> Generator[SpanBatch]:
    """Read everything in the spans.

    Spans of different partitions are read at the same time, so their batches are mixed. Spans of
    one partition are read one after the other, in the given order. This takes memory for about
    ``prefetch_bytes`` and a batch. ``reader`` is the name of a group without members, which the
    broker uses for quotas and rights.

    Raises BrokerUnreachable when nothing arrives for a while; Passing when the topic can't be read,
    or changes meanwhile; UsageError when librdkafka rejects the settings.
    """
    waiting = [span for span in spans if span.start < span.end]
    if not waiting:
        return
    source = RangeReader(
        settings, topic, topic_id, reader, prefetch_bytes=prefetch_bytes, batch_bytes=BATCH_BYTES
    )
    with closing(source):
        while waiting:
            # The client reads a partition at one place at a time, so this takes one span of each.
            together: dict[int, Span] = {}
            waiting = [s for s in waiting if together.setdefault(s.partition, s) is not s]
            try:
                yield from _read(source, together)
            except (Interrupted, Unresumable) as error:
                hint = error.hint if type(error) is Interrupted else "Try again."
                raise Passing(str(error), hint=hint) from error


def first_messages(
    settings: ClientSettings, topic: str, topic_id: str, reader: str, ranges: Mapping[int, Range]
) -> dict[int, KafkaMessage]:
    """Read the first message in the offsets ``[start, end)`` of each partition.

    A partition that has no message there is left out. Raises the same errors as ``read_spans``.
    """
    spans = [Span(number, start, end, most_bytes=0) for number, (start, end) in ranges.items()]
    batches = read_spans(settings, topic, topic_id, reader, spans, HEADS_BYTES)
    return {message.partition: message for batch in batches for message in batch.messages}


def read_range(
    settings: ClientSettings,
    origin: Origin,
    start: int,
    end: int,
    *,
    reader: str,
    prefetch_bytes: int = PREFETCH_BYTES,
    silence_s: float = SILENCE_S,
    pace: RateLimiter | None = None,
) -> Iterator[FetchedBatch]:
    """Read all records of the offsets ``[start, end)`` that the isolation level shows.

    It ends when nothing of the range is left to read. A log that ends before ``end`` is an error.
    This takes memory for about ``prefetch_bytes`` and a batch. ``reader`` is the name of a group
    without members, which the broker uses for quotas and rights. ``pace`` is a cap on reading.

    Raises:
        BrokerUnreachable: when no broker answers, or nothing arrives for ``silence_s``.
        TopicMissing: when there is no topic of this name.
        UsageError: when librdkafka rejects the settings.
        RecordsDeleted, LogCut, TopicGone, Interrupted: as ``RangeReader.poll``.
    """
    if start >= end:
        return
    with Cluster.connect(settings) as cluster:
        if cluster.topic(origin.topic).topic_id != origin.topic_id:
            raise recreated(origin.topic)
    source = RangeReader(
        *(settings, origin.topic, origin.topic_id, reader),
        prefetch_bytes=prefetch_bytes,
        batch_bytes=BATCH_BYTES,
        pace=pace,
    )
    with closing(source):
        source.assign({origin.partition: (start, end)})
        while source.open:
            yield from (batch for batch in source.poll() if batch.records)
            source.ensure_progress(silence_s)


def _read(source: RangeReader, spans: Mapping[int, Span]) -> Iterator[SpanBatch]:
    sizes = dict.fromkeys(spans, 0)
    source.assign({number: (span.start, span.end) for number, span in spans.items()})
    while source.open:
        for batch in source.poll():
            number = batch.origin.partition
            span, messages = spans[number], list[KafkaMessage]()
            reached = source.open.get(number, span.end)
            for record in batch.records:
                message = KafkaMessage(batch.origin, record, len(record.key() or b""))
                messages.append(message)
                sizes[number] += message.size
                if span.most_bytes is not None and sizes[number] >= span.most_bytes:
                    reached = message.offset + 1
                    if number in source.open:
                        source.leave(number)
                    break
            yield SpanBatch(span, messages, reached)
        source.ensure_progress(SPAN_SILENCE_S)
