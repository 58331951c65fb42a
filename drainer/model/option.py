"""Options of the command line, which are declared on the fields of settings, and their types."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from decimal import Decimal
from enum import Enum
from functools import cache
from keyword import iskeyword
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from drainer.errors import UsageError
from drainer.model.codec import AsText
from drainer.model.given import ensure_fields
from drainer.text.escape import encodable, printable
from drainer.text.secret import IN_A_URL, may_hide

# If a drain finds its concurrency itself, it begins with this number of calls.
AUTO_FIRST = 20
# Unless the user names a maximum, such a drain makes at most this number of calls at once.
AUTO_MOST = 2_000
# The maximum is lower for a handler that is not async, because each call takes a thread.
AUTO_MOST_THREADS = 200


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The number of calls at once: a fixed number, or ``auto`` with a maximum.

    Attributes:
        first: the number that a drain begins with.
        most: the number that it never exceeds. If the number is fixed, all three are the same.
        most_threads: replaces ``most`` for a handler that runs on threads.
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
        """Return ``auto``: the drain searches for its concurrency, up to ``most``."""
        if most is None:
            return cls(AUTO_FIRST, AUTO_MOST, AUTO_MOST_THREADS, is_auto=True)
        return cls(min(AUTO_FIRST, most), most, most, is_auto=True)

    @classmethod
    def of(cls, given: int | Concurrency) -> Concurrency:
        return cls.fixed(given) if isinstance(given, int) else given

    def most_for(self, *, threads: bool) -> int:
        """Return the maximum for a handler that runs on threads, or for one that does not."""
        return self.most_threads if threads else self.most

    def __str__(self) -> str:
        """Return the concurrency in the form in which a person types it."""
        if not self.is_auto:
            return str(self.most)
        return "auto" if self == Concurrency.auto() else f"auto:{self.most}"

    def as_json(self) -> int | str:
        return str(self) if self.is_auto else self.most


@dataclass(frozen=True, slots=True, eq=False)
class ValueType:
    """A type of values on the command line.

    ``parse`` makes a value of a text, or raises UsageError. ``show`` makes a text of a value.
    """

    metavar: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    _: KW_ONLY
    repeats: bool = False  # whether the option may be repeated, and ``parse`` takes all its texts
    choices: tuple[str, ...] = ()  # all possible texts, if the values are an enumeration


_SIZES = {
    **{"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9},
    **{"k": 2**10, "m": 2**20, "g": 2**30, "kib": 2**10, "mib": 2**20, "gib": 2**30},
}
_DURATIONS = {"us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_TIMES = {"": 1, "k": 1e3, "m": 1e6}  # The factors of counts, as in ``5k/s``.
_SWITCH = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
DURATION_MOST_S = 36_500 * 86_400.0
REASON_MOST = 500  # The maximum number of characters of a reason.
T = TypeVar("T")
_AUTO = re.compile(r"^auto(?::0*([1-9]\d{0,6}))?$")
_TO_PAUSE = "To let no calls start for a while, use `drainer pause PLAN`."
_NUMBER = re.compile(r"^\s*(\d{1,15}(?:\.\d{1,40})?)\s*([a-zA-Z]*)\s*$")


def parse_size(text: str) -> int:
    """Parse a size such as ``256M``, ``256MiB`` or ``50MB``; return bytes. Raises UsageError."""
    return int(_parse(text, _SIZES, "a size like 256M"))


def parse_duration(text: str) -> float:
    """Parse a duration such as ``200ms``, ``1h30m`` or ``2d``; return seconds.

    A number without a unit could mean anything, except for 0. Raises UsageError, also for so long a
    duration that its end has no date.
    """
    found, wanted = _PARTS.findall(text), "a duration like 10s or 1h30m"
    is_sum = len(found) > 1 and "".join(_PARTS.split(text.strip())[::3]) == ""
    parts = map("".join, found) if is_sum else (text,)
    if (seconds := sum(_parse(part, _DURATIONS, wanted) for part in parts)) > DURATION_MOST_S:
        raise UsageError(f"{text!r} is too long", hint="Give at most 36500d, which is a century.")
    return seconds


def parse_address(text: str) -> tuple[str, int]:
    """Parse an address such as ``9464`` or ``0.0.0.0:9464``; return host and port.

    Without a host, the address is on the loopback interface. Raises UsageError.
    """
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"{text!r} is not [HOST:]PORT", hint="Give one, such as 9464 or 0.0.0.0:9464."
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def parse_rate(text: str) -> float | None:
    """Parse a rate such as ``5000/s``, ``5k/s`` or ``300/m``; return a number per second.

    Returns None for ``none``. Raises UsageError.
    """
    if text.strip().lower() == "none":
        return None
    number, _, unit = text.partition("/")
    match = _NUMBER.match(number)
    per = _DURATIONS.get(unit.strip().lower())
    times = None if match is None else _TIMES.get(match[2].lower())
    if match is None or times is None or per is None or not float(match[1]):
        hint = "Use a unit: /s, /m or /h."
        if match is None or not float(match[1]):
            hint = f"Give one such as 300/m, or none for no limit. {_TO_PAUSE}"
        elif times is not None and not unit:
            hint = f"Write {number.strip()}/s or {number.strip()}/m."
        elif times is None and match[2].lower() in _SIZES:
            hint = "Give a number of sub-messages, or cap bytes by --broker-limits 50MB/s."
        raise UsageError(f"{text!r} is not a rate like 5000/s", hint=hint)
    return float(match[1]) * times / per


def parse_byte_rate(text: str) -> float:
    """Parse a rate such as ``50MB/s`` or ``3GiB/m``; return bytes per second.

    Its unit ends in B, because ``500/s`` and ``5k/s`` are rates of sub-messages. Raises UsageError.
    """
    size, _, unit = map(str.strip, text.partition("/"))
    per, most = _DURATIONS.get(unit.lower()), 0
    with suppress(UsageError):
        most = parse_size(size) if size[-1:] in ("b", "B") else 0
    if per is None or not most:
        meant = size if most else "50MB"
        hint = f"Write it as {meant}/s, {meant}/m or {meant}/h."
        raise UsageError(f"{text!r} is not a rate like 50MB/s", hint=hint)
    return most / per


def parse_concurrency(text: str) -> Concurrency:
    """Parse a concurrency: ``200``, ``auto`` or ``auto:MAX``. Raises UsageError."""
    text = text.strip()
    if found := _AUTO.match(text.lower()):
        return Concurrency.auto(int(found[1]) if found[1] else None)
    if not text.isdecimal() or not 0 < int(text) < 10_000_000:
        pause = f" {_TO_PAUSE}" if text == "0" else ""
        raise UsageError(
            f"{text!r} is not a number from 1 to 9,999,999, auto or auto:MAX",
            hint=f"Give a number, or auto to let drainer find it.{pause}",
        )
    return Concurrency.fixed(int(text))


class Lag(AsText):
    """How far a group may be behind the log: a number of messages, or a time in seconds."""

    __slots__ = ("messages", "seconds")

    def __init__(self, messages: int | None = None, seconds: float | None = None) -> None:
        self.messages = messages
        self.seconds = seconds

    @classmethod
    def parse(cls, text: str) -> Lag:
        """Parse a lag: ``1000`` is a number of messages, ``10s`` is a time. Raises UsageError."""
        if text.strip().isdecimal():
            return cls(messages=int(text))
        return cls(seconds=parse_duration(text))

    def __str__(self) -> str:
        return str(self.messages) if self.seconds is None else _duration_text(self.seconds)


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts such as ``name=value``; return a dict. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The error does not show the text, because it may be a secret.
            raise UsageError(
                "must be NAME=VALUE", hint="Put the name of the setting and = before the value."
            )
        pairs[name.strip()] = value
    return pairs


def parse_switch(text: str) -> bool:
    """Parse ``on`` or ``off``; yes, no, true and false are also accepted. Raises UsageError."""
    if (value := _SWITCH.get(text.strip().lower())) is None:
        raise UsageError(f"{text!r} is not on or off", hint="Give on or off.")
    return value


def parse_text(text: str) -> str:
    """Return a text unchanged. Raises UsageError if it has bytes that are not UTF-8."""
    if encodable(text) != text:
        raise UsageError(f"is not UTF-8: {text!r}", hint="Give it in UTF-8.")
    return text


def clean_reason(text: str | None) -> str | None:
    """Return a reason in the form in which it is kept: printable, in one line, and not too long."""
    return printable((text or "").strip())[:REASON_MOST] or None


def _parse(text: str, units: dict[str, float], wanted: str) -> float:
    match = _NUMBER.match(text)
    if match is not None and match[2].lower() in units:
        return float(match[1]) * units[match[2].lower()]
    error, number = f"{text!r} is not {wanted}", "" if match is None else match[1]
    if match is not None and not match[2]:
        if not float(number):
            return 0.0
        error = f"{number} of what?"
    spelled = ", ".join(f"{number}{unit}" for unit in units if unit)
    raise UsageError(error, hint=f"Use a unit: {spelled}.")


def _size_text(size: int) -> str:
    units = ((unit, _SIZES[unit.lower()]) for unit in ("GiB", "MiB", "KiB"))
    return next((f"{size // n}{unit}" for unit, n in units if size and not size % n), str(size))


def _duration_text(seconds: float) -> str:
    units = ((unit, _DURATIONS[unit]) for unit in ("d", "h", "m", "s"))
    whole = (
        f"{_digits(seconds / n)}{unit}" for unit, n in units if seconds >= n and not seconds % n
    )
    parts = f"{_digits(seconds)}s" if seconds >= 1 else f"{_digits(seconds * 1000)}ms"
    return next(whole, parts if seconds else "0s")


def _rate_text(per_s: float) -> str:
    """Return a rate in the unit in which it is shortest: ``50/m``, not ``0.833333333333333/s``."""
    return min((f"{_digits(per_s * _DURATIONS[unit])}/{unit}" for unit in "smh"), key=len)


def _digits(number: float) -> str:
    """Return a number without an exponent, which no option takes, and without rounding errors."""
    return f"{Decimal(f'{number:.15g}').normalize():f}"


SIZE = ValueType("SIZE", parse_size, _size_text)
DURATION = ValueType("DURATION", parse_duration, _duration_text)
ADDRESS = ValueType("[HOST:]PORT", parse_address)
RATE = ValueType("N/s|none", parse_rate, _rate_text)
CONCURRENCY = ValueType("N|auto", parse_concurrency)
LAG = ValueType("N|DURATION", Lag.parse)
REASON = ValueType("TEXT", clean_reason)
TEXT = ValueType("TEXT", parse_text)
PAIRS = ValueType("NAME=VALUE", parse_pairs, repeats=True)


def number(least: int | None = None, most: int | None = None) -> ValueType:
    """Return the type of whole numbers from ``least`` to ``most``."""
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
    """Return the type of an option that may be repeated. Its values are sorted, without doubles."""

    def parse(texts: Iterable[str]) -> tuple[Any, ...]:
        return tuple(sorted({one.parse(text) for text in texts}))

    return ValueType(one.metavar, parse, repeats=True)


def choice(values: type[Enum]) -> ValueType:
    """Return the type whose values are those of an enumeration."""
    names = tuple(str(each.value) for each in values)

    def parse(text: str) -> Enum:
        if text not in names:
            raise UsageError(f"{text!r} is not one of {', '.join(names)}", hint="Give one of them.")
        return values(text)

    return ValueType("|".join(names), parse, lambda value: str(value.value), choices=names)


def type_of(annotation: Any) -> ValueType:
    """Return the type on the command line for a type of Python."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return choice(annotation)
    if annotation is int:
        return number()
    return ValueType("PATH", Path) if annotation is Path else TEXT


PREFIX = "DRAINER"  # Environment variables of drainer begin with this and an underscore.
ONE_RUN = "it is meant for one run"
_BY_NAME = "by its name"
_KEY = "option"


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One option or argument of a command."""

    help: str
    default: Any = ...  # the value if the option is not given; ``...`` if it must be given
    kind: ValueType | None = None  # the type of its values; None derives it from the field's type
    _: KW_ONLY
    unset: str | None = None  # a description of the default for the help, if that is not a value
    # ``--rate``, or the word for an argument. If it is empty, the field's name gives it.
    name: str = ""
    short: str | None = None  # the short name, such as ``-b``
    metavar: str | None = None  # the word for the value in the help; None for that of ``kind``
    panel: str | None = None  # the section of the help
    basic: bool = False  # whether the short help lists the option
    tune: bool = False  # whether the option is rare, and a person types ``--tune NAME=VALUE``
    resumes: bool = False  # whether a command to resume must repeat it, because no plan keeps it
    live: bool = False  # whether ``drainer set`` may change it while a drain runs
    envvar: str | None = _BY_NAME  # the environment variable that may also give the value
    risk: str | None = None  # the reason why no variable and no profile may give the value
    pairs: bool = False  # whether the value is ``NAME=VALUE``, in which VALUE may be a secret
    hides: bool = False  # whether the whole value may be a secret
    proposes: str | None = None  # the kind of completions that a shell proposes
    repeats: bool = False
    is_argument: bool = False
    is_flag: bool = False
    field: str = ""  # the name of the field or parameter that declares the option

    @property
    def word(self) -> str:
        """The name of the option in errors: ``--rate``, or ``--tune timeout``."""
        return f"--tune {self.label}" if self.tune else self.name

    @property
    def label(self) -> str:
        """The name without dashes, which profiles, ``--tune`` and ``drainer set`` use."""
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
        """The environment variable that may give the value; None if there is none."""
        if self.risk or self.is_argument:
            return None
        if self.envvar != _BY_NAME:
            return self.envvar
        return f"{PREFIX}_{self.label.upper().replace('-', '_')}"

    @property
    def is_key(self) -> bool:
        """Whether a profile may give the value, under the option's label."""
        by_hand = self.risk or (self.envvar is None and not self.repeats)
        return not (self.is_argument or by_hand)

    @property
    def default_text(self) -> str | None:
        """The default as a person types it; None if there is none or it is empty."""
        if self.default in (..., None, (), {}):
            return None
        if self.is_flag:
            return ("off", "on")[self.default] if self.tune else "yes" if self.default else None
        assert self.kind is not None
        return self.kind.show(self.default)

    @property
    def text(self) -> str:
        """The help of the option, with a description of a default that is not a value."""
        return self.help if self.unset is None else f"{self.help} Default: {self.unset}."

    @property
    def typed_as(self) -> str:
        """The word for the value in the help, such as ``N/s`` in ``--rate N/s``."""
        assert self.kind is not None
        return self.metavar or self.kind.metavar

    def parse(self, given: Any) -> Any:
        """Make a value of what was typed. Raises UsageError.

        If the option may be repeated, ``given`` has all texts.
        """
        if self.is_flag:
            return given if isinstance(given, bool) else parse_switch(given)
        assert self.kind is not None
        if not self.repeats or self.kind.repeats:
            return self.kind.parse(given)
        return tuple(map(self.kind.parse, given))

    def without_secret(self, text: str) -> str:
        """Return the text of a value with ``…`` in place of anything that may be a secret."""
        if not self.pairs:
            return "…" if self.hides or IN_A_URL.search(text) else text
        name, _, value = text.partition("=")
        return f"{shlex.quote(name)}=…" if may_hide(name, value, self.word == "--set") else text

    def of(self, field_name: str, annotation: Any) -> Option:
        """Complete the option by the name and type of its field or parameter."""
        # For ``X | None`` a person types an X, and for ``tuple[X, ...]`` one X at a time.
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
    """Declare an option as a field of a dataclass. The arguments are those of ``Option``."""
    return as_field(Option(help, default, kind, **more))


def as_field(declared: Option) -> Any:
    """Return the field of a dataclass that an option declares."""
    default, metadata = declared.default, {_KEY: declared}
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def options_of(settings: type) -> Mapping[str, Option]:
    """Return the options of a dataclass by the names of their fields."""
    types = get_type_hints(settings)
    return {
        each.name: each.metadata[_KEY].of(each.name, types[each.name])
        for each in fields(settings)
        if _KEY in each.metadata
    }


if TYPE_CHECKING:

    class OrText(Generic[T]):
        """The type of a setting that may be given as a text, of which ``parse_texts`` makes a T."""

        def __get__(self, instance: object, owner: object) -> T: ...
        def __set__(self, instance: object, value: T | str) -> None: ...

else:
    OrText = Union  # Union[T] is T.


def parse_texts(settings: object) -> None:
    """Replace texts in new settings by the values that they mean on the command line.

    So a program may give ``"08:00"``, ``"auto"`` or ``"dead-letter"``. Raises UsageError, also if a
    value is neither a text nor what the field is declared to be.
    """
    kind: Any = type(settings)
    hints = {}
    for name, each in options_of(kind).items():
        if isinstance(given := getattr(settings, name), str):
            object.__setattr__(settings, name, each.parse([given] if each.repeats else given))
        elif isinstance(given, list) and each.repeats:
            object.__setattr__(settings, name, tuple(given))
        hints[name] = f"Give a text as the command takes it: {each.typed_as}."
    ensure_fields(settings, hints)


def option_name(field: str) -> str:
    """Return the long name of a field's option: ``retry-delay`` for ``retry_delay_s``."""
    return field.removesuffix("_s").removesuffix("_bytes").strip("_").replace("_", "-")
