"""Batches of records of one partition: wrapped as messages when wanted, or as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import methodcaller
from typing import Any, cast

import confluent_kafka

from drainer.message import Message, Origin, headers_unreadable

_Headers = list[tuple[str, bytes | None]]

# If a header's name is not UTF-8, the client's method returns a broken list and raises at once, and
# returns that list without a word when it is called again: to look into it ends the process.
# methodcaller, because a warm CPython 3.11 does not check what `record.headers()` returns.
_read_headers = methodcaller("headers")
_UNREADABLE: Any = ()  # is put in the place of the broken list

_Record = confluent_kafka.Message
_Column = Callable[[Origin, Sequence[_Record]], list[Any]]


class KafkaMessage(Message):
    """A message as it came from Kafka; timestamp and headers are read when they are used."""

    __slots__ = ("_record",)

    def __init__(self, origin: Origin, record: _Record, beside: int) -> None:
        # Not super().__init__: this runs for every message.
        self.origin = origin
        self.offset = record.offset()  # type: ignore[assignment]  # a record has one
        self.key = record.key()
        self.value = record.value()
        self.size = len(record) + beside
        self._record: _Record | None = record

    @property
    def timestamp(self) -> int | None:
        return None if self._record is None else _timestamp(self._record)

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        if self._record is None:
            return ()
        found = _headers_of(self._record)
        if found is None:
            raise headers_unreadable(self)
        return found

    def let_go(self) -> None:
        self.value = self._record = None  # the record holds the value, too


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records of one partition, in their order, none at or past the end of its backlog."""

    origin: Origin
    # As the client gave them; may be none, when only ``reached`` is news.
    records: Sequence[_Record]
    # By partition, the offset below which nothing is left to deliver after these records: that is
    # how holes and the end of the backlog are reported. Empty when there is no such news.
    reached: dict[int, int]
    bytes: int  # what it takes in memory, estimated
    beside: int = 0  # bytes of key and headers of one record, as ``beside_value`` has it

    def __len__(self) -> int:
        return len(self.records)

    @property
    def messages(self) -> Iterator[KafkaMessage]:
        """The messages.

        They are wrapped as they are taken: the drain does that in slices that suit it, where the
        fetch thread would take the interpreter away from it for a whole batch.
        """
        return map(KafkaMessage, repeat(self.origin), self.records, repeat(self.beside))


def columns(
    origin: Origin, records: Sequence[_Record], names: Iterable[str]
) -> dict[str, list[Any]]:
    """Properties of records of one partition, by name; ``_COLUMNS`` has all.

    ``timestamp`` is in milliseconds since 1970 (UTC) or None, ``timestampType`` the number that
    Kafka has for it (-1 for none, 0 for CreateTime, 1 for LogAppendTime), ``headers`` are lists of
    (name, bytes or None) pairs, or None.
    """
    return {name: _COLUMNS[name](origin, records) for name in names}


def beside_value(records: Sequence[_Record]) -> int:
    """Estimate the bytes that a record has beside its value: the most that three of these have.

    To look at the headers of each would take longer than all the rest.
    """
    if not records:
        return 0
    sample = (records[0], records[len(records) // 2], records[-1])
    return max(map(_key_and_headers, sample))


def _key_and_headers(record: _Record) -> int:
    headers = _headers_of(record) or []
    named = sum(len(name) + len(value or b"") for name, value in headers)
    return len(record.key() or b"") + named


def _headers_of(record: _Record) -> _Headers | None:
    # None when they can't be read.
    try:
        found = _read_headers(record)
    except SystemError:
        record.set_headers(_UNREADABLE)
        return None
    return None if found is _UNREADABLE else cast(_Headers, found or [])


def _timestamp(record: _Record) -> int | None:
    kind, timestamp_ms = record.timestamp()
    none = kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE or timestamp_ms < 0
    return None if none else timestamp_ms


# What is called for each record is the client's own function where that can be: a wrapper of ours
# would take as long again.
_COLUMNS: Mapping[str, _Column] = {
    "topic": lambda origin, records: [origin.topic] * len(records),
    "partition": lambda origin, records: [origin.partition] * len(records),
    "offset": lambda _, records: list(map(_Record.offset, records)),
    "timestamp": lambda _, records: list(map(_timestamp, records)),
    "timestampType": lambda _, records: [
        record.timestamp()[0] - confluent_kafka.TIMESTAMP_CREATE_TIME for record in records
    ],
    "key": lambda _, records: list(map(_Record.key, records)),
    "value": lambda _, records: list(map(_Record.value, records)),
    "headers": lambda _, records: [headers or None for headers in map(_Record.headers, records)],
    "leader_epoch": lambda _, records: list(map(_Record.leader_epoch, records)),
}
