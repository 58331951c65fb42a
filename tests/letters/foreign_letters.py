"""Dead letters that spring-kafka, Kafka Connect and Kafka Streams wrote, as they were recorded."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from drainer.message import Message, Origin
from kafka.topic import WAIT_S, Topic

RECORDED = Path(__file__).with_name("foreign")
TOOLS = ("spring", "streams", "connect")


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]

    def message(self, offset: int = 0) -> Message:
        origin = Origin("dlt", "dlt-id", 0)
        return Message(origin, offset, self.key, self.value, self.timestamp, list(self.headers))


def recorded(tool: str) -> list[Record]:
    """Letters that were recorded of a tool; stack traces are cut short."""
    found: list[dict[str, Any]] = json.loads((RECORDED / f"{tool}.json").read_text())
    return [
        Record(
            _bytes(each["key"]),
            _bytes(each["value"]),
            each["timestamp"],
            [(name, _bytes(value)) for name, value in each["headers"]],
        )
        for each in found
    ]


def write(topic: Topic, records: list[Record]) -> None:
    producer = Producer({"bootstrap.servers": topic.bootstrap, "log_level": 0})
    for each in records:
        producer.produce(
            topic.name, each.value, each.key, 0, timestamp=each.timestamp, headers=[*each.headers]
        )
    assert producer.flush(WAIT_S) == 0


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
