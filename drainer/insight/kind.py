"""The kind of operation of a sub-message, as far as it shows without knowing the handler."""

from __future__ import annotations

import orjson

from drainer.message import Barrier, SubMessage

FIELDS = ("kind", "type", "op", "operation", "action", "event", "event_type", "eventType")
LONGEST_NAME = 80  # what is longer is no name of a kind
LONGEST_JSON = 64 * 1024  # bytes; of larger payloads it is not worth the parsing

BARRIER = "barrier"
UNKNOWN = "no kind"


def operation_kind(sub: SubMessage) -> str:
    """A short name; ``UNKNOWN`` when nothing shows it.

    In this order: a barrier; the name of the class that the handler derived from SubMessage; a
    field of the payload named as in ``FIELDS``, also when the payload is JSON in bytes or text.
    """
    if type(sub) is not SubMessage:
        return BARRIER if isinstance(sub, Barrier) else type(sub).__name__
    payload = sub.payload
    if isinstance(payload, bytes | str):
        payload = _decoded(payload)
    if isinstance(payload, dict):
        for field in FIELDS:
            value = payload.get(field)
            if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME:
                return str(value)
    return UNKNOWN


def _decoded(payload: bytes | str) -> object:
    if payload[:1] not in {b"{", "{"} or len(payload) > LONGEST_JSON:
        return None
    try:
        return orjson.loads(payload)
    except ValueError:
        return None
