"""Dead letters of other tools. drainer recognises them by the headers that a tool adds.

These tools keep the message unchanged. So each of their records is a letter of a whole message, and
a redrive passes it to the handler's ``split`` again.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from operator import itemgetter
from typing import Any, Final

from msgspec import convert

from drainer.errors import NotADeadLetter, TopicNotNamed, UsageError
from drainer.message import HeadersUnreadable, Message
from drainer.policy.dead_letter import (
    OWN_HEADERS,
    PLACE_OF_LETTER,
    TOPIC_CHARACTERS,
    TOPIC_NAME,
    Letter,
    read_letter,
)
from drainer.policy.exact_json import Encoding
from drainer.text.mask import ERROR_CHARACTERS, TYPE_CHARACTERS

# The header that counts how often a redrive has sent a record back to a topic.
REDRIVES = "drainer.redrives"
NUMBER_MOST = 2**63 - 1  # The largest offset.
_TOPIC = re.compile(TOPIC_NAME)
_DIGITS = re.compile(rb"\d{1,19}\Z")
OTHER = "other"  # The name of a tool whose headers the user names.


@dataclass(frozen=True, slots=True)
class Scheme:
    """The headers that a tool adds to its dead letters, by what they hold.

    tools.toml describes the fields. ``constant`` is the topic of all messages, if no header has it.
    """

    name: str
    topic: str = ""
    partition: str = ""
    offset: str = ""
    group: str = ""
    error: tuple[str, ...] = ()
    text: str = ""
    timestamp: str = ""
    more: tuple[str, ...] = ()
    leaves_out: bool = False
    last: bool = False
    constant: str = ""

    @property
    def place(self) -> list[str]:
        """The headers with the message's place. A record that lacks one is not of this tool."""
        return [name for name in (self.topic, self.partition, self.offset) if name]

    def owns(self, name: str) -> bool:
        """Return whether the tool added a header. Other headers are the message's own."""
        named = (*self.place, self.group, *self.error, self.text, self.timestamp)
        return name in filter(None, named) or name.startswith(self.more)


_TABLE = tomllib.loads(files(__package__).joinpath("tools.toml").read_text())
SCHEMES: Final = convert(_TABLE["tool"], tuple[Scheme, ...])

_FIELDS = ("topic", "partition", "offset", "group", "error", "text", "timestamp")
_NEEDED = _FIELDS[:3]


def schemes_with(headers: Mapping[str, str]) -> tuple[Scheme, ...]:
    """Return the schemes of all tools. If the user named headers, their scheme comes first.

    ``headers`` are these names by field, such as ``topic``. If the name for the topic begins with
    ``=``, the rest of it is the topic itself. Raises UsageError for names that make no sense.
    """
    constant = headers["topic"][1:] if headers.get("topic", "").startswith("=") else ""
    known = tuple(each if each.topic else replace(each, constant=constant) for each in SCHEMES)
    if not headers or (constant and len(headers) == 1 and _TOPIC.match(constant)):
        return known
    unknown = sorted(set(headers) - set(_FIELDS))
    missing = [name for name in _NEEDED if not headers.get(name)]
    if unknown or missing or (headers["topic"][:1] == "=" and not _TOPIC.match(constant)):
        wrong = f"names the topic {constant!r}, which Kafka refuses"
        wrong = f"lacks {', '.join(missing)}" if missing else wrong
        raise UsageError(
            f"--letter-header has an unknown field {unknown[0]!r}"
            if unknown
            else f"--letter-header {wrong}",
            hint=f"Name the headers of {', '.join(_NEEDED)}; you may add {', '.join(_FIELDS[3:])}:"
            " --letter-header topic=x-original-topic. For letters that name no topic, give the"
            " topic itself: --letter-header topic==orders.",
        )
    names: dict[str, Any] = {**dict.fromkeys(_FIELDS, ""), **headers}
    names["topic"] = "" if constant else names["topic"]
    errors = tuple(filter(None, [names.pop("error")]))
    return Scheme(OTHER, **names, error=errors, constant=constant, leaves_out=True), *known


def reader(headers: Mapping[str, str]) -> Callable[[Message], Letter]:
    """Return a function that reads dead letters, both drainer's own and those of other tools.

    ``headers`` are the names that the user gave, as in ``schemes_with``. The function raises
    NotADeadLetter for any other record. Raises UsageError if the names make no sense.
    """
    schemes = schemes_with(headers)

    def read(message: Message) -> Letter:
        known, last = dict[str, bytes](), dict[str, bytes]()
        with suppress(HeadersUnreadable):
            for name, value in filter(itemgetter(0), message.headers):  # A header may have no name.
                last[name] = value or b""
                # Tools append headers, so the first one names the source.
                known.setdefault(name, last[name])
        redrives = redrives_of(message)
        if not any(name.startswith(OWN_HEADERS) for name in known):
            for scheme in schemes:
                if all(name in known for name in scheme.place):
                    found = last if scheme.last else known
                    return _letter(message, scheme, found, redrives)
        return counting(read_letter(message), redrives)

    return read


def counting(letter: Letter, redrives: int) -> Letter:
    """Return a letter with these redrives added, and without the header that counts them."""
    headers = tuple(each for each in letter.headers if each[0] != REDRIVES)
    return replace(letter, redrives=letter.redrives + redrives, headers=headers)


def redrives_of(message: Message) -> int:
    """Return how often a message was sent back to a topic, according to its headers."""
    with suppress(HeadersUnreadable):
        found = (value for name, value in message.headers if name == REDRIVES)
        return _number(next(found, None) or b"") or 0
    return 0


def _letter(message: Message, scheme: Scheme, known: Mapping[str, bytes], redrives: int) -> Letter:
    topic = scheme.constant or _text(known.get(scheme.topic, b""), TOPIC_CHARACTERS + 1)
    partition, offset = (_number(known.get(n, b"")) for n in (scheme.partition, scheme.offset))
    topic_id = topic
    if not scheme.partition:
        topic_id = PLACE_OF_LETTER + message.topic
        partition, offset = message.partition, message.offset
    if not (topic or scheme.topic):
        raise TopicNotNamed(
            f"the dead letter at {message} names no topic that its message came from",
            hint="Name it with --letter-header topic==TOPIC.",
        )
    if partition is None or offset is None or not _TOPIC.match(topic):
        raise NotADeadLetter(
            f"the dead letter at {message} has no readable place in its headers"
            f" {', '.join(scheme.place)}",
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
        topic_id=topic_id,  # The tool does not know the topic's id, so its name stands in.
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
    except (ValueError, OverflowError, OSError):  # Some tools write microseconds.
        return "unknown"


def _text(value: bytes, most: int) -> str:
    return " ".join(value[: 4 * most].decode(errors="replace").split())[:most]


def _number(value: bytes) -> int | None:
    # Tools write a number as text, or as Java writes an int or a long. A negative number means that
    # the tool does not know it.
    if _DIGITS.match(value):
        number = int(value)
    elif len(value) in (4, 8):
        number = int.from_bytes(value, "big", signed=True)
    else:
        return None
    return number if 0 <= number <= NUMBER_MOST else None
