"""What kind of operation a sub-message is, as far as it can be seen without knowing the handler."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import orjson

from drainer.message import Barrier, Message, SubMessage

FIELDS = ("kind", "type", "op", "operation", "action", "event", "event_type", "eventType")
HEADERS = ("kind", "type", "event-type", "event_type", "ce_type")
LONGEST_NAME = 80  # what is longer is no name of a kind
LONGEST_JSON = 64 * 1024  # bytes; of larger payloads it is not worth the parsing

BARRIER = "barrier"
UNKNOWN = "no kind"

_FIELDS = frozenset(FIELDS)


def kinds_of(message: Message, subs: Sequence[SubMessage]) -> list[str]:
    """A short name for each of a message's sub-messages; ``UNKNOWN`` when nothing tells.

    In this order: a barrier; the name of the class that the handler derived from SubMessage; a
    field or attribute of the payload named as in ``FIELDS``, also when the payload is JSON in bytes
    or text; the same of the message's headers (``HEADERS``).
    """
    otherwise: str | None = None
    kinds = []
    for sub in subs:
        kind = _of_class(sub) or _of_payload(sub.payload)
        if kind is None:
            if otherwise is None:
                otherwise = _of_headers(message.headers) or UNKNOWN
            kind = otherwise
        kinds.append(kind)
    return kinds


def _of_class(sub: SubMessage) -> str | None:
    kind = type(sub)
    if kind is SubMessage:
        return None
    return BARRIER if isinstance(sub, Barrier) else kind.__name__


def _of_payload(payload: object) -> str | None:
    return _in_dict(payload) if isinstance(payload, dict) else _in_other(payload)


def _in_dict(payload: dict[Any, Any]) -> str | None:
    if _FIELDS.isdisjoint(payload):
        return None
    return next(filter(None, (_name(payload[f]) for f in FIELDS if f in payload)), None)


def _in_other(payload: object) -> str | None:
    if payload is None or isinstance(payload, int | float):
        return None
    if isinstance(payload, bytes | str):
        begins = payload[:1] in {b"{", "{"}
        if not begins or len(payload) > LONGEST_JSON:
            return None
        try:
            decoded = orjson.loads(payload)
        except ValueError:
            return None
        return _in_dict(decoded) if isinstance(decoded, dict) else None
    for field in FIELDS:
        try:
            found = _name(getattr(payload, field, None))
        except Exception:  # it may be the user's own code
            continue
        if found:
            return found
    return None


def _of_headers(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    for name, value in headers:
        if name in HEADERS and value and len(value) <= LONGEST_NAME:
            return value.decode("utf-8", "backslashreplace")
    return None


def _name(value: object) -> str | None:
    if isinstance(value, Enum):
        return value.name
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None
