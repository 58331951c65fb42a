"""Dead letters: sub-messages that were given up on, as the records that tell all about them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drainer.core.naming import name_of
from drainer.errors import NotADeadLetter
from drainer.mask import MASKED, key_repr, mask_text, masking
from drainer.message import Barrier, HeadersUnreadable, Message, Origin, SubMessage
from drainer.policy.exact_json import (
    Encoding,
    as_literal,
    decode_payload,
    encode_payload,
    from_literal,
)

FORMAT = "drainer-dead-letter/1"
ERROR_CHARACTERS = 1000
TYPE_CHARACTERS = 200
COUNT_MOST = 2**31 - 1  # of attempts and redrives
TOPIC_CHARACTERS = 249  # that Kafka allows in a topic's name

Header = tuple[str, bytes | None]
From = tuple[str, str, str]  # the topic, group and handler of the drain that gave it up first

_FORMAT = "drainer.format"  # the first of our headers
_HEADERS = "drainer.headers"  # the last: how many follow that were the message's own
_PAYLOAD_ENCODING = "drainer.payload-encoding"
_SUB_MESSAGE, _BARRIER = "sub-message", "barrier"
_OWN = (  # all of our headers, in the order in which they are written
    _FORMAT,
    "drainer.topic",
    "drainer.topic-id",
    "drainer.partition",
    "drainer.offset",
    "drainer.index",
    "drainer.group",
    "drainer.kind",
    "drainer.sub-key",
    "drainer.sub-keys",
    "drainer.sub-key-encoding",
    _PAYLOAD_ENCODING,
    "drainer.whole",
    "drainer.attempts",
    "drainer.reason",
    "drainer.error-type",
    "drainer.error",
    "drainer.handler",
    "drainer.drain-id",
    "drainer.time",
    "drainer.redrives",
    "drainer.message-key",
    "drainer.message-timestamp",
    _HEADERS,
)
_INT64_MOST = 2**63 - 1
_PARTITION_MOST = 2**31 - 1
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARACTERS}}}", re.ASCII)
_NUMBER = re.compile(rb"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for the dead-letter topic.

    ``key`` is the sub-key, so that all letters of one lane go to one partition: bytes as they are,
    text in UTF-8, anything else as its repr. Of several sub-keys it is the first.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def without_payload(self) -> DeadLetter:
        """The same letter for a topic that doesn't take one so large."""
        left_out = (_PAYLOAD_ENCODING, Encoding.LEFT_OUT.value.encode())
        own = [name for name, _ in self.headers].index(_PAYLOAD_ENCODING)
        headers = (*self.headers[:own], left_out, *self.headers[own + 1 :])
        return DeadLetter(self.key, None, headers)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter that was read back.

    Attributes:
        partition: of the dead-letter topic.
        offset: in that partition.
        origin: where the message was read from when it was drained first.
        message_offset: its offset there.
        index: the place of the sub-message in its message.
        group: whose drain gave it up first.
        kind: ``sub-message``, ``barrier``, or the name of a class of the handler's own.
        key: the sub-key; its repr when ``key_encoding`` is not ``literal``.
        keys: all sub-keys when there were several; else None.
        key_encoding: ``literal`` when the sub-keys came back exactly, else ``repr``.
        payload: what the handler was given; its repr when that is the encoding, None when it was
            left out.
        payload_encoding: how the payload was written.
        whole: whether the payload was the message's value itself.
        attempts: how often the handler was asked, in all redrives before too.
        reason: one word for why it was given up.
        error_type, error_text: of the last error, cut to a sane length; None when there was none.
        handler: the reference of the handler that it was given up by first.
        drain_id: the drain or redrive that gave it up.
        time: when it did, ISO 8601.
        redrives: how often it had been redriven before.
        message_key, timestamp, headers: of the message.
    """

    partition: int
    offset: int
    origin: Origin
    message_offset: int
    index: int
    group: str
    kind: str
    key: Any
    keys: tuple[Hashable, ...] | None
    key_encoding: Encoding
    payload: Any
    payload_encoding: Encoding
    whole: bool
    attempts: int
    reason: str
    error_type: str | None
    error_text: str | None
    handler: str
    drain_id: str
    time: str
    redrives: int
    message_key: bytes | None
    timestamp: int | None
    headers: tuple[Header, ...]

    @property
    def id(self) -> str:
        """The id of the sub-message, as it was in the drain that gave it up."""
        place = f"{self.origin.partition}:{self.message_offset}:{self.index}"
        return f"{self.origin.topic_id}:{place}"

    @property
    def from_(self) -> From:
        """Topic, group and handler that it comes from, however often it was redriven since."""
        return self.origin.topic, self.group, self.handler

    @property
    def error(self) -> str:
        """``Type: text``; empty when there was no error."""
        return ": ".join(part for part in (self.error_type, self.error_text) if part)

    @property
    def key_texts(self) -> tuple[str, ...]:
        """The sub-keys as a person types them; a barrier has none."""
        if self.kind == _BARRIER:
            return ()
        if self.key_encoding is not Encoding.LITERAL:
            return (str(self.key),)
        keys = (self.key,) if self.keys is None else self.keys
        return tuple(key_text(key) for key in keys)

    @property
    def why_not_redriven(self) -> str | None:
        """Why the sub-message can't be recreated from this letter alone; None when it can."""
        if self.kind not in (_SUB_MESSAGE, _BARRIER):
            return f"it was a {self.kind}, a class of the handler's own"
        if self.key_encoding is not Encoding.LITERAL:
            return "its sub-key can't be written down exactly"
        if self.payload_encoding is Encoding.REPR:
            return "its payload can't be written down exactly"
        if self.payload_encoding is Encoding.LEFT_OUT:
            return "its payload was too large for the dead-letter topic"
        return None

    def sub_message(self) -> SubMessage:
        """The sub-message, as ``split`` gave it. Raises ValueError when it can't be recreated."""
        if reason := self.why_not_redriven:
            raise ValueError(reason)
        if self.kind == _BARRIER:
            return Barrier(self.payload)
        return SubMessage(self.key, self.payload, keys=self.keys)

    def masked(self) -> Letter:
        """To be shown: without personal data, if masking was asked for."""
        if not masking():
            return self
        literal = self.key_encoding is Encoding.LITERAL
        key = (
            self.message_key
            and mask_text(self.message_key.decode(errors="backslashreplace")).encode()
        )
        return replace(
            self,
            key=key_repr(self.key) if literal else mask_text(str(self.key)),
            keys=None if self.keys is None else tuple(map(key_repr, self.keys)),
            payload=None if self.payload is None else MASKED,
            error_text=self.error_text and MASKED,
            message_key=key,
            headers=tuple((name, value and MASKED.encode()) for name, value in self.headers),
        )

    def message(self) -> Message:
        """The message; its value is None unless the sub-message was the whole of it."""
        raw = self.payload_encoding in (Encoding.BYTES, Encoding.NULL)
        value = self.payload if self.whole and raw else None
        return Message(
            self.origin, self.message_offset, self.message_key, value, self.timestamp, self.headers
        )


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant: those that fit one of each kind that is given.

    Attributes:
        reasons: words that the reason is one of.
        sub_keys: texts that one of its sub-keys is, as ``key_text`` has it or as its repr.
        errors: texts that ``Type: text`` of its error contains; upper and lower case are one.
        topics: topics that it comes from.
        groups: groups whose drain gave it up first.
        handlers: references of handlers that it was given up by first.
    """

    reasons: tuple[str, ...] = ()
    sub_keys: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()

    def matches(self, letter: Letter) -> bool:
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.topics or letter.origin.topic in self.topics)
            and (not self.groups or letter.group in self.groups)
            and (not self.handlers or letter.handler in self.handlers)
            and (not self.sub_keys or any(key in self.sub_keys for key in _written_keys(letter)))
            and (
                not self.errors
                or any(text.casefold() in letter.error.casefold() for text in self.errors)
            )
        )


def default_dead_letter_topic(topic: str, group: str) -> str:
    """``TOPIC.GROUP.dead``: one name for each topic and group."""
    return name_of(topic, group, ".dead", TOPIC_CHARACTERS)


def key_text(key: Hashable) -> str:
    """A sub-key as a person types it: text as it is, bytes as UTF-8, others as Python has them.

    Text that isn't Unicode, with half of a surrogate pair, is one of the others.
    """
    try:
        if type(key) is str:
            return key.encode().decode()
        if type(key) is bytes:
            return key.decode()
    except UnicodeError:
        return repr(key)
    return as_literal(key)[0]


def dead_letter(
    sub: SubMessage,
    *,
    reason: str,
    error: BaseException | None,
    attempts: int,
    group: str,
    handler: str,
    drain_id: str,
    time: str,
    former: Letter | None = None,
) -> DeadLetter:
    """The letter of a sub-message that was given up on; never raises for what it holds.

    ``former`` is the letter that a redriven sub-message was made from: the new one tells of the
    same place, group and handler, and of one redrive more.
    """
    message = former.message() if former is not None else sub.message
    headers = _headers_of(message)
    key, key_is_exact = as_literal(sub.key)
    keys, keys_are_exact = as_literal(sub.keys)
    exact = key_is_exact and keys_are_exact
    value, encoding = encode_payload(sub.payload)
    whole = former.whole if former is not None else sub.payload is message.value
    topic, group, handler = (message.topic, group, handler) if former is None else former.from_
    own: list[str | bytes | int | None] = [
        FORMAT,
        topic,
        message.origin.topic_id,
        message.partition,
        message.offset,
        former.index if former is not None else sub.index,
        group,
        _KINDS.get(type(sub), type(sub).__name__),
        key,
        None if sub.keys is None else keys,
        Encoding.LITERAL if exact else Encoding.REPR,
        encoding,
        "true" if whole else "false",
        min(attempts, COUNT_MOST),
        reason,
        None if error is None else type(error).__name__[:TYPE_CHARACTERS],
        None if error is None else _text_of(error),
        handler,
        drain_id,
        time,
        0 if former is None else min(former.redrives + 1, COUNT_MOST),
        message.key,
        message.timestamp,
        len(headers),
    ]
    named = [(name, _as_bytes(content)) for name, content in zip(_OWN, own, strict=True)]
    return DeadLetter(_kafka_key(sub), value, (*named, *headers))


def read_letter(message: Message) -> Letter:
    """The dead letter that a record of a dead-letter topic is.

    Raises NotADeadLetter unless drainer could have written it as it is: whoever may write to the
    topic can make up anything.
    """
    try:
        own, headers = _own_headers(message)
        kind = _text(own, "kind")
        key_encoding = Encoding(_text(own, "sub-key-encoding"))
        key, keys = _sub_keys(own, key_encoding)
        if kind == _BARRIER and (key, keys) != (None, None):
            raise ValueError("a barrier has no sub-key")
        payload_encoding = Encoding(_text(own, "payload-encoding"))
        time = _text(own, "time")
        if datetime.fromisoformat(time).tzinfo is None:
            raise ValueError(f"{time} has no time zone")
        return Letter(
            partition=message.partition,
            offset=message.offset,
            origin=Origin(
                _name(own, "topic"),
                _name(own, "topic-id"),
                _number(own, "partition", _PARTITION_MOST),
            ),
            message_offset=_number(own, "offset"),
            index=_number(own, "index"),
            group=_text(own, "group"),
            kind=kind,
            key=key,
            keys=keys,
            key_encoding=key_encoding,
            payload=decode_payload(message.value, payload_encoding),
            payload_encoding=payload_encoding,
            whole={"true": True, "false": False}[_text(own, "whole")],
            attempts=_number(own, "attempts", COUNT_MOST),
            reason=_text(own, "reason"),
            error_type=_optional(own, "error-type"),
            error_text=_optional(own, "error"),
            handler=_text(own, "handler"),
            drain_id=_text(own, "drain-id"),
            time=time,
            redrives=_number(own, "redrives", COUNT_MOST),
            message_key=own["drainer.message-key"],
            timestamp=None
            if own["drainer.message-timestamp"] is None
            else _number(own, "message-timestamp", least=-_INT64_MOST),
            headers=headers,
        )
    except (ValueError, TypeError, LookupError, RecursionError, MemoryError) as error:
        raise NotADeadLetter(
            f"the dead letter at {message} is damaged: {_text_of(error)}",
            hint="look at the record with another tool; it is left alone",
        ) from None


_KINDS: dict[type, str] = {SubMessage: _SUB_MESSAGE, Barrier: _BARRIER}


def _kafka_key(sub: SubMessage) -> bytes:
    # Never null: records without a key are spread over all partitions.
    if isinstance(sub, Barrier):
        return _BARRIER.encode()
    key = sub.key if sub.keys is None else sub.keys[0]
    return key if type(key) is bytes else _as_bytes(key_text(key)) or b""


def _headers_of(message: Message) -> Sequence[Header]:
    try:
        return message.headers
    except HeadersUnreadable:  # they are still where the message came from
        return ()


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # it is the user's own code
        text = ""
    line = " ".join(text[: 4 * ERROR_CHARACTERS].split())
    return line if len(line) <= ERROR_CHARACTERS else line[: ERROR_CHARACTERS - 1] + "…"


def _as_bytes(content: str | bytes | int | None) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    return str(content).encode("utf-8", "backslashreplace")


def _own_headers(message: Message) -> tuple[Mapping[str, bytes | None], tuple[Header, ...]]:
    # What stands before our headers, or behind the message's, somebody else put there.
    headers = list(message.headers)
    names = [name for name, _ in headers]
    if _FORMAT not in names:
        raise NotADeadLetter(
            f"the record at {message} is not a dead letter of drainer's",
            hint="somebody else writes to this topic too; such records are left alone",
        )
    first = names.index(_FORMAT)
    if headers[first][1] != FORMAT.encode():
        said = (headers[first][1] or b"")[:TYPE_CHARACTERS].decode("utf-8", "replace")
        raise NotADeadLetter(
            f"the dead letter at {message} has the format {said}, and this version reads {FORMAT}",
            hint="read it with the version that wrote it",
        )
    last = first + len(_OWN)
    if tuple(names[first:last]) != _OWN:
        odd = next(name for at, name in enumerate(_OWN, first) if names[at : at + 1] != [name])
        raise ValueError(f"its header {odd} is missing or not in its place")
    own = dict(headers[first:last])
    behind = last + _number(own, "headers")
    if behind > len(headers):
        raise ValueError("headers of its message are missing")
    return own, tuple(headers[last:behind])


def _sub_keys(
    own: Mapping[str, bytes | None], encoding: Encoding
) -> tuple[Any, tuple[Hashable, ...] | None]:
    text, several = _text(own, "sub-key"), _optional(own, "sub-keys")
    if encoding is Encoding.REPR:
        return several or text, None
    if encoding is not Encoding.LITERAL:
        raise ValueError(f"a sub-key is never written as {encoding}")
    key = _as_written(text)
    keys = None if several is None else _as_written(several)
    hash((key, keys))
    if keys is not None and (
        type(keys) is not tuple or not keys or tuple(dict.fromkeys(keys)) != keys
    ):
        raise ValueError("its sub-keys must be different ones in a tuple")
    return key, keys


def _as_written(text: str) -> Any:
    # repr() is what wrote it: other words for the same value are not drainer's.
    value = from_literal(text)
    if as_literal(value) != (text, True):
        raise ValueError("a sub-key is not written as drainer writes it")
    return value


def _number(
    own: Mapping[str, bytes | None], name: str, most: int = _INT64_MOST, least: int = 0
) -> int:
    # int() takes signs, blanks, underscores and other alphabets; above 4,300 digits it raises.
    found = own[f"drainer.{name}"] or b""
    if _NUMBER.fullmatch(found) is None or not least <= int(found) <= most:
        raise ValueError(f"its header drainer.{name} must be a number from {least} to {most}")
    return int(found)


def _name(own: Mapping[str, bytes | None], name: str) -> str:
    found = _text(own, name)
    if _NAME.fullmatch(found) is None:
        raise ValueError(f"its header drainer.{name} must be letters, digits, dots, _ and -")
    return found


def _text(own: Mapping[str, bytes | None], name: str) -> str:
    found = _optional(own, name)
    if found is None:
        raise ValueError(f"its header drainer.{name} is null")
    return found


def _optional(own: Mapping[str, bytes | None], name: str) -> str | None:
    found = own[f"drainer.{name}"]
    return None if found is None else found.decode()


def _written_keys(letter: Letter) -> Iterator[str]:
    yield from letter.key_texts
    if letter.key_texts and letter.key_encoding is Encoding.LITERAL:
        keys: Sequence[Hashable] = (letter.key,) if letter.keys is None else letter.keys
        yield from map(repr, keys)
