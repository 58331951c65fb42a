"""Committed offsets, read and written for a group by a consumer that is no member of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from drainer.kafka.answers import FORBIDDEN
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings

POLL_S = 0.01  # the client does not return from a poll when it has called back
CLOSE_S = 1.0
STUCK_S = 30.0  # without an answer to a commit, before another client takes over


class OffsetClient:
    """Reads and writes committed offsets; keeps the client of the group that it was used for last.

    The client is a consumer that joins no group: requests of an AdminClient to a coordinator may
    end the process (coordinator.py). One commit at a time: none overtakes another.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._log = ClientLog(settings.redact)
        self._group = ""
        self._consumer: Consumer | None = None
        self._client = object()  # its identity, for the answers to its commits
        self._unanswered_since_s: float | None = None
        self._answer: KafkaError | None = None  # to the last commit
        self._busy = threading.Lock()

    def read(
        self, group: str, topic: str, partitions: Sequence[int], timeout_s: float
    ) -> dict[int, int | None]:
        """The committed offset by partition, None where there is none.

        Offsets that a transaction is about to commit are waited for. Raises KafkaException.
        """
        with self._busy:
            consumer = self._of(group)
            places = [TopicPartition(topic, number) for number in partitions]
            try:
                found = consumer.committed(places, timeout=timeout_s)
            except KafkaException as error:
                forbidden = self._forbidden(consumer)
                if self._unanswered_since_s is None:
                    self._drop()  # a new client finds a broker that came back, or moved
                raise forbidden or error from None
            consumer.poll(0)  # so that it logs
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset if place.offset >= 0 else None for place in found}

    def write(self, group: str, places: list[TopicPartition], timeout_s: float) -> None:
        """Commit. Raises KafkaException; _TIMED_OUT when there is no answer yet, also to an earlier
        one."""
        with self._busy:
            consumer, until_s = self._of(group), time.monotonic() + timeout_s
            self._await_answer(consumer, until_s)
            self._unanswered_since_s, self._answer = time.monotonic(), None
            consumer.commit(offsets=places, asynchronous=True)
            self._await_answer(consumer, until_s)
            if self._answer is not None:
                raise KafkaException(self._answer)

    def close(self) -> None:
        """Let the connection go, unless an abandoned thread still waits for an answer."""
        if self._busy.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._busy.release()

    def _answered(
        self, client: object, error: KafkaError | None, places: Sequence[TopicPartition]
    ) -> None:
        if client is self._client:  # and none that was given up
            self._unanswered_since_s = None
            self._answer = error or next((p.error for p in places if p.error is not None), None)

    def _await_answer(self, consumer: Consumer, until_s: float) -> None:
        while self._unanswered_since_s is not None:
            if forbidden := self._forbidden(consumer, POLL_S):
                self._drop()
                raise forbidden
            now_s = time.monotonic()
            if self._unanswered_since_s is not None and now_s >= until_s:
                if now_s - self._unanswered_since_s > STUCK_S:
                    self._drop()
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _forbidden(self, consumer: Consumer, wait_s: float = 0) -> KafkaException | None:
        # Who may not look for the coordinator is not answered: the client waits until time is up,
        # and has the reason among its events.
        while (event := consumer.poll(wait_s)) is not None:
            answer = event.error()
            if answer is not None and answer.code() in FORBIDDEN:
                return KafkaException(answer)
        return None

    def _of(self, group: str) -> Consumer:
        if self._consumer is None or group != self._group:
            self._drop()
            conf = self._settings.conf(
                self._log,
                group_id=group,
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            self._client = object()
            conf["on_commit"] = partial(self._answered, self._client)
            self._consumer, self._group = self._settings.consumer(conf), group
        return self._consumer

    def _drop(self) -> None:
        consumer, self._consumer, self._unanswered_since_s = self._consumer, None, None
        if consumer is not None:
            close_later(consumer)


def close_later(consumer: Consumer) -> None:
    """Close a consumer that may wait for a broker as it does: for a commit without an answer."""
    closing = threading.Thread(target=consumer.close, name="drainer-close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)
