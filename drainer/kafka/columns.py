"""Records as columns: one list for each property that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka

from drainer.message import Origin

_Record = confluent_kafka.Message
_Column = Callable[[Origin, Sequence[_Record]], list[Any]]

_KINDS = {
    confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
    confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}


def _timestamp(record: _Record) -> int | None:
    kind, timestamp_ms = record.timestamp()
    return timestamp_ms if kind in _KINDS else None


# What is called for each record is the client's own function where that can be: a wrapper of ours
# would take as long again.
_COLUMNS: Mapping[str, _Column] = {
    "topic": lambda origin, records: [origin.topic] * len(records),
    "partition": lambda origin, records: [origin.partition] * len(records),
    "offset": lambda _, records: list(map(_Record.offset, records)),
    "timestamp": lambda _, records: list(map(_timestamp, records)),
    "timestamp_type": lambda _, records: [_KINDS.get(r.timestamp()[0]) for r in records],
    "key": lambda _, records: list(map(_Record.key, records)),
    "value": lambda _, records: list(map(_Record.value, records)),
    "headers": lambda _, records: [headers or [] for headers in map(_Record.headers, records)],
    "leader_epoch": lambda _, records: list(map(_Record.leader_epoch, records)),
}
NAMES = tuple(_COLUMNS)


def columns(
    origin: Origin, records: Sequence[_Record], names: Iterable[str]
) -> dict[str, list[Any]]:
    """Properties of records of one partition, by name; NAMES has all.

    ``timestamp`` is in milliseconds since 1970 (UTC) or None, ``timestamp_type`` is the topic's
    ``message.timestamp.type`` or None, ``headers`` are lists of (name, bytes or None) pairs.
    """
    return {name: _COLUMNS[name](origin, records) for name in names}
