"""What travels from the tasks that split to those that handle: a row for each message and claim.

The payloads of sub-messages don't travel: ``split`` is deterministic, so whoever handles splits the
message again, and gets which of its sub-messages are meant. The checksum of their sub-keys goes
along: with another split these bits would mean others, and some would be left out. A slice
that was read adds a row of its own, the manifest, in the partition behind those of the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from drainer.core.identity import SubKeys
from drainer.core.progress import Range, checksum_keys
from drainer.errors import Interrupted, SplitFailed
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
        pa.field("checksum", pa.int64()),  # of their sub-keys; null when the default split gave it
    ]
)
SPARK_SCHEMA = (
    "claim int, partition int, offset bigint, timestamp bigint, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>, subs int, bits binary, meant int,"
    " checksum bigint"
)


class RoutedMessage(Message):
    """A message of which some sub-messages are for this task, and the others are not."""

    __slots__ = ("bits", "checksum", "subs")

    bits: int | None  # None for all
    subs: int
    checksum: int | None

    def not_meant(self, subs: Sequence[SubMessage]) -> int:
        """The bits of sub-messages that others handle, or have handled.

        Raises SplitFailed when ``split`` gave others than before.
        """
        found = checksum_of(subs)
        if (len(subs), found) != (self.subs, self.checksum):
            raise SplitFailed(
                f"split is not deterministic: {self} gave {self.subs} sub-messages (checksum"
                f" {self.checksum or 0:08x}) when it was read and gives {len(subs)} ({found:08x})"
                " now",
                hint="split must depend on the message alone; see docs/correctness.md",
            )
        return 0 if self.bits is None else ~self.bits & ((1 << self.subs) - 1)


def checksum_of(subs: Sequence[SubMessage]) -> int:
    """Over all sub-keys of a message."""
    return checksum_keys([sub.key if sub.keys is None else SubKeys(sub.keys) for sub in subs])


class RowBuilder:
    """Collects rows, and gives them as Arrow batches of a bounded size."""

    def __init__(self) -> None:
        self._columns: list[list[Any]] = [[] for _ in ROW_SCHEMA]
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._columns[0]) >= ROWS_MOST or self._bytes >= BATCH_BYTES

    def add(
        self,
        claim: int,
        message: Message,
        subs: int,
        bits: int,
        *,
        whole: bool,
        checksum: int | None = None,
    ) -> None:
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
            checksum,
        )
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._bytes += len(message.value or b"") + len(message.key or b"") + 64

    def add_manifest(self, claim: int, manifest: Manifest) -> None:
        row = (claim, manifest.partition, manifest.start, None, None, manifest.encode())
        for column, value in zip(self._columns, (*row, None, 0, None, 0, None), strict=True):
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
    columns = [batch.column(place).to_pylist() for place in (*range(1, 9), 10)]
    for row in zip(*columns, strict=True):
        number, offset, timestamp, key, value, headers, subs, bits, checksum = row
        origin = origins.get(number)
        if origin is None:
            origin = origins[number] = Origin(topic, topic_id, number)
        pairs = () if headers is None else [(each["key"], each["value"]) for each in headers]
        message = RoutedMessage(origin, offset, key, value, timestamp, pairs)
        message.subs, message.checksum = subs, checksum
        message.bits = None if bits is None else int.from_bytes(bits, "little")
        yield message


class Expected:
    """The rows of one claim as they come, and whether they are those that were announced.

    ``subs`` is how many sub-messages they are to have, by the manifests. Spark makes rows anew when
    it lost them, and the log may have others by then.
    """

    def __init__(self, claim: int, subs: int) -> None:
        self._claim = claim
        self._left = subs

    def take(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The same rows, those of each partition for themselves.

        Raises Interrupted when some are another claim's.
        """
        if batch.num_rows and pc.min_max(batch.column(0)).as_py() != dict.fromkeys(
            ("min", "max"), self._claim
        ):
            raise Interrupted(
                f"Spark gave the task of claim {self._claim} rows of others",
                hint="resume with the plan; does a setting of Spark change how it shuffles?",
            )
        self._left -= pc.sum(batch.column(9)).as_py() or 0
        changes = pc.indices_nonzero(pc.not_equal(batch.column(1)[1:], batch.column(1)[:-1]))
        bounds = [0, *(change + 1 for change in changes.to_pylist()), batch.num_rows]
        return [batch.slice(start, end - start) for start, end in pairwise(bounds) if end > start]

    def insist_on_all(self) -> None:
        """Raises Interrupted when there were fewer, or more: nothing may count as read."""
        if self._left:
            what = f"{self._left:,} fewer" if self._left > 0 else f"{-self._left:,} more"
            raise Interrupted(
                f"the rows of claim {self._claim} have {what} sub-messages than when they were"
                " read: Spark lost some and read them again, and the log has changed meanwhile",
                hint="resume with the plan: it reads again what is not finished",
            )


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
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        return msgspec.json.decode(data, type=cls)
