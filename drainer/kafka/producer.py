"""A producer that reports each record once: that it is certainly in the topic, or why it is not.

librdkafka (2.16) sometimes acknowledges a record that is not in the log. Such an acknowledgement
has no offset, so the record is called unsure. The producer then reads the partition to look for the
record, and writes it again until it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import BrokerUnreachable, DrainerError, RightMissing
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, REJECTED, granting
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.kafka.spans import Span, read_spans
from drainer.message import Header, HeadersUnreadable

SILENCE_S = 3.0
POLL_S = 0.1
CLOSE_S = 1.0
ENDS_S = 1.0  # The timeout to look up the ends of partitions. Some may have no leader.
# The size of the client's queue, into which it copies every payload.
QUEUE_KBYTES = 64 * 1024
RECORD_BYTES_MAX = 50_000_000  # A record must fit into the queue, and into a request of 100 MiB.
READER = "drainer-producer"
# The size limit of a topic applies to compressed records. What was compressed when it was read must
# fit again when it is written. So drainer compresses unless one of these properties is set.
_COMPRESSION = frozenset({"compression.type", "compression.codec"})

# The result of writing a record: None if all in-sync replicas have it, otherwise the error.
Delivery = KafkaError | DrainerError | None
OnDelivery = Callable[["ProducerRecord", Delivery], None]


@dataclass(slots=True, eq=False)
class ProducerRecord:
    """A record to write. Records with the same content are not equal to one another."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    mark: Header  # A header that no other record has. An unsure record is found by it.
    report: OnDelivery  # Called once, mostly from another thread.
    partition: int = -1  # If it is -1, the key decides.
    timestamp: int = 0  # In milliseconds since 1970; 0 stands for now.
    doubled: bool = False  # Whether it was written again although the topic may have it.
    unsure_s: float = 0.0  # When it became unsure; 0 if it never was.


class AcknowledgedProducer:
    """Writes records to a topic, and reports each one when it is there or can't be written.

    It has only one request in flight, because with more librdkafka loses some records. Within a
    partition the records keep the order of ``send``. But a record that has to be written again
    comes behind those that were sent after it.

    Args:
        timeout_ms: how long to wait for a broker that does not answer.
        blindly: write an unsure record again if this user may not read the topic. If False, the
            record is then reported with an error.
        after_poll: called in the producer's thread after the reports of each poll.
        owned: further properties of the client, with ``_`` for ``.`` in their names.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        name: str,
        timeout_ms: int,
        *,
        blindly: bool = False,
        after_poll: Callable[[], None] = lambda: None,
        runtime: Runtime = THIS_PROCESS,
        **owned: str | int | bool,
    ) -> None:
        self._settings, self._topic = settings, topic
        self._blindly, self._after_poll = blindly, after_poll
        self._clock = runtime.monotonic
        self._timeout_s = timeout_ms / 1000
        self._log = ClientLog()
        conf = settings.produce_conf(
            self._log,
            delivery_timeout_ms=timeout_ms,
            queue_buffering_max_kbytes=QUEUE_KBYTES,
            message_max_bytes=settings.properties.get("message.max.bytes", RECORD_BYTES_MAX),
            **({} if _COMPRESSION & settings.properties.keys() else {"compression_type": "lz4"}),
            **owned,
        )
        self._producer = settings.producer(conf)
        self._lock = runtime.lock()
        self._under_way: set[ProducerRecord] = set()
        # The records that wait for room in the client's queue.
        self._line: deque[ProducerRecord] = deque()
        self._unsure: list[ProducerRecord] = []  # Only the producer's thread uses it.
        # The ends of the partitions before the first record was written. Unsure records can only be
        # at these offsets or later ones. None until they are looked up.
        self._begins: Mapping[int, int] | None = None
        # The time since which records wait without a report: that of the last report, or of the
        # first ``send`` after all were reported. None when no record is being written.
        self._moved_s: float | None = None
        self._stopping = runtime.event()
        self._thread = runtime.thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """The reason why records are not acknowledged; None while they are, or if none was sent."""
        since_s = self._moved_s
        if since_s is None or self._clock() - since_s < SILENCE_S:
            return None
        return self._log.trouble_since(since_s) or "the broker does not acknowledge them"

    def send(self, record: ProducerRecord) -> None:
        """Begin to write a record, without blocking."""
        with self._lock:
            over = self._stopping.is_set()
            if not over:
                self._moved_s = self._moved_s or self._clock()
                self._under_way.add(record)
                self._line.append(record)
        if over:
            record.report(record, KafkaError(KafkaError._PURGE_QUEUE))
        self._produce()

    def forget(self, record: ProducerRecord) -> bool:
        """Give a record up: it is not reported, and not written again.

        It may have been written already. Returns False if it was reported already.
        """
        with self._lock:
            known = record in self._under_way
            self._under_way.discard(record)
        return known

    def close(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the records that are being written, and give up the rest.

        Every record is reported, including those that are given up.
        """
        if self._stopping.is_set():
            return
        until = self._clock() + timeout_s
        while self._under_way and (left := until - self._clock()) > 0:
            self._stopping.wait(min(left, 0.01))
        self._stopping.set()
        self._producer.purge(blocking=False)
        self._thread.join(CLOSE_S)
        self._end_all(KafkaError(KafkaError._PURGE_INFLIGHT))
        self._after_poll()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._line and self._begins is None:
                self._begin()
            self._producer.poll(POLL_S)
            self._resolve_unsure()
            self._produce()
            self._after_poll()

    def _begin(self) -> None:
        try:
            self._begins = log_ends(self._settings, self._topic)
        except BrokerUnreachable:  # The thread will call this again.
            if self._clock() - (self._moved_s or self._clock()) > self._timeout_s:
                self._end_all(KafkaError(KafkaError._MSG_TIMED_OUT))
        except DrainerError:
            self._begins = {}  # The answers to the records show what is wrong with the topic.

    def _produce(self) -> None:
        refused: list[tuple[ProducerRecord, KafkaError]] = []
        with self._lock:
            while self._line and self._begins is not None and not self._stopping.is_set():
                record = self._line.popleft()
                try:
                    if record in self._under_way:
                        self._producer.produce(
                            self._topic,
                            record.value,
                            record.key,
                            record.partition,
                            headers=list(record.headers),
                            timestamp=record.timestamp,
                            on_delivery=partial(self._delivered, record),
                        )
                except BufferError:
                    self._line.appendleft(record)
                    break  # The queue is full. It has room again when records are acknowledged.
                except KafkaException as error:
                    refused.append((record, error.args[0]))
                except Exception as error:  # The record is invalid, for example its headers.
                    text = f"{type(error).__name__}: {error}"
                    refused.append((record, KafkaError(KafkaError._INVALID_ARG, text)))
        for record, answer in refused:
            self._end(record, answer)

    def _delivered(
        self, record: ProducerRecord, answer: KafkaError | None, message: Message
    ) -> None:
        partition, offset = message.partition(), message.offset()
        if answer is not None or (offset is not None and offset >= 0):
            self._end(record, answer)
            return
        assert partition is not None
        record.partition, record.unsure_s = partition, record.unsure_s or self._clock()
        self._unsure.append(record)

    def _resolve_unsure(self) -> None:
        unsure = [record for record in self._unsure if record in self._under_way]
        self._unsure = []
        if not unsure:
            return
        marks: dict[int, set[Header]] = {}
        for record in unsure:
            marks.setdefault(record.partition, set()).add(record.mark)
        found, failure = set[Header](), None
        try:
            found = find_marks(self._settings, self._topic, self._begins or {}, marks)
        except DrainerError as error:
            failure = error
        forbidden = isinstance(failure, RightMissing)
        for record in unsure:
            if record.mark in found:
                self._end(record, None)
            elif failure is None or (forbidden and self._blindly):
                record.doubled |= forbidden
                self._line.append(record)
            elif forbidden or self._clock() - record.unsure_s > self._timeout_s:
                self._end(record, failure)
            else:
                self._unsure.append(record)

    def _end(self, record: ProducerRecord, answer: Delivery) -> None:
        if self.forget(record):
            record.report(record, answer)
            with self._lock:
                self._moved_s = self._clock() if self._under_way else None

    def _end_all(self, answer: Delivery) -> None:
        for record in list(self._under_way):
            self._end(record, answer)


def log_ends(settings: ClientSettings, topic: str) -> dict[int, int]:
    """Look up the end of each partition that has a leader, by partition.

    Raises the same errors as ``Cluster.topic``.
    """
    found: dict[int, int] = {}
    with Cluster.connect(settings) as cluster:
        there = cluster.topic(topic, "WRITE")
        for numbers in [there.partitions, *((number,) for number in there.partitions)]:
            # The first request is for all partitions. If one has no leader, it fails. Then there is
            # a request for each.
            with suppress(BrokerUnreachable):
                ends = cluster.log_ends(topic, numbers, ENDS_S)
                found |= {number: end for number, (end, _) in ends.items()}
            if len(found) == len(there.partitions):
                break
    return found


def find_marks(
    settings: ClientSettings, topic: str, begins: Mapping[int, int], marks: dict[int, set[Header]]
) -> set[Header]:
    """Look for records in a topic by their marks, and return the marks that were found.

    ``marks`` has the headers to look for, and ``begins`` the offset at which reading begins, both
    by partition. Raises RightMissing when this user may not read the topic, and Refused when it
    can't be read for another reason.
    """
    found: set[Header] = set()
    with Cluster.connect(settings) as cluster:
        there = cluster.topic(topic)
        bounds = cluster.log_bounds(topic, marks, "read_uncommitted")
    spans = [Span(n, max(log.start, begins.get(n, 0)), log.end) for n, log in bounds.items()]
    properties = {**settings.properties, ISOLATION: "read_uncommitted"}
    uncommitted = replace(settings, properties=properties)
    for batch in read_spans(uncommitted, topic, there.topic_id, READER, spans):
        for message in batch.messages:
            with suppress(HeadersUnreadable):  # This record comes from another program.
                found.update(marks[message.partition] & set(message.headers))
    return found


def way_on(topic: str, code: int) -> str | None:
    """Return a hint if this error means that the topic accepts no record at all; otherwise None."""
    resume = "then resume with the plan."
    if code in FORBIDDEN:
        return f"{granting('WRITE', f'topic {topic}')}, {resume}"
    if code in NO_TOPIC:
        return f"If someone deleted it, create it again, {resume}"
    return f"Check the login (sasl.*) in the properties, {resume}" if code in REJECTED else None
