"""Decodes bodies that were made to fill the memory, each in a process of its own, and prints a
table.

The table has the bytes of each body, what became of it, and by how much the process grew at most.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Raw

from drainer.payloads.avro import avro
from drainer.payloads.protobuf import protobuf
from drainer.payloads.registry import Schema
from drainer.text.mask import describe
from drainer.text.raw_json import read_json

MB = 1_000_000
FIELDS = " ".join(f"string f{n} = {n};" for n in range(2, 31))
NULLS = [{"name": f"n{n}", "type": "null"} for n in range(900)]
WIDE = {"type": "record", "name": "W", "fields": [*NULLS, {"name": "b", "type": "boolean"}]}


def chain(length: int) -> Any:
    """Make records in one another, of which the innermost has a byte."""
    found: Any = "boolean"
    for level in range(length):
        found = {"type": "record", "name": f"R{level}", "fields": [{"name": "a", "type": found}]}
    return found


def of_avro(items: Any) -> Callable[[bytes], Any]:
    read = avro(Schema("AVRO", json.dumps({"type": "array", "items": items})))
    return lambda body: read(body, None)


def of_protobuf(fields: str) -> Callable[[bytes], Any]:
    read = protobuf(Schema("PROTOBUF", f'syntax = "proto3"; message M {{ {fields} }}'))
    return lambda body: read(b"\0" + body, None)


def of_json() -> Callable[[bytes], Any]:
    return lambda body: read_json(Raw(body))


def block(count: int, body: bytes) -> bytes:
    """Make an array of so many items."""
    number, left = bytearray(), 2 * count
    while left > 0x7F:
        number.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*number, left]) + body + b"\0"


# What makes the reader, and the body, by name.
BODIES: dict[str, tuple[Callable[[], Callable[[bytes], Any]], Callable[[], bytes]]] = {
    "Avro: records of 900 nulls": (lambda: of_avro(WIDE), lambda: block(20_000, bytes(20_000))),
    "Avro: 200 records in one another": (
        lambda: of_avro(chain(200)),
        lambda: block(20_000, bytes(20_000)),
    ),
    "Avro: records of one flag": (lambda: of_avro(chain(1)), lambda: block(MB, bytes(MB))),
    "Avro: empty lists": (
        lambda: of_avro({"type": "array", "items": "int"}),
        lambda: block(MB, bytes(MB)),
    ),
    "Avro: dates": (
        lambda: of_avro({"type": "int", "logicalType": "date"}),
        lambda: block(MB, bytes(MB)),
    ),
    "Protobuf: messages of 30 fields without any": (
        lambda: of_protobuf(f"repeated M m = 1; {FIELDS}"),
        lambda: b"\x0a\0" * (MB // 2),
    ),
    "Protobuf: messages of 30 fields with one": (
        lambda: of_protobuf(f"repeated M m = 1; {FIELDS}"),
        lambda: b"\x0a\3\x12\1a" * (MB // 5),
    ),
    "Protobuf: messages of one field": (
        lambda: of_protobuf("repeated M m = 1;"),
        lambda: b"\x0a\0" * (MB // 2),
    ),
    "Protobuf: numbers": (
        lambda: of_protobuf("repeated int32 n = 1 [packed = true];"),
        lambda: b"\x0a\xc0\x84\x3d" + b"\x7f" * MB,
    ),
    "JSON: empty lists": (of_json, lambda: b"[" + b"[]," * (MB // 3) + b"[]]"),
    "JSON: small objects": (of_json, lambda: b"[" + b'{"":0},' * (MB // 7) + b"0]"),
}


def peak_mb() -> float:
    """Return the most memory that this process has taken so far. A child's count begins at its
    start."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1e3


def attempt(name: str) -> None:
    """Decode one body in this process, and print its row."""
    make_reader, make_body = BODIES[name]
    read, body = make_reader(), make_body()
    before_mb = peak_mb()
    try:
        read(body)
        became = "decoded"
    except ValueError as error:
        became = describe(error).partition(":")[0]
    print(f"{name} | {len(body) / 1e3:,.0f} kB | {became} | {peak_mb() - before_mb:,.0f} MB")


def main() -> None:
    if len(sys.argv) > 1:
        attempt(sys.argv[1])
        return
    print("body | bytes | is | memory\n---|---|---|---", flush=True)
    for name in BODIES:
        subprocess.run([sys.executable, "-m", "scenarios.formats.hostile", name], check=False)


if __name__ == "__main__":
    main()
