"""Writing dead letters: each is told once, when all in-sync replicas have it or it can't be had."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DeadLetterNotWritten, DrainerError
from drainer.kafka.answers import FORBIDDEN, NO_TOPIC, REJECTED, granting
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.policy.dead_letter import DeadLetter

DELIVERY_TIMEOUT_MS = 5 * 60 * 1000  # a broker that doesn't answer is waited for that long
SILENCE_S = 3.0
POLL_S = 0.1
PURGE_S = 1.0
QUEUE_KBYTES = 64 * 1024  # the client has a copy of each payload, also of one that many share
LETTER_BYTES_MAX = 50_000_000  # must fit into the queue, and into a request (100 MiB by default)

_ENDED = "the drain ended before the broker acknowledged it"

Told = Callable[[DrainerError | None], None]


class DeadLetterTopic:
    """Writes dead letters to a topic, with a thread that hears what became of them.

    ``send`` and ``close`` are for one thread, the drain's. Letters with the same key come to one
    partition, in the order in which they were sent; one that is sent again without its payload
    comes behind those that were sent meanwhile.

    Raises:
        UsageError: when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, topic: str, runtime: Runtime = THIS_PROCESS
    ) -> None:
        self._clock = runtime.monotonic
        self.topic = topic
        self._settings = settings
        self._log = ClientLog(settings.redact)
        chosen = settings.properties.get("message.max.bytes", LETTER_BYTES_MAX)
        conf = settings.produce_conf(
            self._log,
            partitioner="murmur2_random",  # where Java's clients put the same key
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            linger_ms=0,
            # A batch that is too large is refused as a whole, with letters that would have fit.
            batch_num_messages=1,
            queue_buffering_max_kbytes=QUEUE_KBYTES,
            message_max_bytes=chosen,
        )
        self._producer = settings.producer(conf)
        self._lock = runtime.lock()
        self._under_way: set[_Sent] = set()
        self._line: deque[_Sent] = deque()  # what the client's queue has no room for
        self._moved_s: float | None = None  # the last acknowledgement while some are under way
        self._closed = False
        self._stopping = runtime.event()
        self._thread = runtime.thread(target=self._run, name="drainer-dead-letters", daemon=True)
        self._thread.start()

    @property
    def under_way(self) -> int:
        """Letters that were sent and not told of."""
        return len(self._under_way)

    @property
    def trouble(self) -> str | None:
        """Why no letter is acknowledged though some wait for it; None while all is well."""
        since_s = self._moved_s
        if since_s is None or self._clock() - since_s < SILENCE_S:
            return None
        why = self._log.trouble_since(since_s) or "the broker does not acknowledge them"
        return f"dead letters wait for {self.topic}: {why}"

    def send(self, letter: DeadLetter, told: Told) -> None:
        """Begins to write a letter; doesn't block.

        ``told`` is called exactly once, from another thread: with None when all in-sync replicas
        have the letter, else with the error. Only a letter that can't even be begun is told of at
        once, in the caller's thread. One that is too large for the topic is written without its
        payload.
        """
        sent = _Sent(letter, told)
        with self._lock:
            if self._closed:
                error = f"the writer of {self.topic} is closed"
                _tell(told, DeadLetterNotWritten(error))
                return
            if not self._under_way:
                self._moved_s = self._clock()
            self._under_way.add(sent)
            self._line.append(sent)
        self._produce()

    def close(self, timeout_s: float) -> None:
        """Waits up to so long for what is under way, then gives the rest up; all are told."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        until = self._clock() + timeout_s
        while self._under_way and (left := until - self._clock()) > 0:
            self._stopping.wait(min(left, 0.01))
        with self._lock:
            never_sent = list(self._line)
            self._line.clear()
        for sent in never_sent:
            self._end(sent, self._unsure(_ENDED))
        if self._under_way:
            self._producer.purge(blocking=False)
            until = self._clock() + PURGE_S
            while self._under_way and self._clock() < until:
                self._stopping.wait(0.01)
        self._stopping.set()
        self._thread.join(PURGE_S)
        for sent in list(self._under_way):
            self._end(sent, self._unsure(_ENDED))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(POLL_S)
            self._produce()

    def _produce(self) -> None:
        refused: list[tuple[_Sent, KafkaError]] = []
        with self._lock:
            while self._line:
                sent = self._line[0]
                try:
                    self._producer.produce(
                        self.topic,
                        sent.letter.value,
                        sent.letter.key,
                        headers=list(sent.letter.headers),
                        on_delivery=partial(self._delivered, sent),
                    )
                except BufferError:
                    break  # there is room when some of them are acknowledged
                except KafkaException as error:
                    refused.append((sent, error.args[0]))
                self._line.popleft()
        for sent, answer in refused:
            self._heed(sent, answer)

    def _delivered(self, sent: _Sent, answer: KafkaError | None, _: Any) -> None:
        if answer is None:
            self._end(sent, None)
        else:
            self._heed(sent, answer)

    def _heed(self, sent: _Sent, answer: KafkaError) -> None:
        if answer.code() == KafkaError.MSG_SIZE_TOO_LARGE and sent.letter.value is not None:
            sent.letter = sent.letter.without_payload()
            with self._lock:
                self._line.append(sent)
            self._produce()
        else:
            self._end(sent, self._not_written(answer))

    def _end(self, sent: _Sent, error: DeadLetterNotWritten | None) -> None:
        with self._lock:
            if sent not in self._under_way:
                return
            self._under_way.discard(sent)
            self._moved_s = self._clock() if self._under_way else None
        _tell(sent.told, error)

    def _not_written(self, answer: KafkaError) -> DeadLetterNotWritten:
        code, said = answer.code(), self._settings.redact(answer.str())
        if code in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return self._unsure(_ENDED)
        if code in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
            waited = f"no answer within {DELIVERY_TIMEOUT_MS // 1000} s"
            return self._unsure(self.trouble or waited)
        hint = "Fix the cause, then resume with the plan."
        if code in FORBIDDEN:
            hint = f"{granting('WRITE', f'topic {self.topic}')}, then resume with the plan."
        elif code in NO_TOPIC:
            hint = "If someone deleted it, create it again. Then resume with the plan."
        elif code in REJECTED:
            hint = "Check the login (sasl.*) in the properties, then resume with the plan."
        elif code == KafkaError.MSG_SIZE_TOO_LARGE:
            hint = "Raise the topic's max.message.bytes, then resume with the plan."
        return DeadLetterNotWritten(f"can't write a dead letter to {self.topic}: {said}", hint=hint)

    def _unsure(self, why: str) -> DeadLetterNotWritten:
        return DeadLetterNotWritten(
            f"unknown whether {self.topic} has a dead letter: {why}",
            hint="Resume with the plan. The sub-message is pending; its letter may appear twice.",
        )


@dataclass(slots=True, eq=False)
class _Sent:
    """A letter under way; told of by its identity."""

    letter: DeadLetter
    told: Told


def _tell(told: Told, error: DrainerError | None) -> None:
    with suppress(RuntimeError):  # the event loop that wanted to hear of it is closed
        told(error)
