"""Dead letters of other tools: records that they left unchanged, known by their headers.

Each becomes a letter of a whole message, which the handler's ``split`` gets again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from drainer.errors import NotADeadLetter, UsageError
from drainer.mask import TYPE_CHARACTERS
from drainer.message import HeadersUnreadable, Message
from drainer.policy.dead_letter import (
    ERROR_CHARACTERS,
    OWN_HEADERS,
    TOPIC_CHARACTERS,
    Letter,
    read_letter,
)
from drainer.policy.exact_json import Encoding

REDRIVES = "drainer.redrives"  # header: how often the record was sent back to a topic
NUMBER_MOST = 2**63 - 1  # of an offset
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_CHARACTERS}}}\Z")
_DIGITS = re.compile(rb"\d{1,19}\Z")
OTHER = "other"  # a tool whose headers a user names


@dataclass(frozen=True, slots=True)
class Scheme:
    """Names of a tool's headers.

    ``name`` is the letters' reason. Those that begin with a prefix are not of the message. Of
    ``error`` the first that is there has the type.
    """

    name: str
    prefixes: tuple[str, ...]
    topic: str
    partition: str
    offset: str
    group: str = ""
    error: tuple[str, ...] = ()
    text: str = ""
    timestamp: str = ""
    leaves_out: bool = False  # whether a null value may stand for one that was left out
    prepends: bool = False  # whether headers of the source come last, not first

    def owns(self, name: str) -> bool:
        """Whether a header is the tool's; of names that a user gave these alone are."""
        return name in self.prefixes if self.name == OTHER else name.startswith(self.prefixes)


def _spring(prefix: str, *prefixes: str) -> Scheme:
    original, exception = f"{prefix}original-", f"{prefix}exception-"
    return Scheme(
        "spring",
        prefixes,
        *(f"{original}topic", f"{original}partition", f"{original}offset"),
        group=f"{original}consumer-group",
        error=(f"{exception}cause-fqcn", f"{exception}fqcn"),
        text=f"{exception}message",
        timestamp=f"{original}timestamp",
    )


def _kafka(name: str, prefix: str, group: str, error: str, text: str) -> Scheme:
    place = f"{prefix}topic", f"{prefix}partition", f"{prefix}offset"
    found = Scheme(name, (prefix,), *place, group and prefix + group)
    return replace(found, error=(prefix + error,) if error else (), text=prefix + text)


SCHEMES: Final = (
    _spring("kafka_dlt-", "kafka_dlt-"),
    _spring("kafka_", "kafka_original-", "kafka_exception-", "retry_topic-"),  # of retry topics
    _kafka(
        *("connect", "__connect.errors.", "connector.name"),
        *("exception.class.name", "exception.message"),
    ),
    _kafka("streams", "__streams.errors.", "", "exception", "message"),
    replace(_kafka("share", "__dlq.errors.", "group", "", "message"), leaves_out=True),
    replace(
        _kafka("smallrye", "dead-letter-", "", "exception-class-name", "reason"),
        error=("dead-letter-cause-class-name", "dead-letter-exception-class-name"),
        prepends=True,
    ),
)

_FIELDS = ("topic", "partition", "offset", "group", "error", "text", "timestamp")
_NEEDED = _FIELDS[:3]


def scheme_of(headers: Mapping[str, str]) -> Scheme | None:
    """The scheme of names that a user gave, by what they mean; None without any.

    Raises UsageError.
    """
    if not headers:
        return None
    unknown = sorted(set(headers) - set(_FIELDS))
    missing = [name for name in _NEEDED if not headers.get(name)]
    if unknown or missing:
        raise UsageError(
            f"--letter-header has an unknown field {unknown[0]!r}"
            if unknown
            else f"--letter-header lacks {', '.join(missing)}",
            hint=f"Name the headers of {', '.join(_NEEDED)}; you may add {', '.join(_FIELDS[3:])}:"
            " --letter-header topic=x-original-topic.",
        )
    topic, partition, offset, group, error, text, timestamp = (
        headers.get(name, "") for name in _FIELDS
    )
    place, errors = (topic, partition, offset), (error,) if error else ()
    names = tuple(headers.values())
    return Scheme(OTHER, names, *place, group, errors, text, timestamp, leaves_out=True)


def reader(headers: Mapping[str, str]) -> Callable[[Message], Letter]:
    """Make what reads drainer's letters and those of other tools; ``headers`` are a user's names.

    It raises NotADeadLetter for anything else. Raises UsageError.
    """
    own = scheme_of(headers)
    schemes = SCHEMES if own is None else (own, *SCHEMES)

    def read(message: Message) -> Letter:
        known, last = dict[str, bytes](), dict[str, bytes]()
        with suppress(HeadersUnreadable):
            for name, value in message.headers:
                last[name] = value or b""
                known.setdefault(name, last[name])  # most append: the first is of the source
        redrives = _number(known.get(REDRIVES, b""))
        if not any(name.startswith(OWN_HEADERS) for name in known):
            for scheme in schemes:
                if scheme.topic in known:
                    found = last if scheme.prepends else known
                    return _letter(message, scheme, found, redrives or 0)
        letter = read_letter(message)
        if not redrives:
            return letter
        headers = tuple(each for each in letter.headers if each[0] != REDRIVES)
        return replace(letter, redrives=letter.redrives + redrives, headers=headers)

    return read


def _letter(message: Message, scheme: Scheme, known: Mapping[str, bytes], redrives: int) -> Letter:
    topic = _text(known[scheme.topic], TOPIC_CHARACTERS + 1)
    partition = _number(known.get(scheme.partition, b""))
    offset = _number(known.get(scheme.offset, b""))
    if partition is None or offset is None or not _TOPIC.match(topic):
        raise NotADeadLetter(
            f"the dead letter at {message} has no readable place in its headers {scheme.topic},"
            f" {scheme.partition} and {scheme.offset}",
            hint="Check the record with another tool. drainer leaves it alone.",
        )
    errors = (_text(known[name], TYPE_CHARACTERS * 5) for name in scheme.error if known.get(name))
    headers = tuple(
        each for each in message.headers if not scheme.owns(each[0]) and each[0] != REDRIVES
    )
    died_ms, stamp = message.timestamp or 0, scheme.timestamp
    left_out = scheme.leaves_out and message.value is None
    encoding = Encoding.NULL if message.value is None else Encoding.BYTES
    return Letter(
        topic=topic,
        topic_id=topic,  # what its id was then is not known
        message_partition=partition,
        message_offset=offset,
        index=0,
        group=_text(known.get(scheme.group, b""), TYPE_CHARACTERS * 5),
        handler="",
        kind="message",
        sub_key="None",
        several=False,
        sub_key_exact=True,
        payload_encoding=Encoding.LEFT_OUT if left_out else encoding,
        whole=True,
        attempts=0,
        reason=scheme.name,
        error_type=next(errors, "").rpartition(".")[2][:TYPE_CHARACTERS] or None,
        error_text=_text(known.get(scheme.text, b""), ERROR_CHARACTERS) or None,
        drain_id="",
        time=_time(died_ms),
        redrives=redrives,
        message_key=message.key,
        timestamp=_number(known[stamp]) if stamp in known else message.timestamp,
        message_headers=len(headers),
        partition=message.partition,
        offset=message.offset,
        key=None,
        keys=None,
        payload=message.value,
        headers=headers,
    )


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # some write microseconds
        return "unknown"


def _text(value: bytes, most: int) -> str:
    return " ".join(value[: 4 * most].decode(errors="replace").split())[:most]


def _number(value: bytes) -> int | None:
    # As text, or as Java writes an int or a long; below zero stands for none.
    if _DIGITS.match(value):
        number = int(value)
    elif len(value) in (4, 8):
        number = int.from_bytes(value, "big", signed=True)
    else:
        return None
    return number if 0 <= number <= NUMBER_MOST else None
