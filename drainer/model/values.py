"""Values of options as they are typed: sizes, durations, numbers, name=value pairs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from drainer.errors import UsageError
from drainer.escape import printable
from drainer.model.concurrency import Concurrency


@dataclass(frozen=True, slots=True, eq=False)
class ValueType:
    """A way to type values: ``parse`` reads a text and raises UsageError, ``show`` writes it."""

    metavar: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    _: KW_ONLY
    repeats: bool = False  # whether ``parse`` takes all texts of an option that may be repeated
    choices: tuple[str, ...] = ()  # all values, where they are few


_SIZES = {
    **{"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9},
    **{"k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30},
}
_DURATIONS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_TIMES = {"": 1, "k": 1e3, "m": 1e6}  # of what is counted
REASON_MOST = 500  # characters
_AUTO = re.compile(r"^auto(?::0*([1-9]\d{0,6}))?$")
_CLOCK = re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)$")
_NUMBER = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")


def parse_size(text: str) -> int:
    """``256M``, ``256MiB`` or ``50MB`` as bytes. Raises UsageError."""
    return int(_parse(text, _SIZES, "a size like 256M"))


def parse_duration(text: str) -> float:
    """``1s``, ``200ms``, ``1h30m``, ``2d`` as seconds. Raises UsageError."""
    parts = _PARTS.findall(text)
    if len(parts) > 1 and "".join(_PARTS.split(text.strip())[::3]) == "":
        return sum(_parse("".join(part), _DURATIONS, "a duration like 1h30m") for part in parts)
    return _parse(text, _DURATIONS, "a duration like 10s or 1h30m")


def parse_address(text: str) -> tuple[str, int]:
    """``9464`` or ``0.0.0.0:9464`` as host and port; this machine unless another is named. Raises
    UsageError."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"{text!r} is not [HOST:]PORT", hint="Give one, such as 9464 or 0.0.0.0:9464."
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def parse_rate(text: str) -> float | None:
    """``5000/s``, ``5k/s``, ``300/m`` or ``5000`` as a number per second; None for ``none``.
    Raises UsageError."""
    if text.strip().lower() == "none":
        return None
    number, _, unit = text.partition("/")
    match = _NUMBER.match(number)
    per = _DURATIONS.get(unit.strip().lower() or "s")
    times = None if match is None else _TIMES.get(match[2].lower())
    if match is None or times is None or per is None or not float(match[1]):
        raise UsageError(f"{text!r} is not a rate like 5000/s", hint="Use a unit: /s, /m or /h.")
    return float(match[1]) * times / per


def parse_byte_rate(text: str) -> float:
    """``50MB/s`` or ``3G/m`` as bytes per second. Raises UsageError."""
    size, _, unit = text.strip().partition("/")
    per = _DURATIONS.get(unit.strip().lower())
    if not unit or per is None or not (most := parse_size(size)):
        raise UsageError(f"{text!r} is not a rate like 50MB/s", hint="Use /s, /m or /h.")
    return most / per


def parse_concurrency(text: str) -> Concurrency:
    """``200``, ``auto`` or ``auto:MAX``. Raises UsageError."""
    text = text.strip()
    if found := _AUTO.match(text.lower()):
        return Concurrency.auto(int(found[1]) if found[1] else None)
    if not text.isdecimal() or not 0 < int(text) < 10_000_000:
        raise UsageError(
            f"{text!r} is not a number from 1 to 9,999,999, auto or auto:MAX",
            hint="Give a number, or auto to let drainer find it.",
        )
    return Concurrency.fixed(int(text))


def parse_deadline(text: str, now: datetime | None = None) -> datetime:
    """``08:00`` (the next one, local time), ``6h`` from now, or an ISO 8601 date and time.

    ``now`` has a time zone, and so has the result. Raises UsageError.
    """
    now, word = now or datetime.now(UTC), text.strip()
    if clock := _CLOCK.match(word):
        # Without a zone first: where the clocks change tonight, 08:00 is the new 08:00.
        today = now.astimezone().replace(tzinfo=None, second=0, microsecond=0)
        at = today.replace(hour=int(clock[1]), minute=int(clock[2]))
        return next(
            moment
            for days in range(3)
            if (moment := (at + timedelta(days=days)).astimezone()) > now
        )
    if "T" in word:  # as a command to resume has it
        with suppress(ValueError):
            return datetime.fromisoformat(word).astimezone()
    hint = "Give a time of 24 hours such as 08:00, or a duration such as 6h."
    wrong = UsageError(f"{text!r} is not a time or a duration", hint=hint)
    if not word[-1:].isalpha():  # a number alone could be either
        raise wrong
    try:
        return now.astimezone() + timedelta(seconds=parse_duration(word))
    except UsageError:
        raise wrong from None
    except OverflowError:
        raise UsageError(f"{text!r} is too far away", hint=hint) from None


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """``name=value`` texts as a dict. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # It is not shown: it may be a secret.
            raise UsageError("must be NAME=VALUE", hint="Write it as index=orders.")
        pairs[name.strip()] = value
    return pairs


def clean_reason(text: str | None) -> str | None:
    """A reason as it is kept: one line of what can be seen, not too long."""
    return printable((text or "").strip())[:REASON_MOST] or None


def _parse(text: str, units: dict[str, float], wanted: str) -> float:
    match = _NUMBER.match(text)
    if match is None or match[2].lower() not in units:
        raise UsageError(
            f"{text!r} is not {wanted}", hint=f"Use a unit: {', '.join(filter(None, units))}."
        )
    return float(match[1]) * units[match[2].lower()]


def _size_text(size: int) -> str:
    units = ((unit, _SIZES[unit.lower()]) for unit in ("GiB", "MiB", "KiB"))
    return next((f"{size // n:g}{unit}" for unit, n in units if size and not size % n), str(size))


def _duration_text(seconds: float) -> str:
    units = ((unit, _DURATIONS[unit]) for unit in ("d", "h", "m", "s"))
    whole = (f"{seconds / n:g}{unit}" for unit, n in units if seconds >= n and not seconds % n)
    return next(whole, f"{seconds * 1000:g}ms" if seconds else "0s")


SIZE = ValueType("SIZE", parse_size, _size_text)
DURATION = ValueType("DURATION", parse_duration, _duration_text)
ADDRESS = ValueType("[HOST:]PORT", parse_address)
RATE = ValueType("N/s|none", parse_rate)
CONCURRENCY = ValueType("N|auto", parse_concurrency)
DEADLINE = ValueType("08:00|6h", parse_deadline)
REASON = ValueType("TEXT", clean_reason)
PAIRS = ValueType("NAME=VALUE", parse_pairs, repeats=True)


def number(least: int | None = None, most: int | None = None) -> ValueType:
    """Whole numbers within these bounds."""
    wanted = "a whole number"
    if least is not None:
        wanted += f" from {least:,} on" if most is None else f" from {least:,} to {most:,}"

    def parse(text: str) -> int:
        if re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII):
            found = int(text)
            if (least is None or found >= least) and (most is None or found <= most):
                return found
        raise UsageError(
            f"{text!r} is not {wanted}", hint=f"Give one, such as {max(5, least or 0)}."
        )

    return ValueType("N", parse)


def each_once(one: ValueType) -> ValueType:
    """Values of an option that may be repeated: each once, in their order."""

    def parse(texts: Iterable[str]) -> tuple[Any, ...]:
        return tuple(sorted({one.parse(text) for text in texts}))

    return ValueType(one.metavar, parse, repeats=True)


def choice(values: type[Enum]) -> ValueType:
    """The values of an enumeration."""
    names = tuple(str(each.value) for each in values)

    def parse(text: str) -> Enum:
        if text not in names:
            raise UsageError(f"{text!r} is not one of {', '.join(names)}", hint="Give one of them.")
        return values(text)

    return ValueType("|".join(names), parse, lambda value: str(value.value), choices=names)


def type_of(annotation: Any) -> ValueType:
    """The way to type values of a type of Python."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return choice(annotation)
    if annotation is int:
        return number()
    return ValueType("PATH", Path) if annotation is Path else ValueType("TEXT", str)
