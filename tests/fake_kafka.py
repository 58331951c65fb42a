"""Kafka in memory, on whatever clock its user has: a topic, a group, and clients that see them.

``kafka/test_contract.py`` holds it to what a real broker does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Answer

from drainer.core.dispatch import Dispatcher
from drainer.errors import BrokerUnreachable, DrainerError, TopicMissing
from drainer.kafka.answers import Right
from drainer.kafka.cluster import Cluster, LogBounds, TopicInfo
from drainer.kafka.group import GroupInfo, Member
from drainer.kafka.reader import FetchedBatch, RangeReader
from drainer.kafka.settings import ClientSettings

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
ANSWER_S = 5.0  # how long an answer is waited for that does not come
READ_AHEAD_BYTES = 1_000_000_000  # no bound: what a fake has is in memory anyway


@dataclass(frozen=True)
class Record:
    key: bytes
    value: bytes
    aborted: bool = False  # then only a consumer that reads uncommitted is given it


@dataclass
class Log:
    """One partition as the brokers hold it. Offsets without a record are holes: compacted away, or
    markers of transactions."""

    start: int = 0
    stable: int = 0  # the end for who reads committed
    end: int = 0
    records: dict[int, Record] = field(default_factory=dict)

    def shown(self, offset: int, committed_only: bool) -> bool:
        record = self.records.get(offset)
        return record is not None and not (committed_only and record.aborted)

    def end_for(self, committed_only: bool) -> int:
        return self.stable if committed_only else self.end

    def append(self, record: Record | None) -> None:
        """Adds a record, or a marker of a transaction."""
        if record is not None:
            self.records[self.end] = record
        self.end += 1


class FakeKafka:
    """The state of a cluster with one topic that is read, and one group that commits.

    ``request`` is called before each answer; who overrides it delays answers, or raises.
    """

    def __init__(
        self,
        topic: str,
        topic_id: str,
        group: str,
        logs: Mapping[int, Log],
        committed: Mapping[int, int | None] | None = None,
    ) -> None:
        self.topic, self.topic_id, self.group = topic, topic_id, group
        self.logs = logs
        self.committed = dict(committed or dict.fromkeys(logs))
        self.members: tuple[Member, ...] = ()
        self.other_topics: set[str] = set()

    def request(self, what: str) -> None:
        """A question arrives. Raises BrokerUnreachable when no answer is to be had."""

    # What others do.

    def produce(self, values: Iterable[str], partition: int = 0) -> None:
        log = self.logs[partition]
        for value in values:
            log.append(Record(b"", value.encode()))
        log.stable = log.end

    def transact(self, values: Iterable[str], *, commit: bool, partition: int = 0) -> None:
        """A transaction that ends: its marker takes an offset."""
        log = self.logs[partition]
        for value in values:
            log.append(Record(b"", value.encode(), aborted=not commit))
        log.append(None)
        log.stable = log.end

    def open_transaction(self, values: Iterable[str], partition: int = 0) -> None:
        for value in values:
            self.logs[partition].append(Record(b"", value.encode()))

    def delete_before(self, offset: int, partition: int = 0) -> None:
        self.logs[partition].start = offset

    def live_member(self, group: str, client_id: str) -> SimpleNamespace:
        assert group == self.group
        self.members = (Member(f"{client_id}-id", client_id, "127.0.0.1"),)
        return SimpleNamespace(close=lambda: setattr(self, "members", ()))


class FakeCluster(Cluster):
    """Metadata and offsets of a fake, without the real one's patience."""

    def __init__(self, kafka: FakeKafka, settings: ClientSettings) -> None:
        self.kafka = kafka
        self.settings = settings
        self.cluster_id = CLUSTER_ID

    def close(self) -> None:
        """There is no connection."""

    def topic_config(self, name: str) -> dict[str, str]:
        self.kafka.request("configuration")
        return {}

    def topic(self, name: str, right: Right = "READ") -> TopicInfo:
        self.kafka.request("topic")
        if name != self.kafka.topic and name not in self.kafka.other_topics:
            raise TopicMissing(f"topic {name} does not exist")
        numbers = tuple(self.kafka.logs)
        return TopicInfo(name, self.kafka.topic_id, numbers, dict.fromkeys(numbers, "fake:9092"))

    def create_topic(self, name: str, *_: Any, only_check: bool = False, **__: Any) -> None:
        self.kafka.request("create")
        if not only_check:
            self.kafka.other_topics.add(name)

    def group(self, name: str, timeout_s: float | None = None, right: Right = "READ") -> GroupInfo:
        self.kafka.request("group")
        members = self.kafka.members if name == self.kafka.group else ()
        known = name == self.kafka.group and set(self.kafka.committed.values()) != {None}
        return GroupInfo(name, "stable" if members else "empty" if known else "dead", members)

    def missing(self, name: str, what: str = "does not exist") -> str:
        return f"group {name} {what}"

    def committed(
        self, group: str, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int | None]:
        self.kafka.request("offsets")
        return {number: self.kafka.committed[number] for number in partitions}

    def alter_committed(
        self, group: str, topic: str, offsets: Mapping[int, int], timeout_s: float | None = None
    ) -> None:
        self.kafka.request("commit")
        self._refuse_beside_members(group)
        if topic != self.kafka.topic or not offsets.keys() <= self.kafka.logs.keys():
            raise TopicMissing(f"topic {topic} or a partition of it does not exist")
        self.kafka.committed |= offsets

    def ensure_no_members(
        self, group: str, topic: str, committed: tuple[int, int], timeout_s: float | None = None
    ) -> None:
        self.kafka.request("members")
        self._refuse_beside_members(group)

    def log_starts(
        self, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int]:
        self.kafka.request("starts")
        return {n: self.kafka.logs[n].start for n in partitions}

    def log_ends(
        self, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, tuple[int, int | None]]:
        self.kafka.request("ends")
        return {n: (self.kafka.logs[n].end, None) for n in partitions}

    def log_bounds(
        self, topic: str, partitions: Iterable[int], isolation: str
    ) -> dict[int, LogBounds]:
        self.kafka.request("bounds")
        logs = {n: self.kafka.logs[n] for n in partitions}
        committed_only = isolation == "read_committed"
        return {
            n: LogBounds(log.start, log.end_for(committed_only), log.end, None)
            for n, log in logs.items()
        }

    def _refuse_beside_members(self, group: str) -> None:
        if group == self.kafka.group and self.kafka.members:
            raise self.group_active(group)


@dataclass(frozen=True)
class FakeSettings(ClientSettings):
    """Makes consumers of a fake."""

    kafka: Any = None
    batch: int = 1_000_000  # records that its consumers give at once, at most

    def consumer(self, conf: Mapping[str, Any]) -> Any:
        return FakeConsumer(self.kafka, conf, self.batch)


class FakeConsumer:
    """Has the face of ``confluent_kafka.Consumer``, as far as it reads what it is assigned."""

    def __init__(self, kafka: FakeKafka, conf: Mapping[str, Any], batch: int) -> None:
        self._kafka = kafka
        self._batch = batch
        self._committed_only = conf["isolation.level"] == "read_committed"
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._known_ends: dict[int, int] = {}
        self._log = conf["logger"]
        self._topic_id = kafka.topic_id

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._positions = {place.partition: place.offset for place in places}

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            assert place.partition not in self._positions, "it is assigned already"
            self._positions[place.partition] = place.offset

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            del self._positions[place.partition]

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self._paused.update(place.partition for place in places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(place.partition for place in places)

    def close(self) -> None:
        """There is no connection."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._request("topic")
        now = self._kafka.topic_id
        if now != self._topic_id:
            self._log.debug("Topic %s changed id from %s to %s", topic, self._topic_id, now)
            self._topic_id = now
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        self._request("bounds")
        log = self._kafka.logs[place.partition]
        return log.start, log.end_for(self._committed_only)

    def consume(self, most: int, timeout: float) -> list[Answer]:
        found: list[Answer] = []
        for number in self._in_turn([n for n in self._positions if n not in self._paused]):
            if len(found) < most:
                self._read(number, self._portion(most, most - len(found)), found)
        return found

    def _in_turn(self, numbers: list[int]) -> list[int]:
        return numbers

    def _portion(self, most: int, left: int) -> int:
        """Limit the records of one partition, where ``most`` were requested of all."""
        return min(left, self._batch)

    def _request(self, what: str) -> None:
        try:
            self._kafka.request(what)
        except BrokerUnreachable as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from None

    def _read(self, number: int, left: int, found: list[Answer]) -> None:
        log = self._kafka.logs[number]
        end = log.end_for(self._committed_only)
        position = self._positions[number]
        if position < log.start or position > log.end:
            found.append(self._answer(number, position, KafkaError._AUTO_OFFSET_RESET))
            return
        while position < end and left:
            if log.shown(position, self._committed_only):
                record = log.records[position]
                found.append(Answer(self._kafka.topic, number, position, record.key, record.value))
                left -= 1
            position += 1
        self._positions[number] = position
        if position >= end and left and self._known_ends.get(number) != end:
            self._known_ends[number] = end
            found.append(self._answer(number, position, KafkaError._PARTITION_EOF))

    def _answer(self, number: int, offset: int, code: int) -> Answer:
        error = KafkaError(code, "simulated")
        return Answer(self._kafka.topic, number, offset, None, None, None, error)


class FakeSource:
    """Reads a fake in the drain's own thread, as the fetch thread does in its own.

    Messages have ``message_bytes``, whatever they hold; ``during_stop`` is called by ``stop``.
    """

    def __init__(
        self,
        kafka: FakeKafka,
        dispatcher: Dispatcher,
        notify: Callable[[], None],
        *,
        batch: int = 50,
        message_bytes: int = 100,
        during_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.trouble: str | None = None
        self.failure: DrainerError | None = None
        self.stalled = False
        self.requests = 0
        self.stopped = False
        self.notify = notify
        self._message_bytes = message_bytes
        self._during_stop = during_stop
        self._batches: deque[FetchedBatch] = deque()
        settings = FakeSettings("fake:9092", kafka=kafka, batch=batch)
        self._reader = RangeReader(
            *(settings, kafka.topic, kafka.topic_id, kafka.group),
            prefetch_bytes=READ_AHEAD_BYTES,
            batch_bytes=READ_AHEAD_BYTES,
        )
        unread = {n: each for n, each in dispatcher.ledgers.items() if not each.complete}
        self._reader.assign({n: (each.watermark, each.end) for n, each in unread.items()})

    def start(self) -> None:
        self.notify()

    def next_batch(self) -> FetchedBatch | None:
        self.requests += 1
        if self.stalled:
            return None
        while not self._batches and self._reader.open:
            self._batches.extend(self._reader.poll())
        if not self._batches:
            return None
        batch = self._batches.popleft()
        made = list(batch.messages)
        for message in made:
            message.size = self._message_bytes
        return replace(batch, made=made)

    def stop(self) -> None:
        self._during_stop()
        self.stopped = True


class FakeLock:
    """A lock on a group: it is lost, or in doubt, when a test wants it."""

    def __init__(self) -> None:
        self.lost: DrainerError | None = None
        self.silence: tuple[str, float] | None = None
        self.sure_until_s = inf
        self.client_id = "drainer"

    def acquire(self) -> None:
        """Take it: it is free."""

    def release(self) -> None:
        """Give it back."""
