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
# The pause before a request is repeated. It doubles each time, up to the longest one.
PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
NOT_THERE = 40401, 40402, 40403  # The registry's codes for a missing subject, version or schema.
NO_SUCH = 422  # The HTTP status when a reference names an invalid version.
# A schema may need at most this many others, directly or indirectly, because pickle recurses.
MOST_REFERENCES = 150
PATIENCE_S = 3.0  # A command without a drain waits this long for the registry.
SchemaId = int | str  # A number, or the text of a GUID.


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, and the schemas that it refers to, each with the name that it uses."""

    kind: str  # AVRO, PROTOBUF or JSON.
    text: str
    references: tuple[tuple[str, Schema], ...] = ()

    def files(self) -> dict[str, Schema]:
        """Return all schemas that this one needs, by name. Each comes after those that it needs."""
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
    """The schemas of a registry. It is thread-safe, and requests each schema once.

    It never forgets one, because an id stands for the same schema for ever.

    Raises UsageError if a property is unknown.
    """

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        remember({PREFIX + name: value for name, value in properties.items()} | {"url": url})
        self.url = redact(url)
        # The client would sleep for up to 20 s between its own retries, and no stop would end that.
        own = {"url": url, "max.retries": 0, "timeout": REQUEST_S}
        given = dict(properties)
        given.pop("basic.auth.credentials.source", None)  # Only Java's clients need it.
        try:
            self._client = schema_registry.SchemaRegistryClient({**given, **own})
        except (TypeError, ValueError, OSError) as error:
            raise UsageError(
                f"the properties {PREFIX}*: {describe(error)}",
                hint="Use the names of Confluent's clients, such as"
                f" {PREFIX}basic.auth.user.info=USER:PASSWORD.",
            ) from None
        self.known: dict[SchemaId, Schema] = {}
        self._lock = Lock()

    def schema(self, schema_id: SchemaId, wait: Wait | None = None) -> Schema:
        """Get a schema. While the registry is away, this blocks, and calls ``wait`` to pause.

        Raises Undecodable if the registry has no such schema. Raises RegistryAway once ``wait``
        returns False.
        """
        wait = wait or waiting(PATIENCE_S)
        pause_s = PAUSE_S
        while (found := self.known.get(schema_id)) is None:
            try:
                with self._lock:
                    self.known[schema_id] = self._get(schema_id)
            except Undecodable:
                raise
            except Exception as error:  # Any error of HTTP or JSON means that no schema has come.
                away = self._away(error)
                if not wait(pause_s, str(away)):
                    raise away from None
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return found

    def subjects(self) -> list[str]:
        """Request the names of all subjects. Raises RegistryAway without an answer."""
        try:
            return self._client.get_subjects()
        except Exception as error:  # This may be any error of HTTP or JSON.
            raise self._away(error) from None

    def _away(self, error: Exception) -> RegistryAway:
        return RegistryAway(
            f"the registry {self.url} does not answer: {describe(error)}",
            hint="Restore it, or correct its address (--registry) and login"
            f" ({PREFIX}… in the client's file).",
        )

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
        self, schema: schema_registry.Schema, known: dict[tuple[str, int], Schema | None]
    ) -> Schema:
        """Return a schema with all schemas that it needs, each of which is requested once.

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
                known[place] = None  # This stands for a schema that is being requested.
                known[place] = self._whole(self._client.get_version(*place).schema, known)
            if (found := known[place]) is None:
                raise Undecodable(f"the schema {place[0]!r} needs itself")
            references.append((each.name or place[0], found))
        return Schema(schema.schema_type or "AVRO", schema.schema_str, tuple(references))


def waiting(patience_s: float) -> Wait:
    """Make a function that waits by sleeping, and returns False once ``patience_s`` are over."""
    until_s = time.monotonic() + patience_s

    def wait(seconds: float, why: str) -> bool:
        time.sleep(seconds)
        return time.monotonic() < until_s

    return wait


def registry(url: str | None, extras: Mapping[str, str]) -> Registry:
    """Return the registry at this URL, or else at the one in the client file.

    A process has one ``Registry`` for each URL and its properties.

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
