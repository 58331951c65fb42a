"""Messages, the sub-messages that ``split`` makes of them, and barriers."""

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
    number of the ledger that accounts for the messages; by default it is the partition's.
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
    """Raised by ``Message.headers`` when a name is not UTF-8, because no client can read that."""


def headers_unreadable(message: Message) -> HeadersUnreadable:
    return HeadersUnreadable(f"can't read the headers of {message}: a name is not UTF-8")


@dataclass(eq=False, slots=True)
class KeySums:
    """The count and the checksum of a message's sub-keys, for a process that does not have all."""

    count: int
    checksum: int

    def __len__(self) -> int:
        return self.count


class NoKeys(KeySums):
    """Takes the place of the sub-keys of a message that ``split`` rejected.

    ``why`` says how ``split`` failed.
    """

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        super().__init__(1, 0)
        self.why = why


AnyKeys = Sequence[Hashable] | KeySums  # A message's sub-keys, or what is known of them.


def _read(owner: Message | SubMessage, content: Any) -> Any:
    """Return a content, decoded if it is raw JSON. It is decoded once, when it is first needed."""
    if type(content) is not Raw:
        return content
    found = getattr(owner, "read", owner)
    if found is owner:
        owner.read = found = read_json(content)
    return found


class LedgerEntry:
    """The fields of a message that belong to its ledger, while sub-messages of it are pending.

    This is a base class of ``Message``, because a separate object would slow a drain down by 15%.
    """

    __slots__ = ("ledger", "left", "part", "size", "sub_keys")

    ledger: Any
    left: int
    size: int  # The bytes of key and value. After delivery: all the memory that the message takes.
    sub_keys: AnyKeys
    part: Any


class Message(LedgerEntry):
    """One Kafka record. A test makes one with ``drainer.testing.message``.

    ``key`` and ``value`` are bytes or None, and ``decoded`` and ``decoded_key`` are their decoded
    values. ``timestamp`` is in milliseconds since 1970 (UTC), or None if the record has none.
    ``headers`` are pairs of a name and bytes or None, in their order.
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

    decoded_bytes: int  # The memory that decoded values take, if the decoder counts it.

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
        """The value as ``--value-format`` decodes it; without that, the bytes themselves."""
        return _read(self, self.meaning)

    @decoded.setter
    def decoded(self, found: Any) -> None:
        self._decoded = found

    @property
    def meaning(self) -> Any:
        """The decoded value as it is stored: JSON stays ``msgspec.Raw`` until somebody reads it."""
        return getattr(self, "_decoded", self.value)

    @property
    def decoded_key(self) -> Any:
        """The key as ``--tune key-format`` decodes it; without that, the bytes themselves."""
        return meaning(getattr(self, "_decoded_key", self.key))

    @decoded_key.setter
    def decoded_key(self, found: Any) -> None:
        self._decoded_key = found

    def is_payload(self, sub: SubMessage) -> bool:
        """Return whether a sub-message's payload is this message's value, raw or decoded."""
        payload, decoded = sub.content, self.meaning
        if payload is self.value or payload is decoded or payload is getattr(self, "read", self):
            return True
        # Pickle copies a number, so the two may be equal without being the same object.
        number = type(payload) in (int, float) and type(payload) is type(decoded)
        return number and repr(payload) == repr(decoded)

    def let_go(self) -> None:
        """Free the value, decoded values and headers. The message keeps its key and its place."""
        self.value = self._decoded = self.read = None
        self._headers = ()

    def __str__(self) -> str:
        """Return the place of the message as errors name it: ``topic/partition/offset``."""
        return f"{self.origin.topic}/{self.origin.partition}/{self.offset}"

    def __repr__(self) -> str:
        return f"<Message {self}>"


_NOT_YET: Any = None


class LaneEntry:
    """The fields of a sub-message that belong to the drain.

    Attributes:
        lane, lane_key, next: its lane, the lane's key or the number of its block, and what follows
            in the lane (core/lanes.py).
        failing: a record of how its attempts failed; missing until one has (policy/failures.py).
        started_at: how many calls had failed when its latest attempt started. If the attempt
            succeeds, that tells which failures came before it.
        together: the maximum number of sub-messages in a call with this one. It is set once a call
            of several has failed, and lowered until the one that fails is alone.
    """

    __slots__ = ("_folded", "failing", "lane", "lane_key", "next", "started_at", "together")

    _folded: tuple[SubMessage, ...] | None  # The sub-messages that it stands for (core/batches.py).
    failing: Any
    started_at: int
    together: int
    lane: Any
    lane_key: Hashable
    next: SubMessage | Any | None


class SubMessage(LaneEntry):
    """One operation inside a message, which ``split`` yields and ``handle`` gets.

    drainer keeps the order of sub-messages with the same ``key``. An operation that touches several
    documents names them all in ``keys``, and keeps its place in the lane of each. Keys must be the
    same in every process: str, bytes, int, or tuples of these. A drain refuses other types,
    including bool, float and subclasses. A sub-message whose key is None has a lane of its own.

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
        self.message = _NOT_YET  # The drain sets it when it delivers the sub-message.
        if keys is not None:
            self.keys = tuple(dict.fromkeys(keys))
            if not self.keys:
                raise ValueError("keys=() is empty: name a sub-key, or yield a Barrier")

    @property
    def payload(self) -> Any:
        """The payload that ``split`` gave. Raw JSON is decoded when this is first read."""
        return _read(self, self.content)

    @payload.setter
    def payload(self, payload: Any) -> None:
        self.content = payload

    @property
    def id(self) -> str:
        """``topic-id:partition:offset:index``, the same at every attempt and after every resume.

        If a downstream system remembers the ids, the handler's effect is exactly once. Raises
        RuntimeError before the sub-message is delivered.
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
        """The sub-messages that this one stands for, in their order.

        That is itself alone, unless the handler's ``coalesce`` made it of several.
        """
        return getattr(self, "_folded", None) or (self,)

    def __str__(self) -> str:
        return f"{self.message}[{self.index}]"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {keys_repr(self)}>"


def keys_repr(sub: SubMessage) -> str:
    """Return the sub-keys of a sub-message as an error shows them, masked if masking is on."""
    keys = (sub.key,) if sub.keys is None else sub.keys
    return ", ".join(map(key_repr, keys))


class ShippedMessage(Message):
    """A message in a Spark task that did not read it, with some of its sub-messages.

    It has everything that a message has, but ``value`` only if the value was shipped, too.
    """

    __slots__ = ("own", "subs")

    subs: Sequence[SubMessage]  # The shipped sub-messages; empty once they are delivered.
    # A bit for the index of each shipped sub-message. It is set only if there are barriers, several
    # sub-keys or progress of an earlier attempt.
    own: int

    def __init__(
        self,
        origin: Origin,
        offset: int,
        key: bytes | None,
        timestamp: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        keys: KeySums,
    ) -> None:
        # This does not call super().__init__(), because there is no value, and for speed.
        self.origin = origin
        self.offset = offset
        self.key = key
        self.size = 0 if key is None else len(key)
        self.sub_keys = keys
        self._timestamp = timestamp
        self._headers = headers  # type: ignore[assignment]  # It is None if no client can read them.

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for an attribute that is missing.
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
    """A sub-message that runs alone in its partition, after all before it and before all after it.

    It is for operations that touch everything, such as "drop the index", and so can't name
    sub-keys.
    """

    __slots__ = ()

    def __init__(self, payload: Any = None) -> None:
        super().__init__(None, payload)


class Unsplit(Barrier):
    """The only sub-message of a message that ``split`` rejected.

    No handler gets it. Its lanes are unknown, so whatever follows in its partition waits until its
    outcome is decided. It waits only for a barrier before it.

    Attributes:
        error_type, error_text: the type and the text of what ``split`` raised.
        why: the type and the text in one line for people, with the place in the handler.
        skip: the reason if ``split`` raised ``Skip``; else None.
        letter: the dead letter that a redrive took the message from; else None.
        failures: the settings that decide its outcome, because they decided whether its partition
            is read further; None stands for the settings at the time of the decision.
    """

    __slots__ = ("error_text", "error_type", "failures", "letter", "skip", "why")

    def __init__(
        self,
        value: bytes | None,
        error_type: str,
        error_text: str,
        why: str,
        skip: str | None = None,
    ) -> None:
        super().__init__(value)
        self.attempt = 0  # ``handle`` is never called.
        self.error_type = error_type
        self.error_text = error_text
        self.why = why
        self.skip = skip
        self.letter: Any = None
        self.failures: Any = None

    @property
    def error(self) -> Exception:
        """A new exception whose type has the same name, with the same text.

        The original exception is not kept, because it keeps the frames alive that it came through,
        and can't always be pickled.
        """
        error: Exception = type(self.error_type, (Exception,), {})(self.error_text)
        return error

    def take_place(self, message: Message) -> NoKeys:
        """Become the only sub-message of a message, and return the message's ``sub_keys``."""
        self.message = message
        self.index = 0
        return NoKeys(self.why)
