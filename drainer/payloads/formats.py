"""Formats of Confluent's serialisers: the id of the schema, and the body that follows it."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from subprocess import SubprocessError
from typing import Any
from uuid import UUID

from drainer.errors import Halted, Passing
from drainer.message import Message
from drainer.model.listed import listed
from drainer.payloads.avro import avro
from drainer.payloads.protobuf import protobuf
from drainer.payloads.registry import Registry, RegistryAway, Schema, SchemaId, registry, waiting
from drainer.split.decoding import SCHEMA_HEADERS, Decode, Headers, Undecodable
from drainer.split.splitting import Wait
from drainer.text.mask import describe
from drainer.text.raw_json import raw_json

_BY_NUMBER, _BY_GUID = 0, 1
FAULT_S = 60.0  # A missing schema is requested again after this time.
# Producers may name any schema, so at most this many are remembered as missing.
MOST_FAULTS = 100_000
WRONG_MOST = 5  # A preview names this many undecodable messages, and counts the others.
CHECK_S = 1.0  # The registry has this much time to answer a preview.
# A function that decodes a body. It returns the value, and the memory in bytes that this takes.
# If the schema's id is in a header, the second argument has what follows it there; else it is None.
Read = Callable[[bytes, bytes | None], tuple[Any, int]]


def framed(data: bytes, headers: Headers, name: str) -> tuple[SchemaId, bytes, bytes | None]:
    """Return the schema's id, the body, and what follows the id in the header ``name``.

    The third is None if there is no such header. Raises Undecodable if no id is found.
    """
    header = next((value for each, value in headers if each == name), None) if headers else None
    frame = data if header is None else header
    if len(frame) >= 5 and frame[0] == _BY_NUMBER:
        schema_id: SchemaId = int.from_bytes(frame[1:5])
        rest = frame[5:]
    elif len(frame) >= 17 and frame[0] == _BY_GUID:
        schema_id, rest = str(UUID(bytes=frame[1:17])), frame[17:]
    else:
        raise Undecodable(
            f"no schema's id is where Confluent's serialisers put it: {len(frame)} bytes that"
            f" begin with {frame[:1].hex() or 'nothing'}"
        )
    return (schema_id, rest, None) if header is None else (schema_id, data, rest)


class OfRegistry:
    """Decodes keys or values of one format by the schemas of a registry.

    Each is read by the schema with which it was written. The decoder remembers for a while which
    schemas are missing or can't be used.
    """

    def __init__(self, kind: str, registry: Registry, is_key: bool) -> None:
        self._kind, self.registry = kind, registry
        self._is_key, self._header = is_key, SCHEMA_HEADERS[is_key]
        self._readers: dict[SchemaId, Read] = {}
        # What is wrong with a schema, and until when that is remembered.
        self._faults: dict[SchemaId, tuple[str, float]] = {}
        self.made_bytes = 0  # The memory in bytes of the value that was decoded last.

    def __call__(self, data: bytes, headers: Headers, topic: str) -> Any:
        schema_id, body, after_id = framed(data, headers, self._header)
        read = self._readers.get(schema_id)
        if read is None and (fault := self._faults.get(schema_id)):
            raise Undecodable(fault[0])
        read = read or self._reader(schema_id)
        try:
            found, self.made_bytes = read(body, after_id)
        except Exception as error:
            # A body that does not fit its schema may raise any error, not only ValueErrors.
            is_cut = isinstance(error, IndexError | struct.error)
            why = "it ends within a value" if is_cut else describe(error)
            raise Undecodable(f"not of schema {schema_id}: {why}") from error
        return found

    def prepare(self, data: bytes, headers: Headers, wait: Wait) -> None:
        """Get the schema that decoding will need. This blocks.

        Raises Halted if this machine can't make a reader of the schema. The decoding itself raises
        any other error.
        """
        try:  # This runs for each message, and is cheaper than suppress().
            schema_id, _, _ = framed(data, headers, self._header)
            if schema_id not in self._readers:
                self._prepare(schema_id, wait)
        except (Undecodable, RegistryAway):
            pass

    def _prepare(self, schema_id: SchemaId, wait: Wait) -> None:
        _, until_s = self._faults.get(schema_id, ("", 0.0))
        if until_s < time.monotonic():
            self._reader(schema_id, wait)

    def check(self, messages: Iterable[Message]) -> tuple[list[str], list[str]]:
        """Decode some messages. Return sentences on what can be decoded, and on what can't.

        Raises Passing if the registry does not answer soon, and has not answered for any message.
        """
        ids, wrong = dict[SchemaId, None](), list[str]()
        for message in messages:
            data = message.key if self._is_key else message.value
            if data is None:
                continue
            try:
                schema_id, _, _ = framed(data, message.headers, self._header)
                if schema_id not in self._readers:
                    self._prepare(schema_id, waiting(CHECK_S))
                self(data, message.headers, message.topic)
                ids[schema_id] = None
            except RegistryAway as error:
                if not ids:
                    raise Passing(str(error), hint=error.hint) from error
                wrong.append(f"{message} can't be decoded now: {error}")
                break  # It answered before, so the drain may wait for it.
            except ValueError as error:
                wrong.append(f"{message} can't be decoded: {describe(error)}")
        if len(wrong) > WRONG_MOST:
            wrong[WRONG_MOST:] = [f"{len(wrong) - WRONG_MOST:,} others can't be decoded, either"]
        which = "keys" if self._is_key else "values"
        right = f"{which} decode by schema {listed([*ids])} of the registry {self.registry.url}"
        return [right] if ids else [], wrong

    def _reader(self, schema_id: SchemaId, wait: Wait | None = None) -> Read:
        try:
            schema = self.registry.schema(schema_id, wait)
            if schema.kind != self._kind:
                raise Undecodable(f"schema {schema_id} is {schema.kind}, not {self._kind}")
            found = self._readers[schema_id] = self._reader_of(schema)
        except Undecodable as error:
            if len(self._faults) >= MOST_FAULTS:
                self._faults.pop(next(iter(self._faults)))
            self._faults[schema_id] = str(error), time.monotonic() + FAULT_S
            raise
        return found

    def _reader_of(self, schema: Schema) -> Read:
        try:
            return (avro if self._kind == "AVRO" else protobuf)(schema)
        except (OSError, MemoryError, SubprocessError) as error:
            raise Halted(
                f"can't make a reader of a schema: {describe(error)}",
                hint="The disk or the memory may be full. Resume once this machine can.",
            ) from error
        except Exception as error:  # A schema may be anything, so it may raise any error.
            raise Undecodable(f"the schema can't be used: {describe(error)}") from error


def registry_decoder(name: str, is_key: bool, url: str | None, extras: Mapping[str, str]) -> Decode:
    """Make the decoder of a format in ``decoding.OF_REGISTRY``. JSON is read without its schema.

    Raises UsageError if there is no registry for Avro or Protobuf.
    """
    if name == "json-schema":
        return lambda data, headers, _: raw_json(framed(data, headers, SCHEMA_HEADERS[is_key])[1])
    return OfRegistry(name.upper(), registry(url, extras), is_key)
