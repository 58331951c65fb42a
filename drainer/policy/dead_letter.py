"""Dead letters: records in Kafka that keep the sub-messages that drains gave up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from msgspec import Meta

from drainer.errors import NotADeadLetter, OtherFormat, raised_as
from drainer.message import Barrier, Header, HeadersUnreadable, Message, Origin, SubMessage, Unsplit
from drainer.model import codec
from drainer.model.codec import WHOLE_MOST, JsonRecord, Milliseconds, Whole
from drainer.model.formats import LETTER, RECEIPT
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

HEADER = str(LETTER)  # It has the provenance.
TOPIC_CHARACTERS = 249  # The length of the longest name that Kafka allows for a topic.
_DEAD = ".dead"  # The default name of a dead-letter topic ends so.
TOPIC_NAME = rf"^[a-zA-Z0-9._-]{{1,{TOPIC_CHARACTERS}}}\Z"
# A topic id that begins with this means that the place of the message is not known, so that the
# place of its letter is used instead. The rest of the id is the name of the letter's topic.
PLACE_OF_LETTER = "letter:"
# A longer sub-key can't be redriven. A letter has the sub-key twice, so it must not be too large.
KEY_CHARACTERS = 16_384

_Text = Annotated[str, Meta(max_length=4096)]
# No name of a group is longer than this, and no reference of a handler, which consists of a path
# and a name.
_Name = Annotated[str, Meta(max_length=32_767)]
# The topic, group and handler of the drain that first gave a sub-message up.
From = tuple[str, str, str]

# The names of drainer's own headers begin with one of these, whatever the version.
OWN_HEADERS = LETTER.family, RECEIPT.family
_SUB_MESSAGE, _BARRIER, _MESSAGE = "sub-message", "barrier", "message"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for the dead-letter topic.

    ``key`` is the sub-key, so that all letters of one lane go to one partition. If there are
    several sub-keys, it is the first. Bytes are kept, text is encoded in UTF-8, and anything else
    is written as its repr.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @property
    def lacks_payload(self) -> bool:
        """Whether the payload was left out.

        If so, ``split`` must make it from the message again.
        """
        return self.value is None and self._provenance.payload_encoding is Encoding.LEFT_OUT

    def without_payload(self) -> DeadLetter:
        """Return the letter without its payload, for a topic that rejects it as too large."""
        provenance = replace(self._provenance, payload_encoding=Encoding.LEFT_OUT)
        return DeadLetter(self.key, None, (provenance.as_header(), *self.headers[1:]))

    def smaller(self) -> DeadLetter | None:
        """Return the next smaller form of the letter; None if there is none.

        The first form leaves out the payload. The second also leaves out keys and headers.
        """
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
    """The origin and the failure of a sub-message. The first header of its dead letter has it as
    JSON."""

    # topic, topic_id, message_partition, message_offset: the place from which the message was read
    # when it was first drained.
    topic: Annotated[str, Meta(pattern=TOPIC_NAME)]
    topic_id: _Text
    message_partition: Whole
    message_offset: Whole
    # The place of the sub-message in its message.
    index: Whole
    # The group of the drain that first gave the sub-message up.
    group: _Name
    # The reference of the handler of the drain that first gave the sub-message up.
    handler: _Name
    # ``sub-message``; ``barrier``; ``message`` for a whole message that ``split`` rejected; or the
    # name of the handler's own class of sub-messages.
    kind: _Text
    # The repr of the sub-key. If there are ``several``, it is the repr of a tuple of all of them.
    sub_key: str
    several: bool
    # Whether the sub-key can be recreated exactly from its repr.
    sub_key_exact: bool
    # The form in which the payload was written.
    payload_encoding: Encoding
    # Whether the payload was the whole value of the message, as it was or decoded.
    whole: bool
    # The number of calls of the handler, including those in earlier redrives.
    attempts: Whole
    # The reason, in one word, why the sub-message was given up.
    reason: _Text
    # error_type, error_text: the last error, cut to a limited length; None if there was no error.
    error_type: _Text | None
    error_text: _Text | None
    # The id of the drain or redrive that wrote the letter.
    drain_id: _Text
    # The time at which the sub-message was given up, ISO 8601.
    time: _Text
    # The number of earlier redrives of the sub-message.
    redrives: Whole
    message_key: bytes | None
    timestamp: Milliseconds | None
    # The number of the message's own headers, which follow this one. Other programs have added any
    # further headers.
    message_headers: Whole

    def as_header(self) -> Header:
        return HEADER, codec.encode(self)


@dataclass(frozen=True, slots=True)
class Described:
    """The fields of a letter that describe its sub-message."""

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
    """A dead letter that was read from its topic."""

    # partition, offset: the place of the letter in the dead-letter topic.
    partition: int
    offset: int
    # The sub-key; its repr if it can't be recreated exactly; None if there are several.
    key: Any
    # All sub-keys if there are several; otherwise None.
    keys: tuple[Hashable, ...] | None
    # The payload that the handler was given. It depends on the encoding: it may also be the repr of
    # that payload, or the bytes that it was decoded from. It is None if it was left out.
    payload: Any
    # The headers of the message.
    headers: tuple[Header, ...]

    @property
    def id(self) -> str:
        """The id that the sub-message had in the drain that gave it up."""
        return f"{self.topic_id}:{self.message_partition}:{self.message_offset}:{self.index}"

    @property
    def place(self) -> str:
        """The place of the message, ``topic/partition/offset``; or only the topic."""
        if self.topic_id.startswith(PLACE_OF_LETTER):
            return self.topic
        return f"{self.topic}/{self.message_partition}/{self.message_offset}"

    @property
    def from_(self) -> From:
        """The topic, group and handler of the drain that gave it up before any redrive."""
        return self.topic, self.group, self.handler

    @property
    def error(self) -> str:
        """The error, as ``Type: text``; empty when there was no error."""
        return ": ".join(part for part in (self.error_type, self.error_text) if part)

    @property
    def is_message(self) -> bool:
        """Whether the letter is for a whole message, which ``split`` rejected."""
        return self.kind == _MESSAGE

    @property
    def has_value(self) -> bool:
        """Whether the letter has the value of its message."""
        raw = self.payload_encoding in (Encoding.BYTES, Encoding.NULL, *_OF_MESSAGE)
        return self.whole and raw

    @property
    def lacks_message(self) -> bool:
        """Whether the letter has no payload, but its message may still be read at its place."""
        of_letter = self.topic_id.startswith(PLACE_OF_LETTER)
        return self.payload_encoding is Encoding.LEFT_OUT and not of_letter

    @property
    def key_texts(self) -> tuple[str, ...]:
        """The sub-keys as a person types them. A barrier and a whole message have none."""
        if self.kind in (_BARRIER, _MESSAGE):
            return ()
        keys = (self.key,) if self.keys is None else self.keys
        return tuple(key_text(key) for key in keys) if self.sub_key_exact else (self.key,)

    def matches(self, wanted: LetterFilter) -> bool:
        """Return whether the letter matches a filter. Empty fields of the filter match anything."""
        error = self.error.casefold()
        return (
            (not wanted.reasons or self.reason in wanted.reasons)
            and set(wanted.sources) <= set(self.from_)
            and (not wanted.sub_keys or any(key in wanted.sub_keys for key in self.key_texts))
            and (not wanted.errors or any(text.casefold() in error for text in wanted.errors))
        )

    @property
    def why_not_redriven(self) -> str | None:
        """The reason why the sub-message can't be recreated; None if it can.

        It is also None if recreating it needs the original message.
        """
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
        """Recreate the sub-message as ``split`` gave it.

        Raises ValueError if that is impossible.
        """
        if reason := self.why_not_redriven:
            raise ValueError(reason)
        if self.kind == _BARRIER:
            return Barrier(self.payload)
        return SubMessage(self.key, self.payload, keys=self.keys)

    def of_part(self, sub: SubMessage, message: Message) -> Letter:
        """Return a copy of this letter that is about one sub-message of its message."""
        found = Described.of(sub, message)
        return replace(self, **{each.name: getattr(found, each.name) for each in fields(found)})

    def is_of(self, sub: SubMessage, message: Message) -> bool:
        """Return whether a sub-message seems to be the one that the letter was written for.

        The sub-message must have the same index.
        """
        found = Described.of(sub, message)
        # A sub-key that is not exact may have been cut.
        size = None if self.sub_key_exact else len(self.sub_key)
        return (found.kind, found.sub_key[:size]) == (self.kind, self.sub_key)

    def masked(self) -> Letter:
        """Return the letter in the form to be shown. If masking is on, it has no personal data."""
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
        """Return the message that the sub-message came from.

        Its value is None unless the letter has the whole value or the original was read again.
        """
        known = self.has_value or self.payload_encoding is Encoding.ORIGINAL
        value = self.payload if known else None
        origin = Origin(self.topic, self.topic_id, self.message_partition)
        return Message(
            origin, self.message_offset, self.message_key, value, self.timestamp, self.headers
        )


def default_dead_letter_topic(topic: str, group: str) -> str:
    """Return ``TOPIC.GROUP.dead``. Each pair of topic and group has a name of its own."""
    return name_of(topic, group, _DEAD, TOPIC_CHARACTERS)


def default_dead_letter_topics(topic: str, names: Iterable[str]) -> list[str]:
    """Return those of the names that a group's default dead-letter topic for ``topic`` may have."""
    return sorted(each for each in names if each.startswith(f"{topic}.") and each.endswith(_DEAD))


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
    """Make the letter of a sub-message that a drain gave up.

    This raises no error, whatever the sub-message contains. ``former`` is the letter that a
    redriven sub-message was made from. The new letter then names the same place, group and handler,
    and counts one redrive more.
    """
    message = former.message() if former is not None else sub.message
    known = former or Described.of(sub, message)
    headers = _headers_of(message)
    again = former is not None and former.payload_encoding in _OF_MESSAGE
    if known.whole and (again or sub.content is not message.value):
        value, encoding = message.value, Encoding.RAW
    elif isinstance(sub, Unsplit) and known.kind != _MESSAGE:
        # The letter was for a part of a message that ``split`` now rejects.
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
        # A letter may be forged with any number of attempts, so the sum is bounded.
        attempts=min(attempts, WHOLE_MOST),
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
    """Read a record of a dead-letter topic as a dead letter.

    Raises NotADeadLetter unless drainer could have written the record in this form, because anybody
    who may write to the topic can make up letters.
    """
    try:
        known, headers = _split_headers(message)
        if not known.drain_id:
            raise ValueError("it names no drain")
        key: Any = _as_written(known.sub_key) if known.sub_key_exact else known.sub_key
        several = known.several and known.sub_key_exact
        if several and not (type(key) is tuple and key and tuple(dict.fromkeys(key)) == key):
            raise ValueError("its sub-keys must be different ones in a tuple")
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


_OF_MESSAGE = Encoding.RAW, Encoding.ORIGINAL  # With these, the payload is the message's value.
_NO_ORIGINAL = {
    Encoding.LEFT_OUT: "its payload did not fit: only the letter that was redriven has it",
    Encoding.GONE: "retention or compaction deleted its original",
    Encoding.ELSEWHERE: "its original is not on this cluster",
}
ReadLetter = Callable[[Message], Letter]  # Raises NotADeadLetter for any other record.
_KINDS: dict[type, str] = {SubMessage: _SUB_MESSAGE, Barrier: _BARRIER, Unsplit: _MESSAGE}


def _kafka_key(known: Described | Letter, message: Message) -> bytes | None:
    if known.kind == _MESSAGE:
        return message.key
    # The key must not be null, because Kafka spreads records without a key over all partitions.
    if known.kind == _BARRIER:
        return _BARRIER.encode()
    key = known.key if known.keys is None else known.keys[0]
    return key if type(key) is bytes else key_text(key).encode("utf-8", "backslashreplace")


def _headers_of(message: Message) -> Sequence[Header]:
    try:
        return message.headers
    except HeadersUnreadable:  # The original message still has them.
        return ()


def _split_headers(message: Message) -> tuple[Provenance, tuple[Header, ...]]:
    # Other programs may have put headers before drainer's header and behind those of the message.
    headers = list(message.headers)
    for first, (name, value) in enumerate(headers):
        if name == HEADER:
            found = codec.decode(value or b"", Provenance)
            behind = first + 1 + found.message_headers
            if behind > len(headers):
                raise ValueError("headers of its message are missing")
            return found, tuple(headers[first + 1 : behind])
        if name.startswith(LETTER.family):
            with raised_as(OtherFormat, about=f"the record at {message}: "):
                LETTER.ensure_read(name, OtherFormat)
        if name.startswith(RECEIPT.family):
            raise NotADeadLetter(
                f"the record at {message} is the receipt of a redrive",
                hint="Give a place that `drainer dead list` prints.",
            )
    raise NotADeadLetter(
        f"the record at {message} is not a dead letter that drainer wrote",
        hint="Check which other program writes to this topic. drainer leaves such records alone.",
    )


def _as_written(text: str) -> Any:
    # drainer writes a sub-key by repr(). If a text differs from that, drainer did not write it.
    if len(text) > KEY_CHARACTERS:
        raise ValueError("a sub-key is longer than drainer writes it")
    value = from_literal(text)
    if not is_sub_key(value):
        raise ValueError("a sub-key has a type that no split can give")
    # Code points are compared, because it depends on Python's version which characters repr()
    # escapes.
    if ascii(value).encode() != text.encode("ascii", "backslashreplace"):
        raise ValueError("a sub-key is not written as drainer writes it")
    return value
