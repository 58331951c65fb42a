"""Dead letters: sub-messages that were given up on, as records that Kafka keeps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from msgspec import Meta

from drainer.errors import NotADeadLetter, OtherFormat
from drainer.message import Barrier, Header, HeadersUnreadable, Message, Origin, SubMessage, Unsplit
from drainer.model import codec
from drainer.model.codec import WHOLE_MOST, JsonRecord, Milliseconds, Whole
from drainer.model.order import key_text
from drainer.model.sub_messages import is_sub_key
from drainer.model.terms import LetterFilter, Terms, name_of
from drainer.policy.exact_json import (
    FOUND,
    Encoding,
    as_literal,
    decode_payload,
    encode_payload,
    from_literal,
)
from drainer.text.escape import encodable, foreign
from drainer.text.mask import (
    ERROR_CHARACTERS,
    MASKED,
    TYPE_CHARACTERS,
    class_name,
    error_text,
    key_repr,
    mask_text,
    masking,
)

FORMAT = "drainer-dead-letter/2"  # the header that has the provenance
RECEIPT = "drainer-redriven/1"  # the header of a record of a redrive (letters/receipts)
TOPIC_CHARACTERS = 249  # that Kafka allows in a topic's name
TOPIC_NAME = rf"^[a-zA-Z0-9._-]{{1,{TOPIC_CHARACTERS}}}\Z"
PLACE_OF_LETTER = "letter:"  # begins a topic id if the place is that of a letter, in this topic
KEY_CHARACTERS = 16_384  # of a sub-key that can be redriven: a letter has it twice

_Text = Annotated[str, Meta(max_length=4096)]
_Name = Annotated[str, Meta(max_length=32_767)]  # of a group: a path and what is in it is shorter
From = tuple[str, str, str]  # the topic, group and handler of the drain that gave it up first

_FORMATS = FORMAT.partition("/")[0]
OWN_HEADERS = _FORMATS, RECEIPT.partition("/")[0]  # beginnings, in any version
_SUB_MESSAGE, _BARRIER, _MESSAGE = "sub-message", "barrier", "message"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for the dead-letter topic.

    ``key`` is the sub-key, so that all letters of one lane go to one partition: bytes as they are,
    text in UTF-8, anything else as its repr. Of several sub-keys it is the first.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def lacks_payload(self) -> bool:
        """Whether the payload was left out, so that ``split`` must make it again."""
        return self.value is None and self._provenance.payload_encoding is Encoding.LEFT_OUT

    def without_payload(self) -> DeadLetter:
        """Letter for a topic that doesn't take one so large."""
        provenance = replace(self._provenance, payload_encoding=Encoding.LEFT_OUT)
        return DeadLetter(self.key, None, (provenance.as_header(), *self.headers[1:]))

    def smaller(self) -> DeadLetter | None:
        """Letter without its payload, then without keys and headers; None of the least."""
        if self.value is not None:
            return self.without_payload()
        if self.key is None and len(self.headers) == 1:
            return None
        known = self._provenance
        provenance = replace(
            known,
            payload_encoding=Encoding.LEFT_OUT,
            sub_key=known.sub_key[:TYPE_CHARACTERS],
            sub_key_exact=known.sub_key_exact and len(known.sub_key) <= TYPE_CHARACTERS,
            message_key=None,
            message_headers=0,
        )
        return DeadLetter(None, None, (provenance.as_header(),))

    @property
    def _provenance(self) -> Provenance:
        return codec.decode(self.headers[0][1] or b"", Provenance)


@dataclass(frozen=True, slots=True)
class Provenance(JsonRecord):
    """Origin and failure of a sub-message: the first header of its dead letter, as JSON."""

    # topic, topic_id, message_partition, message_offset: where the message was read from when it
    # was drained first.
    topic: Annotated[str, Meta(pattern=TOPIC_NAME)]
    topic_id: _Text
    message_partition: Whole
    message_offset: Whole
    # The place of the sub-message in its message.
    index: Whole
    # Whose drain gave it up first.
    group: _Name
    # The reference of the handler that it was given up by first.
    handler: _Name
    # ``sub-message``, ``barrier``, ``message`` for a whole one that ``split`` rejected, or the name
    # of a class of the handler's own.
    kind: _Text
    # Its repr; that of the tuple of all of them when there are ``several``.
    sub_key: str
    several: bool
    # Whether the repr gives the sub-key back exactly.
    sub_key_exact: bool
    # How the payload was written.
    payload_encoding: Encoding
    # Whether the payload was the message's value itself, or its meaning.
    whole: bool
    # How often the handler was called, in all redrives before too.
    attempts: Whole
    # One word for why it was given up.
    reason: _Text
    # error_type, error_text: of the last error, cut to a sane length; None when there was none.
    error_type: _Text | None
    error_text: _Text | None
    # The drain or redrive that gave it up.
    drain_id: _Text
    # When it did, ISO 8601.
    time: _Text
    # How often it had been redriven before.
    redrives: Whole
    message_key: bytes | None
    timestamp: Milliseconds | None
    # How many headers of the message follow; any others are somebody else's.
    message_headers: Whole

    def as_header(self) -> Header:
        return FORMAT, codec.encode(self)


@dataclass(frozen=True, slots=True)
class Described:
    """Fields of a letter that describe its sub-message."""

    index: int
    kind: str
    sub_key: str
    several: bool
    sub_key_exact: bool
    whole: bool
    key: Any
    keys: tuple[Hashable, ...] | None

    @classmethod
    def of(cls, sub: SubMessage, message: Message) -> Described:
        """Describe a sub-message as ``split`` gave it."""
        text, exact = as_literal(sub.key if sub.keys is None else sub.keys)
        return cls(
            sub.index,
            _KINDS.get(type(sub)) or foreign(type(sub).__name__, TYPE_CHARACTERS),
            encodable(text),
            sub.keys is not None,
            exact and len(text) <= KEY_CHARACTERS,
            message.is_payload(sub),
            sub.key,
            sub.keys,
        )


@dataclass(frozen=True, slots=True)
class Letter(Provenance):
    """A dead letter that was read back."""

    # partition, offset: its place in the dead-letter topic.
    partition: int
    offset: int
    # The sub-key; its repr when that is not exact, None when there are several.
    key: Any
    # All sub-keys when there are several; else None.
    keys: tuple[Hashable, ...] | None
    # What the handler was given; its repr or the bytes that it was decoded from when that is the
    # encoding, None when it was left out.
    payload: Any
    # Of the message.
    headers: tuple[Header, ...]

    @property
    def id(self) -> str:
        """The id of the sub-message, as it was in the drain that gave it up."""
        return f"{self.topic_id}:{self.message_partition}:{self.message_offset}:{self.index}"

    @property
    def place(self) -> str:
        """The place of its message, topic/partition/offset; only the topic if no more is known."""
        if self.topic_id.startswith(PLACE_OF_LETTER):
            return self.topic
        return f"{self.topic}/{self.message_partition}/{self.message_offset}"

    @property
    def from_(self) -> From:
        """Topic, group and handler that it comes from, however often it was redriven since."""
        return self.topic, self.group, self.handler

    @property
    def error(self) -> str:
        """``Type: text``; empty when there was no error."""
        return ": ".join(part for part in (self.error_type, self.error_text) if part)

    @property
    def is_message(self) -> bool:
        """Whether it is a whole message, which ``split`` rejected."""
        return self.kind == _MESSAGE

    @property
    def has_value(self) -> bool:
        """Whether it has the value of its message."""
        raw = self.payload_encoding in (Encoding.BYTES, Encoding.NULL, *_OF_MESSAGE)
        return self.whole and raw

    @property
    def lacks_message(self) -> bool:
        """Whether its payload was left out, but may be read again at the place of its message."""
        of_letter = self.topic_id.startswith(PLACE_OF_LETTER)
        return self.payload_encoding is Encoding.LEFT_OUT and not of_letter

    @property
    def key_texts(self) -> tuple[str, ...]:
        """The sub-keys as a person types them; a barrier and a whole message have none."""
        if self.kind in (_BARRIER, _MESSAGE):
            return ()
        keys = (self.key,) if self.keys is None else self.keys
        return tuple(key_text(key) for key in keys) if self.sub_key_exact else (self.key,)

    def matches(self, wanted: LetterFilter) -> bool:
        """Whether it fits each kind of text that the filter has."""
        error = self.error.casefold()
        return (
            (not wanted.reasons or self.reason in wanted.reasons)
            and set(wanted.sources) <= set(self.from_)
            and (not wanted.sub_keys or any(key in wanted.sub_keys for key in self.key_texts))
            and (not wanted.errors or any(text.casefold() in error for text in wanted.errors))
        )

    @property
    def why_not_redriven(self) -> str | None:
        """The reason why it can't be recreated. None if it can, even if that needs its original."""
        if self.payload_encoding is Encoding.FORBIDDEN:
            return f"this user may not read its original: it needs READ on topic {self.topic}"
        if self.payload_encoding in (Encoding.LEFT_OUT, *FOUND):
            return None if self.lacks_message else _NO_ORIGINAL.get(self.payload_encoding)
        if self.kind not in (_SUB_MESSAGE, _BARRIER, _MESSAGE):
            return f"it was a {self.kind}, a class of the handler"
        if not self.sub_key_exact:
            return "drainer can't write its sub-key exactly"
        if self.payload_encoding is Encoding.REPR:
            return "drainer can't write its payload exactly"
        return None

    def sub_message(self) -> SubMessage:
        """The sub-message, as ``split`` gave it. Raises ValueError when it can't be recreated."""
        if reason := self.why_not_redriven:
            raise ValueError(reason)
        if self.kind == _BARRIER:
            return Barrier(self.payload)
        return SubMessage(self.key, self.payload, keys=self.keys)

    def of_part(self, sub: SubMessage, message: Message) -> Letter:
        """Return this letter for a sub-message that ``split`` made of its message."""
        found = Described.of(sub, message)
        return replace(self, **{each.name: getattr(found, each.name) for each in fields(found)})

    def is_of(self, sub: SubMessage, message: Message) -> bool:
        """Whether a sub-message at its index seems to be the one that it was written for."""
        found = Described.of(sub, message)
        size = None if self.sub_key_exact else len(self.sub_key)  # it may be cut
        return (found.kind, found.sub_key[:size]) == (self.kind, self.sub_key)

    def masked(self) -> Letter:
        """Letter to be shown: without personal data, if masking is on."""
        if not masking():
            return self
        shown = key_repr if self.sub_key_exact else mask_text
        key = (self.message_key or b"").decode(errors="backslashreplace")
        return replace(
            self,
            sub_key=mask_text(self.sub_key),
            key=shown(self.key),
            keys=None if self.keys is None else tuple(map(key_repr, self.keys)),
            payload=None if self.payload is None else MASKED,
            error_text=self.error_text and MASKED,
            message_key=self.message_key and mask_text(key).encode(),
            headers=tuple((name, value and MASKED.encode()) for name, value in self.headers),
        )

    def message(self) -> Message:
        """Return the message.

        Its value is None unless the letter has the whole value, or the original was read again.
        """
        known = self.has_value or self.payload_encoding is Encoding.ORIGINAL
        value = self.payload if known else None
        origin = Origin(self.topic, self.topic_id, self.message_partition)
        return Message(
            origin, self.message_offset, self.message_key, value, self.timestamp, self.headers
        )


def default_dead_letter_topic(topic: str, group: str) -> str:
    """``TOPIC.GROUP.dead``: one name for each topic and group."""
    return name_of(topic, group, ".dead", TOPIC_CHARACTERS)


def dead_letter(
    sub: SubMessage,
    *,
    reason: str,
    error: BaseException | None,
    attempts: int,
    terms: Terms,
    time: str,
    former: Letter | None = None,
) -> DeadLetter:
    """The letter of a sub-message that a drain gave up; raises for nothing that it contains.

    ``former`` is the letter that a redriven sub-message was made from: the new one names the
    same place, group and handler, and of one redrive more.
    """
    message = former.message() if former is not None else sub.message
    known = former or Described.of(sub, message)
    headers = _headers_of(message)
    again = former is not None and former.payload_encoding in _OF_MESSAGE
    if known.whole and (again or sub.content is not message.value):
        value, encoding = message.value, Encoding.RAW
    elif isinstance(sub, Unsplit) and known.kind != _MESSAGE:  # a part of what split now rejects
        value, encoding = None, Encoding.LEFT_OUT
    else:
        value, encoding = encode_payload(sub.content)
    here = message.topic, terms.group, terms.handler
    topic, group, handler = here if former is None else former.from_
    provenance = Provenance(
        topic=topic,
        topic_id=message.origin.topic_id,
        message_partition=message.partition,
        message_offset=message.offset,
        index=known.index,
        group=group,
        handler=handler,
        kind=known.kind,
        sub_key=known.sub_key,
        several=known.several,
        sub_key_exact=known.sub_key_exact,
        payload_encoding=encoding,
        whole=known.whole,
        attempts=min(attempts, WHOLE_MOST),  # whoever may write a letter can write any number
        reason=reason,
        error_type=None if error is None else class_name(error),
        error_text=None if error is None else error_text(error, ERROR_CHARACTERS, whole=True),
        drain_id=terms.drain_id,
        time=time,
        redrives=0 if former is None else former.redrives + 1,
        message_key=message.key,
        timestamp=message.timestamp,
        message_headers=len(headers),
    )
    return DeadLetter(_kafka_key(known, message), value, (provenance.as_header(), *headers))


def read_letter(message: Message) -> Letter:
    """The dead letter that a record of a dead-letter topic is.

    Raises NotADeadLetter unless drainer could have written it as it is: whoever may write to the
    topic can make up anything.
    """
    try:
        known, headers = _split_headers(message)
        if not known.drain_id:
            raise ValueError("it names no drain")
        key: Any = _as_written(known.sub_key) if known.sub_key_exact else known.sub_key
        if known.several and known.sub_key_exact and not _are_several(key):
            raise ValueError("its sub-keys must be different ones in a tuple")
        several = known.several and known.sub_key_exact
        if known.payload_encoding is Encoding.RAW and not known.whole:
            raise ValueError("only a whole message can be raw")
        return Letter(
            **{each.name: getattr(known, each.name) for each in fields(known)},
            partition=message.partition,
            offset=message.offset,
            key=None if several else key,
            keys=key if several else None,
            payload=decode_payload(message.value, known.payload_encoding),
            headers=headers,
        )
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NotADeadLetter(
            f"the dead letter at {message} is damaged: {error_text(error)}",
            hint="Check the record with another tool. drainer leaves it alone.",
        ) from None


_OF_MESSAGE = Encoding.RAW, Encoding.ORIGINAL  # the payload is the message's value
_NO_ORIGINAL = {
    Encoding.LEFT_OUT: "its payload did not fit: only the letter that was redriven has it",
    Encoding.GONE: "retention or compaction deleted its original",
    Encoding.ELSEWHERE: "its original is not on this cluster",
}
ReadLetter = Callable[[Message], Letter]  # raises NotADeadLetter
_KINDS: dict[type, str] = {SubMessage: _SUB_MESSAGE, Barrier: _BARRIER, Unsplit: _MESSAGE}


def _kafka_key(known: Described | Letter, message: Message) -> bytes | None:
    if known.kind == _MESSAGE:
        return message.key
    # Never null: records without a key are spread over all partitions.
    if known.kind == _BARRIER:
        return _BARRIER.encode()
    key = known.key if known.keys is None else known.keys[0]
    return key if type(key) is bytes else key_text(key).encode("utf-8", "backslashreplace")


def _headers_of(message: Message) -> Sequence[Header]:
    try:
        return message.headers
    except HeadersUnreadable:  # they are still where the message came from
        return ()


def _split_headers(message: Message) -> tuple[Provenance, tuple[Header, ...]]:
    # What stands before our header, or behind the message's, somebody else put there.
    headers = list(message.headers)
    for first, (name, value) in enumerate(headers):
        if name == FORMAT:
            found = codec.decode(value or b"", Provenance)
            behind = first + 1 + found.message_headers
            if behind > len(headers):
                raise ValueError("headers of its message are missing")
            return found, tuple(headers[first + 1 : behind])
        if name.startswith(_FORMATS):
            raise OtherFormat(
                f"the dead letter at {message} has the format {name}, but this version reads"
                f" {FORMAT}",
                hint="Read it with the drainer version that wrote it.",
            )
        if name == RECEIPT:
            raise NotADeadLetter(
                f"the record at {message} is the receipt of a redrive",
                hint="Give a place that `drainer dead list` prints.",
            )
    raise NotADeadLetter(
        f"the record at {message} is not a dead letter that drainer wrote",
        hint="Check which other program writes to this topic. drainer leaves such records alone.",
    )


def _as_written(text: str) -> Any:
    # repr() is what wrote it: other words for the same value are not drainer's.
    if len(text) > KEY_CHARACTERS:
        raise ValueError("a sub-key is longer than drainer writes it")
    value = from_literal(text)
    if not is_sub_key(value):
        raise ValueError("a sub-key has a type that no split can give")
    # By their code points: which characters repr() shows as they are depends on Python's version.
    if ascii(value).encode() != text.encode("ascii", "backslashreplace"):
        raise ValueError("a sub-key is not written as drainer writes it")
    return value


def _are_several(keys: object) -> bool:
    return type(keys) is tuple and keys != () and tuple(dict.fromkeys(keys)) == keys
