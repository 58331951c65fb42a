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
    """Writes each sub-message to the topic ``--set topic=…``, by its sub-key.

    The sub-messages are those of ``--split`` and ``--split-key``, or those of another handler,
    named by ``split=REFERENCE``. Without either, the message itself is written by its own key, and
    its value stays as it was, however it was decoded. Each partition of the topic gets a range of
    the hashes of keys.

    A sub-message is done when all in-sync replicas have its record. The next one of its sub-key
    begins only then. After a crash, some records are written again, in their order.
    """

    writes_records = True  # So an estimate applies the brokers' limits on writing.

    def __init__(self) -> None:
        self._split: _Split = _whole
        self._writer: Writer | None = None
        self._timestamps = True
        self._topic = ""
        # A plan keeps these values, because they are valid in any working folder.
        self.absolute_options: dict[str, str] = {}

    plan_options = frozenset(OPTIONS)

    def configure(self, options: Mapping[str, str]) -> None:
        """Take the options. Raises UsageError when one is wrong."""
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
        """Open a writer to the topic.

        Raises UsageError when that is the drained topic, and TopicMissing when it does not exist.
        """
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
            # The record's key decides the lane: as keys of records, 17 and "17" are the same.
            key = sub.key if sub.keys is None else sub.keys[0]
            yield SubMessage(as_key(key), sub.content)

    async def handle(self, sub: SubMessage) -> None:
        writer = self._writer
        if writer is None:
            raise Fatal("produce writes in a drain only")
        message = sub.message
        key = as_key(sub.key)
        whole = message.is_payload(sub)
        # The header with a schema's id stays only if the value or the key stays, because the schema
        # describes neither JSON nor another key.
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
    """Return the key of a record for a sub-key.

    Bytes stay as they are, text is encoded in UTF-8, and anything else is written as in Python.
    """
    if key is None or type(key) is bytes:
        return key
    return key_text(key).encode("utf-8", "backslashreplace")


def as_value(payload: Any) -> bytes | None:
    """Return the value of a record for a payload.

    Bytes stay as they are, text is encoded in UTF-8, and anything else is written as JSON
    (plain_json.py). Raises TypeError for a payload that JSON can't express.
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
    """Return the partition whose range of hashes has the CRC-32 of a key.

    Each partition has a contiguous range of hashes. So doubling the number of partitions splits
    each in two, and moves nothing between the others: a key of partition ``p`` of ``n`` goes to
    ``2p`` or ``2p + 1`` of ``2n``. With a hash modulo the number of partitions, most keys would
    move. The idea comes from the draft KIP on splitting partitions by key ranges.
    """
    return crc32(key) * partitions >> 32
