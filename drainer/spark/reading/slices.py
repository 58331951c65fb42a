"""A Spark task that reads a span of a slice, splits the messages and makes chunks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import sleep, thread_time
from typing import cast
from zlib import crc32

import msgspec
import pyarrow as pa

from drainer.core.other_claims import OtherClaims
from drainer.errors import Interrupted
from drainer.kafka.reader import FetchedBatch
from drainer.kafka.spans import Span, read_range
from drainer.message import AnyKeys, Barrier, KeySums, Message, Origin, SubMessage, Unsplit
from drainer.model.claims import ALL, Claims, ShardMap
from drainer.model.order import LANE_OF, Order
from drainer.model.progress import Partial, Progress
from drainer.model.ranges import Range, RangeSet, ranges_of
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.sub_messages import identify, identify_or_reject
from drainer.policy.rate_cap import RateLimiter
from drainer.policy.redrive import selects
from drainer.spark.session.failure import carrying
from drainer.spark.task.chunk import CHECKSUM_MASK, ChunkWriter, why_whole
from drainer.spark.task.python_worker import HandlerSpec, OpenHandler, python_worker
from drainer.spark.task.rows import Row, batches_of, counted
from drainer.split.splitting import PAST, Outage, SplitFunction, split_failed, split_or_reject

DONE = -1  # In place of a shard's number, it means that the sub-message was finished before.
# A task fetches this much ahead, in requests of a quarter of it. It is little, because a span may
# end anywhere, and what is fetched beyond its end is thrown away.
READ_AHEAD_BYTES = 128 * 1024


class Manifest(msgspec.Struct):
    """The account of a span, which its reader fills in as it reads.

    Attributes:
        start, end: the offsets ``[start, end)`` of the span.
        delivered: the offsets of messages that were not finished before.
        subs, checksums: the number of sub-messages and their checksum, by the number of the shard.
        finished: the number of sub-messages that were finished before, in the delivered messages.
        connected: whether a barrier or a sub-message belongs to several shards. If so, one task
            must handle the whole slice. If it was divided, it is read again, so the reader stops.
        units: the offsets of messages that ``split`` rejected. Each of them is one unit of work.
        stop: the offset after the first message that ``split`` rejected, if its partition stops
            there. The span has no messages from that offset on.
        log_bytes: the size of the keys and values that were read.
        processor_s: the processor time that reading and splitting took.
        left_alone: the number of letters that a redrive leaves alone, by the reason for it;
            ``left_alone_subs`` is the number of their sub-messages that were not finished before.
    """

    partition: int
    start: int
    end: int
    delivered: tuple[Range, ...] = ()
    subs: dict[int, int] = {}
    checksums: dict[int, int] = {}
    finished: int = 0
    connected: bool = False
    units: tuple[Range, ...] = ()
    stop: int | None = None
    log_bytes: int = 0
    processor_s: float = 0.0
    left_alone: dict[str, int] = {}
    left_alone_subs: int = 0


@dataclass(frozen=True, slots=True)
class SliceReader:
    """The function that reads a slice. Spark sends it to the tasks, one for each span.

    Attributes:
        slice: the number of the slice.
        shards: the number of shards that a divided slice has.
        divided: whether this slice is divided. If not, one task will handle all of it.
        spans: the spans of the slice.
        known: the plan's claims, with what was finished when the run began.
        failures: the settings that decide whether the drain halts, or reads no further in a
            partition, when ``split`` rejects a message.
        share: the share of the terms' ``limits`` on reading that each span may use.
        message_bytes: the mean size of the messages that were read before.
    """

    handler: HandlerSpec
    slice: int
    shards: int
    divided: bool
    spans: tuple[Span, ...]
    known: Claims
    failures: FailureSettings
    share: float = 1.0
    message_bytes: float = 1.0

    @property
    def of(self) -> int:
        """The number of shards that this slice has."""
        return self.shards if self.divided else 1

    def pace(self) -> RateLimiter | None:
        """Return the limiter for the reading of a task; None if reading is not capped."""
        curve = self.handler.terms.limits
        return None if curve is None else RateLimiter(curve.reading, self.share, self.message_bytes)

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read spans, and yield their chunks. Spark calls this through ``mapInArrow``.

        The first column of ``batches`` has the numbers of the spans to read. Raises Interrupted if
        Spark reads a span again, and does not find the same.
        """
        with carrying():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    with python_worker().at_work(self.handler) as opened:
                        yield from batches_of(_SpanReader(self, number, opened).rows())


class _SpanReader:
    """Reads one span, from Kafka to chunks."""

    def __init__(self, task: SliceReader, place: int, opened: OpenHandler) -> None:
        part, terms = task.spans[place], task.handler.terms
        number = part.partition
        before = task.known.get(ALL, {}).get(number) or Progress(part.start)
        others = {name: claim for name, claim in task.known.items() if name != ALL}
        order = Order(terms.order)
        self._task = task
        self._place = place
        self._opened = opened
        self._outage = Outage(task.failures.max_outage_s, self._pause)
        self._origin = Origin(terms.topic, terms.topic_id, number)
        self._watermark = before.watermark
        self._finished = RangeSet(before.finished)
        self._partial: Mapping[int, Partial] = before.partial
        self._shard_map = ShardMap(order)
        self._by_sub_key = order not in LANE_OF
        self._other_claims = OtherClaims(others, self._shard_map) if others else None
        self._manifest = Manifest(number, part.start, part.end)
        self._delivered: list[int] = []
        self._units: list[int] = []

    def rows(self) -> Iterator[Row]:
        """Yield the chunks of the span and its counts, and note its manifest in the state."""
        found, begun_s = self._manifest, thread_time()
        for row in self._chunks():
            found.subs[row.shard] = found.subs.get(row.shard, 0) + row.subs
            checksum = found.checksums.get(row.shard, 0) + row.checksum
            found.checksums[row.shard] = checksum & CHECKSUM_MASK
            yield row
        for shard, subs in found.subs.items():
            checksum = found.checksums[shard]
            yield Row(shard, counted(found.partition), found.start, subs, checksum, b"")
        found.delivered, found.units = ranges_of(self._delivered), ranges_of(self._units)
        found.processor_s = thread_time() - begun_s
        epoch, number = self._task.handler.epoch, self._task.slice
        first = self._opened.state.add_span(epoch, number, self._place, found)
        # What it took depends on how much was read beyond an end.
        first.processor_s, first.log_bytes = found.processor_s, found.log_bytes
        if first != found:
            raise Interrupted(
                f"partition {found.partition}, offsets {found.start:,} to {found.end - 1:,}: "
                f"{sum(first.subs.values()):,} sub-messages were lost and read again, but the"
                f" log, or what split makes of it, had changed ({sum(found.subs.values()):,} now)",
                hint="Resume with the plan: that reads again what is not done.",
            )

    def _chunks(self) -> Iterator[Row]:
        handler, spec, found = self._opened.handler, self._task.handler, self._manifest
        whole = why_whole(handler, spec.terms) is not None
        writer = ChunkWriter(self._origin, whole_messages=whole)
        add = partial(self._add_whole, writer)
        if handler.split:
            add = partial(self._add, writer, handler.split)
        for batch in read_range(
            spec.client,
            self._origin,
            found.start,
            found.end,
            reader=spec.terms.group,
            prefetch_bytes=READ_AHEAD_BYTES,
            pace=self._task.pace(),
        ):
            self._opened.report_reading()
            self._ensure_wanted()
            if self._ended:
                break
            for message in chain.from_iterable(part.messages for part in self._parts_of(batch)):
                found.log_bytes += message.size
                offset = message.offset
                is_left = offset >= self._watermark and offset not in self._finished
                if is_left and not self._ended:
                    add(message)
                    yield from writer.full()
        self._opened.report_reading()  # There may be holes alone.
        yield from writer.flush()

    def _parts_of(self, batch: FetchedBatch) -> Iterable[FetchedBatch]:
        prepare = self._opened.handler.prepare
        return [batch] if prepare is None else batch.prepared(prepare, self._outage)

    def _pause(self, seconds: float) -> bool:
        sleep(seconds)
        self._ensure_wanted()
        return True

    def _ensure_wanted(self) -> None:
        """Raise the error by which the drain ends, if it does."""
        if (lost := self._opened.fence.lost) is not None:
            raise lost

    @property
    def _ended(self) -> bool:
        """Whether nothing needs the rest of the span."""
        found = self._manifest
        return found.stop is not None or self._is_void

    @property
    def _is_void(self) -> bool:
        """Whether the slice has to be read again without dividing it."""
        return self._manifest.connected and self._task.divided

    def _add(self, writer: ChunkWriter, split: SplitFunction, message: Message) -> None:
        subs, keys = identify_or_reject(message, split_or_reject(split, message))
        self._delivered.append(message.offset)
        done = self._done(message, subs, keys)
        if subs and isinstance(unit := subs[0], Unsplit):
            shards = [DONE if done else self._shard_of(message, unit)]
        else:
            shards = self._shards_of(subs, keys, done)
        if self._is_void:
            return
        # A redrive leaves alone either all sub-messages of a letter or none, so the first tells.
        if subs and not selects(subs[0]):
            left_alone, reason = self._manifest.left_alone, subs[0].payload
            left_alone[reason] = left_alone.get(reason, 0) + 1
            self._manifest.left_alone_subs += sum(shard != DONE for shard in shards)
        writer.add(message, subs, keys, shards)

    def _shard_of(self, message: Message, unit: Unsplit) -> int:
        """Return the shard of a message that ``split`` rejected.

        Raises SplitFailed if the settings say that the drain halts at such a message.
        """
        if unit.skip is None and self._task.failures.on_unsplit is OnFailure.HALT:
            raise split_failed(message, unit.why, PAST)
        unit.failures = self._task.failures
        if unit.skip is None and self._task.failures.stops_unsplit:
            self._manifest.stop = message.offset + 1
        self._units.append(message.offset)
        return self._shard(unit)

    def _add_whole(self, writer: ChunkWriter, message: Message) -> None:
        subs = [SubMessage(message.key, message.value)]
        keys = identify(message, subs)
        self._delivered.append(message.offset)
        (shard,) = self._shards_of(subs, keys, self._done(message, subs, keys))
        if shard >= 0:
            writer.add_whole(shard, message)

    def _shards_of(self, subs: Sequence[SubMessage], keys: AnyKeys, done: int) -> list[int]:
        """Return the shard of each sub-message, or ``DONE`` if it was finished before."""
        # Most sub-messages have one text as sub-key, and a backlog has millions of them. So no
        # function is called for each of these.
        plain = not done and self._by_sub_key and not isinstance(keys, KeySums)
        texts = cast("Sequence[str]", keys)
        if plain and set(map(type, texts)) == {str} and _no_barrier(subs):
            shards = self._task.of
            return [crc32(text.encode("utf-8", "surrogatepass")) % shards for text in texts]
        return [DONE if done >> index & 1 else self._shard(sub) for index, sub in enumerate(subs)]

    def _shard(self, sub: SubMessage) -> int:
        """Return the shard of a sub-message, and note if it belongs to several shards.

        If it does, the result means nothing for a divided slice, because that is read again.
        """
        shard = self._shard_map.shard_of(sub, self._task.shards)
        if shard is None:
            self._manifest.connected = True
        return shard if self._task.divided and shard is not None else 0

    def _done(self, message: Message, subs: Sequence[SubMessage], keys: AnyKeys) -> int:
        known = self._partial.get(message.offset)
        done = 0 if known is None else known.finished_of(message, keys)
        if self._other_claims is not None:
            done |= self._other_claims.finished(message, subs)
        self._manifest.finished += done.bit_count()
        return done


def _no_barrier(subs: Sequence[SubMessage]) -> bool:
    return not any(issubclass(kind, Barrier) for kind in set(map(type, subs)))
