"""Reading and splitting a slice of the backlog in a task, and telling whose each part is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from drainer.core.claims import Elsewhere, Places
from drainer.core.identity import identify
from drainer.core.order import Order
from drainer.core.plan import ALL
from drainer.core.progress import Partial, Progress, RangeSet, checksum_keys, ranges_of
from drainer.kafka.spans import read_range
from drainer.loader import split_failed
from drainer.message import Message, Origin, SubMessage
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.failure import carrying
from drainer.spark.python_worker import HandlerSpec, python_worker
from drainer.spark.rows import Manifest, RowBuilder
from drainer.spark.waves import Piece

UNDIVIDED_MOST = 100  # offsets that a manifest lists; with more the wave is not divided at all


@dataclass(frozen=True, slots=True)
class Splitting:
    """What splits the slices of a wave; sent to the tasks. Rows of a claim carry its number, those
    of manifests the number behind the last claim.

    ``known`` is what was finished when the wave was begun, as the plan's claims have it. Each slice
    is read at ``share`` of what the handler's ``limits`` allow for.
    """

    handler: HandlerSpec
    order: Order
    claims: int
    topic_id: str
    slices: tuple[Piece, ...]
    known: Mapping[str, Mapping[int, Progress]] = field(default_factory=dict)
    share: float = 1.0
    message_bytes: float = 1.0  # of what was read before, on average

    def pace(self) -> RateLimiter | None:
        limits = self.handler.limits
        return None if limits is None else RateLimiter(limits, self.share, self.message_bytes)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _SliceSplitter(self, self.slices[number]).rows()


class _SliceSplitter:
    """One slice of it, from Kafka to rows."""

    def __init__(self, task: Splitting, part: Piece) -> None:
        number = part.partition
        before = task.known.get(ALL, {}).get(number) or Progress(part.start)
        self._task = task
        self._slice = part
        self._origin = Origin(task.handler.topic, task.topic_id, number)
        self._watermark = before.watermark
        self._finished = RangeSet(before.finished)
        self._partial: Mapping[int, Partial] = before.partial
        others = {name: claim for name, claim in task.known.items() if name != ALL}
        self._places = Places(task.order)
        self._elsewhere = Elsewhere(others, self._places) if others else None
        self._rows = RowBuilder()
        self._delivered: list[int] = []
        self._subs = [0] * task.claims
        self._undivided: list[int] = []

    def rows(self) -> Iterator[pa.RecordBatch]:
        part, rows = self._slice, self._rows
        with python_worker().at_work(self._task.handler) as handler:
            take = self._taker(handler.split)
            read, reached, full = 0, part.end, False
            for batch in read_range(
                self._task.handler.client,
                self._origin,
                part.start,
                part.end,
                reader=self._task.handler.group,
                pace=self._task.pace(),
            ):
                for message in batch.messages:
                    if self._wants(message.offset):
                        take(message)
                        if rows.full:
                            yield rows.take()
                    # By the messages and not by batches, which come as they like: a slice that
                    # Spark lost and reads again must end where it did.
                    read += len(message.key or b"") + len(message.value or b"")
                    if read >= part.bytes_most:
                        reached, full = message.offset + 1, True
                        break
                if full:
                    break
        rows.add_manifest(
            self._task.claims,
            Manifest(
                part.partition,
                part.start,
                part.end,
                reached,
                ranges_of(self._delivered),
                {claim: count for claim, count in enumerate(self._subs) if count},
                tuple(self._undivided),
                read,
            ),
        )
        yield rows.take()

    def _wants(self, offset: int) -> bool:
        return offset >= self._watermark and offset not in self._finished

    def _taker(
        self, split: Callable[[Message], Iterable[SubMessage]] | None
    ) -> Callable[[Message], None]:
        if split is not None:
            return lambda message: self._divide(message, self._split(split, message), splits=True)
        return lambda message: self._divide(
            message, [SubMessage(message.key, message.value)], splits=False
        )

    @staticmethod
    def _split(
        split: Callable[[Message], Iterable[SubMessage]], message: Message
    ) -> list[SubMessage]:
        try:
            return list(split(message))
        except BaseException as error:  # also of one that calls sys.exit()
            raise split_failed(message, error) from error

    def _divide(self, message: Message, subs: Sequence[SubMessage], *, splits: bool) -> None:
        keys = identify(message, subs)
        self._delivered.append(message.offset)
        done = self._done(message, subs, keys)
        every = (1 << len(subs)) - 1
        divided = self._places.divide(subs, self._task.claims, done)
        if divided is None:
            if len(self._undivided) <= UNDIVIDED_MOST:
                self._undivided.append(message.offset)
            return
        checksum = checksum_keys(keys) if splits else None
        for claim, meant in enumerate(divided):
            if meant:
                self._subs[claim] += meant.bit_count()
                self._rows.add(
                    claim, message, len(subs), meant, whole=meant == every, checksum=checksum
                )

    def _done(self, message: Message, subs: Sequence[SubMessage], keys: Sequence[Hashable]) -> int:
        done = 0
        known = self._partial.get(message.offset)
        if known is not None:
            known.insist_same(message, keys)
            done = known.bits
        if self._elsewhere is not None:
            done |= self._elsewhere.finished(message, subs)
        return done
