"""Decoding of the keys and values of messages, before the handler gets them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drainer.errors import UsageError
from drainer.message import HeadersUnreadable, Message, SubMessage
from drainer.split.splitting import Prepare, Wait
from drainer.text.mask import describe
from drainer.text.raw_json import raw_json

Headers = Sequence[tuple[str, bytes | None]]
# A decoder: it returns what the bytes of a key or value mean. It also gets the headers and topic.
Decode = Callable[[bytes, Headers, str], Any]
_Split = Callable[[Message], Iterable[SubMessage]]
ENTRY_POINTS = "drainer.decoders"
JSON, RAW = "json", "raw"
OF_REGISTRY = "avro", "protobuf", "json-schema"
FORMATS = JSON, RAW, *OF_REGISTRY
# Headers that may have the id of the value's and of the key's schema.
SCHEMA_HEADERS = "__value_schema_id", "__key_schema_id"
_KEYS = (str, bytes, int, type(None))


class Undecodable(ValueError):
    """Raised by a decoder for bytes that it can't make sense of."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decoders for the values and the keys of a drain's messages. None keeps the bytes.

    A decoder that has to fetch something first has a method ``prepare(data, headers, wait)``. A
    decoder that uses a registry also has ``check``, ``registry`` and ``made_bytes``.
    """

    of_value: Decode | None
    of_key: Decode | None

    def decoded(self, message: Message) -> Message:
        """Decode a message in place. A tombstone's value stays None."""
        if self.of_value is not None and message.value is not None:
            message.decoded = self.of_value(message.value, message.headers, message.topic)
            message.decoded_bytes = getattr(self.of_value, "made_bytes", 0)
        if self.of_key is not None and message.key is not None:
            message.decoded_key = self.of_key(message.key, message.headers, message.topic)
            made_bytes = getattr(self.of_key, "made_bytes", 0)
            message.decoded_bytes = getattr(message, "decoded_bytes", 0) + made_bytes
        return message

    @property
    def prepare(self) -> Prepare | None:
        """The function that lets decoders fetch what they need; None if they need nothing.

        It takes messages, and returns how many of them are prepared.
        """
        of_value, of_key = (getattr(each, "prepare", None) for each in (self.of_value, self.of_key))

        def prepare(messages: Sequence[Message], wait: Wait) -> int:
            for message in messages:
                try:  # This runs for each message, and suppress() would take longer.
                    if of_value is not None and message.value is not None:
                        of_value(message.value, message.headers, wait)
                    if of_key is not None and message.key is not None:
                        of_key(message.key, message.headers, wait)
                except HeadersUnreadable:  # Decoding this message will raise it again.
                    pass
            return len(messages)

        return prepare if of_value or of_key else None

    def check(self, messages: Iterable[Message]) -> tuple[list[str], list[str]]:
        """Try the decoders that use a registry on some messages.

        Returns a list of what is right, and one of what is wrong.

        Raises Refused when the registry does not answer.
        """
        right, wrong, messages = list[str](), list[str](), list(messages)
        for decoder in self._of_registry:
            found = decoder.check(messages)
            right += found[0]
            wrong += found[1]
        return right, wrong

    @property
    def known_schemas(self) -> list[Any]:
        """The schemas that the decoders have fetched from a registry."""
        return [each.registry.known for each in self._of_registry]

    def use_schemas(self, found: Sequence[Any]) -> None:
        """Use schemas that another process has fetched, instead of fetching them again."""
        for decoder, schemas in zip(self._of_registry, found, strict=False):
            decoder.registry.known.update(schemas)

    @property
    def _of_registry(self) -> list[Any]:
        return [each for each in (self.of_value, self.of_key) if hasattr(each, "registry")]

    def before(self, split: _Split | None) -> _Split:
        """Return a split that decodes each message first, and then calls ``split``.

        If the handler has no ``split``, each message is one sub-message.
        """
        split = split or whole

        def decoded_and_split(message: Message) -> Iterable[SubMessage]:
            try:
                self.decoded(message)
            except (RecursionError, MemoryError) as error:
                # Only this message needs so much memory or depth, so it is undecodable, and the
                # drain goes on.
                raise Undecodable(f"no value can be made of it: {describe(error)}") from error
            return split(message)

        return decoded_and_split


def whole(message: Message) -> Iterator[SubMessage]:
    """Make one sub-message of a message. Its sub-key is the decoded key, if that can be one."""
    found = message.decoded_key
    yield SubMessage(found if type(found) in _KEYS else message.key, message.meaning)


def decoder(
    name: str | None, load: Callable[[str], Any], extras: Mapping[str, str]
) -> Decode | None:
    """Return the decoder of a format; None for raw bytes.

    ``load`` finds a decoder by the name of an entry point, or by ``package.module:decoder``. If it
    is a class, an instance is made with ``extras``, which are the properties of extensions in the
    client's file. Raises UsageError if the decoder can't be called.
    """
    if name is None or name == RAW:
        return None
    if name == JSON:
        return _json
    found = load(name)
    make: Any = found
    made = make(extras) if inspect.isclass(found) else found
    if not callable(made):
        raise UsageError(
            f"the decoder {name!r} can't be called",
            hint="Name a function of (data, headers, topic).",
        )
    decode: Decode = made
    return decode


def _json(data: bytes, headers: Headers, topic: str) -> Any:
    return raw_json(data)
