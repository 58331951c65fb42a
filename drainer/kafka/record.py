"""What a fetch hands over: batches of records of one partition, wrapped when they are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import cast

import confluent_kafka

from drainer.message import Message, Origin


class KafkaMessage(Message):
    """A message as it came from Kafka; timestamp and headers are read when asked for."""

    __slots__ = ("_record",)

    def __init__(self, origin: Origin, record: confluent_kafka.Message) -> None:
        # Not super().__init__: this runs for every message.
        self.origin = origin
        self.offset = record.offset()  # type: ignore[assignment]  # a record has one
        key = self.key = record.key()
        self.value = record.value()
        self.size = len(record) + len(key) if key else len(record)
        self._record = record

    @property
    def timestamp(self) -> int | None:
        kind, timestamp_ms = self._record.timestamp()
        return None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return cast(list[tuple[str, bytes | None]], self._record.headers() or [])


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of one partition, in their order, none at or past the end of its backlog.

    Attributes:
        origin: the partition.
        records: as the client gave them; may be none, when only ``reached`` is news.
        reached: by partition, the offset below which nothing is left to deliver after these
            records: it is how holes and the end of the backlog are told. Empty when there is no
            such news.
        bytes: what it takes in memory, estimated.
    """

    origin: Origin
    records: Sequence[confluent_kafka.Message]
    reached: dict[int, int]
    bytes: int

    def __len__(self) -> int:
        return len(self.records)

    @property
    def messages(self) -> Iterator[KafkaMessage]:
        """The messages.

        They are wrapped as they are taken: the drain does that in slices that suit it, where the
        fetch thread would take the interpreter away from it for a whole batch.
        """
        return map(KafkaMessage, repeat(self.origin), self.records)
