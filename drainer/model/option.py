"""Options: what the command line knows of a setting, declared on its field; values as typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from enum import Enum
from functools import cache
from keyword import iskeyword
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from drainer.errors import UsageError
from drainer.text.escape import encodable, printable
from drainer.text.secret import IN_A_URL, may_hide

AUTO_FIRST = 20  # where a drain that finds its own begins
AUTO_MOST = 2_000  # how far it goes with an async handler
AUTO_MOST_THREADS = 200  # and with a plain one: each is a thread


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A fixed number, or ``auto`` with the most that it may become.

    ``first`` is what a drain begins with and ``most`` what it never exceeds; both are the number
    itself when it is fixed. ``most_threads`` is ``most`` for a handler that runs on threads.
    """

    first: int
    most: int
    most_threads: int
    is_auto: bool = False

    @classmethod
    def fixed(cls, number: int) -> Concurrency:
        return cls(number, number, number)

    @classmethod
    def auto(cls, most: int | None = None) -> Concurrency:
        """Found while draining, ``most`` at most."""
        if most is None:
            return cls(AUTO_FIRST, AUTO_MOST, AUTO_MOST_THREADS, is_auto=True)
        return cls(min(AUTO_FIRST, most), most, most, is_auto=True)

    @classmethod
    def of(cls, given: int | Concurrency) -> Concurrency:
        return cls.fixed(given) if isinstance(given, int) else given

    def most_for(self, *, threads: bool) -> int:
        """The most with a handler of this kind."""
        return self.most_threads if threads else self.most

    def __str__(self) -> str:
        """Return it as it is typed."""
        if not self.is_auto:
            return str(self.most)
        return "auto" if self == Concurrency.auto() else f"auto:{self.most}"

    def as_json(self) -> int | str:
        return str(self) if self.is_auto else self.most


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
_SWITCH = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
REASON_MOST = 500  # characters
_AUTO = re.compile(r"^auto(?::0*([1-9]\d{0,6}))?$")
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


def parse_switch(text: str) -> bool:
    """``on`` or ``off``, which may be yes or no. Raises UsageError."""
    if (value := _SWITCH.get(text.strip().lower())) is None:
        raise UsageError(f"{text!r} is not on or off", hint="Give on or off.")
    return value


def parse_text(text: str) -> str:
    """Return a text unchanged. Raises UsageError if it has bytes that are not UTF-8."""
    if encodable(text) != text:
        raise UsageError(f"is not UTF-8: {text!r}", hint="Give it in UTF-8.")
    return text


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
RATE = ValueType("N/s|none", parse_rate, lambda per_s: f"{per_s:.15g}/s")
CONCURRENCY = ValueType("N|auto", parse_concurrency)
REASON = ValueType("TEXT", clean_reason)
TEXT = ValueType("TEXT", parse_text)
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
    return ValueType("PATH", Path) if annotation is Path else TEXT


PREFIX = "DRAINER"  # Variables begin with this and an underscore.
ONE_RUN = "it is meant for one run"
_BY_NAME = "by its name"
_KEY = "option"


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One option or argument, and what it changes."""

    help: str
    default: Any = ...  # the value when nothing is given; ``...`` when something must be
    kind: ValueType | None = None  # by the field's type unless it is given
    _: KW_ONLY
    unset: str | None = None  # what the help calls a default that is no value
    name: str = ""  # as in ``--rate``, by the field's name unless it is given; an argument's word
    short: str | None = None  # as in ``-b``
    metavar: str | None = None  # that of its kind unless it is given
    panel: str | None = None  # of the help
    basic: bool = False  # whether the short help has it
    tune: bool = False  # whether it is rare, so that a person types it as ``--tune NAME=VALUE``
    resumes: bool = False  # whether a command to resume repeats it: no plan has it
    live: bool = False  # whether ``drainer set`` may change it while a drain runs
    envvar: str | None = _BY_NAME  # the variable that gives its value, too
    risk: str | None = None  # why it must be typed each time, not given by variable or profile
    pairs: bool = False  # whether it is ``NAME=VALUE``, and the value may be a secret
    hides: bool = False  # whether its value may be a secret as a whole
    proposes: str | None = None  # what a shell proposes for it
    repeats: bool = False
    is_argument: bool = False
    is_flag: bool = False
    field: str = ""  # the name of its field or parameter

    @property
    def word(self) -> str:
        """The name by which errors call it: ``--rate``, or ``--tune timeout``."""
        return f"--tune {self.label}" if self.tune else self.name

    @property
    def label(self) -> str:
        """The name without dashes, as profiles, ``--tune`` and ``drainer set`` have it."""
        return self.name.strip("-")

    def typed(self, value: str) -> tuple[str, str]:
        """Return what a person types for a value: ``--rate 5/s``, or ``--tune timeout=5s``."""
        return ("--tune", f"{self.label}={value}") if self.tune else (self.name, value)

    @property
    def parameter(self) -> str:
        """The name of click's parameter, from which click makes the name of the variable."""
        name = self.field if self.is_argument else self.label.replace("-", "_")
        return f"{name}_" if iskeyword(name) else name

    @property
    def variable(self) -> str | None:
        """The variable that gives its value, too; None when none does."""
        if self.risk or self.is_argument:
            return None
        if self.envvar != _BY_NAME:
            return self.envvar
        return f"{PREFIX}_{self.label.upper().replace('-', '_')}"

    @property
    def is_key(self) -> bool:
        """Whether a profile may give its value, by its label."""
        by_hand = self.risk or (self.envvar is None and not self.repeats)
        return not (self.is_argument or by_hand)

    @property
    def default_text(self) -> str | None:
        """The default as it is typed; None when there is no value, or when it is empty."""
        if self.default in (..., None, (), {}):
            return None
        if self.is_flag:
            return ("off", "on")[self.default] if self.tune else "yes" if self.default else None
        assert self.kind is not None
        return self.kind.show(self.default)

    @property
    def text(self) -> str:
        """The help, with what it calls the default."""
        return self.help if self.unset is None else f"{self.help} Default: {self.unset}."

    @property
    def typed_as(self) -> str:
        """The word for the value, as in ``--rate N/s``."""
        assert self.kind is not None
        return self.metavar or self.kind.metavar

    def parse(self, given: Any) -> Any:
        """The value of what was typed; of all texts where it repeats. Raises UsageError."""
        if self.is_flag:
            return given if isinstance(given, bool) else parse_switch(given)
        assert self.kind is not None
        if not self.repeats or self.kind.repeats:
            return self.kind.parse(given)
        return tuple(map(self.kind.parse, given))

    def without_secret(self, text: str) -> str:
        """One value as it may be shown: with ``…`` in the place of what may be a secret."""
        if not self.pairs:
            return "…" if self.hides or IN_A_URL.search(text) else text
        name, _, value = text.partition("=")
        return f"{shlex.quote(name)}=…" if may_hide(name, value, self.word == "--set") else text

    def of(self, field_name: str, annotation: Any) -> Option:
        """Complete the option by the name and type of its field or parameter."""
        # Of ``X | None`` X is typed, of ``tuple[X, ...]`` each X.
        inner = next((each for each in get_args(annotation) if each is not NoneType), annotation)
        repeats = self.kind is None and get_origin(annotation) in (tuple, list)
        return replace(
            self,
            name=self.name or f"--{option_name(field_name)}",
            kind=self.kind or type_of(inner),
            repeats=repeats or (self.kind is not None and self.kind.repeats),
            is_flag=inner is bool,
            field=field_name,
        )


def option(help: str, default: Any = ..., kind: ValueType | None = None, **more: Any) -> Any:
    """Declare an option as a field of a dataclass; takes what ``Option`` has."""
    return as_field(Option(help, default, kind, **more))


def as_field(declared: Option) -> Any:
    """The field of a dataclass that an option declares."""
    default, metadata = declared.default, {_KEY: declared}
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def options_of(settings: type) -> Mapping[str, Option]:
    """The options of a dataclass, by the names of their fields."""
    types = get_type_hints(settings)
    return {
        each.name: each.metadata[_KEY].of(each.name, types[each.name])
        for each in fields(settings)
        if _KEY in each.metadata
    }


def option_name(field: str) -> str:
    """``retry-delay`` for the field ``retry_delay_s``: the long name of its option."""
    return field.removesuffix("_s").removesuffix("_bytes").strip("_").replace("_", "-")
