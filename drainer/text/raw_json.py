"""JSON that drainer writes exactly as it was read.

The JSON stays ``msgspec.Raw`` until its value is needed. So numbers, escapes, white space and
repeated fields don't change on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from msgspec import Raw, ValidationError
from msgspec.json import Decoder

# Lists and objects may be nested at most this deep, because later code recurses into them.
MOST_NESTED = 250
# An exponent may have at most this many characters, because Python may later write out all digits.
MOST_EXPONENT = 5


def decode_json(data: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Decode JSON, and ensure that all of it is UTF-8, also those parts that ``decode`` skips.

    Raises ValidationError, which is a ValueError, when the JSON does not have the type that the
    decoder expects. Raises another ValueError or a RecursionError when the data are not JSON.
    """
    _ = data.isascii() or data.decode()
    return decode(data)


def raw_json(data: bytes) -> Raw:
    """Ensure that bytes are JSON, and return them as Raw. Raises ValueError or RecursionError."""
    decode_json(data, _SKIP)
    return Raw(data)


def read_json(text: Raw) -> Any:
    """Decode JSON. Whole numbers may have any size, and decimals become floats.

    If one decimal is beyond the range of a float, all of them become ``Decimal``. Raises ValueError
    when the JSON is nested too deeply, or has a number that Python can't read.
    """
    try:
        found = _READ(text)
    except ValidationError:  # A number is out of range.
        found = _READ_EXACT(text)
    if type(found) in (dict, list) and memoryview(text).nbytes > MOST_NESTED:
        level = [found]
        for _ in range(MOST_NESTED):
            values = [each.values() if type(each) is dict else each for each in level]
            level = [one for some in values for one in some if type(one) in (dict, list)]
            if not level:
                return found
        raise ValueError(f"JSON is nested deeper than {MOST_NESTED}")
    return found


def read_level(text: bytes) -> Any:
    """Read the top level of JSON: the parts of an object or array stay raw.

    Decimals are read as ``Decimal``.
    """
    first = text.lstrip()[:1]
    return (_FIELDS if first == b"{" else _ITEMS if first == b"[" else _READ_EXACT)(text)


def meaning(content: Any) -> Any:
    """Return the decoded value of raw JSON, and anything else unchanged."""
    return read_json(content) if type(content) is Raw else content


def _decimal(text: str) -> Decimal:
    if len(text.lower().partition("e")[2]) > MOST_EXPONENT:
        raise ValueError(f"the exponent of a number has over {MOST_EXPONENT} characters")
    return Decimal(text)


_SKIP = Decoder(Raw).decode
_READ = Decoder().decode
_READ_EXACT = Decoder(float_hook=_decimal).decode
_FIELDS = Decoder(dict[str, Raw]).decode
_ITEMS = Decoder(list[Raw]).decode
