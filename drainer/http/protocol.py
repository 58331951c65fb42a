"""Protocol of the handler ``http``: calls of a service in JSON, and its answers."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import orjson

from drainer.message import SubMessage

AFTER_MOST_S = 3600.0
PROTOCOL = "1"

ResultName = Literal["done", "retry", "skip", "give-up", "fail"]


class CallItem(msgspec.Struct):
    """A sub-message. The body of a single call is one of them.

    In ``key``, ``keys`` and ``payload``, bytes are an object ``{"base64": "…"}``. ``keys`` are
    there when it has several sub-keys. ``id`` is the same in each attempt; ``timestamp`` is
    Kafka's, in milliseconds.
    """

    id: str
    topic: str
    partition: int
    offset: int
    index: int
    attempt: int
    key: Any
    payload: Any
    keys: list[Any] | None = None
    timestamp: int | None = None


class Call(msgspec.Struct):
    """The body of a call with several sub-messages, no two of them of one sub-key."""

    batch: list[CallItem]


class ItemResult(msgspec.Struct):
    """The outcome of a sub-message.

    ``done``: never handled again. ``retry``: later, after so many seconds, without spending
    ``--retries``. ``skip``: not to be handled. ``give-up``: ``--on-failure`` applies now. ``fail``:
    tried again within ``--retries``.
    """

    id: str
    result: ResultName
    after: Annotated[float, msgspec.Meta(ge=0, le=AFTER_MOST_S)] | None = None
    text: str = ""


class Answer(msgspec.Struct):
    """The answer to a call with several: each id of the call exactly once, in any order."""

    results: list[ItemResult]


class SingleAnswer(msgspec.Struct):
    """The answer to a single call that is not simply done: any other JSON, or none, means done."""

    result: ResultName
    after: Annotated[float, msgspec.Meta(ge=0, le=AFTER_MOST_S)] | None = None
    text: str = ""


def encode_item(sub: SubMessage) -> bytes:
    """The JSON of a sub-message. Raises TypeError when its key or payload has none."""
    message = sub.message
    item = {
        "id": sub.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "index": sub.index,
        "attempt": sub.attempt,
        "key": sub.key,
        "payload": sub.payload,
        "keys": None if sub.keys is None else list(sub.keys),
        "timestamp": message.timestamp,
    }
    return orjson.dumps(item, default=_in_json)


def openapi() -> dict[str, Any]:
    """The protocol as an OpenAPI document."""
    kinds = (CallItem, Call, Answer, SingleAnswer)
    refs, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    item, call, answer, single = ({"application/json": {"schema": ref}} for ref in refs)
    texts = {
        "204": "Done; to a single call only.",
        "413": "Too large: drainer sends halves of the batch.",
        "default": "Nothing is done. 400, 404, 409, 410, 413, 415 and 422 are the sub-message's"
        " own fault; 502, 503 and 504 an outage; 408, 425, 429 and Retry-After mean later.",
    }
    responses: dict[str, Any] = {each: {"description": text} for each, text in texts.items()}
    responses["200"] = {
        "description": "Results. To a single call, an empty body means done, too.",
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [each["application/json"]["schema"] for each in (answer, single)]
                }
            }
        },
    }
    header = {"in": "header", "required": False, "schema": {"type": "string"}}
    body = {"anyOf": [each["application/json"]["schema"] for each in (item, call)]}
    post = {
        "summary": "Handle one sub-message, or with --set batch=N several.",
        "parameters": [{"name": name, **header} for name in ("Drainer-Id", "Idempotency-Key")],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": responses,
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "A service as drainer's handler", "version": PROTOCOL},
        "paths": {"/": {"post": post}},
        "components": {"schemas": components},
    }


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"JSON has no {type(value).__name__}")
