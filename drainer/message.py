"""Messages that flow through a drain, sub-messages inside them, and barriers between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from drainer.errors import ValueNotShipped
from drainer.text.mask import key_repr
from drainer.text.raw_json import meaning, read_json


@dataclass(frozen=True, slots=True)
class Origin:
    """The partition that messages come from, and their topic by name and id.

    A topic that was deleted and recreated has the same name and another id. ``stream`` is the
    ledger that they go to: that of the partition, unless another one is given.
    """

    topic: str
    topic_id: str
    partition: int
    stream: int = -1

    def __post_init__(self) -> None:
        if self.stream < 0:
            object.__setattr__(self, "stream", self.partition)


Header = tuple[str, bytes | None]


class HeadersUnreadable(ValueError):
    """Raised by ``Message.headers`` when a header's name is not UTF-8: no client can read them."""


def headers_unreadable(message: Message) -> HeadersUnreadable:
    return HeadersUnreadable(f"can't read the headers of {message}: a name is not UTF-8")


@dataclass(eq=False, slots=True)
class KeySums:
    """Stands for the sub-keys of a message where not all are known: their count and checksum."""

    count: int
    checksum: int

    def __len__(self) -> int:
        return self.count


class NoKeys(KeySums):
    """Stands for the sub-keys of a message that ``split`` rejected; ``why`` is how it failed."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        super().__init__(1, 0)
        self.why = why


def _read(owner: Message | SubMessage, content: Any) -> Any:
    """Return the value of a content. Raw JSON is decoded once, when it is first needed."""
    if type(content) is not Raw:
        return content
    found = getattr(owner, "read", owner)
    if found is owner:
        owner.read = found = read_json(content)
    return found


class LedgerEntry:
    """Notes of a ledger on a message, for as long as some of its sub-messages are pending.

    It is the base of ``Message`` and no object of its own, which would take a drain 15% more time.
    """

    __slots__ = ("ledger", "left", "part", "size", "sub_keys")

    ledger: Any
    left: int
    size: int  # in bytes: of key and value, and once delivered of all that it takes in memory
    sub_keys: Sequence[Hashable] | KeySums
    part: Any


class Message(LedgerEntry):
    """One Kafka record; a test makes one with ``drainer.testing.message``.

    ``key`` and ``value`` are bytes or None; ``decoded`` and ``decoded_key`` are what they mean.
    ``timestamp`` is in milliseconds since 1970 (UTC), or None when the record carries none;
    ``headers`` are (name, bytes or None) pairs in their order.
    """

    __slots__ = (
        "_decoded",
        "_decoded_key",
        "_headers",
        "_timestamp",
        "decoded_bytes",
        "key",
        "offset",
        "origin",
        "read",
        "value",
    )

    decoded_bytes: int  # memory that decoded values take, if the decoder counts it

    def __init__(
        self,
        origin: Origin,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        self.origin = origin
        self.offset = offset
        self.key = key
        self.value = value
        self.size = len(key or b"") + len(value or b"")
        self._timestamp = timestamp
        self._headers = headers

    @property
    def topic(self) -> str:
        return self.origin.topic

    @property
    def partition(self) -> int:
        return self.origin.partition

    @property
    def timestamp(self) -> int | None:
        return self._timestamp

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return self._headers

    @property
    def decoded(self) -> Any:
        """The value's meaning by ``--value-format``; the value itself without that."""
        return _read(self, self.meaning)

    @decoded.setter
    def decoded(self, found: Any) -> None:
        self._decoded = found

    @property
    def meaning(self) -> Any:
        """Value to be written for ``decoded``: raw JSON as it was read, else ``decoded`` itself."""
        return getattr(self, "_decoded", self.value)

    @property
    def decoded_key(self) -> Any:
        """The key's meaning by ``--tune key-format``; the key itself without that."""
        return meaning(getattr(self, "_decoded_key", self.key))

    @decoded_key.setter
    def decoded_key(self, found: Any) -> None:
        self._decoded_key = found

    def is_payload(self, sub: SubMessage) -> bool:
        """Whether the payload of a sub-message is this message's value itself, or its meaning."""
        payload, decoded = sub.content, self.meaning
        if payload is self.value or payload is decoded or payload is getattr(self, "read", self):
            return True
        # Of a number, pickle makes another object.
        number = type(payload) in (int, float) and type(payload) is type(decoded)
        return number and repr(payload) == repr(decoded)

    def let_go(self) -> None:
        """Forgets the content, and keeps the place."""
        self.value = self._decoded = self.read = None
        self._headers = ()

    def __str__(self) -> str:
        """The place of the message as errors name it: ``topic/partition/offset``."""
        return f"{self.origin.topic}/{self.origin.partition}/{self.offset}"

    def __repr__(self) -> str:
        return f"<Message {self}>"


_NOT_YET: Any = None


class LaneEntry:
    """Notes of a drain on a sub-message.

    Attributes:
        lane, lane_key, next: its lane, the key of that, and what is behind it (core/lanes.py).
        failing, started_at: how it fails, once an attempt has, and after how many failed calls its
            attempt started, where that proves something (policy/failures.py).
        together: how many may be given to the handler with it, once such a batch has failed.
    """

    __slots__ = ("_folded", "failing", "lane", "lane_key", "next", "started_at", "together")

    _folded: tuple[SubMessage, ...] | None  # what it stands for (core/batches.py)
    failing: Any
    started_at: int
    together: int
    lane: Any
    lane_key: Hashable
    next: SubMessage | Any | None


class SubMessage(LaneEntry):
    """One operation inside a message: what ``split`` yields and ``handle`` is given.

    ``key`` is the sub-key that order is kept for. An operation that touches several documents
    names them all in ``keys`` and holds its place in every one of those lanes. Keys must be the
    same in every process: str, bytes, int, or tuples of them. ``None`` is a key like any other. A
    drain refuses other types, bool, float and subclasses included.

    The drain fills in ``message``, ``index`` (its place in the message, from 0) and ``attempt``
    (from 1); ``split`` leaves them alone.
    """

    __slots__ = ("attempt", "content", "index", "key", "keys", "message", "read")

    message: Message
    index: int
    read: Any

    def __init__(
        self, key: Hashable = None, payload: Any = None, *, keys: Iterable[Hashable] | None = None
    ) -> None:
        self.key = key
        self.content = payload
        self.keys: tuple[Hashable, ...] | None = None
        self.attempt = 1
        self.message = _NOT_YET  # until it is delivered, which it is once
        if keys is not None:
            self.keys = tuple(dict.fromkeys(keys))
            if not self.keys:
                raise ValueError("keys=() is empty: name a sub-key, or yield a Barrier")

    @property
    def payload(self) -> Any:
        """The value that ``split`` gave. Raw JSON is decoded."""
        return _read(self, self.content)

    @payload.setter
    def payload(self, payload: Any) -> None:
        self.content = payload

    @property
    def id(self) -> str:
        """``topic-id:partition:offset:index``: the same at every attempt and after every resume.

        Downstream systems that remember it make the handler's effect exactly once. Raises
        RuntimeError before it is delivered.
        """
        if self.message is None:
            raise RuntimeError(
                f"{self!r} has no id before it is delivered: in a test, take it from"
                " drainer.testing.split(handler, message)"
            )
        origin = self.message.origin
        return f"{origin.topic_id}:{origin.partition}:{self.message.offset}:{self.index}"

    @property
    def folded(self) -> tuple[SubMessage, ...]:
        """The sub-messages that this one stands for, in their order: itself alone, unless the
        handler's ``coalesce`` made it of several."""
        return getattr(self, "_folded", None) or (self,)

    def __str__(self) -> str:
        return f"{self.message}[{self.index}]"

    def __repr__(self) -> str:
        keys = (self.key,) if self.keys is None else self.keys
        return f"<{type(self).__name__} {', '.join(map(key_repr, keys))}>"


class ShippedMessage(Message):
    """A message in a process that did not read it, with some of its sub-messages.

    It has all facts of a message but ``value``, unless that was shipped, too. ``subs`` have
    their indexes; ``keys`` are of all.
    """

    __slots__ = ("own", "subs")

    subs: Sequence[SubMessage]  # until they are delivered
    own: int  # bits of their indexes, where a barrier or an earlier attempt needs them

    def __init__(
        self,
        origin: Origin,
        offset: int,
        key: bytes | None,
        timestamp: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        keys: KeySums,
    ) -> None:
        # Not super().__init__: there is no value, and this runs for every message.
        self.origin = origin
        self.offset = offset
        self.key = key
        self.size = 0 if key is None else len(key)
        self.sub_keys = keys
        self._timestamp = timestamp
        self._headers = headers  # type: ignore[assignment]  # None when they can't be read

    def __getattr__(self, name: str) -> Any:
        # Python calls it only for what is not there.
        if name in ("value", "decoded", "meaning"):
            raise ValueNotShipped(
                f"handle() used message.{name} of {self}, but Spark tasks get no values",
                hint="Put what handle() needs into the payload, or set whole_messages = True on"
                " the handler.",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        if self._headers is None:
            raise headers_unreadable(self)
        return self._headers

    def is_payload(self, sub: SubMessage) -> bool:
        return hasattr(self, "value") and super().is_payload(sub)


class Barrier(SubMessage):
    """A sub-message that runs alone in its partition: after all before it, before all after it.

    For operations that touch everything ("drop the index"), whose sub-keys can't be named.
    """

    __slots__ = ()

    def __init__(self, payload: Any = None) -> None:
        super().__init__(None, payload)


class Unsplit(Barrier):
    """A message that ``split`` rejected, as the one unit that a drain makes of it.

    It goes to no handler. Its lanes are unknown, so what is behind it in its partition waits until
    its outcome is decided. It waits for nothing but a barrier before it.

    Attributes:
        error_type, error_text: of what ``split`` raised.
        why: the same in one line for people, with the place in the handler.
        skip: the reason when ``split`` raised ``Skip``; else None.
        letter: the dead letter that a redrive took the message from; else None.
        failures: settings by which its outcome is decided, whatever they are by then: by these its
            partition was read on, or was not. None: as they are then.
    """

    __slots__ = ("error_text", "error_type", "failures", "letter", "skip", "why")

    def __init__(
        self,
        value: bytes | None,
        error_type: str,
        error_text: str,
        why: str,
        skip: str | None = None,
        letter: Any = None,
    ) -> None:
        super().__init__(value)
        self.attempt = 0  # of ``handle``
        self.error_type = error_type
        self.error_text = error_text
        self.why = why
        self.skip = skip
        self.letter = letter
        self.failures: Any = None

    @property
    def error(self) -> Exception:
        """An exception of that type and text; the one that was raised may not travel, and holds on
        to the frames that it came through."""
        error: Exception = type(self.error_type, (Exception,), {})(self.error_text)
        return error

    def take_place(self, message: Message) -> NoKeys:
        """Becomes the only sub-message of a message; gives what stands for its sub-keys."""
        self.message = message
        self.index = 0
        return NoKeys(self.why)
