"""Dead letters: sub-messages that were given up on, as the records that tell all about them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from drainer.core.failing.exact import (
    Encoding,
    as_literal,
    decode_payload,
    encode_payload,
    from_literal,
)
from drainer.errors import NotADeadLetter
from drainer.message import Barrier, Message, Origin, SubMessage

FORMAT = "drainer-dead-letter/1"
ERROR_CHARACTERS = 1000
TYPE_CHARACTERS = 200

Header = tuple[str, bytes | None]

_FORMAT = "drainer.format"  # the first of our headers
_HEADERS = "drainer.headers"  # the last: how many follow that were the message's own
_PAYLOAD_ENCODING = "drainer.payload-encoding"
_SUB_MESSAGE, _BARRIER = "sub-message", "barrier"


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
        handler: the handler's reference.
        drain_id: the drain that gave it up.
        time: when it did, ISO 8601.
        redrives: how often it had been redriven before.
        message_key, timestamp, headers: of the message.
    """

    partition: int
    offset: int
    origin: Origin
    message_offset: int
    index: int
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
        """Why the sub-message can't be made again from this letter alone; None when it can."""
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
        """The sub-message, as ``split`` gave it. Raises ValueError when it can't be made again."""
        if reason := self.why_not_redriven:
            raise ValueError(reason)
        if self.kind == _BARRIER:
            return Barrier(self.payload)
        return SubMessage(self.key, self.payload, keys=self.keys)

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
    """

    reasons: tuple[str, ...] = ()
    sub_keys: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def matches(self, letter: Letter) -> bool:
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.sub_keys or any(key in self.sub_keys for key in _written_keys(letter)))
            and (
                not self.errors
                or any(text.casefold() in letter.error.casefold() for text in self.errors)
            )
        )


def default_dead_letter_topic(topic: str, group: str) -> str:
    """``TOPIC.GROUP.dead``; what a topic's name may not hold becomes a hyphen."""
    allowed = (c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in group)
    return f"{topic}.{''.join(allowed)}.dead"


def key_text(key: Hashable) -> str:
    """A sub-key as a person types it: text as it is, bytes as UTF-8, others as Python has them."""
    if type(key) is str:
        return key
    if type(key) is bytes:
        try:
            return key.decode()
        except UnicodeDecodeError:
            return repr(key)
    return as_literal(key)[0]


def dead_letter(
    sub: SubMessage,
    *,
    reason: str,
    error: BaseException | None,
    attempts: int,
    handler: str,
    drain_id: str,
    time: str,
    former: Letter | None = None,
) -> DeadLetter:
    """The letter of a sub-message that was given up on; never raises for what it holds.

    ``former`` is the letter that a redriven sub-message was made from: the new one tells of the
    same place, and of one redrive more.
    """
    message = former.message() if former is not None else sub.message
    key, key_is_exact = as_literal(sub.key)
    keys, keys_are_exact = as_literal(sub.keys)
    exact = key_is_exact and keys_are_exact
    value, encoding = encode_payload(sub.payload)
    whole = former.whole if former is not None else sub.payload is message.value
    own: list[tuple[str, str | bytes | int | None]] = [
        (_FORMAT, FORMAT),
        ("drainer.topic", message.topic),
        ("drainer.topic-id", message.origin.topic_id),
        ("drainer.partition", message.partition),
        ("drainer.offset", message.offset),
        ("drainer.index", former.index if former is not None else sub.index),
        ("drainer.kind", _KINDS.get(type(sub), type(sub).__name__)),
        ("drainer.sub-key", key),
        ("drainer.sub-keys", None if sub.keys is None else keys),
        ("drainer.sub-key-encoding", Encoding.LITERAL if exact else Encoding.REPR),
        (_PAYLOAD_ENCODING, encoding),
        ("drainer.whole", "true" if whole else "false"),
        ("drainer.attempts", attempts),
        ("drainer.reason", reason),
        ("drainer.error-type", None if error is None else type(error).__name__[:TYPE_CHARACTERS]),
        ("drainer.error", None if error is None else _text_of(error)),
        ("drainer.handler", handler),
        ("drainer.drain-id", drain_id),
        ("drainer.time", time),
        ("drainer.redrives", 0 if former is None else former.redrives + 1),
        ("drainer.message-key", message.key),
        ("drainer.message-timestamp", message.timestamp),
        (_HEADERS, len(message.headers)),
    ]
    headers = [(name, _as_bytes(content)) for name, content in own]
    return DeadLetter(_kafka_key(sub), value, (*headers, *message.headers))


def read_letter(message: Message) -> Letter:
    """The dead letter that a record of a dead-letter topic is.

    Raises NotADeadLetter when it is none of drainer's, or damaged.
    """
    own, headers = _own_headers(message)
    try:
        key_encoding = Encoding(_text(own, "sub-key-encoding"))
        key: Any = _text(own, "sub-key")
        keys_text = _optional(own, "sub-keys")
        keys = None
        if key_encoding is Encoding.LITERAL:
            key = from_literal(key)
            keys = None if keys_text is None else tuple(from_literal(keys_text))
            hash((key, keys))
        else:
            key = keys_text or key
        payload_encoding = Encoding(_text(own, "payload-encoding"))
        timestamp = _optional(own, "message-timestamp")
        return Letter(
            partition=message.partition,
            offset=message.offset,
            origin=Origin(
                _text(own, "topic"), _text(own, "topic-id"), int(_text(own, "partition"))
            ),
            message_offset=int(_text(own, "offset")),
            index=int(_text(own, "index")),
            kind=_text(own, "kind"),
            key=key,
            keys=keys,
            key_encoding=key_encoding,
            payload=decode_payload(message.value, payload_encoding),
            payload_encoding=payload_encoding,
            whole=_text(own, "whole") == "true",
            attempts=int(_text(own, "attempts")),
            reason=_text(own, "reason"),
            error_type=_optional(own, "error-type"),
            error_text=_optional(own, "error"),
            handler=_text(own, "handler"),
            drain_id=_text(own, "drain-id"),
            time=_text(own, "time"),
            redrives=int(_optional(own, "redrives") or 0),
            message_key=own.get("drainer.message-key"),
            timestamp=None if timestamp is None else int(timestamp),
            headers=headers,
        )
    except KeyError as error:
        raise _damaged(message, f"it has no header {error.args[0]}") from None
    except (ValueError, TypeError) as error:
        raise _damaged(message, str(error)) from None


_KINDS: dict[type, str] = {SubMessage: _SUB_MESSAGE, Barrier: _BARRIER}


def _kafka_key(sub: SubMessage) -> bytes:
    # Never null: records without a key are spread over all partitions.
    if isinstance(sub, Barrier):
        return _BARRIER.encode()
    key = sub.key if sub.keys is None else sub.keys[0]
    return key if type(key) is bytes else _as_bytes(key_text(key)) or b""


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


def _own_headers(message: Message) -> tuple[dict[str, bytes | None], tuple[Header, ...]]:
    # What stands before our headers, or behind the message's, somebody else put there.
    headers = list(message.headers)
    names = [name for name, _ in headers]
    if _FORMAT not in names:
        raise NotADeadLetter(
            f"the record at {message} is no dead letter of drainer's",
            hint="somebody else writes to this topic too; such records are left alone",
        )
    first = names.index(_FORMAT)
    if headers[first][1] != FORMAT.encode():
        said = (headers[first][1] or b"").decode("utf-8", "replace")
        raise NotADeadLetter(
            f"the dead letter at {message} has the format {said}, and this version reads {FORMAT}",
            hint="read it with the version that wrote it",
        )
    if _HEADERS not in names[first:]:
        raise _damaged(message, f"it has no header {_HEADERS}")
    last = names.index(_HEADERS, first) + 1
    own = dict(headers[first:last])
    count = own[_HEADERS] or b""
    if not count.isdigit() or last + int(count) > len(headers):
        raise _damaged(message, "headers of its message are missing")
    return own, tuple(headers[last : last + int(count)])


def _text(own: dict[str, bytes | None], name: str) -> str:
    found = _optional(own, name)
    if found is None:
        raise KeyError(f"drainer.{name}")
    return found


def _optional(own: dict[str, bytes | None], name: str) -> str | None:
    found = own.get(f"drainer.{name}")
    return None if found is None else found.decode()


def _written_keys(letter: Letter) -> Iterator[str]:
    yield from letter.key_texts
    if letter.key_texts and letter.key_encoding is Encoding.LITERAL:
        keys: Sequence[Hashable] = (letter.key,) if letter.keys is None else letter.keys
        yield from map(repr, keys)


def _damaged(message: Message, what: str) -> NotADeadLetter:
    return NotADeadLetter(
        f"the dead letter at {message} is damaged: {what}",
        hint="look at the record with another tool; it is left alone",
    )
