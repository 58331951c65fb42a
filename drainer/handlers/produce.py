"""The built-in handler ``produce``: writes sub-messages to another topic, each by its sub-key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from drainer.errors import UsageError
from drainer.handler import Context, Fatal, Handler, Writer
from drainer.handlers.partitioner import MURMUR2, PARTITIONERS
from drainer.message import Barrier, Message, SubMessage
from drainer.model.listed import counted
from drainer.model.order import key_text
from drainer.split.decoding import SCHEMA_HEADERS
from drainer.text.plain_json import plain_json

OPTIONS = ("topic", "split", "timestamp", "partitioner", "partitions")
KEEP, NOW = "keep", "now"

_HINT = (
    "Use topic=, partitioner=, partitions=, split= or timestamp=. For a list in the value use"
    " --split and --key."
)
_Split = Callable[[Message], Iterable[SubMessage]]


class Produce(Handler):
    """Writes each sub-message to the topic ``--set topic=…``, by its sub-key.

    The sub-messages are those of ``--split`` and ``--key``, or those of another handler,
    named by ``split=REFERENCE``. Without either, the message itself is written by its own key, and
    its value stays as it was, however it was decoded.

    ``partitioner=`` names the clients whose records have the same partitions. The topic may get
    more partitions while it is written to. The drain then goes on with those that it began with,
    in each of its processes and after each resume. Otherwise the later records of a sub-key would
    be in another partition than the earlier ones.

    A sub-message is done when all in-sync replicas have its record. The next one of its sub-key
    begins only then. After a crash, some records are written again, in their order.
    """

    writes_records = True  # So an estimate applies the brokers' limits on writing.

    def __init__(self) -> None:
        self._split: _Split = lambda message: (SubMessage(message.key, message.value),)
        self._writer: Writer | None = None
        self._timestamps = True
        self._topic = ""
        self._partition_of = PARTITIONERS[MURMUR2]
        self._partitions = 0  # It is 0 until they are counted.
        # A plan keeps these values: those that are valid in any working folder, and those that each
        # process and each resume has to use, too.
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
        partitioner = options.get("partitioner", MURMUR2)
        if partitioner not in PARTITIONERS:
            raise UsageError(
                f"partitioner={partitioner} is not one of {', '.join(PARTITIONERS)}",
                hint="Use murmur2 for Java's clients, crc32 for librdkafka's.",
            )
        self._partition_of = PARTITIONERS[partitioner]
        self.absolute_options["partitioner"] = partitioner
        partitions = options.get("partitions", "0")
        if not (partitions.isascii() and partitions.isdigit()):
            raise UsageError(f"partitions={partitions} is not a number", hint="Use partitions=12.")
        self._partitions = int(partitions)
        if "split" in options:
            self._split, self.absolute_options["split"] = _split_by(options["split"])
        self._topic = topic

    def look_at_target(
        self, drained: str, partitions_of: Callable[[str], int], earlier: Mapping[str, str]
    ) -> tuple[list[str], list[str]]:
        """Count the partitions of the topic, for the plan to keep.

        ``earlier`` has the options of the drain that wrote there before, if there was one. Returns
        the checks that passed, and warnings. Raises UsageError when the topic is the ``drained``
        one, or has fewer partitions than are to be used.
        """
        if self._topic == drained:
            raise UsageError(
                f"produce would write to {drained}, the drained topic",
                hint="Name another topic, or the drain would read its own records.",
            )
        topic, used, found = self._topic, self._partitions, partitions_of(self._topic)
        if found < used:
            raise UsageError(
                f"produce is to spread records over {used} partitions, but {topic} has {found}",
                hint="If the topic was recreated, start a new drain. If not, correct partitions=.",
            )
        self._partitions = used or found
        self.absolute_options["partitions"] = str(self._partitions)
        places = {name: self.absolute_options[name] for name in ("partitioner", "partitions")}
        before = {name: earlier.get(name, value) for name, value in places.items()}
        partitioner, moved = places["partitioner"], []
        if earlier.get("topic") == topic and before != places:
            keep = " ".join(f"--set {name}={value}" for name, value in before.items())
            moved = [
                f"the earlier records are spread over {before['partitions']} partitions of {topic}"
                f" by {before['partitioner']}, and new ones over {self._partitions} by"
                f" {partitioner}, so later records of a sub-key may be in another partition; to"
                f" keep the places, add {keep}"
            ]
        if self._partitions == found:
            over = f"{counted(found, 'partition')} of {topic}"
            return [f"produce spreads records over {over}, by {partitioner}"], moved
        return [], [
            *moved,
            f"{topic} has {found} partitions, but this drain writes to the first {used}, so that"
            " each sub-key stays in its partition; producers that use all of them put later records"
            " of a sub-key elsewhere",
        ]

    def open(self, context: Context) -> None:
        """Open a writer to the topic. Raises TopicMissing when it does not exist."""
        if context.write_to is not None:
            self._writer = context.writer(self._topic)
            self._partitions = self._partitions or self._writer.partitions

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
            partition=self._place(sub, key),
            headers=(*headers, ("drainer.topic", message.topic.encode())),
            id=sub.id,
            timestamp=message.timestamp if self._timestamps else None,
        )

    def _place(self, sub: SubMessage, key: bytes | None) -> int:
        if key is None and sub.keys is None:
            # It has a lane of its own, so its record may be anywhere, but a repeat goes there, too.
            return (sub.message.offset + sub.index) % self._partitions
        return self._partition_of(key or b"", self._partitions)

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


def _split_by(reference: str) -> tuple[_Split, str]:
    from drainer.loading.loader import load_handler  # noqa: PLC0415 - it finds this module as well

    handler = load_handler(reference)
    if handler.split is None:
        raise UsageError(
            f"the handler {reference!r} has no split",
            hint="Remove split=: produce then writes messages unchanged.",
        )
    return handler.split, handler.absolute_reference
