"""How option values are written: sizes, durations, name=value pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from drainer.core.concurrency import Concurrency
from drainer.errors import UsageError

_SIZES = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_DURATIONS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}
_AUTO = re.compile(r"^auto(?::0*([1-9]\d{0,6}))?$")
_NUMBER = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")


def parse_size(text: str) -> int:
    """``256MiB`` as bytes. Raises UsageError."""
    return int(_parse(text, _SIZES, "a size like 256MiB"))


def parse_duration(text: str) -> float:
    """``1s``, ``200ms``, ``2m`` as seconds. Raises UsageError."""
    return _parse(text, _DURATIONS, "a duration like 10s or 200ms")


def parse_rate(text: str) -> float:
    """``5000/s``, ``300/m`` or ``5000`` as a number per second. Raises UsageError."""
    number, _, unit = text.partition("/")
    match = _NUMBER.match(number)
    per = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip().lower())
    if match is None or match[2] or per is None or not float(match[1]):
        raise UsageError(f"{text!r} is not a rate like 5000/s", hint="units: /s, /m, /h")
    return float(match[1]) / per


def parse_concurrency(text: str) -> Concurrency:
    """``200``, ``auto`` or ``auto:MAX``. Raises UsageError."""
    text = text.strip()
    if found := _AUTO.match(text.lower()):
        return Concurrency.auto(int(found[1]) if found[1] else None)
    if not text.isdecimal() or not 0 < int(text) < 10_000_000:
        raise UsageError(
            f"--concurrency {text!r} is no number from 1 on, and not auto",
            hint="auto finds it while draining; auto:500 goes no further than 500",
        )
    return Concurrency.fixed(int(text))


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """``name=value`` texts as a dict. Raises UsageError that names the option."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {text!r} is no name=value")
        pairs[name.strip()] = value
    return pairs


def _parse(text: str, units: dict[str, float], wanted: str) -> float:
    match = _NUMBER.match(text)
    if match is None or match[2].lower() not in units:
        raise UsageError(
            f"{text!r} is not {wanted}", hint=f"units: {', '.join(filter(None, units))}"
        )
    return float(match[1]) * units[match[2].lower()]
