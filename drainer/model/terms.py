"""The terms of a drain: what was requested, and names made of its topic and group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from drainer.errors import UsageError
from drainer.model.codec import JsonRecord, Whole
from drainer.model.order import Order
from drainer.model.rate_cap import CapCurve
from drainer.model.settings import FailureSettings
from drainer.text.secret import may_hide


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Filter of dead letters: one is meant if it fits each kind of text that is given."""

    # Words that the reason is one of.
    reasons: tuple[str, ...] = ()
    # Texts that one of its sub-keys is, as ``key_text`` has it.
    sub_keys: tuple[str, ...] = ()
    # Texts that ``Type: text`` of its error contains; upper and lower case are one.
    errors: tuple[str, ...] = ()
    # Each of them is the topic that it comes from, or the group or the handler whose drain gave it
    # up first.
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedriveSettings(JsonRecord):
    """Choice of dead letters that go to the handler again; the others stay pending.

    One that was redriven ``max_redrives`` times already does not: it would go round in circles.
    What no redrive could give the handler is skipped. ``headers`` are those of another tool's
    letters by what they mean, such as ``topic``. ``to`` is a topic that gets their messages, or
    ``source``; None for the handler.
    """

    letters: LetterFilter = field(default_factory=LetterFilter)
    max_redrives: Whole = 3
    headers: Mapping[str, str] = field(default_factory=dict)
    to: str | None = None


LAST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
_Time = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]


def time_text(time_ms: int) -> str:
    """Write a time as ``--from`` takes it, in UTC."""
    return f"@{datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()}"


@dataclass(frozen=True, slots=True)
class TimeRange(JsonRecord):
    """Times of the records to drain: ``[from_ms, until_ms)``, in milliseconds since 1970.

    None leaves that side open. A record without a time is in no range.
    """

    from_ms: _Time | None = None
    until_ms: _Time | None = None

    def __str__(self) -> str:
        bounds = ("from", self.from_ms), ("until", self.until_ms)
        return " ".join(f"{word} {time_text(ms)}" for word, ms in bounds if ms is not None)

    def why_outside(self, time_ms: int | None) -> str | None:
        """Return why a record of this time is not in the range; None if it is."""
        if time_ms is None:
            return "a record without a time"
        begun = self.from_ms is None or time_ms >= self.from_ms
        ended = self.until_ms is not None and time_ms >= self.until_ms
        return None if begun and not ended else "a time outside --from and --until"


@dataclass(frozen=True, slots=True)
class PayloadSettings(JsonRecord):
    """Settings of what a handler gets of a message; None leaves that to the handler.

    Attributes:
        split, split_key: paths or expressions of the built-in split (drainer/split/documents.py).
        value_format, key_format: names of decoders (drainer/split/decoding.py).
        registry: the URL of the registry, if the client file has none. The plan keeps it, so an
            address that may have a secret raises UsageError.
        times: the times of records that are handled; others are skipped. The range of a drain
            without commits sets it.
    """

    split: str | None = None
    split_key: str | None = None
    value_format: str | None = None
    key_format: str | None = None
    registry: str | None = None
    times: TimeRange | None = None

    def __post_init__(self) -> None:
        if self.registry is not None and may_hide("registry", self.registry, chosen=False):
            raise UsageError(
                "--registry may have a secret, and the plan would keep it",
                hint="Put the URL into the client's file as schema.registry.url, and a login as"
                " schema.registry.basic.auth.user.info.",
            )

    @property
    def of_registry(self) -> bool:
        """Whether a registry is needed."""
        return not {self.value_format, self.key_format}.isdisjoint(("avro", "protobuf"))


BY_HANDLER = PayloadSettings()

_Name = Annotated[str, msgspec.Meta(max_length=32_767)]  # no name in Kafka and no path is longer
_DrainId = Annotated[str, msgspec.Meta(pattern=r"^[\w-]+\Z")]  # names a folder, too
_Isolation = Annotated[str, msgspec.Meta(pattern=r"^read_(un)?committed\Z")]
_Order = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(order.value for order in Order)})\Z")]


@dataclass(frozen=True, slots=True)
class Terms(JsonRecord):
    """Request for a drain: all that its tasks need to know, and never a secret.

    A resume gives new terms to an old account.

    Attributes:
        created: ISO 8601 in UTC.
        topic_partitions: how many the topic had when the drain was planned.
        redrive: there when the topic is one of dead letters, which the handler gets as what they
            were.
        limits: what the brokers tolerate, which caps what is read and written.
        commits: whether the group's offsets move with it.
        handler_code: a digest of the handler's code when the drain last began; None when unknown.
        payloads: how messages are split, if not by the handler.
        options: the handler's options that it lets the plan keep.
    """

    drain_id: _DrainId
    created: _Name
    cluster_id: _Name
    bootstrap_servers: _Name
    client_config: _Name | None
    isolation: _Isolation
    topic: _Name
    topic_id: _Name
    topic_partitions: Whole
    group: _Name
    handler: _Name
    order: _Order
    failures: FailureSettings = field(default_factory=FailureSettings)
    redrive: RedriveSettings | None = None
    limits: CapCurve | None = None
    handler_code: _Name | None = None
    payloads: PayloadSettings = BY_HANDLER
    commits: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def options_with(self, given: Mapping[str, str] | None) -> dict[str, str]:
        """The handler's options: those that are given, over those that the plan keeps."""
        return {**self.options, **(given or {})}

    @property
    def handler_words(self) -> tuple[str, ...]:
        """Options by which another command gets the same handler, and messages as this does."""
        payloads = [
            (f"--{each.name.replace('_', '-')}", getattr(self.payloads, each.name))
            for each in fields(self.payloads)
            if each.name != "times"  # the times are about records of this topic
        ]
        options = [("--set", f"{name}={value}") for name, value in self.options.items()]
        given = [("--handler", self.handler), *payloads, *options]
        return tuple(word for name, text in given if text is not None for word in (name, text))


_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)  # of a group: in `a.b.c` the topic is `a.b`


def name_of(topic: str, group: str, ending: str, most: int) -> str:
    """``TOPIC.GROUP`` and the ending, or ``TOPIC.GROUP-DIGEST``, in at most so many characters.

    The digest is there where the plain name is too long, or another topic and group could have it
    as well: ``a.b`` and ``c`` that of ``a`` and ``b.c``, and ``b/c`` that of ``b-c``. Topics are
    those that Kafka allows; a group may have any characters.
    """
    name = f"{topic}.{group}{ending}"
    if _PLAIN.fullmatch(group) and len(name) <= most:
        return name
    pair = f"{topic}\0{group}".encode("utf-8", "backslashreplace")
    end = f"-{hashlib.sha256(pair).hexdigest()[:16]}{ending}"
    readable = "".join(c if _PLAIN.fullmatch(c) else "-" for c in group)
    return f"{topic}.{readable}"[: most - len(end)] + end
