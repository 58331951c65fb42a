"""Lost records: checks that find out why records can't be read, and the errors that explain it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    GroupActive,
    GroupJoined,
    Interrupted,
    LogCut,
    RecordsDeleted,
    Refused,
    TopicGone,
    TopicMissing,
)
from drainer.kafka.answers import (
    FORBIDDEN,
    NO_TOPIC,
    REJECTED,
    RETRIABLE_BY_READERS,
    granting,
    unreachable,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.connection import TIMEOUT_S
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings

CHECK_S = 1.0
RETRY_S = 0.3
CONSUME_S = 0.05
PREFETCH_BYTES = 1024 * 1024  # What is read is thrown away.

_CUT_HINT = (
    "Find out which records the brokers lost, and reset the group's offset into the log. Then start"
    " a new drain with another --plan."
)


@dataclass(eq=False)
class TopicCheck:
    """Finds out what has happened to a topic, through the client that reads it.

    It does not check whether the topic was recreated, because the client logs that when it reads
    on.
    """

    consumer: Consumer
    topic: str

    def check(self, ends: Mapping[int, int]) -> LogCut | None:
        """Ensure that the topic exists, as far as the cluster answers.

        ``ends`` are the offsets by partition that its logs must reach. Returns the error for a log
        that no longer reaches its end. The caller ignores it if the topic was recreated.

        Raises TopicGone when the topic was deleted; Interrupted when this user may no longer read
        it.
        """
        logs = self._bounds(ends, CHECK_S) or {}  # Without an answer, a later check tries again.
        for number, (_, end) in logs.items():
            if end < ends[number]:
                return LogCut(
                    f"{self.topic}/{number} lost records: its log ends at {end}, below"
                    f" {ends[number]}, as after an unclean leader election",
                    hint=_CUT_HINT,
                )
        return None

    def out_of_range(self, number: int, position: int, reason: str) -> DrainerError:
        """Return the error for an offset that a partition no longer has, or never had."""
        place = f"{self.topic}/{number}"
        until_s = time.monotonic() + TIMEOUT_S
        try:
            while (logs := self._bounds([number], TIMEOUT_S)) is None:
                if time.monotonic() > until_s:
                    break
                time.sleep(RETRY_S)
        except DrainerError as gone:
            return gone
        if logs is None:
            return Interrupted(
                f"{place} has no record at offset {position}, and the brokers don't say why",
                hint="Resume once the brokers answer.",
            )
        start, _ = logs[number]
        if position < start:
            return RecordsDeleted(
                f"retention deleted offsets {position} to {start - 1} of {place} before the drain"
                f" read them: the log now starts at {start}",
                hint="Raise the topic's retention, then resume with --accept-gap to skip the gap.",
            )
        return LogCut(
            f"{place} lost records from offset {position} on, as after an unclean leader election"
            f" ({reason})",
            hint=_CUT_HINT,
        )

    def _bounds(
        self, numbers: Iterable[int], timeout_s: float
    ) -> dict[int, tuple[int, int]] | None:
        """Look up where logs begin and end now. Returns None when no answer came."""
        try:
            if self._is_missing(timeout_s):
                time.sleep(RETRY_S)  # A broker that has just come back may not know the topic yet.
                if self._is_missing(timeout_s):
                    raise topic_gone(self.topic, "was deleted during the read")
            found = {
                n: self.consumer.get_watermark_offsets(TopicPartition(self.topic, n), timeout_s)
                for n in numbers
            }
            return found if all(min(bounds) >= 0 for bounds in found.values()) else None
        except KafkaException as error:
            if error.args[0].code() in RETRIABLE_BY_READERS | NO_TOPIC:
                return None
            raise unreadable(self.topic, error.args[0]) from None

    def _is_missing(self, timeout_s: float) -> bool:
        answer = self.consumer.list_topics(self.topic, timeout_s).topics[self.topic].error
        if answer is None or answer.code() in NO_TOPIC:
            return answer is not None
        raise KafkaException(answer)


@dataclass(eq=False)
class LogCheck:
    """Checks that logs still have the records for which a drain was planned.

    A leader never cuts its own log. So while the leader epoch of a partition stays the same, only
    the end of its log has to be checked. After an election, brokers report where the records of the
    old epoch end.
    """

    cluster: Cluster
    topic: str
    reader: str

    def __post_init__(self) -> None:
        # The last leader epoch, by partition and the end up to which the log was whole then.
        self._known: dict[tuple[int, int], int | None] = {}

    def check(
        self, ends: Mapping[int, tuple[int, int | None]], timeout_s: float | None = None
    ) -> None:
        """Raise LogCut when records below an end are lost, even if others have taken their place.

        ``ends`` has the end of the backlog by partition, with the leader epoch when it was looked
        up. Also raises BrokerUnreachable when no answer came, and Refused as ``Cluster`` does.
        """
        found = self.cluster.log_ends(self.topic, ends, timeout_s)
        suspects = {
            number: ends[number]
            for number, (end, epoch) in found.items()
            if end < ends[number][0]
            or epoch != self._known.get((number, ends[number][0]), ends[number][1])
        }
        starts = self.cluster.log_starts(self.topic, suspects, timeout_s)
        # If retention has deleted all records below an end, nothing is left to compare.
        suspects = {n: end for n, end in suspects.items() if starts[n] <= end[0]}
        settings = self.cluster.settings
        for number, reason in cut_logs(settings, self.topic, self.reader, suspects).items():
            raise LogCut(
                f"{self.topic}/{number} lost records below {ends[number][0]}, the end of the"
                f" backlog, as after an unclean leader election ({reason})",
                hint=_CUT_HINT,
            )
        self._known = {(number, ends[number][0]): epoch for number, (_, epoch) in found.items()}


@contextmanager
def raised_as_running(topic: str) -> Iterator[None]:
    """Convert errors of ``Cluster``, which refuse a drain, to those that interrupt a running one.

    BrokerUnreachable is not converted, because the caller tries again.
    """
    try:
        yield
    except BrokerUnreachable:
        raise
    except TopicMissing:
        raise topic_gone(topic, "was deleted") from None
    except GroupActive as error:
        raise GroupJoined(str(error), hint=error.hint) from error
    except Refused as error:
        raise Interrupted(str(error), hint=error.hint) from error


def recreated(topic: str) -> TopicGone:
    """Return the error for a topic that has the same name, but another id."""
    return topic_gone(topic, "was deleted and recreated during the read")


def topic_gone(topic: str, what: str) -> TopicGone:
    """Return the error for a topic whose records are gone; ``what`` says what happened to it."""
    return TopicGone(
        f"topic {topic} {what}",
        hint="Its records are gone. Start a new drain with another --plan.",
    )


def cut_logs(
    settings: ClientSettings, topic: str, reader: str, ends: Mapping[int, tuple[int, int | None]]
) -> dict[int, str]:
    """Return the partitions that have lost records below an offset, each with the reason.

    ``ends`` has that offset by partition, and the leader epoch with which it was read, if that is
    known. A log may have been cut below the offset and have grown again. Then it has records of
    another leader there, and brokers know where each epoch has ended (KIP-320).

    Raises BrokerUnreachable when no answer came; Interrupted when the topic can't be read.
    """
    log, found, left = ClientLog(), dict[int, str](), set(ends)
    if not left:
        return found
    started_s = time.monotonic()
    consumer = settings.consumer(settings.fetch_conf(log, reader, PREFETCH_BYTES))
    try:
        # An epoch that is not known is -1. Then brokers only check the offset.
        places = [
            TopicPartition(topic, n, end, leader_epoch=-1 if epoch is None else epoch)
            for n, (end, epoch) in ends.items()
        ]
        consumer.assign(places)
        while left:
            for message in consumer.consume(len(left), CONSUME_S):
                number, answer = message.partition(), message.error()
                if answer is None or answer.code() == KafkaError._PARTITION_EOF:
                    left.discard(-1 if number is None else number)
                elif answer.code() == KafkaError._AUTO_OFFSET_RESET and number is not None:
                    found[number] = answer.str()
                    left.discard(number)
                elif answer.code() not in RETRIABLE_BY_READERS:
                    raise unreadable(topic, answer)
            waited_s = time.monotonic() - started_s
            if left and waited_s > TIMEOUT_S:
                raise unreachable(settings.bootstrap_servers, waited_s, log.since(started_s))
    finally:
        consumer.close()
    return found


def unreadable(place: str, answer: KafkaError) -> Interrupted:
    """Return the error for an answer that another read would get again."""
    hint = "Fix the cause first."
    if answer.code() in FORBIDDEN:
        hint = f"{granting('READ', 'topic ' + place.partition('/')[0])}."
    elif answer.code() in REJECTED:
        hint = "Check the login (sasl.*) in the properties."
    elif answer.code() == KafkaError._BAD_COMPRESSION:
        hint = "If it is a zstd batch of over 30 MB, add -X receive.message.max.bytes=1000000000."
    return Interrupted(f"can't read {place}: {answer.str()}", hint=hint)
