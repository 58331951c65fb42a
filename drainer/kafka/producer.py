"""A producer that reports each record once: in the topic for sure, or why that can't be had.

librdkafka (2.16) may acknowledge a record that is not in the log, with no offset. Such an answer is
unsure: the partition is read for the record, which is written again until it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import BrokerUnreachable, DrainerError, RightMissing
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.kafka.spans import Span, read_spans
from drainer.message import HeadersUnreadable

SILENCE_S = 3.0
POLL_S = 0.1
CLOSE_S = 1.0
QUEUE_KBYTES = 64 * 1024  # the client has a copy of each payload, also of one that many share
RECORD_BYTES_MAX = 50_000_000  # must fit into the queue, and into a request (100 MiB by default)
READER = "drainer-producer"

Header = tuple[str, bytes | None]
Answer = KafkaError | DrainerError | None  # None: all in-sync replicas have the record
Report = Callable[["Record", Answer], None]


@dataclass(slots=True, eq=False)
class Record:
    """A record on its way, known by its identity.

    Attributes:
        mark: the header that no other record has, which tells whether it is in the topic.
        report: called exactly once, from another thread unless it can't even be begun.
        doubled: whether it was written again without a look at the topic: it may be there twice.
        unsure_s: since when it is not known whether the topic has it.
    """

    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    mark: Header
    report: Report
    partition: int = -1
    timestamp: int = 0
    doubled: bool = False
    unsure_s: float | None = None


class AcknowledgedProducer:
    """Writes records to one topic, in the order of ``send`` for each partition, with one request in
    flight: with more, librdkafka loses records. One that is written again comes behind those that
    were sent meanwhile.

    Args:
        settings: how to connect.
        topic: its name.
        name: of the thread.
        blindly: writes what is unsure again where the topic may not be read, instead of giving up.
        after_poll: called in the thread after the reports of each poll.
        timeout_ms: how long a broker that does not answer is waited for.
        owned: more properties, with ``_`` for ``.``.

    Attributes:
        closed: whether ``close`` was called.

    Raises:
        UsageError: when librdkafka rejects the settings.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        name: str,
        *,
        blindly: bool = False,
        after_poll: Callable[[], None] = lambda: None,
        runtime: Runtime = THIS_PROCESS,
        timeout_ms: int,
        **owned: str | int | bool,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._blindly = blindly
        self._after_poll = after_poll
        self._clock = runtime.monotonic
        self._timeout_s = timeout_ms / 1000
        self._log = ClientLog(settings.redact)
        conf = settings.produce_conf(
            self._log,
            delivery_timeout_ms=timeout_ms,
            max_in_flight_requests_per_connection=1,
            queue_buffering_max_kbytes=QUEUE_KBYTES,
            message_max_bytes=settings.properties.get("message.max.bytes", RECORD_BYTES_MAX),
            **owned,
        )
        self._producer = settings.producer(conf)
        self._lock = runtime.lock()
        self._under_way: set[Record] = set()
        self._line: deque[Record] = deque()  # what the client's queue has no room for
        self._unsure: list[Record] = []  # for the thread alone
        self._begins: Mapping[int, int] | None = None  # of what is written here, by partition
        self._moved_s: float | None = None  # the last report while some are under way
        self.closed = False
        self._stopping = runtime.event()
        self._thread = runtime.thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def under_way(self) -> int:
        """Records that were sent and not reported."""
        return len(self._under_way)

    @property
    def trouble(self) -> str | None:
        """Why nothing is acknowledged though some wait for it; None while all is well."""
        since_s = self._moved_s
        if since_s is None or self._clock() - since_s < SILENCE_S:
            return None
        return self._log.trouble_since(since_s) or "the broker does not acknowledge them"

    def send(self, record: Record) -> None:
        """Begin to write a record; doesn't block."""
        with self._lock:
            over = self._stopping.is_set()
            if not over:
                if not self._under_way:
                    self._moved_s = self._clock()
                self._under_way.add(record)
                self._line.append(record)
        if over:
            record.report(record, KafkaError(KafkaError._PURGE_QUEUE))
        else:
            self._produce()

    def forget(self, record: Record) -> bool:
        """Neither report a record nor write it again, though it may be written all the same.

        Returns whether it was not reported yet.
        """
        with self._lock:
            if record not in self._under_way:
                return False
            self._under_way.discard(record)
            self._moved_s = self._clock() if self._under_way else None
            return True

    def close(self, timeout_s: float) -> None:
        """Wait up to so long for what is under way, then give the rest up; all are reported."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._wait_until_empty(timeout_s)
        with self._lock:
            never_sent = list(self._line)
            self._line.clear()
        for record in never_sent:
            self._end(record, KafkaError(KafkaError._PURGE_QUEUE))
        if self._under_way:
            self._producer.purge(blocking=False)
            self._wait_until_empty(CLOSE_S)
        self._stopping.set()
        self._thread.join(CLOSE_S)
        for record in list(self._under_way):
            self._end(record, KafkaError(KafkaError._PURGE_INFLIGHT))
        self._after_poll()

    def _wait_until_empty(self, timeout_s: float) -> None:
        until = self._clock() + timeout_s
        while self._under_way and (left := until - self._clock()) > 0:
            self._stopping.wait(min(left, 0.01))

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._begins is None:
                self._begin()
            self._producer.poll(POLL_S)
            self._settle()
            self._produce()
            self._after_poll()

    def _begin(self) -> None:
        # What is unsure is looked for from here on.
        try:
            self._begins = ends_of(self._settings, self.topic)
        except BrokerUnreachable:
            since_s = self._moved_s
            if since_s is not None and self._clock() - since_s > self._timeout_s:
                for record in list(self._under_way):
                    self._end(record, KafkaError(KafkaError._MSG_TIMED_OUT))
        except DrainerError:
            self._begins = {}  # the client's answers say what is wrong with the topic

    def _produce(self) -> None:
        refused: list[tuple[Record, KafkaError]] = []
        with self._lock:
            while self._line and self._begins is not None and not self._stopping.is_set():
                record = self._line[0]
                try:
                    if record in self._under_way:
                        self._producer.produce(
                            self.topic,
                            record.value,
                            record.key,
                            record.partition,
                            headers=list(record.headers),
                            timestamp=record.timestamp,
                            on_delivery=partial(self._delivered, record),
                        )
                except BufferError:
                    break  # there is room when some of them are acknowledged
                except KafkaException as error:
                    refused.append((record, error.args[0]))
                self._line.popleft()
        for record, answer in refused:
            self._end(record, answer)

    def _delivered(self, record: Record, answer: KafkaError | None, message: Message) -> None:
        if answer is not None:
            self._end(record, answer)
            return
        partition, offset = message.partition(), message.offset()
        if offset is not None and offset >= 0:
            self._end(record, None)
        else:
            record.partition = -1 if partition is None else partition
            record.unsure_s = record.unsure_s or self._clock()
            self._unsure.append(record)

    def _settle(self) -> None:
        unsure = [record for record in self._unsure if record in self._under_way]
        self._unsure = []
        if not unsure:
            return
        marks: dict[int, set[Header]] = {}
        for record in unsure:
            marks.setdefault(record.partition, set()).add(record.mark)
        try:
            found = find(self._settings, self.topic, self._begins or {}, marks)
        except DrainerError as error:
            for record in unsure:
                self._not_found_out(record, error)
            return
        for record in unsure:
            if record.mark in found:
                self._end(record, None)
            else:
                self._again(record)

    def _not_found_out(self, record: Record, error: DrainerError) -> None:
        waited_s = self._clock() - (record.unsure_s or 0.0)
        if isinstance(error, RightMissing) and self._blindly:
            record.doubled = True
            self._again(record)
        elif isinstance(error, RightMissing) or waited_s > self._timeout_s:
            self._end(record, error)
        else:
            self._unsure.append(record)

    def _again(self, record: Record) -> None:
        with self._lock:
            if not self._stopping.is_set():
                self._line.append(record)

    def _end(self, record: Record, answer: Answer) -> None:
        if self.forget(record):
            record.report(record, answer)


def ends_of(settings: ClientSettings, topic: str) -> dict[int, int]:
    """Where each partition ends now. Raises as ``Cluster.topic`` without READ."""
    with Cluster.connect(settings) as cluster:
        there = cluster.topic(topic, "WRITE").partitions
        bounds = cluster.log_bounds(topic, there, "read_uncommitted")
    return {number: log.end for number, log in bounds.items()}


def find(
    settings: ClientSettings,
    topic: str,
    begins: Mapping[int, int],
    marks: Mapping[int, AbstractSet[Header]],
) -> set[Header]:
    """Those of the headers, by partition, that a record has from where ``begins`` says.

    Raises:
        RightMissing: when this user may not read the topic.
        Refused: when it can't be read now, or is not there.
    """
    found: set[Header] = set()
    with Cluster.connect(settings) as cluster:
        there = cluster.topic(topic)
        bounds = cluster.log_bounds(topic, marks, "read_uncommitted")
    spans = []
    for number, log in bounds.items():
        begin = begins.get(number, 0)
        cut = begin > log.end  # or another topic of this name
        spans.append(Span(number, log.start if cut else max(log.start, begin), log.end))
    properties = {**settings.properties, ISOLATION: "read_uncommitted"}
    uncommitted = replace(settings, properties=properties)
    for batch in read_spans(uncommitted, topic, there.topic_id, READER, spans):
        for message in batch.messages:
            try:
                found.update(marks[message.partition] & set(message.headers))
            except HeadersUnreadable:  # somebody else's
                continue
    return found
