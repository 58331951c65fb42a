"""A compacted topic, of which one partition is read to its end, and written in order."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial

from drainer.errors import (
    DrainerError,
    Interrupted,
    LogCut,
    Passing,
    PlanNotWritten,
    PlanRefused,
    RightMissing,
    TopicMissing,
    raised_as,
)
from drainer.kafka.answers import NO_TOPIC, granting, may_not
from drainer.kafka.cluster import Cluster
from drainer.kafka.dead_letters import explained
from drainer.kafka.producer import AcknowledgedProducer, Delivery, ProducerRecord, way_on
from drainer.kafka.reader import RangeReader
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.kafka.spans import BATCH_BYTES, PREFETCH_BYTES, SPAN_SILENCE_S

# All records are in this partition, because bids need one order. More partitions, which somebody
# may add, change nothing.
PARTITION = 0
REPLICAS_MOST = 3
# A broker compacts only segments that it no longer writes to, so small segments are asked for.
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(32 * 1024 * 1024)}
IN_SYNC = "min.insync.replicas"
WRITE_TIMEOUT_MS = 120 * 1000  # How long to wait for a broker that does not answer.
CLOSE_S = 5.0
READER, MARK = "drainer-plan", "drainer-record"
_OTHERWISE = "name another place with --plan"
IF_GONE = (
    "If the plan is still there, resume. If not, start again with `drainer run`. It starts at the"
    " committed offset, and repeats what is done above it."
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A compacted topic as it is, or as drainer would create it."""

    exists: bool
    replicas: int
    in_sync: str  # Its min.insync.replicas.

    def __str__(self) -> str:
        return f"compacted, replication {self.replicas}, {IN_SYNC} {self.in_sync}"


class CompactedTopic:
    """One partition of a compacted topic. Its methods raise Refused unless they say otherwise.

    ``read_on`` and the methods that wait for an answer are for one thread at a time. Any thread may
    call ``send``.
    """

    def __init__(self, settings: ClientSettings, name: str) -> None:
        self.name = name
        # A plan is not written in transactions. Somebody else's must not hide it.
        properties = {**settings.properties, ISOLATION: "read_uncommitted"}
        self._settings = replace(settings, properties=properties)
        self._reader: RangeReader | None = None
        self._next: int | None = None  # The next offset to read.
        self._producer: AcknowledgedProducer | None = None

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster.connect(self._settings)

    @property
    def trouble(self) -> str | None:
        """The reason why no records are acknowledged; None while they are, or if none was sent."""
        return None if self._producer is None else self._producer.trouble

    def shape(self) -> Shape:
        """Ensure that the topic can hold a plan, or could be created, and return what it is like.

        Raises Refused if it is not compacted, or if this user lacks a right.
        """
        name, cluster = self.name, self._cluster
        try:
            with raised_as(RightMissing, about=f"can't keep a plan in topic {name}: "):
                found = cluster.topic(name)
                cluster.topic(name, "WRITE")
                config = cluster.topic_config(name)
                if not config:
                    what = "see whether it is compacted"
                    raise may_not(what, "DESCRIBE_CONFIGS", f"topic {name}")
        except TopicMissing:
            listed = cluster.request(
                "list the brokers", lambda left: cluster.admin.list_topics(timeout=left)
            )
            replicas = max(1, min(REPLICAS_MOST, len(listed.brokers)))
            shape = Shape(False, replicas, str(max(1, replicas - 1)))
            self._create(shape, only_check=True)
            return shape
        if (policy := config.get("cleanup.policy")) != "compact":
            raise PlanRefused(
                f"topic {name} has cleanup.policy={policy}, so it would lose a plan, or grow for"
                " ever",
                hint=f"Set cleanup.policy=compact if the topic has only plans, or {_OTHERWISE}.",
            )
        return Shape(True, len(found.replicas[PARTITION].all), config.get(IN_SYNC, "1"))

    def make(self) -> None:
        """Create the topic if it does not exist, and ensure that it can hold a plan."""
        shape = self.shape()
        if not shape.exists:
            self._create(shape)
            self._cluster.await_topic(self.name)
            self.shape()

    def _create(self, shape: Shape, *, only_check: bool = False) -> None:
        grant = f"{granting('CREATE', f'topic {self.name}')}, request a compacted topic, or"
        with explained(grant, _OTHERWISE):
            self._cluster.create_topic(
                *(self.name, 1, {**CONFIG, IN_SYNC: shape.in_sync}),
                replicas=shape.replicas,
                kind="plan ",
                only_check=only_check,
            )

    def read_on(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Read keys and values from where the last call ended to the end that the log has now.

        Raises TopicMissing if there is no topic, and Unresumable if it is not the one that was read
        before, or has lost records since.
        """
        if self._reader is None:
            topic = self._cluster.topic(self.name)
            self._next = self._cluster.log_starts(self.name, (PARTITION,))[PARTITION]
            self._reader = RangeReader(
                *(self._settings, self.name, topic.topic_id, READER),
                prefetch_bytes=PREFETCH_BYTES,
                batch_bytes=BATCH_BYTES,
            )
        reader, begin = self._reader, self._next
        assert begin is not None, "it is set with the reader"
        end, _ = self._cluster.log_ends(self.name, (PARTITION,))[PARTITION]
        if end < begin:
            reason = f"it ends at offset {end}, and was read up to {begin}"
            raise LogCut(f"topic {self.name} was deleted and recreated, or lost records: {reason}")
        with raised_as(Passing, Interrupted, about="can't read the plan: "):
            if begin < end:
                reader.assign({PARTITION: (begin, end)})
            while begin < end and reader.open:
                for batch in reader.poll():
                    for record in batch.records:
                        if (key := record.key()) is not None:
                            yield key, record.value()
                reader.ensure_progress(SPAN_SILENCE_S)
        self._next = end

    def send(self, key: bytes, value: bytes | None) -> Future[None]:
        """Begin to write a record, without blocking. Records keep their order.

        The future is done once all in-sync replicas have the record. If that fails, it raises
        PlanNotWritten.
        """
        if self._producer is None:
            self._producer = AcknowledgedProducer(
                *(self._settings, self.name, "drainer-plan-topic", WRITE_TIMEOUT_MS), linger_ms=0
            )
        written, mark = Future[None](), (MARK, secrets.token_bytes(8))
        report = partial(self._reported, written)
        self._producer.send(ProducerRecord(value, key, (mark,), mark, report, PARTITION))
        return written

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write records, and return when all in-sync replicas have them. Raises PlanNotWritten."""
        for written in [self.send(*record) for record in records]:
            written.result()

    def close(self) -> None:
        """Close the clients. Records that are not written within CLOSE_S are given up."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(CLOSE_S)
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _reported(self, written: Future[None], _: ProducerRecord, answer: Delivery) -> None:
        if answer is None:
            written.set_result(None)
            return
        reason, hint = str(answer), "Resume once the topic can be written."
        if not isinstance(answer, DrainerError):
            way = IF_GONE if answer.code() in NO_TOPIC else way_on(self.name, answer.code())
            reason, hint = answer.str(), way or hint
        written.set_exception(
            PlanNotWritten(f"can't write to topic {self.name}: {reason}", hint=hint)
        )
