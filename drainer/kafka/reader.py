"""Reading ranges of a topic's partitions: exactly their records as messages, or an error with the
reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import groupby, repeat
from math import ceil
from operator import methodcaller
from typing import Any, Self, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from drainer.errors import BrokerUnreachable, LogCut
from drainer.escape import foreign
from drainer.kafka.answers import NO_TOPIC, PASSING_TO_READERS, rejected_login
from drainer.kafka.log import ClientLog
from drainer.kafka.loss import TopicCheck, recreated, unreadable
from drainer.kafka.settings import ClientSettings
from drainer.message import Message, Origin, headers_unreadable
from drainer.policy.outage import Outage
from drainer.policy.rate_cap import RateLimiter
from drainer.splitting import Prepare

BATCH_MESSAGES = 2000  # at most; the gain above is nil and the pause for the drain grows
FIRST_BATCH_MESSAGES = 16  # until it is known how large messages are
CONSUME_S = 0.02  # consume() waits that long for a batch that stays short
SILENCE_CHECK_S = 1.0
SILENCE_S = 3.0  # below its end, a partition always has an answer
PACE_WAIT_S = 0.02  # what comes in that time at a pace is fetched at once
PACE_WAIT_MOST_S = 0.1
AHEAD_S = 0.5  # of a pace that the client may read ahead: it does that at full speed
RECORD_BYTES = 250  # the objects of one record beside its key and value
POLL_INTERVAL_MS = 24 * 60 * 60 * 1000

_ERROR = confluent_kafka.Message.error
_PARTITION = confluent_kafka.Message.partition

_Record = confluent_kafka.Message
_Headers = list[tuple[str, bytes | None]]

# If a header's name is not UTF-8, the client's method returns a broken list and raises at once, and
# returns that list without a word when it is called again: to look into it ends the process.
# methodcaller, because a warm CPython 3.11 does not check what `record.headers()` returns.
_read_headers = methodcaller("headers")
_UNREADABLE: Any = ()  # is put in the place of the broken list


class KafkaMessage(Message):
    """A message as it came from Kafka; timestamp and headers are read when they are used."""

    __slots__ = ("_record",)

    def __init__(self, origin: Origin, record: _Record, beside: int) -> None:
        # Not super().__init__: this runs for every message.
        self.origin = origin
        self.offset = record.offset()  # type: ignore[assignment]  # a record has one
        self.key = record.key()
        self.value = record.value()
        self.size = len(record) + beside
        self._record: _Record | None = record

    @property
    def timestamp(self) -> int | None:
        return None if self._record is None else timestamp_of(self._record)

    @property
    def has_time_of_broker(self) -> bool:
        """Whether a broker set its time instead of the producer."""
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
        self.value = self._decoded = self._record = None  # the record holds the value, too


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Some records of one partition, in their order, none at or past the end of its backlog."""

    origin: Origin
    # As the client gave them; may be none, when only ``reached`` is news.
    records: Sequence[_Record]
    # By partition, the offset below which nothing is left to deliver after these records: that is
    # how holes and the end of the backlog are reported. Empty when there is no such news.
    reached: dict[int, int]
    bytes: int  # what it takes in memory, estimated
    beside: int = 0  # bytes of key and headers of one record, as ``beside_value`` has it
    made: Sequence[KafkaMessage] = ()  # of the records, once they are prepared

    def __len__(self) -> int:
        return len(self.records)

    @property
    def messages(self) -> Iterator[KafkaMessage]:
        """Messages of the records.

        They are wrapped as they are taken: the drain does that in slices that suit it, where the
        fetch thread would take the interpreter away from it for a whole batch.
        """
        if self.made:
            return iter(self.made)
        return map(KafkaMessage, repeat(self.origin), self.records, repeat(self.beside))

    def prepared(self, prepare: Prepare, outage: Outage) -> Iterator[FetchedBatch]:
        """Prepare the messages, part by part; it ends before them if a wait is ended."""
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
    """A consumer that reads what it is assigned, joins no group, and commits nothing.

    A context manager, for one thread; ``open``, ``starved_since_s`` and ``trouble`` are for any.
    Raises UsageError when librdkafka rejects the settings.
    """

    settings: ClientSettings
    topic: str
    topic_id: str  # another topic of this name is not read
    reader: str  # the name of a group that the broker sees, for its quotas and rights
    _: KW_ONLY
    prefetch_bytes: int  # what the client may buffer beside a batch
    batch_bytes: int  # what a batch should have at most; one record is read in any case
    pace: RateLimiter | None = None  # when reading is capped
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        settings, ahead_bytes = self.settings, self.prefetch_bytes
        self._log = ClientLog()
        self._origins: dict[int, Origin] = {}
        self._ends: dict[int, int] = {}
        self._batch_messages = FIRST_BATCH_MESSAGES
        self._checked_s = 0.0
        self._cut: LogCut | None = None  # unless the client finds that this is another topic
        self._error_text: str | None = None  # of an error that came instead of data
        self.open: dict[int, int] = {}  # the next offset of each partition that is not at its end
        self.paused: dict[int, float] = {}  # since when; the caller may set it to later
        self.starved_since_s: float | None = None  # None while records flow
        if self.pace is not None:
            ahead_bytes = min(ahead_bytes, ceil(AHEAD_S * self.pace.bytes_per_s))
        conf = settings.fetch_conf(
            self._log,
            self.reader,
            ahead_bytes,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            # librdkafka goes on reading when a topic is recreated, but for this line of its log.
            debug=",".join(filter(None, [settings.properties.get("debug"), "metadata"])),
        )
        self._consumer = settings.consumer(conf)
        self._topic_check = TopicCheck(self._consumer, settings, self.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the client go."""
        with suppress(KafkaException):
            self._consumer.close()

    @property
    def trouble(self) -> str | None:
        """The reason that nothing arrives; None while records flow."""
        since_s = self.starved_since_s
        if since_s is None:
            return None
        if complaint := self._log.trouble_since(since_s):
            return complaint
        if self._error_text is None and self.clock() - since_s > SILENCE_S:
            return "the broker does not answer"
        return self._error_text

    def assign(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Read these offsets ``[start, end)`` by partition, and nothing else from now on."""
        self._origins = {n: Origin(self.topic, self.topic_id, n) for n in ranges}
        self._ends = {number: end for number, (_, end) in ranges.items()}
        self.open = {number: start for number, (start, end) in ranges.items() if start < end}
        with self._readable():
            self._consumer.assign([self._place(n, offset) for n, offset in self.open.items()])

    def leave(self, partition: int) -> None:
        """Read no more of a partition."""
        del self.open[partition]
        self.paused.pop(partition, None)
        if self.open:  # it would read on
            with self._readable():
                self._consumer.incremental_unassign([self._place(partition)])

    def pause(self, partitions: Sequence[int]) -> None:
        """Pass partitions over; what was read ahead of them is read again later."""
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
        """Read the next batches; none when none came soon.

        Raises RecordsDeleted when retention takes records of a range before they were read; LogCut
        when a log ends before its range; TopicGone when the topic was deleted or recreated;
        Interrupted when it can't be read for another reason.
        """
        now_s = self.clock()
        # It waits for all that it is to bring: request no more than there can be.
        left = sum(self._ends[number] - offset for number, offset in self.open.items())
        most = min(self._batch_messages, left)
        if self.pace is not None:
            most = min(most, self.pace.allowed(now_s))
            if not most:
                self._wait_for_pace(self.pace, now_s)
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
                self._cut = None  # it was no cut
                self._learn(taken, size)
        elif len(self.paused) == len(self.open):
            self.starved_since_s = None
        elif self._cut is not None:
            raise self._cut
        else:
            self.starved_since_s = self.starved_since_s or now_s
            self._check_silence(self.starved_since_s)

    def ensure_progress(self, silence_s: float) -> None:
        """Raises BrokerUnreachable when nothing has come for so long."""
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
        # When its topic is deleted, librdkafka goes quiet (issue 4836).
        if self.clock() - max(since_s, self._checked_s) < SILENCE_CHECK_S:
            return
        if not self._log.since(since_s):  # otherwise it is known why
            self._cut = self._topic_check.check(
                {number: self._ends[number] for number in self.open}
            )
        self._checked_s = self.clock()

    def _wait_for_pace(self, pace: RateLimiter, now_s: float) -> None:
        self.starved_since_s = None
        some = ceil(PACE_WAIT_S * pace.messages_per_s)
        time.sleep(min(pace.next_s(now_s, some), PACE_WAIT_MOST_S))

    def _learn(self, taken: int, size: int) -> None:
        if self.pace is not None:
            self.pace.came(self.clock(), taken, size - RECORD_BYTES * taken)
        fitting = self.batch_bytes * taken // size
        self._batch_messages = max(1, min(BATCH_MESSAGES, 2 * self._batch_messages, fitting))

    def _batches(self, records: Sequence[_Record]) -> Iterator[FetchedBatch]:
        # Of records of one partition that follow each other; what is an error comes by itself.
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
            return  # it reached its end earlier in this batch
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
        # What came in place of a record: the end of the log for now, or an error.
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
            # The topic exists, but not all brokers know it yet.
            self._error_text = foreign(answer.str())
        elif code in PASSING_TO_READERS:
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
    """Estimate the bytes that a record has beside its value: the most that three of these have.

    To look at the headers of each would take longer than all the rest.
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
    # None when they can't be read.
    try:
        found = _read_headers(record)
    except SystemError:
        record.set_headers(_UNREADABLE)
        return None
    return None if found is _UNREADABLE else cast(_Headers, found or [])


def timestamp_of(record: _Record) -> int | None:
    """Time of a record in milliseconds since 1970 (UTC); None without one."""
    kind, timestamp_ms = record.timestamp()
    none = kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE or timestamp_ms < 0
    return None if none else timestamp_ms
