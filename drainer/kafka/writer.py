"""The writer with which a handler writes records to a topic, and waits until they are there."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from confluent_kafka import KafkaError

from drainer.errors import (
    DrainerError,
    RecordNotWritten,
    RecordTooLarge,
    RecordUnsure,
    RightMissing,
)
from drainer.handler import Fatal, Retry
from drainer.kafka.cluster import Cluster, config_limit, written_topic
from drainer.kafka.producer import AcknowledgedProducer, Delivery, ProducerRecord, way_on
from drainer.kafka.settings import ClientSettings
from drainer.message import Header
from drainer.policy.rate_cap import RateLimiter

# How long the producer tries to write a record. The timeout of a call of the handler is usually
# shorter, and the drain then makes another attempt.
DELIVERY_TIMEOUT_MS = 2 * 60 * 1000
# A record waits this long for others. It is short, because each record of a hot lane waits.
LINGER_MS = 1
BATCH_BYTES = 1_000_000
# The longest time that a call waits for the cap. If it would have to wait longer, it raises Retry.
WAIT_MOST_S = 5.0
ID = "drainer.id"  # The name of the last header of each record.

_Future = asyncio.Future[Delivery]


class TopicWriter:
    """Writes to one topic of the drained cluster. A handler gets it from ``Context.writer``.

    The producer is idempotent, and all in-sync replicas acknowledge each record. ``write`` may be
    called in one event loop only. ``pace`` is a cap on writing. Writers of several topics may share
    it.

    Raises:
        TopicMissing: when there is no topic of this name.
        RightMissing: when this user may not write to the topic.
        BrokerUnreachable: when no answer came.
        UsageError: when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, topic: str, pace: RateLimiter | None = None
    ) -> None:
        self.topic = topic
        self._pace = pace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: deque[tuple[_Future, Delivery]] = deque()
        self._name = secrets.token_hex(8)
        self._written = 0
        with Cluster.connect(settings) as cluster:
            self.partitions = len(written_topic(cluster, topic).partitions)
            most = config_limit(cluster.topic_config(topic).get("max.message.bytes"))
        # If a batch has a record that is too large, brokers refuse all records in it.
        batch_bytes = min(BATCH_BYTES, max(1, most // 2)) if most else BATCH_BYTES
        self._producer = AcknowledgedProducer(
            settings,
            topic,
            "drainer-writer",
            DELIVERY_TIMEOUT_MS,
            after_poll=self._pass_answers,
            linger_ms=LINGER_MS,
            batch_size=batch_bytes,
        )

    async def write(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
        id: str | None = None,
    ) -> None:
        """Write a record, and return when all in-sync replicas have it.

        Args:
            partition: unless given, librdkafka chooses the partition by the key.
            timestamp: in milliseconds since 1970, or None for now.
            id: becomes the record's last header, ``drainer.id``. If it is unsure whether the record
                was written, drainer looks for it by this header. So each record needs its own id.
                Unless given, a new one is made.

        A call that was cancelled may have written the record.

        Raises:
            RecordNotWritten: when the record was refused, or when it is unknown whether it was
                written.
            RecordUnsure: when it is unknown whether the record was written, because this user may
                not read the topic. The drain ends.
            drainer.Fatal: when the topic accepts no record at all.
            drainer.Retry: when the cap has no room for the record in the next seconds.
        """
        if self._pace is not None:
            await self._wait_for_room(len(value or b"") + len(key or b""))
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._written += 1
        mark = ID, (id or f"{self._name}:{self._written}").encode()
        delivery: _Future = self._loop.create_future()
        report = partial(self._delivered, delivery)
        record = ProducerRecord(
            value, key, (*headers, mark), mark, report, partition, timestamp or 0
        )
        self._producer.send(record)
        try:
            answer = await delivery
        except asyncio.CancelledError:
            # If it were written later, it would come behind the record of the next attempt.
            self._producer.forget(record)
            raise
        if answer is not None:
            self._refuse(answer)

    def close(self) -> None:
        """Give up the records that are not acknowledged yet. This does not wait for them."""
        self._producer.close(0)

    async def _wait_for_room(self, size: int) -> None:
        assert self._pace is not None
        wait_s = self._pace.book(monotonic(), size, WAIT_MOST_S)
        if wait_s > WAIT_MOST_S:
            raise Retry(
                f"the cap of --broker-limits has no room for it in {wait_s:.3g} s", after=wait_s
            )
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _pass_answers(self) -> None:
        answers: list[tuple[_Future, Delivery]] = []
        while self._answers:
            answers.append(self._answers.popleft())
        if answers and self._loop is not None:
            # The loop is woken up once per poll, and not once per record.
            with suppress(RuntimeError):  # If the loop is closed, no call waits for them.
                self._loop.call_soon_threadsafe(_resolve, answers)

    def _delivered(self, delivery: _Future, _: ProducerRecord, answer: Delivery) -> None:
        self._answers.append((delivery, answer))

    def _refuse(self, answer: KafkaError | DrainerError) -> None:
        if isinstance(answer, DrainerError):
            made = RecordUnsure if isinstance(answer, RightMissing) else RecordNotWritten
            raise made(
                f"unknown whether {self.topic} has a record, for its acknowledgement is unsure:"
                f" {answer}",
                hint=f"{answer.hint} Then resume with the plan. The record may appear twice.",
            )
        text = f"can't write a record to {self.topic}: {answer.str()}"
        way = way_on(self.topic, answer.code())
        if way or answer.fatal():
            raise Fatal(f"{text}. {way or 'Fix the cause, then resume.'}")
        too_large = answer.code() == KafkaError.MSG_SIZE_TOO_LARGE
        made = RecordTooLarge if too_large else RecordNotWritten
        raise made(text, hint="Resume with the plan. The record may appear twice.")


def _resolve(answers: Sequence[tuple[_Future, Delivery]]) -> None:
    for delivery, answer in answers:
        if not delivery.done():
            delivery.set_result(answer)
