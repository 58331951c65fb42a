"""What travels from the tasks that split to those that handle: a row for each message and claim.

The payloads of sub-messages don't travel: ``split`` is deterministic, so whoever handles splits the
message again, and is told which of its sub-messages are meant. A slice that was read adds a row of
its own, the manifest, in the partition behind those of the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from drainer.core.progress import Range, decode_ranges, encode_ranges
from drainer.errors import SplitFailed
from drainer.message import Message, Origin, SubMessage

ROWS_MOST = 2_000  # of one Arrow batch
BATCH_BYTES = 4 * 1024 * 1024

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ROW_SCHEMA = pa.schema(
    [
        pa.field("claim", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),  # in milliseconds
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
        pa.field("subs", pa.int32()),  # that split gave
        pa.field("bits", pa.binary()),  # those of them that are meant; null for all
        pa.field("meant", pa.int32()),  # how many that are
    ]
)
SPARK_SCHEMA = (
    "claim int, partition int, offset bigint, timestamp bigint, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>, subs int, bits binary, meant int"
)


class RoutedMessage(Message):
    """A message of which some sub-messages are for this task, and the others are not."""

    __slots__ = ("bits", "subs")

    bits: int | None  # None for all
    subs: int

    def not_meant(self, subs: Sequence[SubMessage]) -> int:
        """The bits of sub-messages that others handle, or have handled.

        Raises SplitFailed when ``split`` gave another number of them than before.
        """
        if len(subs) != self.subs:
            raise SplitFailed(
                f"split is not deterministic: {self} gave {self.subs} sub-messages before and gives"
                f" {len(subs)} now",
                hint="split must depend on the message alone; see docs/correctness.md",
            )
        return 0 if self.bits is None else ~self.bits & ((1 << self.subs) - 1)


class RowBuilder:
    """Collects rows, and gives them as Arrow batches of a bounded size."""

    def __init__(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in ROW_SCHEMA]
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._columns[0]) >= ROWS_MOST or self._bytes >= BATCH_BYTES

    def add(self, claim: int, message: Message, subs: int, bits: int, *, whole: bool) -> None:
        """``whole`` says that all sub-messages of the message are meant."""
        row = (
            claim,
            message.origin.partition,
            message.offset,
            message.timestamp,
            message.key,
            message.value,
            message.headers or None,
            subs,
            None if whole else bits.to_bytes((subs + 7) // 8, "little"),
            bits.bit_count(),
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._bytes += len(message.value or b"") + 64

    def add_manifest(self, claim: int, manifest: Manifest) -> None:
        row = (claim, manifest.partition, manifest.start, None, None, manifest.encode())
        for column, value in zip(self._columns, (*row, None, 0, None, 0), strict=True):
            column.append(value)

    def take(self) -> pa.RecordBatch:
        """All that was added since it was last asked."""
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(self._columns, ROW_SCHEMA, strict=True)
        ]
        self.__init__()  # type: ignore[misc]
        return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


def messages_of(batch: pa.RecordBatch, topic: str, topic_id: str) -> Iterator[RoutedMessage]:
    """The messages of an Arrow batch, in its order."""
    origins: dict[int, Origin] = {}
    columns = [batch.column(place).to_pylist() for place in range(1, 9)]
    for number, offset, timestamp, key, value, headers, subs, bits in zip(*columns, strict=True):
        origin = origins.get(number)
        if origin is None:
            origin = origins[number] = Origin(topic, topic_id, number)
        pairs = () if headers is None else [(each["key"], each["value"]) for each in headers]
        message = RoutedMessage(origin, offset, key, value, timestamp, pairs)
        message.subs = subs
        message.bits = None if bits is None else int.from_bytes(bits, "little")
        yield message


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a slice held, for the account.

    Attributes:
        start, end: the offsets that were to be read.
        reached: below this offset all was read; short of ``end`` when its share of the wave was
            used up.
        delivered: offsets of messages that were not finished before, as ranges.
        subs: sub-messages that are to be handled, by the number of the claim.
        undivided: offsets of messages of which several claims need the same sub-message.
        read_bytes: what the records take in memory, estimated.
    """

    partition: int
    start: int
    end: int
    reached: int
    delivered: tuple[Range, ...]
    subs: Mapping[int, int]
    undivided: tuple[int, ...]
    read_bytes: int

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "partition": self.partition,
                "start": self.start,
                "end": self.end,
                "reached": self.reached,
                "delivered": encode_ranges(self.delivered),
                "subs": {str(claim): count for claim, count in self.subs.items()},
                "undivided": self.undivided,
                "read_bytes": self.read_bytes,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        body = orjson.loads(data)
        return cls(
            body["partition"],
            body["start"],
            body["end"],
            body["reached"],
            decode_ranges(body["delivered"]),
            {int(claim): count for claim, count in body["subs"].items()},
            tuple(body["undivided"]),
            body["read_bytes"],
        )
