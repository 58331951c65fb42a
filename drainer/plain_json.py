"""Values as JSON for other programs, without their types in Python."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from typing import Any

import orjson


def plain_json(value: Any) -> bytes:
    """A value as JSON: bytes are ``{"base64": "…"}``, and decimals, dates, UUIDs and keys text.

    Raises TypeError when JSON has no word for it.
    """
    try:
        return orjson.dumps(value, default=_in_json)
    except TypeError:  # to allow keys that are no text takes twice the time
        return orjson.dumps(value, default=_in_json, option=orjson.OPT_NON_STR_KEYS)


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"JSON has no {type(value).__name__}")
