"""Cases of schemas and bodies that were made to end a drain, by users who may register and who may
write."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scenarios.trust.case import Ended, Stage, case, ensure

HANDLERS = Path(__file__).with_name("handlers_engine.py")
FAILED = 6  # The exit code if some messages could not be decoded, and were skipped.
# With a buffer of 16 MiB, this is for the buffer, one value, and the libraries of the formats.
GROWTH_MIB = 60
# A whole drain of ten decimals may take this long. Each decimal once took 13.7 s.
DECIMAL_S = 100.0
FIELDS = " ".join(f"string f{number} = {number};" for number in range(2, 31))
PROTO = f'syntax = "proto3"; message M {{ repeated M m = 1; {FIELDS} }}'
NULLS = [{"name": f"n{number}", "type": "null"} for number in range(900)]
WIDE = {"type": "record", "name": "W", "fields": [*NULLS, {"name": "b", "type": "boolean"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10**6, "scale": 2}
ITSELF = {"type": "R", "name": "R", "__fastavro_parsed": True, "__named_schemas": {"R": "R"}}
SAFE = {"schemaType": "AVRO", "schema": '"string"'}


@contextmanager
def registry(schemas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Provide the URL of a registry that has these schemas, by their numbers."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = self.path.partition("?")[0].strip("/").split("/")
            number = int(words[-1]) if words[:2] == ["schemas", "ids"] else int(words[1])
            found = {**schemas[number - 1], "id": number, "subject": str(number), "version": 1}
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def drained(
    stage: Stage,
    kind: str,
    schemas: Sequence[Mapping[str, Any]],
    bodies: Sequence[tuple[int, bytes]],
) -> Ended:
    """Drain bodies, each of which has the number of its schema, past those that can't be
    decoded."""
    topic = stage.topic((b"k", b"\0" + number.to_bytes(4) + body) for number, body in bodies)
    log = stage.folder / "grown"
    with registry(schemas) as url:
        words = stage.run_words(topic, f"{HANDLERS}:Peaks", "--set", f"log={log}")
        words += ["--value-format", kind, "--registry", url, "--tune", "buffer=16MiB"]
        words += ["--tune", "on-split-failure=skip", "--max-failures", "none", "-o", "json"]
        words += ["--tune", "max-outage=5s"]
        return stage.drainer("--quiet", *words, code=None)


@case(
    "a few bytes of Avro or Protobuf become a million values",
    before="20 kB: 545 MB; 400 kB with a buffer of 16 MiB: 6.9 GB",
)
def few_bytes_many_values(stage: Stage) -> str:
    avro = [{"schemaType": "AVRO", "schema": json.dumps({"type": "array", "items": WIDE})}, SAFE]
    # 40 values are within what a short body may become, and count in the buffer. 20,000 are not.
    many = [(1, b"\x50" + bytes(40) + b"\0"), (1, b"\xc0\xb8\2" + bytes(20_000) + b"\0")]
    grown = []
    drained(stage, "protobuf", [{"schemaType": "PROTOBUF", "schema": PROTO}], [(1, b"\0")])
    before = int((stage.folder / "grown").read_text())
    for kind, schemas, bodies in (
        ("avro", avro, [(2, b"\2a"), *many * 40, (2, b"\2a")]),
        (
            "protobuf",
            [{"schemaType": "PROTOBUF", "schema": PROTO}],
            [(1, b"\0" + b"\n\0" * 400_000)] * 20,
        ),
    ):
        ended = drained(stage, kind, schemas, bodies)
        ensure(ended.code == FAILED, f"{kind}: exit code {ended.code}: {ended.err[-600:]}")
        grown.append(int((stage.folder / "grown").read_text()) - before)
    ensure(max(grown) <= GROWTH_MIB, f"{grown} MiB with a buffer of 16 MiB")
    return f"undecodable, or counted: {grown[0]} and {grown[1]} MiB with a buffer of 16 MiB"


@case(
    "schemas and references that crash or deceive the reader",
    before="SIGSEGV; `disk may be full`; the registry does not answer",
)
def hostile_schemas(stage: Stage) -> str:
    bad = [{"name": ".", "subject": "2", "version": 1}]
    chain = [{"name": f"n{n}", "subject": str(n + 2), "version": 1} for n in range(1_100)]
    avro: list[dict[str, Any]] = [SAFE, {"schemaType": "AVRO", "schema": json.dumps(ITSELF)}]
    avro.append({"schemaType": "AVRO", "schema": ""})
    for at, reference in enumerate(chain, 4):
        needs = [{**reference, "subject": str(at + 1)}] if at < 1_103 else []
        avro.append({**SAFE, "references": needs})
    ended = drained(
        stage, "avro", avro, [(1, b"\2a"), *((n, b"\2a") for n in (2, 3, 4)), (1, b"\2a")]
    )
    ensure(ended.code == FAILED, f"exit code {ended.code}: {ended.err[-600:]}")
    text = 'syntax = "proto3"; message M {}'
    proto = [{"schemaType": "PROTOBUF", "schema": text, "references": bad}]
    proto.append({"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'})
    ended = drained(stage, "protobuf", proto, [(1, b"\0")])
    ensure(ended.code == 0, f"a reference: exit code {ended.code}: {ended.err[-600:]}")
    return "each is a fault of its schema, and skipped"


@case("a decimal of 300 KB", before="13.7 s each, in which the lock lapses")
def long_decimals(stage: Stage) -> str:
    body = b"\xc0\xcf\x24" + b"\x7f" * 300_000
    begun_s = time.monotonic()
    ended = drained(
        stage, "avro", [{"schemaType": "AVRO", "schema": json.dumps(DECIMAL)}], [(1, body)] * 10
    )
    ensure(ended.code == 0, f"exit code {ended.code}: {ended.err[-600:]}")
    took_s = time.monotonic() - begun_s
    ensure(took_s < DECIMAL_S, f"{took_s:.1f} s for ten")
    return "it is given as its bytes"
