"""Streams of records of partitions: whole logs, a backlog, windows of it, or one range exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drainer.errors import Interrupted, Refused, Unresumable
from drainer.kafka.cluster import Cluster
from drainer.kafka.loss import recreated
from drainer.kafka.reader import FetchedBatch, KafkaMessage, RangeReader
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.policy.rate_cap import RateLimiter

PREFETCH_BYTES = 16 * 1024 * 1024
HEADS_BYTES = 128 * 1024  # read ahead of the first records, and thrown away
BATCH_BYTES = 4 * 1024 * 1024
SPAN_SILENCE_S = 10.0
SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets to read of a partition: ``[start, end)``, with holes or not.

    Where ``most_bytes`` is given, it is read until it has that many, and one message in any case.
    """

    partition: int
    start: int
    end: int
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """The next messages of a span, and how far that brought it."""

    span: Span
    messages: Sequence[KafkaMessage]  # by rising offset; may be none, when only ``reached`` is news
    reached: int  # nothing of the span is left to read below this offset


def read_spans(
    settings: ClientSettings,
    topic: str,
    topic_id: str,
    reader: str,
    spans: Sequence[Span],
    prefetch_bytes: int = PREFETCH_BYTES,
) -> Iterator[SpanBatch]:
    """Read everything in the spans. Those of several partitions are read at the same time, so what
    comes of them is mixed; those of one partition one after the other, in the order given.

    ``reader`` is the name of a group that the broker sees; it has no members. Holds about
    ``prefetch_bytes`` and a batch in memory, whatever the spans hold.

    Raises BrokerUnreachable when nothing arrives for a while; Refused when it can't be read, or its
    log or the topic changes while it is; UsageError when librdkafka rejects the settings.
    """
    waiting = [span for span in spans if span.start < span.end]
    if not waiting:
        return
    with RangeReader(
        settings, topic, topic_id, reader, prefetch_bytes=prefetch_bytes, batch_bytes=BATCH_BYTES
    ) as source:
        while waiting:
            # The client reads one place of a partition at a time.
            together: dict[int, Span] = {}
            waiting = [s for s in waiting if together.setdefault(s.partition, s) is not s]
            try:
                yield from _read(source, together)
            except (Interrupted, Unresumable) as error:
                hint = error.hint if type(error) is Interrupted else "Try again."
                raise Refused(str(error), hint=hint) from error


def first_messages(
    settings: ClientSettings,
    topic: str,
    topic_id: str,
    reader: str,
    ranges: Mapping[int, tuple[int, int]],
) -> dict[int, KafkaMessage]:
    """Read the first message of offsets ``[start, end)`` by partition, where there is one.

    Raises as ``read_spans``.
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
    """Read all that the isolation level shows of offsets ``[start, end)``, with holes or not.

    It is over when it is known that nothing of the range is left to read; a log that ends before
    ``end`` is an error, not an end. Holds about ``prefetch_bytes`` and a batch. ``reader`` is the
    name of a group that the broker sees; it has no members. ``pace`` caps it.

    Raises BrokerUnreachable when no broker answers, or nothing arrives for ``silence_s``;
    TopicMissing when there is no topic of this name; UsageError when librdkafka rejects the
    settings; RecordsDeleted, LogCut, TopicGone, Interrupted as ``RangeReader.poll``.
    """
    if start >= end:
        return
    with Cluster.connect(settings) as cluster:
        if cluster.topic(origin.topic).topic_id != origin.topic_id:
            raise recreated(origin.topic)
    with RangeReader(
        settings,
        origin.topic,
        origin.topic_id,
        reader,
        prefetch_bytes=prefetch_bytes,
        batch_bytes=BATCH_BYTES,
        pace=pace,
    ) as source:
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
