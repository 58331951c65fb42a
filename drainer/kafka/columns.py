"""The records of one partition as columns, for Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka

from drainer.kafka.reader import KafkaMessage, timestamp_of
from drainer.message import Origin

_Record = confluent_kafka.Message
_Column = Callable[[Origin, Sequence[_Record]], list[Any]]


def columns(
    origin: Origin, records: Sequence[_Record], names: Iterable[str]
) -> dict[str, list[Any]]:
    """Return columns of records of one partition, by name. ``_COLUMNS`` has all names.

    ``timestamp`` is in milliseconds since 1970 (UTC), or None. ``timestampType`` is Kafka's number
    for its type: -1 for none, 0 for CreateTime, 1 for LogAppendTime. ``headers`` are lists of
    (name, bytes or None), or None. Raises HeadersUnreadable when the name of a header is not UTF-8.
    """
    return {name: _COLUMNS[name](origin, records) for name in names}


# Where it can, a column calls the client's own function for each record. A wrapper would take as
# long again.
_COLUMNS: Mapping[str, _Column] = {
    "topic": lambda origin, records: [origin.topic] * len(records),
    "partition": lambda origin, records: [origin.partition] * len(records),
    "offset": lambda _, records: list(map(_Record.offset, records)),
    "timestamp": lambda _, records: list(map(timestamp_of, records)),
    "timestampType": lambda _, records: [
        record.timestamp()[0] - confluent_kafka.TIMESTAMP_CREATE_TIME for record in records
    ],
    "key": lambda _, records: list(map(_Record.key, records)),
    "value": lambda _, records: list(map(_Record.value, records)),
    "headers": lambda origin, records: [
        KafkaMessage(origin, record, 0).headers or None for record in records
    ],
    "leader_epoch": lambda _, records: list(map(_Record.leader_epoch, records)),
}
