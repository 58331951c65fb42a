"""The terms of a drain: what the user requested. Also names made of its topic and group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Annotated

import msgspec

from drainer.errors import UsageError
from drainer.model.codec import JsonRecord, Whole
from drainer.model.option import OrText, option, parse_texts
from drainer.model.order import Order
from drainer.model.rate_cap import CapCurve
from drainer.model.settings import FailureSettings
from drainer.text.secret import may_hide

WHICH_LETTERS = "Which dead letters"  # The panel of these options in the help.
_which = partial(option, panel=WHICH_LETTERS)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A filter for dead letters. A letter must pass every field that is not empty.

    Attributes:
        reasons: the letter's reason must be one of these words.
        sub_keys: one of the letter's sub-keys must be one of these texts, in the form that
            ``key_text`` gives.
        errors: the letter's error, as ``Type: text``, must contain one of these texts. Case is
            ignored.
        sources: each of these must be the letter's original topic, or the group or the handler of
            the drain that first gave the sub-message up.
    """

    reasons: tuple[str, ...] = _which(
        "Only letters with this reason; repeatable.",
        (),
        name="--letter-reason",
        basic=True,
        metavar="REASON",
    )
    sub_keys: tuple[str, ...] = _which(
        "Only letters of this sub-key, as the list prints it; repeatable.",
        (),
        name="--sub-key",
        metavar="KEY",
    )
    errors: tuple[str, ...] = _which(
        "Only letters whose error contains this text; repeatable.", (), name="--error"
    )
    sources: tuple[str, ...] = _which(
        "Only letters from this topic, group or handler; repeatable.", (), name="--source"
    )


@dataclass(frozen=True, slots=True)
class RedriveSettings(JsonRecord):
    """The choice of dead letters that go to the handler again.

    All other letters stay pending, except that those which no redrive could give to the handler
    are skipped.

    Attributes:
        letters: a filter that chosen letters pass.
        max_redrives: a letter that was redriven this often is not chosen again, because it would
            go round in circles.
        headers: the names of the headers in another tool's letters, by their meaning, such as
            ``topic``.
        to: the topic that gets the letters' messages, or ``source`` for the topic that each came
            from. None stands for the handler.
    """

    letters: LetterFilter = field(default_factory=LetterFilter)
    max_redrives: Whole = 3
    headers: Mapping[str, str] = field(default_factory=dict)
    to: str | None = None


LAST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
_Time = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]


def time_text(time_ms: int) -> str:
    """Write a time in UTC, in the form that ``--from`` takes."""
    return f"@{datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()}"


@dataclass(frozen=True, slots=True)
class TimeRange(JsonRecord):
    """The range ``[from_ms, until_ms)`` of times of the records to drain, in ms since 1970.

    A bound that is None leaves its side open. A record without a time is in no range.
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


class Unkeyed(Enum):
    """Where sub-messages without a sub-key stand."""

    OWN_LANE = "own-lane"  # Nothing waits for such a sub-message, except for barriers.
    ONE_LANE = "one-lane"  # They keep their order among themselves.


@dataclass(frozen=True, slots=True)
class PayloadSettings(JsonRecord):
    """Settings for splitting and decoding messages. The handler decides where a field is None.

    Attributes:
        split: the path or expression of the built-in split (drainer/split/splitting.py).
        keys, barrier, unkeyed: the sub-keys of what ``split`` yields (drainer/split/keys.py).
        value_format, key_format: names of decoders (drainer/split/decoding.py).
        registry: the URL of the registry, if the client file has none. The plan keeps it, so an
            address that may have a secret raises UsageError.
        times: the handler gets only records of these times; others are skipped. The time range of
            a drain without commits is kept here.
    """

    split: str | None = None
    keys: OrText[tuple[str, ...]] = option("Expressions, or one of them.", ())
    barrier: str | None = None
    unkeyed: OrText[Unkeyed] = option("Where sub-messages without a key stand.", Unkeyed.OWN_LANE)
    value_format: str | None = None
    key_format: str | None = None
    registry: str | None = None
    times: TimeRange | None = None

    def __post_init__(self) -> None:
        parse_texts(self)
        if self.registry is not None and may_hide("registry", self.registry, chosen=False):
            raise UsageError(
                "--registry may have a secret, and the plan would keep it",
                hint="Put the URL into the client's file as schema.registry.url, and a login as"
                " schema.registry.basic.auth.user.info.",
            )

    @property
    def finds_keys(self) -> bool:
        """Whether anything but ``split`` decides about sub-keys."""
        return bool(self.split or self.keys or self.barrier) or self.unkeyed is not Unkeyed.OWN_LANE

    @property
    def of_registry(self) -> bool:
        """Whether decoding needs a schema registry."""
        return not {self.value_format, self.key_format}.isdisjoint(("avro", "protobuf"))


BY_HANDLER = PayloadSettings()

_Name = Annotated[str, msgspec.Meta(max_length=32_767)]  # No path or name in Kafka is longer.
_DrainId = Annotated[str, msgspec.Meta(pattern=r"^[\w-]+\Z")]  # It also names a folder.
_Isolation = Annotated[str, msgspec.Meta(pattern=r"^read_(un)?committed\Z")]
_Order = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(order.value for order in Order)})\Z")]


@dataclass(frozen=True, slots=True)
class Terms(JsonRecord):
    """The request for a drain: all that its tasks need to know, without any secret.

    A resume may change the terms; the account of what was done stays the same.

    Attributes:
        created: the time of the request, ISO 8601 in UTC.
        topic_partitions: the number of partitions that the topic had when the drain was planned.
        redrive: set if the topic has dead letters. The handler then gets the sub-messages that the
            letters were written for.
        limits: the load that the brokers tolerate. It caps how fast the drain reads and writes.
        commits: whether the drain commits offsets for the group.
        handler_code: a digest of the handler's code when the drain last began; None when unknown.
        payloads: how messages are split and decoded, where the handler does not decide that.
        options: the options of the handler that the plan may keep.
        partitions_chosen: whether the partitions were named, so that no others join the drain.
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
    partitions_chosen: bool = False

    def options_with(self, given: Mapping[str, str] | None) -> dict[str, str]:
        """Return the handler's options. A given option replaces the one that the plan keeps.

        An empty value drops an option.
        """
        return {name: text for name, text in {**self.options, **(given or {})}.items() if text}

    @property
    def connection_words(self) -> tuple[str, ...]:
        """The options that make another command connect to the same cluster."""
        file = () if self.client_config is None else ("--client-config", self.client_config)
        return ("--bootstrap-server", self.bootstrap_servers, *file)

    @property
    def handler_words(self) -> tuple[str, ...]:
        """The options that make another command use the same handler and the same decoding."""
        found = self.payloads
        payloads = [
            ("--split", found.split),
            *(("--key", text) for text in found.keys),
            ("--barrier", found.barrier),
            ("--unkeyed", None if found.unkeyed is Unkeyed.OWN_LANE else found.unkeyed.value),
            ("--value-format", found.value_format),
            ("--tune", None if found.key_format is None else f"key-format={found.key_format}"),
            # The times are left out, because another command may read another topic.
            ("--registry", found.registry),
        ]
        options = [("--set", f"{name}={value}") for name, value in self.options.items()]
        given = [("--handler", self.handler), *payloads, *options]
        return tuple(word for name, text in given if text is not None for word in (name, text))


# A plain group has no dot. So in `a.b.c` the group is `c`, and the topic is `a.b`.
_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def name_of(topic: str, group: str, ending: str, most: int) -> str:
    """Return the name ``TOPIC.GROUP`` with an ending, in at most ``most`` characters.

    The name is ``TOPIC.GROUP-DIGEST`` with the ending if the plain name is too long, or if another
    topic and group could have the same one. For example, topic ``a.b`` with group ``c`` has the
    plain name of topic ``a`` with group ``b.c``, and ``b/c`` would be written like ``b-c``. The
    topic must be a name that Kafka allows; a group may have any characters.
    """
    name = f"{topic}.{group}{ending}"
    if _PLAIN.fullmatch(group) and len(name) <= most:
        return name
    pair = f"{topic}\0{group}".encode("utf-8", "backslashreplace")
    end = f"-{hashlib.sha256(pair).hexdigest()[:16]}{ending}"
    readable = "".join(c if _PLAIN.fullmatch(c) else "-" for c in group)
    return f"{topic}.{readable}"[: most - len(end)] + end
