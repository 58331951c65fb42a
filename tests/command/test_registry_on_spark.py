"""Drains on Spark of messages with schemas in a registry: each is requested once, and outages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from command.process import Command
from command.test_registry import order
from command.test_spark_chaos import PATIENCE_S, spark_at_home
from kafka.topic import eventually
from payloads.registry import Registry, Serialisers, running

__all__ = ["spark_at_home"]  # for each test here as well
pytestmark = pytest.mark.long

MESSAGES = 400
SLOTS = 4
ON_SPARK = ("--master", f"local[{SLOTS}]", "--spark-conf", "drainer.slice=4KiB")
HANDLER = """
import json, os
import drainer

class Takes(drainer.Handler):
    whole_messages = True

    async def open(self, context):
        self.file = os.open({record!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def split(self, message):
        found = message.decoded.get("fields", message.decoded)
        yield drainer.SubMessage(str(found["id"]), None)

    async def handle(self, sub):
        line = [sub.message.partition, sub.message.offset, sub.key, str(sub.message.decoded)]
        os.write(self.file, json.dumps(line).encode() + b"\\n")
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running() as registry:
        yield registry


def recorded(command: Command) -> list[Any]:
    return [json.loads(line) for line in (command.folder / "record").read_text().splitlines()]


def handler(command: Command) -> str:
    record = str(command.folder / "record")
    return command.handler(HANDLER.format(record=record)) + ":Takes"


def written(write: Serialisers, format_: str) -> Callable[[int], bytes]:
    return {
        "avro": lambda n: write.avro(order(n)),
        "json-schema": lambda n: write.json({"id": f"o-{n}"}),
        "protobuf": lambda n: write.protobuf({"id": n}),
    }[format_]


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json-schema"])
def test_tasks_handle_what_was_decoded_by_rules_on_it(
    command: Command, registry: Registry, format_: str
) -> None:
    topic = command.topic(partitions=4)
    value = written(Serialisers(registry.url, topic.name), format_)
    for number in range(4):
        topic.produce(map(value, range(MESSAGES)), partition=number)
        topic.produce([b"\0\0\0\0\x63none"], partition=number)
    registry.requests.clear()
    which = "message.value.id == 'o-{}'"
    if format_ == "protobuf":
        which = "message.value.fields.id.number_value == {}"
    rules = ("--skip", which.format(7), "--first", which.format(MESSAGES - 1))
    formats = ("--value-format", format_, "--registry", registry.url, *rules)
    what = [*command.what(topic, handler(command)), "--from", "earliest", *formats, *ON_SPARK]
    dead = ("--yes", "--tune", "on-split-failure=dead-letter", "--max-failures", "9")
    ended = command("run", *what, *dead, "-o", "json", code=6)
    print(ended.err, registry.requests)
    found = recorded(command)
    assert len(found) == 4 * (MESSAGES - 1)
    assert {line[1] for line in found} == set(range(MESSAGES)) - {7}
    assert ended.answer["sub_messages"]["dead"] == 4
    assert ended.answer["skipped_by"] == {rules[1]: 4}
    assert command.committed(topic) == dict.fromkeys(range(4), MESSAGES + 1)
    ids = {path: n for path, n in registry.requests.items() if path.startswith("/schemas/ids")}
    assert {n for path, n in ids.items() if path != "/schemas/ids/99"} <= {1}


def test_a_late_schema_is_requested_once_by_each_worker(
    command: Command, registry: Registry
) -> None:
    topic = command.topic(partitions=4)
    write, note = Serialisers(registry.url, topic.name), {"name": "n", "type": ["null", "int"]}
    for number in range(4):
        old = [write.avro(order(n)) for n in range(MESSAGES)]
        late = [write.avro({**order(n), "n": n}, note) for n in range(MESSAGES)]
        topic.produce([*old, *late, *old], partition=number)
    registry.requests.clear()
    formats = ("--value-format", "avro", "--registry", registry.url)
    what = [*command.what(topic, handler(command)), "--from", "earliest", *formats, *ON_SPARK]
    command("run", *what, "--yes")
    print(registry.requests)
    assert len(recorded(command)) == 4 * 3 * MESSAGES
    assert registry.requests["/schemas/ids/2"] == 1
    assert registry.requests["/schemas/ids/3"] <= SLOTS


def test_an_outage_amid_the_reading_is_waited_out_or_halts_and_nothing_is_lost(
    command: Command, registry: Registry
) -> None:
    topic = command.topic()
    write, note = Serialisers(registry.url, topic.name), {"name": "n", "type": ["null", "int"]}
    old = [write.avro(order(n)) for n in range(MESSAGES)]
    late = write.avro({**order(1), "n": 1}, note)
    topic.produce([*old, late, *old])
    registry.away.add(late[4])
    formats = ("--value-format", "avro", "--registry", registry.url)
    what = [*command.what(topic, handler(command)), "--from", "earliest", *formats, *ON_SPARK]
    halted = command("run", *what, "--yes", "--tune", "max-outage=1s", code=5)
    print(halted.err)
    assert "does not answer" in halted.error
    assert "for longer than --tune max-outage" in halted.error
    assert halted.hint
    waits = command.start(*halted.resume_words, "--yes", "--tune", "max-outage=1h")
    before = registry.requests["/schemas/ids/3"]
    again = lambda: registry.requests["/schemas/ids/3"] > before + 2  # noqa: E731
    eventually(again, "tasks wait for the registry", PATIENCE_S)
    assert waits.running
    registry.away.clear()
    ended = waits.ends(0, PATIENCE_S)
    print(ended.err)
    assert {line[1] for line in recorded(command)} == set(range(2 * MESSAGES + 1))
    assert command.committed(topic) == {0: 2 * MESSAGES + 1}
