"""Writing records to a topic from a handler: each is awaited until all in-sync replicas have it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from drainer.errors import RecordNotWritten, TopicMissing
from drainer.handler import Fatal, Retry
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, REJECTED, granting
from drainer.kafka.cluster import Cluster, limit
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.policy.rate_cap import RateLimiter

DELIVERY_TIMEOUT_MS = 2 * 60 * 1000  # the drain's --timeout is mostly shorter, and tries again
LINGER_MS = 1  # a hot lane writes one record after the other, and each waits for that
POLL_S = 0.1
FULL_S = 0.005
STOP_S = 1.0
QUEUE_KBYTES = 64 * 1024
RECORD_BYTES_MAX = 50_000_000  # must fit into the queue, and into a request (100 MiB by default)
BATCH_BYTES = 1_000_000
WAIT_MOST_S = 5.0  # for the cap, in the handler; who would wait longer comes again

Header = tuple[str, bytes | None]
_Future = asyncio.Future[KafkaError | None]  # None when the record is written


class TopicWriter:
    """Writes to one topic of the drained cluster. For handlers: ``Context.writer``.

    Idempotent, with ``acks=all``. ``write`` is for one event loop. A ``pace``, which writers of
    several topics may share, holds it to a cap.

    Raises:
        TopicMissing: when there is none of this name.
        RightMissing: when this user may not write to it.
        BrokerUnreachable: when no answer came.
        UsageError: when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, topic: str, pace: RateLimiter | None = None
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._pace = pace
        with Cluster.connect(settings) as cluster:
            try:
                found = cluster.topic(topic, "WRITE")
            except TopicMissing as error:
                raise TopicMissing(
                    f"the topic {topic} to write to does not exist",
                    hint="Create it first, with the partitions and retention that it needs.",
                ) from error
            self.partitions = len(found.partitions)
            most = limit(cluster.topic_config(topic).get("max.message.bytes"))
        # A batch that is too large is refused as a whole, with records that would have fit.
        batch_bytes = min(BATCH_BYTES, max(1, most // 2)) if most else BATCH_BYTES
        conf = settings.produce_conf(
            ClientLog(settings.redact),
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            linger_ms=LINGER_MS,
            batch_size=batch_bytes,
            queue_buffering_max_kbytes=QUEUE_KBYTES,
            message_max_bytes=settings.properties.get("message.max.bytes", RECORD_BYTES_MAX),
        )
        self._producer = settings.producer(conf)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: list[tuple[_Future, KafkaError | None]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="drainer-writer", daemon=True)
        self._thread.start()

    async def write(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
    ) -> None:
        """Returns when all in-sync replicas have the record.

        Without ``partition`` the key decides, as librdkafka has it; ``timestamp`` is in ms since
        1970, None for now. A cancelled call may have written it all the same.

        Raises:
            RecordNotWritten: when it was refused, or it is not known whether it was written.
            drainer.Fatal: when the topic takes no record at all.
            drainer.Retry: when the cap has no room for it in the next seconds.
        """
        if self._pace is not None:
            await self._hold_back(len(value or b"") + len(key or b""))
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        delivery: _Future = self._loop.create_future()
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value,
                    key,
                    partition,
                    partial(self._delivered, delivery),
                    headers=list(headers),
                    timestamp=timestamp or 0,
                )
            except BufferError:  # there is room when some of them are acknowledged
                await asyncio.sleep(FULL_S)
            except KafkaException as error:
                self._refuse(error.args[0])
            else:
                break
        answer = await delivery
        if answer is not None:
            self._refuse(answer)

    def close(self) -> None:
        """Gives up what is not acknowledged; doesn't wait for it."""
        if self._stopping:
            return
        self._stopping = True
        self._producer.purge(blocking=False)
        self._thread.join(STOP_S)

    async def _hold_back(self, size: int) -> None:
        assert self._pace is not None
        wait_s = self._pace.book(monotonic(), size, WAIT_MOST_S)
        if wait_s > WAIT_MOST_S:
            raise Retry(
                f"the cap of --broker-limits has no room for it in {wait_s:.3g} s", after=wait_s
            )
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _run(self) -> None:
        while not self._stopping:
            self._producer.poll(POLL_S)
            self._pass_answers()
        self._producer.flush(STOP_S)  # what close() gives up is answered, too
        self._pass_answers()

    def _pass_answers(self) -> None:
        if self._answers and self._loop is not None:
            # All answers of one poll, in one turn of the loop.
            answers, self._answers = self._answers, []
            with suppress(RuntimeError):  # it is closed: no call waits
                self._loop.call_soon_threadsafe(_resolve, answers)

    def _delivered(self, delivery: _Future, answer: KafkaError | None, _: Any) -> None:
        self._answers.append((delivery, answer))

    def _refuse(self, answer: KafkaError) -> None:
        code = answer.code()
        said = f"can't write a record to {self.topic}: " + self._settings.redact(answer.str())
        if code in NO_TOPIC:
            raise Fatal(f"{said}. If someone deleted it, create it again, then resume.")
        if code in FORBIDDEN:
            raise Fatal(f"{said}. {granting('WRITE', f'topic {self.topic}')}, then resume.")
        if code in REJECTED or answer.fatal():
            raise Fatal(f"{said}. Fix the cause, then resume.")
        raise RecordNotWritten(said, hint="Resume with the plan. The record may appear twice.")


def _resolve(answers: list[tuple[_Future, KafkaError | None]]) -> None:
    for delivery, answer in answers:
        if not delivery.done():
            delivery.set_result(answer)
