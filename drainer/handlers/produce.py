"""The built-in handler ``produce``: writes sub-messages to another topic, spread by key range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

from drainer.errors import UsageError
from drainer.handler import Context, Fatal, Handler, Writer
from drainer.message import Barrier, Message, SubMessage
from drainer.model.order import key_text
from drainer.split.decoding import SCHEMA_HEADERS
from drainer.text.plain_json import plain_json

OPTIONS = ("topic", "split", "timestamp")
KEEP, NOW = "keep", "now"

_HINT = "Use topic=, split= or timestamp=. For a list in the value use --split and --split-key."
_Split = Callable[[Message], Iterable[SubMessage]]


class Produce(Handler):
    """Writes each sub-message to the topic ``--set topic=…``, with the sub-key as the key.

    A whole message has its value as it was, however it was decoded.

    The sub-messages are those of ``--split`` and ``--split-key``, or of ``split=REFERENCE``,
    another handler, or the message itself by its own key. A partition has a range of the hashes of
    keys.

    A sub-message is done when all in-sync replicas have the record, and only then the next one of
    its sub-key begins. After a crash some are written again, in their order.
    """

    writes_records = True  # an estimate knows that its writing is capped

    def __init__(self) -> None:
        self._split: _Split = _whole
        self._writer: Writer | None = None
        self._timestamps = True
        self._topic = ""
        self.absolute_options: dict[str, str] = {}  # for a plan, which holds from any folder

    plan_options = frozenset(OPTIONS)

    def configure(self, options: Mapping[str, str]) -> None:
        """Raises UsageError when an option is wrong."""
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise UsageError(f"the handler produce has no option {unknown[0]}", hint=_HINT)
        topic = options.get("topic", "")
        if not topic:
            raise UsageError("produce needs a topic to write to", hint="Add --set topic=NAME.")
        timestamps = options.get("timestamp", KEEP)
        if timestamps not in (KEEP, NOW):
            raise UsageError(
                f"timestamp={timestamps!r} is not keep or now", hint="Use keep or now."
            )
        self._timestamps = timestamps == KEEP
        if "split" in options:
            self._split, self.absolute_options["split"] = _split_by(options["split"])
        self._topic = topic

    def open(self, context: Context) -> None:
        """Raises UsageError when its topic is the drained one, TopicMissing when there is none."""
        if self._topic == context.topic:
            raise UsageError(
                f"produce would write to {self._topic}, the drained topic",
                hint="Name another topic, or the drain would read its own records.",
            )
        if context.write_to is not None:
            self._writer = context.writer(self._topic)

    def split(self, message: Message) -> Iterator[SubMessage]:
        for sub in self._split(message):
            if isinstance(sub, Barrier) or (sub.keys is not None and len(sub.keys) > 1):
                raise ValueError(f"{sub!r} has several sub-keys, but a record has only one key")
            # The lane is that of the record's key: 17 and "17" are one there.
            key = sub.key if sub.keys is None else sub.keys[0]
            yield SubMessage(as_key(key), sub.content)

    async def handle(self, sub: SubMessage) -> None:
        writer = self._writer
        if writer is None:
            raise Fatal("produce writes in a drain only")
        message = sub.message
        key = as_key(sub.key)
        whole = message.is_payload(sub)
        # Neither JSON nor another key is of the schema that the message was written with.
        keeps = dict(zip(SCHEMA_HEADERS, (whole, key == message.key), strict=True))
        headers = [header for header in message.headers if keeps.get(header[0], True)]
        await writer.write(
            message.value if whole else as_value(sub.content),
            key,
            partition=partition_of(key or b"", writer.partitions),
            headers=(*headers, ("drainer.topic", message.topic.encode())),
            id=sub.id,
            timestamp=message.timestamp if self._timestamps else None,
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def as_key(key: Any) -> bytes | None:
    """A sub-key as the key of a record: bytes as they are, text in UTF-8, others as Python has
    them."""
    if key is None or type(key) is bytes:
        return key
    return key_text(key).encode("utf-8", "backslashreplace")


def as_value(payload: Any) -> bytes | None:
    """A payload as the value of a record: bytes as they are, text in UTF-8, others as JSON
    (plain_json.py).

    Raises TypeError when JSON has no word for it.
    """
    if payload is None or isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else plain_json(payload)


def _whole(message: Message) -> Iterable[SubMessage]:
    return (SubMessage(message.key, message.value),)


def _split_by(reference: str) -> tuple[_Split, str]:
    from drainer.loading.loader import load_handler  # noqa: PLC0415 - it finds this module as well

    handler = load_handler(reference)
    if handler.split is None:
        raise UsageError(
            f"the handler {reference!r} has no split",
            hint="Remove split=: produce then writes messages unchanged.",
        )
    return handler.split, handler.absolute_reference


def partition_of(key: bytes, partitions: int) -> int:
    """The partition whose range the CRC-32 of a key lies in.

    Each has a contiguous range of hashes, so doubling the partitions splits each in two, and
    nothing moves between the others: a key of partition ``p`` of ``n`` goes to ``2p`` or ``2p + 1``
    of ``2n``. With a hash modulo the partitions, keys go from anywhere to anywhere. The idea is
    that of the draft KIP on splitting partitions by key ranges.
    """
    return crc32(key) * partitions >> 32
