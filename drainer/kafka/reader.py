"""The reader of ranges of partitions: it delivers all of their records, or says why it can't."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import groupby, repeat
from math import ceil
from operator import methodcaller
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from drainer.errors import BrokerUnreachable, LogCut
from drainer.kafka.answers import NO_TOPIC, RETRIABLE_BY_READERS, rejected_login
from drainer.kafka.log import ClientLog
from drainer.kafka.loss import TopicCheck, recreated, unreadable
from drainer.kafka.settings import ClientSettings
from drainer.message import Message, Origin, headers_unreadable
from drainer.policy.rate_cap import RateLimiter
from drainer.split.splitting import Outage, Prepare
from drainer.text.escape import foreign

# The most messages in a batch. Larger batches gain nothing, and the drain would wait longer.
BATCH_MESSAGES = 2000
FIRST_BATCH_MESSAGES = 16  # The messages in a batch, until the size of messages is known.
# A batch has at most one of so many parts of what is left, so that small partitions take turns.
TURNS_LEAST = 50
CONSUME_S = 0.02  # How long consume() waits for a full batch.
SILENCE_CHECK_S = 1.0
# Below the end of a partition, brokers answer at once. Without an answer for this long, something
# is wrong.
SILENCE_S = 3.0
# Under a cap, the reader waits until it may read the messages of PACE_WAIT_S at once, but never
# longer than PACE_WAIT_MOST_S.
PACE_WAIT_S = 0.02
PACE_WAIT_MOST_S = 0.1
# The client reads ahead at full speed. So under a cap it may only read ahead what the cap allows in
# this time.
AHEAD_S = 0.5
RECORD_BYTES = 250  # The memory that the objects of a record take in addition to its key and value.
POLL_INTERVAL_MS = 24 * 60 * 60 * 1000

_ERROR = confluent_kafka.Message.error
_PARTITION = confluent_kafka.Message.partition

_Record = confluent_kafka.Message
_Headers = list[tuple[str, bytes | None]]

# If the name of a header is not UTF-8, the client's method raises an error, and leaves a broken
# list in the record. A second call returns that list, and reading it ends the process. So the list
# is replaced by _UNREADABLE. The method is called by methodcaller, because a CPython 3.11 that has
# optimized the call `record.headers()` does not notice its error.
_read_headers = methodcaller("headers")
_UNREADABLE: Any = ()


class KafkaMessage(Message):
    """A message that came from Kafka. Its timestamp and headers are read when they are used."""

    __slots__ = ("_record",)

    def __init__(self, origin: Origin, record: _Record, beside: int) -> None:
        # super().__init__ is not called, because this runs for every message.
        self.origin = origin
        self.offset = record.offset()  # type: ignore[assignment]  # Every record has an offset.
        self.key = record.key()
        self.value = record.value()
        self.size = len(record) + beside
        self._record: _Record | None = record

    @property
    def timestamp(self) -> int | None:
        return None if self._record is None else timestamp_of(self._record)

    @property
    def has_time_of_broker(self) -> bool:
        """Whether a broker set its timestamp, and not the producer."""
        kind = None if self._record is None else self._record.timestamp()[0]
        return kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        if self._record is None:
            return ()
        found = _headers_of(self._record)
        if found is None:
            raise headers_unreadable(self)
        return found

    def let_go(self) -> None:
        # The record is dropped, too, because it has the value.
        self.value = self._decoded = self._record = None


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Some records of one partition in their order, all of them below the end of its backlog."""

    origin: Origin
    # The client's records. There may be none, when the batch only reports ``reached``.
    records: Sequence[_Record]
    # By partition, the offset up to which everything is delivered, including these records. It is
    # empty unless the partition is at its end, or there are only holes up to the offset.
    reached: dict[int, int]
    bytes: int  # The estimated memory of the batch.
    beside: int = 0  # The estimated bytes of the key and headers of one record.
    made: Sequence[KafkaMessage] = ()  # The messages of the records, once they are prepared.

    def __len__(self) -> int:
        return len(self.records)

    @property
    def messages(self) -> Iterator[KafkaMessage]:
        """The messages of the records. Each one is made when it is taken.

        The drain takes them in small slices. If the fetch thread made them, the drain could not run
        during a whole batch.
        """
        if self.made:
            return iter(self.made)
        return map(KafkaMessage, repeat(self.origin), self.records, repeat(self.beside))

    def prepared(self, prepare: Prepare, outage: Outage) -> Iterator[FetchedBatch]:
        """Prepare the messages, and yield the batch in parts, each as soon as it is prepared.

        It ends early if ``prepare`` stops waiting for what it needs.
        """
        messages, begin = list(self.messages), 0
        if not messages:
            yield self
        while begin < len(messages):
            if not (count := prepare(messages[begin:], outage)):
                return
            outage.end()
            part, end = messages[begin : begin + count], begin + count
            yield replace(
                self,
                records=self.records[begin:end],
                reached=self.reached if end == len(messages) else {},
                bytes=sum(each.size + RECORD_BYTES for each in part),
                made=part,
            )
            begin = end


@dataclass(eq=False)
class RangeReader:
    """A consumer that reads the ranges that it is assigned. It joins no group and commits nothing.

    Only one thread may use it, but any thread may read ``open``, ``starved_since_s`` and
    ``trouble``. Raises UsageError when librdkafka rejects the settings.
    """

    settings: ClientSettings
    topic: str
    topic_id: str  # If the topic was recreated, it has a new id and is not read.
    reader: str  # The name of a group, which the broker uses for quotas and rights only.
    _: KW_ONLY
    prefetch_bytes: int  # The bytes that the client may buffer in addition to a batch.
    batch_bytes: int  # The maximum bytes of a batch, which has at least one record.
    pace: RateLimiter | None = None  # The cap on reading.
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        settings, ahead_bytes = self.settings, self.prefetch_bytes
        self._log = ClientLog()
        self._origins: dict[int, Origin] = {}
        self._ends: dict[int, int] = {}
        self._batch_messages = FIRST_BATCH_MESSAGES
        self._checked_s = 0.0
        # This error is raised unless records arrive, or the client notes that the topic was
        # recreated.
        self._cut: LogCut | None = None
        self._error_text: str | None = None  # The last error that came instead of records.
        self.open: dict[int, int] = {}  # The next offset of each partition that is not at its end.
        # The paused partitions, with the time when each was paused. The caller may set a later
        # time.
        self.paused: dict[int, float] = {}
        # The time since which no records arrive; None while they do.
        self.starved_since_s: float | None = None
        if self.pace is not None:
            ahead_bytes = min(ahead_bytes, ceil(AHEAD_S * self.pace.bytes_per_s))
        conf = settings.fetch_conf(
            self._log,
            self.reader,
            ahead_bytes,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            # When a topic is recreated, librdkafka reads the new one. Only the lines that this
            # setting adds to its log show that.
            debug=",".join(filter(None, [settings.properties.get("debug"), "metadata"])),
        )
        self._consumer = settings.consumer(conf)
        self._topic_check = TopicCheck(self._consumer, self.topic)

    def close(self) -> None:
        """Close the client."""
        with suppress(KafkaException):
            self._consumer.close()

    @property
    def trouble(self) -> str | None:
        """The reason why no records arrive; None while they do."""
        since_s = self.starved_since_s
        if since_s is None:
            return None
        if complaint := self._log.trouble_since(since_s):
            return complaint
        if self._error_text is None and self.clock() - since_s > SILENCE_S:
            return f"no answer from broker {self.settings.bootstrap_servers}"
        return self._error_text

    def assign(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Read the offsets ``[start, end)`` of these partitions from now on, and nothing else."""
        self._origins = {n: Origin(self.topic, self.topic_id, n) for n in ranges}
        self._ends = {number: end for number, (_, end) in ranges.items()}
        self.open = {number: start for number, (start, end) in ranges.items() if start < end}
        with self._readable():
            self._consumer.assign([self._place(n, offset) for n, offset in self.open.items()])

    def extend(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Read on to the ends of these ranges. A partition that is new is read from its start."""
        begun = []
        for number, (start, end) in ranges.items():
            position = self._ends.get(number, start)  # Where it was left, unless it is open.
            self._origins.setdefault(number, Origin(self.topic, self.topic_id, number))
            self._ends[number] = end
            if number not in self.open and position < end:
                self.open[number] = position
                begun.append(self._place(number, position))
        if begun:
            with self._readable():
                self._consumer.incremental_assign(begun)

    def leave(self, partition: int) -> None:
        """Stop reading a partition, for good or until its range is extended."""
        del self.open[partition]
        self.paused.pop(partition, None)
        with self._readable():  # Otherwise the client would go on reading it.
            self._consumer.incremental_unassign([self._place(partition)])

    def pause(self, partitions: Sequence[int]) -> None:
        """Stop reading some partitions until ``resume``. What was read ahead of them is dropped."""
        with self._readable():
            self._consumer.pause([self._place(number) for number in partitions])
        self.paused.update(dict.fromkeys(partitions, self.clock()))

    def resume(self, partitions: Sequence[int]) -> None:
        """Read on from paused partitions."""
        with self._readable():
            self._consumer.resume([self._place(number) for number in partitions])
        for number in partitions:
            del self.paused[number]

    def poll(self) -> Iterator[FetchedBatch]:
        """Read the next batches, if some arrive soon.

        Raises:
            RecordsDeleted: when retention deleted records of a range before they were read.
            LogCut: when a log ends before its range.
            TopicGone: when the topic was deleted or recreated.
            Interrupted: when the topic can't be read for another reason.
        """
        now_s = self.clock()
        # consume() waits for as many messages as are requested. So no more are requested than are
        # left.
        left = sum(self._ends[number] - offset for number, offset in self.open.items())
        most = min(self._batch_messages, left, max(FIRST_BATCH_MESSAGES, left // TURNS_LEAST))
        if self.pace is not None:
            most = min(most, self.pace.allowed(now_s))
            if not most:
                self.starved_since_s = None
                some = ceil(PACE_WAIT_S * self.pace.messages_per_s)
                time.sleep(min(self.pace.next_s(now_s, some), PACE_WAIT_MOST_S))
                return
        with self._readable():
            records = self._consumer.consume(most, CONSUME_S)
        if self._log.topic_ids.get(self.topic, self.topic_id) != self.topic_id:
            raise recreated(self.topic)
        if records:
            self.starved_since_s = self._error_text = None
            taken = size = 0
            for batch in self._batches(records):
                taken += len(batch)
                size += batch.bytes
                yield batch
            if taken:
                self._cut = None  # The log was not cut.
                self._learn(taken, size)
        elif len(self.paused) == len(self.open):
            self.starved_since_s = None
        elif self._cut is not None:
            raise self._cut
        else:
            self.starved_since_s = self.starved_since_s or now_s
            self._check_silence(self.starved_since_s)

    def ensure_progress(self, silence_s: float) -> None:
        """Raise BrokerUnreachable when no records have arrived for ``silence_s``."""
        since_s = self.starved_since_s
        if since_s is None or self.clock() - since_s <= silence_s:
            return
        number, offset = min(self.open.items())
        raise BrokerUnreachable(
            f"can't read {self.topic}/{number}: no record from offset {offset} on in"
            f" {silence_s:.3g} s, but expected records up to {self._ends[number]}:"
            f" {self.trouble or 'the log may be truncated'}",
            hint="Check that the partition's leader is up, then try again.",
        )

    def _check_silence(self, since_s: float) -> None:
        if rejected := rejected_login(self._log.since(since_s)):
            answer = KafkaError(KafkaError._AUTHENTICATION, rejected.text)
            raise unreadable(self.topic, answer)
        # librdkafka reports nothing when its topic is deleted (issue 4836).
        if self.clock() - max(since_s, self._checked_s) < SILENCE_CHECK_S:
            return
        if not self._log.since(since_s):  # Otherwise a complaint explains the silence.
            self._cut = self._topic_check.check(
                {number: self._ends[number] for number in self.open}
            )
        self._checked_s = self.clock()

    def _learn(self, taken: int, size: int) -> None:
        if self.pace is not None:
            self.pace.came(self.clock(), taken, size - RECORD_BYTES * taken)
        fitting = self.batch_bytes * taken // size
        self._batch_messages = max(1, min(BATCH_MESSAGES, 2 * self._batch_messages, fitting))

    def _batches(self, records: Sequence[_Record]) -> Iterator[FetchedBatch]:
        # Yield a batch for each run of records of one partition. Errors are handled in between.
        if any(map(_ERROR, records)):
            for failed, run in groupby(records, lambda record: record.error() is not None):
                if failed:
                    for record in run:
                        yield from self._note(record)
                else:
                    yield from self._batches(list(run))
        elif len(self._ends) == 1:
            yield from self._accept(records)
        else:
            for _, run in groupby(records, _PARTITION):
                yield from self._accept(list(run))

    def _accept(self, run: Sequence[_Record]) -> Iterator[FetchedBatch]:
        partition, last = _place_of(run[-1])
        if partition not in self.open:
            return  # The partition has reached its end already.
        end = self._ends[partition]
        if last >= end:
            run = [record for record in run if _place_of(record)[1] < end]
        beside = beside_value(run)
        size = sum(map(len, run)) + (RECORD_BYTES + beside) * len(run)
        reached = self._advance(partition, last + 1)
        origin = self._origins[partition]
        yield FetchedBatch(origin, run, {partition: end} if reached == end else {}, size, beside)

    def _advance(self, partition: int, position: int) -> int:
        end = self._ends[partition]
        if position >= end:
            self.leave(partition)
            return end
        self.open[partition] = position
        return position

    def _note(self, message: _Record) -> Iterator[FetchedBatch]:
        # Handle an event that came instead of a record: the current end of the log, or an error.
        answer = message.error()
        assert answer is not None
        code = answer.code()
        partition, offset = _place_of(message)
        if partition not in self.open and code != KafkaError._ALL_BROKERS_DOWN:
            return
        if code == KafkaError._PARTITION_EOF:
            if offset > self.open[partition]:
                reached = {partition: self._advance(partition, offset)}
                yield FetchedBatch(self._origins[partition], (), reached, 0)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            reason = answer.str()
            raise self._topic_check.out_of_range(partition, self.open[partition], reason)
        elif code in NO_TOPIC:
            self._topic_check.check({})
            # The check has found the topic, so only some brokers don't know it yet.
            self._error_text = foreign(answer.str())
        elif code in RETRIABLE_BY_READERS:
            self._error_text = foreign(answer.str())
        else:
            raise unreadable(f"{self.topic}/{partition}", answer)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise unreadable(self.topic, error.args[0]) from None

    def _place(
        self, partition: int, offset: int = confluent_kafka.OFFSET_INVALID
    ) -> TopicPartition:
        return TopicPartition(self.topic, partition, offset)


def _place_of(record: _Record) -> tuple[int, int]:
    partition, offset = record.partition(), record.offset()
    return -1 if partition is None else partition, -1 if offset is None else offset


def beside_value(records: Sequence[_Record]) -> int:
    """Estimate the bytes that the key and the headers of one of these records have.

    The estimate is the largest of three records. Reading the headers of each record would take
    longer than everything else.
    """
    if not records:
        return 0
    sample = (records[0], records[len(records) // 2], records[-1])
    return max(map(_key_and_headers, sample))


def _key_and_headers(record: _Record) -> int:
    headers = _headers_of(record) or []
    named = sum(len(name) + len(value or b"") for name, value in headers)
    return len(record.key() or b"") + named


def _headers_of(record: _Record) -> _Headers | None:
    # Return None when the headers can't be read.
    try:
        found = _read_headers(record)
    except SystemError:
        record.set_headers(_UNREADABLE)
        return None
    return None if found is _UNREADABLE else cast(_Headers, found or [])


def timestamp_of(record: _Record) -> int | None:
    """Return the timestamp of a record in milliseconds since 1970 (UTC); None if it has none."""
    kind, timestamp_ms = record.timestamp()
    none = kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE or timestamp_ms < 0
    return None if none else timestamp_ms


_Column = Callable[[Origin, Sequence[_Record]], list[Any]]


def columns(
    origin: Origin, records: Sequence[_Record], names: Iterable[str]
) -> dict[str, list[Any]]:
    """Return columns of records of one partition for Arrow, by name. ``_COLUMNS`` has all names.

    ``timestamp`` is in milliseconds since 1970 (UTC), or None. ``timestampType`` is Kafka's number
    for its type: -1 for none, 0 for CreateTime, 1 for LogAppendTime. ``headers`` are lists of
    (name, bytes or None), or None. Raises HeadersUnreadable when the name of a header is not UTF-8.
    """
    return {name: _COLUMNS[name](origin, records) for name in names}


# Most columns call the client's own method for each record. A function around it would double the
# time.
_COLUMNS: Mapping[str, _Column] = {
    "topic": lambda origin, records: [origin.topic] * len(records),
    "partition": lambda origin, records: [origin.partition] * len(records),
    "offset": lambda _, records: list(map(_Record.offset, records)),
    "timestamp": lambda _, records: list(map(timestamp_of, records)),
    "timestampType": lambda _, records: [
        record.timestamp()[0] - confluent_kafka.TIMESTAMP_CREATE_TIME for record in records
    ],
    "key": lambda _, records: list(map(_Record.key, records)),
    "value": lambda _, records: list(map(_Record.value, records)),
    "headers": lambda origin, records: [
        KafkaMessage(origin, record, 0).headers or None for record in records
    ],
    "leader_epoch": lambda _, records: list(map(_Record.leader_epoch, records)),
}
