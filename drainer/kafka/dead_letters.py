"""Dead-letter topics: checks and creation of a topic before a drain, and writing letters to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from confluent_kafka import KafkaError

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import (
    BrokerUnreachable,
    DeadLetterFlawed,
    DeadLetterNotWritten,
    DrainerError,
    Refused,
    RightMissing,
    TopicMissing,
)
from drainer.kafka.answers import granting
from drainer.kafka.cluster import Cluster, config_limit
from drainer.kafka.producer import AcknowledgedProducer, Delivery, ProducerRecord, way_on
from drainer.kafka.settings import ClientSettings
from drainer.policy.dead_letter import DeadLetter

DELIVERY_TIMEOUT_MS = 5 * 60 * 1000  # How long to wait for a broker that does not answer.
# A letter must stay until somebody has read it, and a later letter of its sub-key must not replace
# it.
CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LIMIT = "max.message.bytes"
# A letter may be larger than its message by this: the key, the provenance and the error.
HEADROOM_BYTES = 256 * 1024
LIMIT_MOST = 2**31 - 1  # The largest max.message.bytes that Kafka takes.
DAY_MS = 24 * 60 * 60 * 1000

_ENDED = "the drain ended before the broker acknowledged it"
_CHOOSE = "name another with --tune dead-letter-topic=TOPIC"
_DO_WITHOUT = "redrive with --on-failure park, which writes no dead letters"

OnWritten = Callable[[DrainerError | None], None]


@dataclass(frozen=True, slots=True)
class DeadLetterTopicInfo:
    """A dead-letter topic as it is, or as drainer would create it."""

    name: str
    exists: bool
    partitions: int
    # The topic deletes letters after this time. None if it keeps them, or if this is not known.
    retention_ms: int | None = None
    # Whether this user may not see the topic's configuration. Then drainer can't know whether the
    # topic deletes letters.
    hidden: bool = False
    # The topic's max.message.bytes; None if it is not known.
    limit: int | None = None


def check_dead_letter_topic(
    cluster: Cluster, name: str, *, drained: str | None, partitions: int, limit: int | None = None
) -> DeadLetterTopicInfo:
    """Ensure that dead letters can be written to a topic, or that it can be created for them.

    A missing topic would get these ``partitions``, and ``limit`` as its max.message.bytes.
    ``drained`` is the topic that is drained, which can't be its own dead-letter topic. It is None
    for a redrive, whose letters go back to where they came from.

    Raises Refused when the topic is the drained one, is compacted or has an impossible name, or
    when this user may not write to it or create it.
    """
    if name == drained:
        raise Refused(
            f"dead-letter topic {name} is the drained topic: the drain would read its own letters",
            hint=_sentence(_CHOOSE),
        )
    otherwise = _DO_WITHOUT if drained is None else _CHOOSE
    try:
        with explained(f"{granting('WRITE', f'topic {name}')}, or", otherwise):
            found = cluster.topic(name, "WRITE")
    except TopicMissing:
        info = DeadLetterTopicInfo(name, False, partitions, limit=limit)
        make_dead_letter_topic(cluster, info, only_check=True)
        return info
    except RightMissing as error:
        raise RightMissing(f"can't write dead letters: {error}", hint=error.hint) from error
    config = cluster.topic_config(name)
    if "compact" in config.get("cleanup.policy", ""):
        raise Refused(
            f"dead-letter topic {name} is compacted: it keeps only the last letter per sub-key",
            hint=f"Set its cleanup.policy to delete, or {otherwise}.",
        )
    return DeadLetterTopicInfo(
        name,
        True,
        len(found.partitions),
        config_limit(config.get("retention.ms")),
        hidden=not config,
        limit=config_limit(config.get(LIMIT)),
    )


def make_dead_letter_topic(
    cluster: Cluster, info: DeadLetterTopicInfo, *, only_check: bool = False
) -> None:
    """Create the topic, or only check that it could be created. It will keep letters for ever.

    An existing topic is not changed. Raises Refused when Kafka refuses the request.
    """
    rights = granting("CREATE and WRITE", f"topic {info.name}")
    config = CONFIG if info.limit is None else {**CONFIG, LIMIT: str(info.limit)}
    with explained(f"{rights}, request the topic, or", _CHOOSE):
        cluster.create_topic(
            info.name, info.partitions, config, kind="dead-letter ", only_check=only_check
        )


def with_headroom(limit: int | None) -> int | None:
    """Return the max.message.bytes that letters need if messages have this limit."""
    return None if limit is None else min(limit + HEADROOM_BYTES, LIMIT_MOST)


def originals_kept(topic: str, config: Mapping[str, str], oldest_ms: int | None) -> str:
    """Describe how long a topic keeps some of its messages, which the text calls "them".

    ``oldest_ms`` is the timestamp of the oldest of them; None if it is not known.
    """
    retention_ms = config_limit(config.get("retention.ms"))
    if not config:
        return f"drainer can't see for how long {topic} keeps them"
    by_size = config_limit(config.get("retention.bytes")) is not None
    if by_size or "compact" in config.get("cleanup.policy", ""):
        return f"{topic} may delete them at any time (compaction or retention.bytes)"
    if retention_ms is None:
        return f"{topic} keeps them without a limit of time"
    until = f"for {days(retention_ms)} from their timestamps"
    with suppress(ValueError, OverflowError, OSError):  # A timestamp can be any number.
        if oldest_ms is not None:
            at = datetime.fromtimestamp((oldest_ms + retention_ms) / 1000, UTC)
            until = f"until {at:%F %R} UTC"
    return f"{topic} keeps them {until} (retention.ms)"


def days(ms: int) -> str:
    """Write a duration in days, as in ``a day`` and ``7 days``."""
    return "a day" if ms == DAY_MS else f"{ms / DAY_MS:.3g} days"


@contextmanager
def explained(grant: str, otherwise: str) -> Iterator[None]:
    """Add a hint to the error of a missing right, or of a topic's name that Kafka refuses."""
    try:
        yield
    except (BrokerUnreachable, TopicMissing):
        raise
    except RightMissing as error:
        raise RightMissing(str(error), hint=f"{grant} {otherwise}.") from error
    except Refused as error:
        raise Refused(str(error), hint=_sentence(otherwise)) from error


def _sentence(advice: str) -> str:
    return f"{advice[0].upper()}{advice[1:]}."


class DeadLetterTopic:
    """Writes dead letters to a topic. Its thread reports whether each one was written.

    Only the drain's thread calls ``send`` and ``close``. Letters with the same key go to the same
    partition, in the order in which they were sent. But a letter may have to be sent again: without
    its payload, or because the topic does not have it. It then comes after letters that were sent
    later. That does not change the order within a lane, because the drain sends the next letter of
    a lane only when the one before it is reported.

    Raises UsageError when librdkafka rejects the settings.
    """

    def __init__(
        self, settings: ClientSettings, topic: str, runtime: Runtime = THIS_PROCESS
    ) -> None:
        self.topic = topic
        self._producer = AcknowledgedProducer(
            settings,
            topic,
            "drainer-dead-letters",
            DELIVERY_TIMEOUT_MS,
            blindly=True,
            runtime=runtime,
            partitioner="murmur2_random",  # For a key, Java's clients choose the same partition.
            linger_ms=0,
            # If a batch has a letter that is too large, brokers refuse all letters in it.
            batch_num_messages=1,
        )

    @property
    def trouble(self) -> str | None:
        """The reason why letters are not acknowledged; None while they are, or if none was sent."""
        why = self._producer.trouble
        return why and f"dead letters wait for {self.topic}: {why}"

    def send(self, letter: DeadLetter, on_written: OnWritten) -> None:
        """Begin to write a letter, without blocking.

        ``on_written`` is called exactly once, from another thread. It gets None when all in-sync
        replicas have the letter, DeadLetterFlawed when they may have it twice or have it without
        its payload, and otherwise the error. If the write can't begin, it is called at once, in the
        caller's thread. A letter that is too large for the topic is written without its payload
        and, if it is still too large, without keys and headers.
        """
        headers, report = letter.headers, partial(self._reported, letter, on_written)
        self._producer.send(ProducerRecord(letter.value, letter.key, headers, headers[0], report))

    def close(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the letters that are being written, and give up the rest.

        Every letter is reported, including those that are given up.
        """
        self._producer.close(timeout_s)

    def _reported(
        self, letter: DeadLetter, on_written: OnWritten, record: ProducerRecord, answer: Delivery
    ) -> None:
        if _is_too_large(answer) and (smaller := letter.smaller()) is not None:
            self.send(smaller, on_written)
            return
        error: DrainerError | None = None
        if record.doubled or letter.lacks_payload:
            doubled, left_out = record.doubled, letter.lacks_payload
            error = DeadLetterFlawed(self.topic, doubled=doubled, left_out=left_out)
        with suppress(RuntimeError):  # The event loop of the caller may be closed.
            on_written(error if answer is None else self._not_written(answer))

    def _not_written(self, answer: KafkaError | DrainerError) -> DeadLetterNotWritten:
        if isinstance(answer, DrainerError):
            return self._unsure(str(answer))
        code, reason = answer.code(), answer.str()
        if code in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return self._unsure(_ENDED)
        if code in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT):
            waited = f"no answer within {DELIVERY_TIMEOUT_MS // 1000} s"
            return self._unsure(self.trouble or waited)
        hint = way_on(self.topic, code) or "Fix the cause, then resume with the plan."
        if _is_too_large(answer):
            hint = "Raise the topic's max.message.bytes, then resume with the plan."
        if code == KafkaError.INVALID_TIMESTAMP:
            reason += f": it has the time of this machine's clock, {datetime.now(UTC):%F %T} UTC"
            hint = (
                "Correct the clock of this machine or of the broker, or the topic's"
                " message.timestamp limits. Then resume with the plan."
            )
        return DeadLetterNotWritten(
            f"can't write a dead letter to {self.topic}: {reason}", hint=hint
        )

    def _unsure(self, why: str) -> DeadLetterNotWritten:
        return DeadLetterNotWritten(
            f"unknown whether {self.topic} has a dead letter: {why}",
            hint="Resume with the plan. The sub-message is pending; its letter may appear twice.",
        )


def _is_too_large(answer: Delivery) -> bool:
    return isinstance(answer, KafkaError) and answer.code() == KafkaError.MSG_SIZE_TOO_LARGE
