"""Chunks: sub-messages of one shard from a slice of a partition, which Spark shuffles as one row.

The task that reads the messages has split them. A chunk has the facts of each message once, and the
index, the sub-key and the payload of each sub-message. All of it is pickled together, so that an
object which several sub-messages share is in the chunk once.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from lz4 import block as lz4  # pyarrow has it, too, but takes 200 ms to import.

from drainer.errors import Refused, SplitFailed
from drainer.loading.loader import LoadedHandler
from drainer.message import HeadersUnreadable, KeySums, Message, Origin, ShippedMessage, SubMessage
from drainer.model.progress import checksum_keys
from drainer.model.sub_messages import Payloads, SubKeys
from drainer.model.terms import Terms
from drainer.spark.session.settings import SEND_ALONG
from drainer.spark.task.rows import Row
from drainer.text.mask import describe
from drainer.text.raw_json import meaning

# A chunk is full when it reaches one of three limits: on the number of its sub-messages, on the
# size of the values that these come from, and on the memory that its payloads take, since split may
# make large payloads from a small value. If only some sub-messages of a message are in a chunk,
# that share of the value's size counts.
CHUNK_SUBS = 1_000
CHUNK_BYTES = 64 * 1024
CHUNK_MEMORY_BYTES = 1024 * 1024
OPEN_MEMORY_BYTES = 64 * 1024 * 1024  # Payloads in open chunks take no more than this.
KNOWN_MOST = 10_000  # This many keys and headers are remembered, to store equal ones once.

PICKLE_PROTOCOL = 5
CHECKSUM_MASK = 2**63 - 1  # Sums of checksums are kept within 63 bits.

_Headers = tuple[tuple[str, bytes | None], ...]
# The facts of a message: its offset, timestamp, key and headers, and of its sub-keys the number and
# the checksum. The headers are None if they can't be read.
_Facts = tuple[int, int | None, bytes | None, _Headers | None, int, int]


def why_whole(handler: LoadedHandler, terms: Terms) -> str | None:
    """Return the reason why values are sent beside their sub-messages; None if they are not."""
    if handler.split is None:  # With the default split, the values are the payloads.
        return None
    if handler.whole_messages:
        return "the handler sets whole_messages"
    if handler.payloads.key_format is not None:
        return "keys are decoded"
    read = (name for name, text in terms.failures.expressions if "value" in text)
    return next((f"{name} reads message.value" for name in read), None)


@dataclass(slots=True, eq=False)
class _Chunk:
    """A chunk that is being filled.

    Attributes:
        facts: the facts of the messages that it has a part of.
        counts: for each of these messages, the number of its sub-messages in the chunk.
        values: contents of messages, by the message's place in ``facts``.
        indexes, sub_keys, payloads: the sub-messages in the order of offset and index. They are
            empty for the default split.
        odd: the sub-messages that these lists can't describe, such as those of derived classes, by
            their place in the lists.
        fill: how full the chunk is, from 0 to 1.
        memory: the bytes of memory that its payloads take.
    """

    facts: list[_Facts] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    values: dict[int, Any] = field(default_factory=dict)
    indexes: list[int] = field(default_factory=list)
    sub_keys: list[Hashable] = field(default_factory=list)
    payloads: list[Any] = field(default_factory=list)
    odd: dict[int, SubMessage] = field(default_factory=dict)
    fill: float = 0.0
    memory: float = 0.0


class ChunkWriter:
    """Makes chunks of the messages of one slice, with one open chunk for each shard.

    After adding a message, the caller takes the chunks that are ``full``, and at the end the others
    with ``flush``. The chunks of a shard come in the order of their offsets, and each message is in
    at most one of them. Sub-messages that were added can't be used any more.

    With ``whole_messages``, chunks have the values of all messages. Otherwise they have a value
    only if it is the payload of a sub-message.
    """

    def __init__(self, origin: Origin, *, whole_messages: bool = False) -> None:
        self._origin = origin
        self._whole_messages = whole_messages
        self._chunks: defaultdict[int, _Chunk] = defaultdict(_Chunk)
        self._full: dict[int, None] = {}
        self._memory = 0.0
        self._payloads = Payloads(decoded=whole_messages)
        self._known: dict[Any, Any] = {}

    def add(
        self,
        message: Message,
        subs: Sequence[SubMessage],
        keys: Sequence[Hashable] | KeySums,
        shards: Iterable[int],
    ) -> None:
        """Add the sub-messages of a message, each to the chunk of its shard.

        ``keys`` are the sub-keys. A sub-message whose shard is below 0 is left out.
        """
        memory = message.size + self._payloads.bytes_of(message, subs)
        self._memory += memory
        of_message = self._facts_of(message, len(subs), checksum_keys(keys))
        count = len(subs) or 1
        memory_each = memory / count
        fill_each = _fill_of(message.size / count, memory_each)
        chunks, value, decoded = self._chunks, message.value, message.meaning
        read = getattr(message, "read", message)
        content = _content_of(message)
        for sub, shard in zip(subs, shards, strict=True):
            if shard < 0:
                continue
            chunk = chunks[shard]
            facts, key, payload = chunk.facts, sub.key, sub.content
            if facts and facts[-1] is of_message:
                chunk.counts[-1] += 1
            else:
                facts.append(of_message)
                chunk.counts.append(1)
                if self._whole_messages:
                    chunk.values[len(facts) - 1] = content
            if payload is read and payload == meaning(decoded):  # Split did not change the payload.
                payload = decoded
            if payload is value or payload is decoded:
                chunk.values[len(facts) - 1] = content
            if type(sub) is not SubMessage or (sub.keys is not None and key is not None):
                # The sub-message is pickled as it is. Its message must not be pickled with it.
                sub.message = None  # type: ignore[assignment]
                chunk.odd[len(chunk.indexes)] = sub
                key = payload = None
            elif sub.keys is not None:
                key = SubKeys(sub.keys)
            chunk.indexes.append(sub.index)
            chunk.sub_keys.append(key)
            chunk.payloads.append(payload)
            chunk.memory += memory_each
            chunk.fill += fill_each
            if chunk.fill >= 1:
                self._full[shard] = None

    def add_whole(self, shard: int, message: Message) -> None:
        """Add a message that is one sub-message by the default split."""
        chunk = self._chunks[shard]
        chunk.values[len(chunk.facts)] = message.value
        chunk.facts.append(self._facts_of(message, 1, 0))
        self._memory += message.size
        chunk.memory += message.size
        chunk.fill += _fill_of(message.size, message.size)
        if chunk.fill >= 1:
            self._full[shard] = None

    def full(self) -> Iterator[Row]:
        """Yield the chunks that are full, or all chunks if the open ones take too much memory."""
        if self._memory > OPEN_MEMORY_BYTES:
            yield from self.flush()
        for shard in self._full:
            yield self._take(shard)
        self._full.clear()

    def flush(self) -> Iterator[Row]:
        """Yield all open chunks."""
        for shard in list(self._chunks):
            yield self._take(shard)
        self._full.clear()
        self._memory = 0.0

    def _take(self, shard: int) -> Row:
        chunk = self._chunks.pop(shard)
        self._memory -= chunk.memory
        count = len(chunk.indexes) or len(chunk.facts)
        body = _encode(chunk, self._origin)
        first = chunk.facts[0][0]
        return Row(shard, self._origin.partition, first, count, _checksum(chunk), body)

    def _facts_of(self, message: Message, count: int, checksum: int) -> _Facts:
        known = self._known
        if len(known) > KNOWN_MOST:
            known.clear()
        headers: _Headers | None
        try:
            headers = tuple(message.headers)
        except HeadersUnreadable:
            headers = None
        if headers:
            headers = known.setdefault(headers, headers)
        key = known.setdefault(message.key, message.key)
        return message.offset, message.timestamp, key, headers, count, checksum


def _fill_of(value_bytes: float, memory_bytes: float) -> float:
    """Return the share of a chunk that one sub-message fills."""
    return max(1 / CHUNK_SUBS, value_bytes / CHUNK_BYTES, memory_bytes / CHUNK_MEMORY_BYTES)


def _checksum(chunk: _Chunk) -> int:
    # This is a checksum of the sub-messages, because the bytes of a chunk may differ from one
    # reading of a slice to the next: its chunks may end at other messages, and pickle writes a
    # payload in another way if it is the same object as an earlier one.
    counts = chunk.counts or [1] * len(chunk.facts)
    messages = zip(chunk.facts, counts, strict=True)
    sums = (hash((facts[0], count, facts[5])) for facts, count in messages)
    return (sum(sums) + sum(chunk.indexes)) & CHECKSUM_MASK


def _encode(chunk: _Chunk, origin: Origin) -> bytes:
    """Return a chunk as bytes. Raises SplitFailed if a payload can't be pickled."""
    memory = int(chunk.memory / (len(chunk.indexes) or 1))
    subs = (memory, chunk.indexes, chunk.sub_keys, chunk.payloads, chunk.odd)
    try:
        body = pickle.dumps((chunk.facts, chunk.counts, chunk.values, *subs), PICKLE_PROTOCOL)
    except Exception as error:  # The payloads' own code may raise anything.
        raise _refused(chunk, origin, error) from error
    return bytes(lz4.compress(body))


def _refused(chunk: _Chunk, origin: Origin, why: Exception) -> SplitFailed:
    """Return the error that names the first payload of a chunk that can't be pickled."""
    offsets = chain.from_iterable(
        repeat(facts[0], count) for facts, count in zip(chunk.facts, chunk.counts, strict=True)
    )
    sub = f"{chunk.facts[0][0]} and after"
    for place, (offset, index) in enumerate(zip(offsets, chunk.indexes, strict=True)):
        try:
            pickle.dumps(chunk.odd.get(place, chunk.payloads[place]), PICKLE_PROTOCOL)
        except Exception as error:
            sub, why = f"{offset}[{index}]", error
            break
    return not_sent(f"{origin.topic}/{origin.partition}/{sub}", why)


def not_sent(place: str, why: Exception) -> SplitFailed:
    """Return the error for a sub-message whose payload can't be pickled."""
    return SplitFailed(
        f"can't send the payload of {place} to another process: {describe(why)}",
        hint="Yield plain data, and open connections in open().",
    )


def not_restored(what: str, why: Exception) -> Refused:
    """Return the error for payloads that this process can't restore. ``what`` names them."""
    missing = isinstance(why, ImportError | AttributeError)
    return Refused(
        f"can't restore {what} in another process: {describe(why)}",
        hint=SEND_ALONG if missing else "Yield plain data from split().",
    )


def _content_of(message: Message) -> Any:
    """Return the value of a message; if it was decoded, with the meanings of value and key."""
    content = message.value, message.meaning, message.decoded_key
    return message.value if content[1] is content[0] and content[2] is message.key else content


def decode_chunk(body: bytes, origin: Origin) -> Iterator[ShippedMessage]:
    """Return the messages of a chunk in their order.

    Messages of the default split come without sub-messages, for ``Dispatcher.deliver_whole``. All
    others are for ``Dispatcher.deliver_parts``.

    Raises Refused if this process can't restore a payload, for example because it lacks the class.
    """
    try:
        facts, counts, values, *columns = pickle.loads(lz4.decompress(body))
    except Exception as error:  # The payloads' own code may raise anything.
        raise not_restored(f"payloads of {origin.topic}/{origin.partition}", error) from error
    if not counts:
        counts = [0] * len(facts)
    return _messages(origin, facts, counts, values, columns)


def _messages(
    origin: Origin,
    all_facts: Iterable[_Facts],
    counts: Iterable[int],
    values: Mapping[int, Any],
    columns: Sequence[Any],
) -> Iterator[ShippedMessage]:
    memory, indexes, sub_keys, payloads, odd = columns
    subs = list(map(SubMessage, sub_keys, payloads))
    if SubKeys in set(map(type, sub_keys)):
        for place, key in enumerate(sub_keys):
            if type(key) is SubKeys:
                subs[place] = SubMessage(payload=payloads[place], keys=key)
    for place, sub in odd.items():
        subs[place] = sub
    indexed = zip(subs, indexes, strict=True)
    for number, (facts, count) in enumerate(zip(all_facts, counts, strict=True)):
        offset, timestamp, message_key, headers, total, checksum = facts
        sums = KeySums(total, checksum)
        message = ShippedMessage(origin, offset, message_key, timestamp, headers, sums)
        if number in values:
            value = values[number]
            if type(value) is tuple:
                value, message.decoded, message.decoded_key = value
            message.value = value
            message.size += 0 if value is None else len(value)
        message.size += memory * count
        message.subs = own = []
        for sub, index in islice(indexed, count):
            sub.message = message
            sub.index = index
            own.append(sub)
        yield message
