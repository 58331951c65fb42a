"""Tables of messages and of sub-messages, and the function by which tasks go from one to the other.

A row of sub-messages has the place of a sub-message in its message and in the topic, so a task can
bring them into their order again. ``key`` and ``payload`` are for people and for filters; if they
can't say exactly what ``handle`` is to get, ``sub`` has the sub-message itself, pickled.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import pyarrow as pa
from msgspec import Raw

from drainer.engine.loop import new_event_loop
from drainer.errors import DrainerError, UsageError
from drainer.handler import Context, no_extras
from drainer.kafka.settings import ClientSettings
from drainer.loading.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage, Unsplit
from drainer.model.arguments import in_python
from drainer.model.claims import ShardMap
from drainer.model.order import Order
from drainer.model.sub_messages import identify_or_reject
from drainer.spark.session.failure import error_as_json, restated
from drainer.spark.session.shipping import Shipped
from drainer.spark.task.chunk import PICKLE_PROTOCOL, not_sent
from drainer.split.splitting import Outage, split_or_reject
from drainer.text.plain_json import plain_json

# The types of columns, by Spark's names for them. What "timestamp" means depends on a setting.
# Sub-messages have no column with lists: Spark would take 10 us more for each row.
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
}
MESSAGES = "key", "value", "topic", "partition", "offset", "timestamp", "headers"
SUBS = {
    "key": "string",
    "shard": "int",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "index": "int",
    "of": "int",
    "payload": "binary",
    "rejected": "string",
    "sub": "binary",
    "timestamp": "timestamp_ltz",
    "message_key": "binary",
    "message_value": "binary",
    "headers": "binary",
}
# There are so many shards that any number of tasks gets almost equal parts. The number never
# changes, since tables of sub-messages that were saved have the numbers of their shards.
SHARDS = 2**20
THE_ONE = -1  # The number of the shard of all sub-messages if they are not shared out.
BATCH_ROWS, BATCH_BYTES = 2_000, 4 * 1024 * 1024
PARTITION_MOST = 2**31 - 1


def batch_of(rows: Sequence[tuple[Any, ...]], columns: Mapping[str, str]) -> pa.RecordBatch:
    """Return rows as an Arrow batch with these columns, which have the names of Spark's types."""
    arrays = [
        pa.array(values, _TYPES[kind])
        for values, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def rows_of(batch: pa.RecordBatch, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch with these columns. One that it lacks is None everywhere.

    A timestamp is the number of microseconds since 1970.
    """
    found = set(batch.schema.names)

    def column(name: str) -> list[Any]:
        if name not in found:
            return [None] * batch.num_rows
        values = batch.column(name)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        return list(values.to_pylist())

    return zip(*map(column, names), strict=True)


def key_text(sub: SubMessage) -> str | None:
    """Return the sub-key of a sub-message, or its sub-keys, as the column ``key`` has it."""
    key = sub.key if sub.keys is None else sub.keys
    if key is None:
        return None
    text = key if isinstance(key, str) else repr(key)
    return text.encode("utf-8", "backslashreplace").decode()  # A column can't have surrogates.


@dataclass(frozen=True, slots=True)
class TableSplitter:
    """The function that makes sub-messages of messages.

    Attributes:
        one_shard: whether all sub-messages are of one shard.
        values: whether the sub-messages get the values of their messages.
        client: the client whose properties the handler and its decoders get; None without it.
    """

    shipped: Shipped
    one_shard: bool
    values: bool
    options: Mapping[str, str]
    client: ClientSettings | None = None

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sub-messages of the messages in ``batches``, for ``mapInArrow``.

        Raises UsageError if something connects shards, or a message has no place.
        """
        with explained():
            handler = self.shipped.load().configured(self.options)
            held, size = list[tuple[Any, ...]](), 0
            with self._opened(handler):
                for row in self._rows(handler, batches):
                    held.append(row)
                    size += sum(len(each) for each in row if type(each) is bytes)
                    if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
                        yield batch_of(held, SUBS)
                        held, size = [], 0
            if held:
                yield batch_of(held, SUBS)

    @contextmanager
    def _opened(self, handler: LoadedHandler) -> Iterator[None]:
        """Open the handler for the block if it can be opened, since its ``split`` may need that."""
        if not handler.has_open:
            yield
            return
        extras = no_extras if self.client is None else self.client.extension
        loop = new_event_loop()
        try:
            context = Context("", "", "split", 1, dict(self.options), extras=extras)
            loop.run_until_complete(handler.open(context))
            try:
                yield
            finally:
                loop.run_until_complete(handler.close())
        finally:
            loop.close()

    def _rows(
        self, handler: LoadedHandler, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[Any, ...]]:
        shard_map = ShardMap(Order.SUB_KEY)
        for batch in batches:
            for message in prepared(handler, list(_messages(batch))):
                yield from self._rows_of(handler, message, shard_map)

    def _rows_of(
        self, handler: LoadedHandler, message: Message, shard_map: ShardMap
    ) -> Iterator[tuple[Any, ...]]:
        if handler.split is None:
            found: Iterable[SubMessage] = [SubMessage(message.key, message.value)]
        else:
            found = split_or_reject(handler.split, message)
        subs, _ = identify_or_reject(message, found)
        facts = message.timestamp, message.key, message.value if self.values else None
        headers = pickle.dumps(list(message.headers)) if message.headers else None
        for sub in subs:
            shard = THE_ONE if self.one_shard else shard_map.shard_of(sub, SHARDS)
            if shard is None:
                raise UsageError(
                    f"{message} has a barrier, or a sub-message with keys in several shards",
                    hint="Let one task handle all: split(…, one_shard=True), handle(…, tasks=1).",
                )
            text, content = key_text(sub), sub.content
            exact = type(sub) is SubMessage and sub.keys is None and text == sub.key
            exact = exact and (content is None or type(content) is bytes)
            timestamp = None if facts[0] is None else facts[0] * 1_000
            rejected = sub.why if isinstance(sub, Unsplit) else None
            yield (
                *(text, shard, message.topic, message.partition, message.offset),
                *(sub.index, len(subs), _shown(content), rejected),
                *(None if exact else _pickled(sub), timestamp, *facts[1:], headers),
            )


def _shown(content: Any) -> bytes | None:
    """Return a payload as people read it."""
    if content is None or type(content) is bytes:
        return content
    try:
        return bytes(content) if isinstance(content, Raw) else plain_json(content)
    except (TypeError, ValueError):  # It is not like JSON.
        return repr(content).encode("utf-8", "backslashreplace")


def _pickled(sub: SubMessage) -> bytes:
    message, sub.message = sub.message, None  # type: ignore[assignment]
    try:
        return pickle.dumps(sub, PICKLE_PROTOCOL)
    except Exception as error:  # The payload's own code may raise anything.
        raise not_sent(f"{message}[{sub.index}]", error) from error
    finally:
        sub.message = message


def _messages(batch: pa.RecordBatch) -> Iterator[Message]:
    origins: dict[tuple[str, int], Origin] = {}
    for key, value, topic, number, offset, micros, headers in rows_of(batch, MESSAGES):
        if number is None or offset is None or offset < 0 or not 0 <= number <= PARTITION_MOST:
            raise UsageError(
                f"a message of topic {topic} has the partition {number} and the offset {offset},"
                " so it has no place in an order",
                hint="Leave it out, or give it the place that it had in Kafka.",
            )
        place = topic or "", number
        origin = origins.get(place) or origins.setdefault(place, Origin(place[0], place[0], number))
        timestamp = None if micros is None else micros // 1_000
        pairs = [(each["key"], each["value"]) for each in headers or ()]
        yield Message(origin, offset, key, value, timestamp, pairs)


def prepared(handler: LoadedHandler, messages: list[Any]) -> Iterator[Any]:
    """Yield messages when what decoding needs for them is there, such as their schemas."""
    outage = Outage(inf, _wait)
    while handler.prepare is not None and messages:
        count = handler.prepare(messages, outage)
        yield from messages[:count]
        messages = messages[count:]
    yield from messages


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return True


_AGAIN = (
    "Fix the cause, and run the query again: with a journal, it goes on where this one ended. To go"
    " past what fails, set failures.on_failure or on_split_failure to dead-letter or skip."
)


@contextmanager
def explained() -> Iterator[None]:
    """Put the hint of an error and the traceback of its cause into its text.

    Spark shows only the text. Secrets are replaced in all of it.
    """
    try:
        yield
    except DrainerError as error:
        hint = error.hint and (_AGAIN if "resume" in error.hint.lower() else in_python(error.hint))
        lines = [in_python(str(error))]
        if hint:
            lines.append(f"hint: {hint}")
        if error.__cause__ is not None:
            lines.append(f"\nThe cause:\n{error_as_json(error)['cause']}")
        raise restated(error, "\n".join(lines), hint) from None
