"""Protocol of the handler ``http``: calls of a service in JSON, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from drainer.message import SubMessage
from drainer.plain_json import plain_json

AFTER_MOST_S = 3600.0

ResultName = Literal["done", "retry", "skip", "give-up", "fail"]


@dataclass(slots=True)
class CallItem:
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


class SingleAnswer(msgspec.Struct):
    """The answer to a single call that is not simply done: any other JSON, or none, means done."""

    result: ResultName
    after: Annotated[float, msgspec.Meta(ge=0, le=AFTER_MOST_S)] | None = None
    text: str = ""


class ItemResult(SingleAnswer, kw_only=True):
    """The outcome of a sub-message.

    ``done``: never handled again. ``retry``: later, after so many seconds, without spending
    ``--retries``. ``skip``: not to be handled. ``give-up``: ``--on-failure`` applies now. ``fail``:
    tried again within ``--retries``.
    """

    id: str


class Answer(msgspec.Struct):
    """The answer to a call with several: each id of the call exactly once, in any order."""

    results: list[ItemResult]


def encode_item(sub: SubMessage) -> bytes:
    """The JSON of a sub-message. Raises TypeError when its key or payload has none."""
    message = sub.message
    return plain_json(
        CallItem(
            sub.id,
            message.topic,
            message.partition,
            message.offset,
            sub.index,
            sub.attempt,
            sub.key,
            sub.content,
            None if sub.keys is None else list(sub.keys),
            message.timestamp,
        )
    )
