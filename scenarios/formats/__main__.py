"""Drains one order per message in each format, and decodes the same bytes without a drain.

A drain makes 100 calls of a no-op handler at once. Without a drain, drainer's reader and
Confluent's deserialiser decode the bytes. The processor time of a drain is that of its process,
minus the time of a drain of a hundredth of the messages, so that the start does not count. The
formats take turns, and each figure is a median.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import fastavro
import orjson
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from drainer import sandbox
from drainer.kafka.settings import ClientSettings
from drainer.payloads import registry
from drainer.payloads.formats import registry_decoder
from drainer.payloads.protobuf import compiled
from scenarios.fill import create_topic, fill
from scenarios.side_by_side.measure import Measured, measure

TOPIC, CONCURRENCY, KEYS = "formats", 100, 10_000
DECODED = 20_000  # This many values are decoded without a drain.
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        *({"name": n, "type": "string"} for n in ("id", "customer", "street", "city", "note")),
        {"name": "total", "type": "double"},
        {"name": "at", "type": "long"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "count", "type": "int"},
                        {"name": "price", "type": "double"},
                    ],
                },
            },
        },
    ],
}
PROTOBUF = """syntax = "proto3";
message Order {
  message Line { string sku = 1; int32 count = 2; double price = 3; }
  string id = 1; string customer = 2; string street = 3; string city = 4; string note = 5;
  double total = 6; int64 at = 7; repeated Line lines = 8;
}"""
JSON = '{"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}}'


def order(number: int) -> dict[str, Any]:
    """Make an order, which as JSON has some 300 bytes."""
    return {
        "id": f"order-{number:08}",
        "customer": f"customer-{number % 977}",
        "street": "Mariahilfer Straße 101",
        "city": "Wien",
        "note": "leave it with the neighbour if no one opens",
        "total": number / 7,
        "at": 1_764_200_000_000 + number,
        "lines": [{"sku": f"sku-{number + n}", "count": n + 1, "price": 9.9 * n} for n in range(2)],
    }


@dataclass(eq=False)
class Format:
    """A format: how a value is written, and what reads it without a drain, if anything does."""

    name: str
    write: Callable[[int], bytes]
    bare: Callable[[bytes], Any] | None = None
    confluent: Callable[[bytes], Any] | None = None
    options: tuple[str, ...] = ()
    topic: str = field(default_factory=lambda: f"{TOPIC}-{secrets.token_hex(3)}")
    # Drains of few messages and of many.
    drains: list[tuple[Measured, Measured]] = field(default_factory=list)


def formats(url: str) -> Iterator[Format]:
    """Make the formats, with their schemas registered."""
    client = SchemaRegistryClient({"url": url})

    def framed(kind: str, text: str) -> bytes:
        return b"\0" + client.register_schema(f"{kind}-value", Schema(text, kind)).to_bytes(4)

    def of_registry(name: str, write: Callable[[int], bytes], theirs: Any) -> Format:
        decode = registry_decoder(name, False, url, {})
        context = SerializationContext(TOPIC, MessageField.VALUE, [])
        return Format(
            name,
            write,
            lambda data: decode(data, (), TOPIC),
            lambda data: theirs(data, context),
            ("--value-format", name, "--registry", url),
        )

    def as_json(number: int) -> bytes:
        return orjson.dumps(order(number))

    yield Format("bytes", as_json)
    yield Format("json", as_json, orjson.loads, None, ("--value-format", "json"))
    of_json = framed("JSON", JSON)
    theirs: Any = JSONDeserializer(JSON, schema_registry_client=client)
    yield of_registry("json-schema", lambda n: of_json + as_json(n), theirs)
    of_avro, parsed = framed("AVRO", json.dumps(AVRO)), fastavro.parse_schema(AVRO)

    def as_avro(number: int) -> bytes:
        body = BytesIO()
        fastavro.schemaless_writer(body, parsed, order(number))
        return of_avro + body.getvalue()

    yield of_registry("avro", as_avro, AvroDeserializer(client))
    pool, main = DescriptorPool(), "order.proto"
    (file,) = compiled({main: registry.Schema("PROTOBUF", PROTOBUF)}, main).file
    pool.Add(file)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("Order"))
    # Confluent's serialiser does the same, because its deserialiser can't read text.
    of_protobuf = framed("PROTOBUF", b64encode(file.SerializeToString()).decode()) + b"\0"
    theirs = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
    yield of_registry(
        "protobuf", lambda n: of_protobuf + made(**order(n)).SerializeToString(), theirs
    )


def drain(bootstrap: str, each: Format, messages: int) -> Measured:
    """Drain so many messages of a format."""
    return measure(
        bootstrap,
        each.topic,
        f"{TOPIC}-{secrets.token_hex(3)}",
        "Whole",
        latency_ms=0,
        concurrency=CONCURRENCY,
        options=("--until", str(messages), *each.options),
    )


def us_per_value(decode: Callable[[bytes], Any] | None, values: Sequence[bytes]) -> float | None:
    """Return the processor time to decode a value, in microseconds."""
    if decode is None:
        return None
    decode(values[0])  # The first decoding gets the schema.
    begun_s = process_time()
    for value in values:
        decode(value)
    return (process_time() - begun_s) / len(values) * 1e6


def row(each: Format, messages: int, rounds: int) -> str:
    values = [each.write(number) for number in range(DECODED)]
    bare, theirs = (
        [us for _ in range(rounds) if (us := us_per_value(decode, values)) is not None]
        for decode in (each.bare, each.confluent)
    )
    drained = [
        (many.cpu_s - few.cpu_s) / (messages - messages // 100) * 1e6 for few, many in each.drains
    ]
    rate = median(many.rate for _, many in each.drains)
    size = sum(map(len, values)) / len(values)
    cells = [f"{median(us):.1f}" if us else "" for us in (drained, bare, theirs)]
    return f"| {each.name} | {size:.0f} | {rate:,.0f} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.formats", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drainer-formats-") as folder:
        place = Path(folder, "sandbox")
        up = sandbox.up(place, registry=True, print_line=print, die_with_parent=True)
        assert up.registry is not None
        try:
            found = list(formats(up.registry.url))
            settings = ClientSettings(up.bootstrap_servers)
            for each in found:
                create_topic(settings, each.topic)
                records = ((b"%d" % (n % KEYS), each.write(n), 0) for n in range(given.messages))
                fill(settings, each.topic, records)
            for _ in range(given.rounds):
                for each in found:
                    few, many = (
                        drain(up.bootstrap_servers, each, count)
                        for count in (given.messages // 100, given.messages)
                    )
                    each.drains.append((few, many))
                    print(f"  {each.name}: {many.rate:,.0f}/s, {many.cpu_s:.1f} s", flush=True)
            rows = [row(each, given.messages, given.rounds) for each in found]
        finally:
            sandbox.down(place)
    print("\n| format | bytes | messages/s | us in a drain | us bare | us of Confluent's |")
    print("|---|---|---|---|---|---|", *rows, sep="\n")


if __name__ == "__main__":
    main()
