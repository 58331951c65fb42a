"""Producers that lie as librdkafka does now and then: they acknowledge a record with no offset."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import OFFSET_INVALID, Message

from drainer.kafka.settings import ClientSettings

Truth = Literal["dropped", "written", "known"]  # which is the truth


class Liar:
    """A real producer; of its first records, in their order, some are acknowledged without an
    offset: those that it dropped, and those that it wrote. Records go to partition 0 at that."""

    def __init__(self, producer: Any, truths: Sequence[Truth]) -> None:
        self._producer = producer
        self._truths = deque(truths)
        self._dropped: list[Any] = []

    def produce(self, topic: str, *given: Any, on_delivery: Any, **more: Any) -> None:
        truth = self._truths.popleft() if self._truths else "known"

        def unsure(error: object, _: object) -> None:
            on_delivery(error, Message(topic, 0, OFFSET_INVALID))

        if truth == "dropped":
            self._dropped.append(unsure)
        else:
            report = unsure if truth == "written" else on_delivery
            self._producer.produce(topic, *given, on_delivery=report, **more)

    def poll(self, timeout: float) -> None:
        self._producer.poll(timeout)
        dropped, self._dropped = self._dropped, []
        for unsure in dropped:
            unsure(None, None)

    def purge(self, blocking: bool) -> None:
        self._producer.purge(blocking=blocking)


@dataclass(frozen=True)
class LyingSettings(ClientSettings):
    """Of clients whose producer lies about its first records; ``confs`` are those of producers."""

    truths: Sequence[Truth] = ()
    confs: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, settings: ClientSettings, *truths: Truth) -> LyingSettings:
        return cls(settings.bootstrap_servers, settings.properties, truths=truths)

    def producer(self, conf: Mapping[str, Any]) -> Any:
        self.confs.append(conf)
        return Liar(super().producer(conf), self.truths)
