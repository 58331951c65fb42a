"""Reading spans of partitions without a group: whole logs, a backlog, or windows of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from drainer.errors import BrokerUnreachable, Refused, TopicMissing
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, PASSING_TO_READERS, REJECTED, granting
from drainer.kafka.log import ClientLog
from drainer.kafka.prefetch import fetch_bounds
from drainer.kafka.record import KafkaMessage
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin

PREFETCH_BYTES = 16 * 1024 * 1024
BATCH_MESSAGES = 500
CONSUME_S = 0.05
SILENCE_S = 10.0
# By default a fetch that reached the log's end waits half a second for more, and whatever is read
# next waits behind it.
FETCH_WAIT_MS = 10

_Record = confluent_kafka.Message


@dataclass(frozen=True, slots=True)
class Span:
    """What to read of a partition: offsets ``[start, end)``, with holes or not.

    It is read until one of the bounds is met: ``most`` messages, or ``most_bytes`` of them, when
    these are given; one message is read in any case.
    """

    partition: int
    start: int
    end: int
    most: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """The next messages of a span, and how far that brought it.

    Attributes:
        span: which.
        messages: by rising offset; may be none, when only ``reached`` is news.
        reached: nothing of the span is left to read below this offset.
        done: whether nothing more of this span will come.
    """

    span: Span
    messages: Sequence[KafkaMessage]
    reached: int
    done: bool


class _Progress:
    """How far a span is read, and what came of it since somebody was told."""

    def __init__(self, span: Span, origin: Origin) -> None:
        self.span = span
        self.reached = span.start
        self.done = False
        self._origin = origin
        self._fresh: list[KafkaMessage] = []
        self._messages = 0
        self._bytes = 0

    @property
    def left(self) -> int:
        """How many messages may come yet."""
        offsets = self.span.end - self.reached
        return offsets if self.span.most is None else min(offsets, self.span.most - self._messages)

    def take(self, record: _Record, *, at_end: bool) -> None:
        """The next record, or what tells that the log ends."""
        offset = record.offset()
        span = self.span
        if self.done or offset is None:
            return
        if at_end or offset >= span.end:
            self.reached = min(span.end, max(self.reached, offset))
            self.done = True
            return
        message = KafkaMessage(self._origin, record, len(record.key() or b""))
        self._fresh.append(message)
        self.reached = offset + 1
        self._messages += 1
        self._bytes += message.size
        self.done = (
            self.reached >= span.end
            or (span.most is not None and self._messages >= span.most)
            or (span.most_bytes is not None and self._bytes >= span.most_bytes)
        )

    def stretch(self) -> SpanBatch:
        fresh, self._fresh = self._fresh, []
        return SpanBatch(self.span, fresh, self.reached, self.done)


def _rounds(spans: Sequence[Span]) -> Iterator[list[Span]]:
    # The client reads one place of a partition at a time.
    waiting = list(spans)
    while waiting:
        together: dict[int, Span] = {}
        later: list[Span] = []
        for span in waiting:
            if together.setdefault(span.partition, span) is not span:
                later.append(span)
        yield list(together.values())
        waiting = later


class SpanReader:
    """A consumer that reads what it is told to, joins no group, and commits nothing.

    A context manager. ``reader`` is the name of a group that the broker sees; nobody is in it.
    Holds about ``prefetch_bytes`` and a batch in memory, whatever the spans hold.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        topic_id: str,
        reader: str,
        prefetch_bytes: int | None = None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._topic_id = topic_id
        self._log = ClientLog(settings.redact)
        bounds = fetch_bounds(prefetch_bytes or PREFETCH_BYTES, settings.properties)
        conf = settings.fetch_conf(self._log, reader, fetch_wait_max_ms=FETCH_WAIT_MS, **bounds)
        self._consumer = settings.consumer(conf)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(KafkaException):
            self._consumer.close()

    def read(self, spans: Sequence[Span]) -> Iterator[SpanBatch]:
        """Everything in the spans. Those of several partitions are read at the same time, so what
        comes of them is mixed; those of one partition one after the other, in the order given.

        Raises:
            BrokerUnreachable: when nothing arrives for a while.
            TopicMissing: when the topic or a partition does not exist any more.
            Refused: when it can't be read, or retention deletes from a span while it is.
        """
        for together in _rounds([span for span in spans if span.start < span.end]):
            try:
                yield from self._read(together)
            except KafkaException as error:
                raise self._unreadable(error.args[0], None) from None

    def _read(self, spans: Sequence[Span]) -> Iterator[SpanBatch]:
        left = {span.partition: _Progress(span, self._origin(span.partition)) for span in spans}
        self._consumer.assign([TopicPartition(self._topic, s.partition, s.start) for s in spans])
        heard_s = time.monotonic()
        while left:
            # It waits for all that it is asked for; behind a hole there may be fewer.
            count = sum(progress.left for progress in left.values())
            records = self._consumer.consume(min(BATCH_MESSAGES, count), CONSUME_S)
            touched: dict[int, _Progress] = {}
            for record in records:
                number = record.partition()
                error = record.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if error.code() not in PASSING_TO_READERS:
                        raise self._unreadable(error, number)
                elif number in left:
                    progress = touched[number] = left[number]
                    progress.take(record, at_end=error is not None)
            if records:
                heard_s = time.monotonic()
            for number, progress in touched.items():
                if progress.done:
                    del left[number]
                    if left:  # it would read on
                        place = TopicPartition(self._topic, number)
                        self._consumer.incremental_unassign([place])
                yield progress.stretch()
            if touched:
                heard_s = time.monotonic()  # whoever reads may take a while
            elif time.monotonic() - heard_s > SILENCE_S:
                raise self._silence(left.values(), heard_s)

    def _origin(self, partition: int) -> Origin:
        return Origin(self._topic, self._topic_id, partition)

    def _silence(self, left: Iterable[_Progress], heard_s: float) -> BrokerUnreachable:
        said = [complaint.text for complaint in self._log.since(heard_s)]
        place = min((p.span.partition, p.reached) for p in left)
        return BrokerUnreachable(
            f"topic {self._topic} can't be read any further: nothing of partition {place[0]} came"
            f" from offset {place[1]} on in {SILENCE_S:.3g} s"
            f"{': ' + said[-1] if said else ', the broker does not answer'}",
            hint="try again; is the leader of this partition up?",
        )

    def _unreadable(self, answer: KafkaError, partition: int | None) -> Refused:
        code, topic = answer.code(), self._topic
        place = topic if partition is None else f"{topic}/{partition}"
        if code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            return Refused(
                f"records of {place} were deleted while they were read",
                hint="say the same again, for what is left",
            )
        if code in NO_TOPIC:
            return TopicMissing(f"topic {topic} or a partition of it does not exist")
        hint = "mend the cause, then try again"
        if code in FORBIDDEN:
            hint = f"{granting('READ', f'topic {topic}')}, then try again"
        elif code in REJECTED:
            hint = "check the login (sasl.*) of the properties"
        said = self._settings.redact(answer.str())
        return Refused(f"{place} can't be read: {said}", hint=hint)
