"""What became of records that can't be read: looked up, so that the error says it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError, TopicPartition

from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Interrupted,
    LogCut,
    RecordsDeleted,
    Refused,
    TopicGone,
    TopicMissing,
)
from drainer.kafka.answers import (
    FORBIDDEN,
    PASSING_TO_READERS,
    REJECTED,
    granting,
    unreachable,
)
from drainer.kafka.cluster import Cluster, LogBounds
from drainer.kafka.connection import TIMEOUT_S
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings, Isolation

CHECK_S = 1.0
CONSUME_S = 0.05
PREFETCH_BYTES = 1024 * 1024  # thrown away

_CUT_HINT = (
    "find out which records its brokers lost; what is left, a new drain takes with another --plan,"
    " once the group's offset is in the log again"
)

Connect = Callable[[ClientSettings, float], Cluster]


class TopicLook:
    """Looks at what became of a topic that is read, by a connection of its own each time.

    Args:
        settings: how to connect.
        topic: its name.
        topic_id: its id when the reading began.
        connect: makes the connection.
    """

    def __init__(
        self, settings: ClientSettings, topic: str, topic_id: str, connect: Connect
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._topic_id = topic_id
        self._connect = connect

    def check(self, ends: Mapping[int, int]) -> None:
        """Make sure that the topic is there and the same, as far as the cluster says so now.

        ``ends`` are offsets by partition that its logs have to reach.

        Raises:
            TopicGone: when it was deleted, or deleted and recreated.
            LogCut: when a log does not reach its end any more.
            Interrupted: when this user may not look any more.
        """
        try:
            logs = self._bounds(ends, self._settings.isolation, CHECK_S)
        except BrokerUnreachable:
            return  # an error that comes again is looked into again
        for number, end in ends.items():
            if logs[number].end < end:
                raise LogCut(
                    f"{self._topic}/{number} lost records: its log ends at {logs[number].end} now,"
                    f" and was to be read up to {end}; it was cut, as an unclean leader election"
                    " does",
                    hint=_CUT_HINT,
                )

    def out_of_range(self, number: int, position: int, said: str) -> DrainerError:
        """The error for an offset that a partition does not hold any more, or never did."""
        place = f"{self._topic}/{number}"
        try:
            log = self._bounds([number], "read_uncommitted", TIMEOUT_S)[number]
        except TopicGone as gone:
            return gone
        except (Refused, Interrupted) as error:
            return Interrupted(
                f"{place} has no record at offset {position}, and what became of it can't be asked:"
                f" {error}",
                hint=error.hint,
            )
        if position < log.start:
            return RecordsDeleted(
                f"retention deleted records of {place} before they were read: offsets {position} to"
                f" {log.start - 1} are gone, the log starts at {log.start} now",
                hint="give the topic more retention, then go on behind them: drainer resume PLAN"
                " --accept-gap",
            )
        return LogCut(
            f"{place} lost records, and offset {position} was next: its log was cut, as an unclean"
            f" leader election does ({said})",
            hint=_CUT_HINT,
        )

    def _bounds(
        self, numbers: Iterable[int], isolation: Isolation, timeout_s: float
    ) -> dict[int, LogBounds]:
        try:
            with self._connect(self._settings, timeout_s) as cluster:
                found = cluster.topic(self._topic)
                logs = cluster.log_bounds(self._topic, numbers, isolation)
        except TopicMissing:
            raise TopicGone(
                f"topic {self._topic} was deleted while it was read",
                hint="its backlog is gone with it; this drain can't go on",
            ) from None
        except BrokerUnreachable:
            raise
        except Refused as error:
            raise Interrupted(str(error), hint=error.hint) from error
        if found.topic_id != self._topic_id:
            raise recreated(self._topic)
        return logs


def recreated(topic: str) -> TopicGone:
    """The error for a topic of the same name with another id."""
    return TopicGone(
        f"topic {topic} was deleted and recreated while it was read",
        hint="the new one holds other records; this drain can't go on",
    )


def cut_logs(
    settings: ClientSettings, topic: str, reader: str, ends: Mapping[int, tuple[int, int]]
) -> dict[int, str]:
    """The partitions whose records below an offset are not those of then, and what the client says.

    ``ends`` has by partition that offset, and the epoch of the leader that it was read from. A log
    that was cut below it and has grown again has the records of another leader there: the broker
    knows where each epoch ended (KIP-320).

    Raises:
        BrokerUnreachable: when no answer came.
        Interrupted: when it can't be read.
    """
    log, found, left = ClientLog(settings.redact), dict[int, str](), set(ends)
    if not left:
        return found
    begun_s = time.monotonic()
    consumer = settings.consumer(settings.fetch_conf(log, reader, PREFETCH_BYTES))
    try:
        places = [TopicPartition(topic, n, end, leader_epoch=e) for n, (end, e) in ends.items()]
        consumer.assign(places)
        while left:
            for message in consumer.consume(len(left), CONSUME_S):
                number, answer = message.partition(), message.error()
                if answer is None or answer.code() == KafkaError._PARTITION_EOF:
                    left.discard(-1 if number is None else number)
                elif answer.code() == KafkaError._AUTO_OFFSET_RESET and number is not None:
                    found[number] = settings.redact(answer.str())
                    left.discard(number)
                elif answer.code() not in PASSING_TO_READERS:
                    raise unreadable(settings, topic, answer)
            waited_s = time.monotonic() - begun_s
            if left and waited_s > TIMEOUT_S:
                raise unreachable(settings.bootstrap_servers, waited_s, log.since(begun_s))
    finally:
        consumer.close()
    return found


def unreadable(settings: ClientSettings, place: str, answer: KafkaError) -> Interrupted:
    """The error for an answer that reading again won't change."""
    hint = "fix the cause first"
    if answer.code() in FORBIDDEN:
        hint = granting("READ", f"topic {place.partition('/')[0]}")
    elif answer.code() in REJECTED:
        hint = "check the login (sasl.*) of the properties"
    said = settings.redact(answer.str())
    return Interrupted(f"can't read {place} any further: {said}", hint=hint)
