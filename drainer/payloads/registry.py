"""A schema registry with Confluent's interface. Each schema is requested once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock

from confluent_kafka import schema_registry

from drainer.errors import Halted, UsageError
from drainer.loading.extensions import without_prefix
from drainer.model.destinations import REGISTRY as PREFIX
from drainer.split.decoding import Undecodable
from drainer.split.splitting import Wait
from drainer.text.mask import describe
from drainer.text.secret import redact, remember

REQUEST_S = 5.0
PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
NOT_THERE = 40401, 40402, 40403  # codes for a subject, a version, a schema
NO_SUCH = 422  # HTTP status when a reference names an invalid version
MOST_REFERENCES = 150  # schemas that a schema needs, directly or indirectly; pickle recurses
PATIENCE_S = 3.0  # with a registry, where a command can do nothing but wait
SchemaId = int | str  # a number, or the text of a GUID


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, with the schemas that it refers to, by the names that it has for them."""

    kind: str  # AVRO, PROTOBUF or JSON.
    text: str
    references: tuple[tuple[str, Schema], ...] = ()

    def files(self) -> dict[str, Schema]:
        """Return all schemas that it refers to, by name. What a schema needs comes before it."""
        found: dict[str, Schema] = {}
        self._add_files(found)
        return found

    def _add_files(self, found: dict[str, Schema]) -> None:
        for name, schema in self.references:
            if name not in found:
                schema._add_files(found)  # noqa: SLF001
                found[name] = schema


class RegistryAway(Halted):
    """Raised when a registry does not answer, or answers without a schema."""


class Registry:
    """The schemas of a registry. It is thread-safe, and remembers what it got.

    An id stands for one schema for ever. Raises UsageError if a property is unknown.
    """

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        remember({PREFIX + name: value for name, value in properties.items()} | {"url": url})
        self.url = redact(url)
        # The client's own retries would sleep for up to 20 s, even when the drain should stop.
        own = {"url": url, "max.retries": 0, "timeout": REQUEST_S}
        given = dict(properties)
        given.pop("basic.auth.credentials.source", None)  # only Java's clients need it
        try:
            self._client = schema_registry.SchemaRegistryClient({**given, **own})
        except (TypeError, ValueError, OSError) as error:
            raise UsageError(
                f"the properties {PREFIX}*: {describe(error)}",
                hint="Use the names of Confluent's clients, such as"
                f" {PREFIX}basic.auth.user.info=USER:PASSWORD.",
            ) from None
        self.known: dict[SchemaId, Schema] = {}  # these are not requested again
        self._lock = Lock()

    def schema(self, schema_id: SchemaId, wait: Wait | None = None) -> Schema:
        """Get a schema. This blocks, with pauses by ``wait`` while the registry is away.

        Raises Undecodable if the registry has no such schema, and RegistryAway once ``wait`` ends
        the waiting.
        """
        wait = wait or waiting(PATIENCE_S)
        pause_s = PAUSE_S
        while (found := self.known.get(schema_id)) is None:
            try:
                with self._lock:
                    self.known[schema_id] = self._get(schema_id)
            except Undecodable:
                raise
            except Exception as error:  # any error of HTTP or JSON means that no schema has come
                away = f"the registry {self.url} does not answer: {describe(error)}"
                if not wait(pause_s, away):
                    raise RegistryAway(away, hint="Check its address and login.") from None
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return found

    def subjects(self) -> list[str]:
        """Request the names of all subjects. Raises RegistryAway without an answer."""
        try:
            return self._client.get_subjects()
        except Exception as error:  # any error of HTTP or JSON
            away = f"the registry {self.url} does not answer: {describe(error)}"
            raise RegistryAway(away, hint="Check its address and login.") from None

    def _get(self, schema_id: SchemaId) -> Schema:
        try:
            if isinstance(schema_id, int):
                return self._whole(self._client.get_schema(schema_id), {})
            return self._whole(self._client.get_schema_by_guid(schema_id), {})
        except schema_registry.SchemaRegistryError as error:
            # The 404 of a proxy, or of a wrong path, has none of these codes.
            status = error.http_status_code
            if status == NO_SUCH or (status == 404 and error.error_code in NOT_THERE):
                raise Undecodable(
                    f"schema {schema_id} is not in the registry {self.url} ({status}), or one that"
                    " it needs is not"
                ) from None
            raise

    def _whole(
        self,
        schema: schema_registry.Schema,
        known: dict[tuple[str, int], Schema | None],
    ) -> Schema:
        """Return a schema with all that it needs. Each is requested once.

        Raises Undecodable if it needs too many schemas or itself, and ValueError for an answer
        without a schema, such as a page for logins.
        """
        if schema.schema_str is None:
            raise ValueError("the answer has no schema")
        if len(known) > MOST_REFERENCES:
            raise Undecodable("the schema needs too many others")
        references: list[tuple[str, Schema]] = []
        for each in schema.references or ():
            place = each.subject or "", each.version or 0
            if place not in known:
                known[place] = None  # until the schema is there
                known[place] = self._whole(self._client.get_version(*place).schema, known)
            if (found := known[place]) is None:
                raise Undecodable(f"the schema {place[0]!r} needs itself")
            references.append((each.name or place[0], found))
        return Schema(schema.schema_type or "AVRO", schema.schema_str, tuple(references))


def waiting(patience_s: float) -> Wait:
    """Make a function that waits by sleeping, until so many seconds are over."""
    until_s = time.monotonic() + patience_s

    def wait(seconds: float, why: str) -> bool:
        time.sleep(seconds)
        return time.monotonic() < until_s

    return wait


def registry(url: str | None, extras: Mapping[str, str]) -> Registry:
    """Return the registry of a URL, or else of the client file. A process has one for each.

    Raises UsageError if neither names one.
    """
    own = without_prefix(extras, PREFIX)
    found = url or own.get("url")
    if found is None:
        raise UsageError(
            "there is no schema registry",
            hint=f"Add --registry URL, or {PREFIX}url to the client's file.",
        )
    own.pop("url", None)
    return _registry(found, tuple(own.items()))


@cache
def _registry(url: str, properties: tuple[tuple[str, str], ...]) -> Registry:
    return Registry(url, dict(properties))
