"""A registry of Confluent's interface in this process, and records of Confluent's serialisers.

Unlike Apicurio's it gives schemas a GUID, it can be away, and it counts requests.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.struct_pb2 import Struct

AT = datetime(2026, 11, 27, tzinfo=UTC)
ADDRESS = (
    '{"type": "record", "name": "Address", "namespace": "t",'
    ' "fields": [{"name": "zip", "type": "string"}]}'
)
ORDER_FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "to", "type": ["null", "t.Address"]},
]
ZIP = 'syntax = "proto3"; package t; message Zip { string zip = 1; Zip in = 2; }'
ORDER = """syntax = "proto3"; package t;
import "zip.proto"; import "google/type/money.proto"; import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; BIG = 1; }
message Other { int32 x = 1; }
message Order {
  string id = 1; repeated Doc docs = 2; t.Zip to = 3; google.protobuf.Timestamp at = 4;
  message Doc { string id = 1; double v = 2; }
  map<string, int64> m = 5; oneof o { string a = 6; int32 b = 7; }
  repeated Kind kinds = 8; google.type.Money money = 9; optional int32 maybe = 10;
  map<string, Doc> by_name = 11; bytes raw = 12; int64 big = 13;
}"""


class Registry:
    """A registry on a port of its own; ``status`` other than 200 is what it answers to all, and
    ``away`` has ids of schemas for which it answers 503."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}  # ids of the versions
        self.requests: Counter[str] = Counter()
        self.status = 200
        self.away = set[int]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._answers())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        self.requests[path] += 1
        if self.status != 200:
            return self.status, {"error_code": self.status, "message": "away"}
        found: Any = None
        if path in {f"/schemas/ids/{number}" for number in self.away}:
            return 503, {"error_code": 503, "message": "away"}
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                found = self.schemas[int(number) - 1]
            case ["schemas", "guids", guid]:
                found = next(each for each in self.schemas if each["guid"] == guid)
            case ["subjects"]:
                found = [*self.subjects]
            case ["subjects", name, *_] if method == "POST":
                found = self._registered(name, body)
            case ["subjects", name, "versions", number] if name in self.subjects:
                schema = self.schemas[self.subjects[name][int(number) - 1] - 1]
                found = {**schema, "subject": name, "version": int(number)}
        gone = {"error_code": 40403, "message": "Schema not found"}
        return (404, gone) if found is None else (200, found)

    def _registered(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        known = [
            number
            for number, each in enumerate(self.schemas, 1)
            if each["schema"] == body["schema"]
        ]
        number = known[0] if known else len(self.schemas) + 1
        if not known:
            guid = str(uuid5(NAMESPACE_URL, ascii(body["schema"])))
            self.schemas.append({**body, "guid": guid, "id": number})
        versions = self.subjects.setdefault(name, [])
        if number not in versions:
            versions.append(number)
        version = versions.index(number) + 1
        return {**self.schemas[number - 1], "subject": name, "version": version}

    def _answers(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                given = json.loads(self.rfile.read(length) or b"{}")
                status, found = answer(self.command, self.path.partition("?")[0], given)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        return Answers


@contextmanager
def running() -> Iterator[Registry]:
    """A registry, until the block ends."""
    registry = Registry()
    try:
        yield registry
    finally:
        registry.close()


class Serialisers:
    """Confluent's serialisers for a topic, at a registry of this address."""

    def __init__(self, url: str, topic: str, *, in_headers: bool = False) -> None:
        self._client = SchemaRegistryClient({"url": url})
        self._topic, self._headers = topic, list[tuple[str, str | bytes | None]]()
        self._conf = {"schema.id.serializer": header_schema_id_serializer} if in_headers else {}

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Headers of the record that was serialised last."""
        return [(name, value) for name, value in self._headers if not isinstance(value, str)]

    def _context(self) -> SerializationContext:
        self._headers.clear()
        return SerializationContext(self._topic, MessageField.VALUE, self._headers)

    def avro(self, value: Mapping[str, Any], *more: Mapping[str, Any]) -> bytes:
        """An order whose address is a reference to another subject; ``more`` fields evolve it."""
        self._client.register_schema("addresses-value", Schema(ADDRESS, "AVRO"))
        fields = [*ORDER_FIELDS, *more]
        text = {"type": "record", "name": "Order", "namespace": "t", "fields": fields}
        reference = SchemaReference("t.Address", "addresses-value", 1)
        schema = Schema(json.dumps(text), "AVRO", [reference])
        found = AvroSerializer(self._client, schema, conf=self._conf)(value, self._context())
        assert isinstance(found, bytes)
        return found

    def json(self, value: Mapping[str, Any]) -> bytes:
        """A value of any JSON object."""
        draft = "http://json-schema.org/draft-07/schema#"
        schema = json.dumps({"$schema": draft, "title": "any", "type": "object"})
        serialise = JSONSerializer(schema, self._client, conf=self._conf)
        found = serialise(value, self._context())
        assert isinstance(found, bytes)
        return found

    def protobuf(self, value: Mapping[str, Any]) -> bytes:
        """A ``Struct``, whose schema is registered as the descriptor of its file."""
        message = Struct()
        message.update(value)
        found = ProtobufSerializer(Struct, self._client, {**self._conf})(message, self._context())
        assert isinstance(found, bytes)
        return found

    def protobuf_text(self) -> int:
        """Register an order by its text; gives the schema's id."""
        self._client.register_schema("zip.proto", Schema(ZIP, "PROTOBUF"))
        reference = SchemaReference("zip.proto", "zip.proto", 1)
        return self._client.register_schema(
            f"{self._topic}-value", Schema(ORDER, "PROTOBUF", [reference])
        )
