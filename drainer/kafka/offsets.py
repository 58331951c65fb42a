"""Reading a group's committed offsets, as a consumer that never joins the group."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from drainer.kafka.answers import FORBIDDEN
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings


class OffsetReader:
    """Asks for committed offsets; keeps the client of the group that it was asked for last.

    Not AdminClient.list_consumer_group_offsets: when the coordinator moves, it takes the whole
    process down (librdkafka issue 5040, seen with 2.16).
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._log = ClientLog(settings.redact)
        self._group = ""
        self._consumer: Consumer | None = None
        self._busy = threading.Lock()

    def read(
        self, group: str, topic: str, partitions: Sequence[int], timeout_s: float
    ) -> dict[int, int | None]:
        """The committed offset by partition, None where there is none.

        Offsets that a transaction is about to commit are waited for. Raises KafkaException.
        """
        with self._busy:
            if self._consumer is None or group != self._group:
                self._drop()
                self._consumer, self._group = self._connect(group), group
            places = [TopicPartition(topic, number) for number in partitions]
            try:
                found = self._consumer.committed(places, timeout=timeout_s)
            except KafkaException as error:
                forbidden = self._forbidden()
                self._drop()  # a new client finds a broker that came back, or moved
                raise forbidden or error from None
            self._consumer.poll(0)  # so that it logs
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset if place.offset >= 0 else None for place in found}

    def _forbidden(self) -> KafkaException | None:
        # Who may not look for the coordinator is not answered: the client waits until time is up,
        # and has said why among its events.
        while self._consumer is not None and (event := self._consumer.poll(0)) is not None:
            answer = event.error()
            if answer is not None and answer.code() in FORBIDDEN:
                return KafkaException(answer)
        return None

    def close(self) -> None:
        """Let the connection go, unless an abandoned thread is still asking."""
        if self._busy.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._busy.release()

    def _drop(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _connect(self, group: str) -> Consumer:
        conf = self._settings.conf(
            self._log,
            group_id=group,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        return self._settings.consumer(conf)
