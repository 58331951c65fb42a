"""What kind of operation a sub-message is, as far as it can be seen without knowing the handler."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import orjson

from drainer.message import Barrier, HeadersUnreadable, Message, SubMessage

FIELDS = ("kind", "type", "op", "operation", "action", "event", "event_type", "eventType")
HEADERS = ("kind", "type", "event-type", "event_type", "ce_type")
LONGEST_NAME = 80  # what is longer is no name of a kind
LONGEST_JSON = 64 * 1024  # bytes; of larger payloads it is not worth the parsing

BARRIER = "barrier"
UNKNOWN = "no kind"


def kinds_of(message: Message, subs: Sequence[SubMessage]) -> list[str]:
    """A short name for each of a message's sub-messages; ``UNKNOWN`` when nothing tells.

    In this order: a barrier; the name of the class that the handler derived from SubMessage; a
    field of the payload named as in ``FIELDS``, also when the payload is JSON in bytes or text; a
    header of the message (``HEADERS``).
    """
    otherwise: str | None = None
    kinds = []
    for sub in subs:
        payload = sub.payload
        kind = None if type(sub) is SubMessage else _of_class(sub)
        if kind is None:
            kind = _in_dict(payload) if type(payload) is dict else _in_other(payload)
        if kind is None:
            if otherwise is None:
                otherwise = _of_headers(message) or UNKNOWN
            kind = otherwise
        kinds.append(kind)
    return kinds


def _of_class(sub: SubMessage) -> str:
    return BARRIER if isinstance(sub, Barrier) else type(sub).__name__


def _in_dict(payload: dict[Any, Any]) -> str | None:
    for field in FIELDS:
        value = payload.get(field)
        if value is not None and (name := _name(value)):
            return name
    return None


def _in_other(payload: object) -> str | None:
    if isinstance(payload, bytes | str):
        return _in_text(payload)
    if isinstance(payload, dict):
        return _in_dict(payload)
    return None


def _in_text(payload: bytes | str) -> str | None:
    begins_well = payload[:1] in {b"{", "{"}
    if not begins_well or len(payload) > LONGEST_JSON:
        return None
    try:
        decoded = orjson.loads(payload)
    except ValueError:
        return None
    return _in_dict(decoded) if isinstance(decoded, dict) else None


def _of_headers(message: Message) -> str | None:
    with suppress(HeadersUnreadable):
        for name, value in message.headers:
            if name in HEADERS and value and len(value) <= LONGEST_NAME:
                return value.decode("utf-8", "backslashreplace")
    return None


def _name(value: object) -> str | None:
    if isinstance(value, Enum):
        return value.name
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None
