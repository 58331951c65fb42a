"""Writes values as JSON for other programs, which do not know the values' types in Python."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

import orjson
from msgspec import Raw


def plain_json(value: Any) -> bytes:
    """Write a value as JSON.

    Raw JSON is written as it was read. Bytes become ``{"base64": "…"}``, and decimals, dates, UUIDs
    and keys become text. Raises TypeError for values of other types.
    """
    try:
        return orjson.dumps(value, default=_in_json)
    except TypeError:
        # The reason may be keys that are not text. They are allowed only now, because that takes
        # twice as long.
        with suppress(RecursionError):  # If it is nested too deeply, orjson raises TypeError below.
            value = _with_large(value)
        return orjson.dumps(value, default=_in_json, option=orjson.OPT_NON_STR_KEYS)


def _with_large(value: Any) -> Any:
    """Replace whole numbers beyond 64 bits by their digits, because orjson refuses them."""
    if type(value) is int:
        return value if value.bit_length() < 64 else orjson.Fragment(str(value))
    if isinstance(value, dict):
        return {str(k) if type(k) is int else k: _with_large(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_with_large, value)]
    if is_dataclass(value):
        return {each.name: _with_large(getattr(value, each.name)) for each in fields(value)}
    return value


def _in_json(value: Any) -> Any:
    if isinstance(value, Raw):
        return orjson.Fragment(bytes(value))
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"JSON has no {type(value).__name__}")
