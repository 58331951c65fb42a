"""Writing dead letters: each is told once, when all in-sync replicas have it or it can't be had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from confluent_kafka import KafkaError

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DeadLetterDoubled, DeadLetterNotWritten, DrainerError
from drainer.kafka.producer import AcknowledgedProducer, Answer, Record, way_on
from drainer.kafka.settings import ClientSettings
from drainer.policy.dead_letter import DeadLetter

DELIVERY_TIMEOUT_MS = 5 * 60 * 1000  # a broker that doesn't answer is waited for that long

_ENDED = "the drain ended before the broker acknowledged it"

Told = Callable[[DrainerError | None], None]


class DeadLetterTopic:
    """Writes dead letters to a topic, with a thread that hears what became of them.

    ``send`` and ``close`` are for one thread, the drain's. Letters with the same key come to one
    partition, in the order in which they were sent; one that is sent again, without its payload or
    because the topic turned out not to have it, comes behind those that were sent meanwhile. A
    drain sends none of a lane before it was told of the one before.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, topic: str, runtime: Runtime = THIS_PROCESS
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._producer = AcknowledgedProducer(
            settings,
            topic,
            "drainer-dead-letters",
            DELIVERY_TIMEOUT_MS,
            blindly=True,
            runtime=runtime,
            partitioner="murmur2_random",  # where Java's clients put the same key
            linger_ms=0,
            # A batch that is too large is refused as a whole, with letters that would have fit.
            batch_num_messages=1,
        )

    @property
    def trouble(self) -> str | None:
        """Why no letter is acknowledged though some wait for it; None while all is well."""
        why = self._producer.trouble
        return why and f"dead letters wait for {self.topic}: {why}"

    def send(self, letter: DeadLetter, told: Told) -> None:
        """Begins to write a letter; doesn't block.

        ``told`` is called exactly once, from another thread: with None when all in-sync replicas
        have the letter, DeadLetterDoubled when they may have it twice, else with the error. Only a
        letter that can't even be begun is told of at once, in the caller's thread. One that is too
        large for the topic is written without its payload, or without keys and headers too.
        """
        headers, report = letter.headers, partial(self._reported, letter, told)
        self._producer.send(Record(letter.value, letter.key, headers, headers[0], report))

    def close(self, timeout_s: float) -> None:
        """Waits up to so long for what is under way, then gives the rest up; all are told."""
        self._producer.close(timeout_s)

    def _reported(self, letter: DeadLetter, told: Told, record: Record, answer: Answer) -> None:
        if answer is None:
            _tell(told, DeadLetterDoubled(self.topic) if record.doubled else None)
        elif (
            isinstance(answer, KafkaError)
            and answer.code() == KafkaError.MSG_SIZE_TOO_LARGE
            and (smaller := letter.smaller()) is not None
        ):
            self.send(smaller, told)
        else:
            _tell(told, self._not_written(answer))

    def _not_written(self, answer: KafkaError | DrainerError) -> DeadLetterNotWritten:
        if isinstance(answer, DrainerError):
            return self._unsure(str(answer))
        code, said = answer.code(), self._settings.redact(answer.str())
        if code in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return self._unsure(_ENDED)
        if code in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
            waited = f"no answer within {DELIVERY_TIMEOUT_MS // 1000} s"
            return self._unsure(self.trouble or waited)
        hint = way_on(self.topic, code) or "Fix the cause, then resume with the plan."
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            hint = "Raise the topic's max.message.bytes, then resume with the plan."
        if code == KafkaError.INVALID_TIMESTAMP:
            said += f": it has the time of this machine's clock, {datetime.now(UTC):%F %T} UTC"
            hint = (
                "Correct the clock of this machine or of the broker, or the topic's"
                " message.timestamp limits. Then resume with the plan."
            )
        return DeadLetterNotWritten(f"can't write a dead letter to {self.topic}: {said}", hint=hint)

    def _unsure(self, why: str) -> DeadLetterNotWritten:
        return DeadLetterNotWritten(
            f"unknown whether {self.topic} has a dead letter: {why}",
            hint="Resume with the plan. The sub-message is pending; its letter may appear twice.",
        )


def _tell(told: Told, error: DrainerError | None) -> None:
    with suppress(RuntimeError):  # the event loop that wanted to hear of it is closed
        told(error)
