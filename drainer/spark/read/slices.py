"""Reading a slice of the backlog in a task: each message is split once, and leaves in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import cast
from zlib import crc32

import msgspec

from drainer.core.other_claims import OtherClaims
from drainer.kafka.spans import read_range
from drainer.message import Barrier, KeySums, Message, Origin, SubMessage, Unsplit
from drainer.model.claims import ALL, JOINS_MOST, Claims, Components, Joins, ShardMap, key_hash
from drainer.model.order import LANE_OF, Order
from drainer.model.progress import Partial, Progress
from drainer.model.ranges import Range, RangeSet, ranges_of
from drainer.model.settings import FailureSettings, OnFailure
from drainer.model.sub_messages import identify, identify_or_reject
from drainer.policy.rate_cap import RateLimiter
from drainer.policy.redrive import selects
from drainer.spark.read.waves import Slice
from drainer.spark.session.failure import carrying
from drainer.spark.state.sharding import Sharding
from drainer.spark.task.chunk import ChunkWriter, Row, why_whole
from drainer.spark.task.python_worker import HandlerSpec, python_worker
from drainer.splitting import PAST, split_failed, split_or_reject

BARRIERS_MOST = 100  # offsets that a manifest lists; with more the wave is not divided at all
MANIFEST = DONE = -1  # in place of a shard
SEVERAL = -2
READ_AHEAD_BYTES = 128 * 1024  # of the next slice, in vain; and in fetches of a quarter of it
JOINED_MOST = 2 * JOINS_MOST  # places; of two that are joined one stays where it is


class Manifest(msgspec.Struct, frozen=True):
    """Content of a slice."""

    partition: int
    start: int  # offsets ``[start, end)``
    end: int
    delivered: tuple[Range, ...] = ()  # those of messages that were not finished before
    subs: dict[int, int] = {}  # sub-messages by shard
    finished: int = 0  # other sub-messages, which were finished before
    bytes: dict[int, int] = {}  # of chunks, by shard
    # The offset of the first message that has a barrier, or a sub-message with lanes in several
    # shards: the chunks end before it. None when they have all.
    undivided: int | None = None
    # The sets of places that sub-messages connect, those of one shard among them; None when they
    # are too many.
    joined: tuple[Sequence[int], ...] | None = ()
    barriers: tuple[int, ...] = ()  # offsets of messages with one
    units: tuple[Range, ...] = ()  # messages that ``split`` rejected, which are one unit each
    # The offset behind the first message that ``split`` rejected, if its partition stops there; the
    # slice has nothing from there on.
    stop: int | None = None
    log_bytes: int = 0  # of keys and values
    processor_s: float = 0.0  # what it took to read and to split
    ignored: dict[str, int] = {}  # by a redrive: why, and how many of the sub-messages


@dataclass(frozen=True, slots=True)
class SliceTask:
    """Reader of the slices of a wave; sent to the tasks, each of which is given numbers of them.

    It gives the rows of chunks, and behind those of a slice its manifest in a row of the shard -1.
    ``known`` is what was finished when the wave was begun, as the plan's claims have it; ``joins``
    are those that it names, and ``streams``. ``failures`` decide whether it halts, or reads no
    more of
    a partition, at a message that ``split`` rejects. Each slice is read at ``share`` of what the
    handler's ``limits`` allow for.
    """

    handler: HandlerSpec
    streams: Sharding
    joins: Mapping[int, Joins]
    slices: tuple[Slice, ...]
    known: Claims
    failures: FailureSettings
    share: float = 1.0
    message_bytes: float = 1.0  # of what was read before, on average

    def pace(self) -> RateLimiter | None:
        curve = self.handler.terms.limits
        return None if curve is None else RateLimiter(curve.reading, self.share, self.message_bytes)

    def __call__(self, numbers: Iterable[int]) -> Iterator[Row | tuple[int, Manifest]]:
        with carrying():
            for number in numbers:
                yield from _SliceReader(self, self.slices[number]).rows()


class _SliceReader:
    """One slice of it, from Kafka to rows."""

    def __init__(self, task: SliceTask, part: Slice) -> None:
        number = part.partition
        before = task.known.get(ALL, {}).get(number) or Progress(part.start)
        self._task, terms = task, task.handler.terms
        order = Order(terms.order)
        self._slice = part
        self._origin = Origin(terms.topic, terms.topic_id, number)
        self._watermark = before.watermark
        self._finished = RangeSet(before.finished)
        self._partial: Mapping[int, Partial] = before.partial
        others = {name: claim for name, claim in task.known.items() if name != ALL}
        self._shard_map = ShardMap(order, task.joins)
        self._shards, self._joins = task.streams.shards, task.streams.joins
        self._moved = task.joins[self._joins].shards if self._joins else {}
        self._by_sub_key = order not in LANE_OF
        self._other_claims = OtherClaims(others, self._shard_map) if others else None
        self._delivered: list[int] = []
        self._subs: Counter[int] = Counter()
        self._subs_before = 0
        self._ignored: Counter[str] = Counter()
        self._undivided: int | None = None
        self._components = Components()
        self._barriers: list[int] = []
        self._units: list[int] = []
        self._stop: int | None = None

    def rows(self) -> Iterator[Row | tuple[int, Manifest]]:
        part, log_bytes, chunk_bytes = self._slice, 0, Counter[int]()
        begun_s = thread_time()

        def counted(rows: Iterable[Row]) -> Iterator[Row]:
            for row in rows:
                shard, _, _, subs, body = row
                self._subs[shard] += subs
                chunk_bytes[shard] += len(body)
                yield row

        with python_worker().at_work(self._task.handler) as handler:
            whole = why_whole(handler, self._task.handler.terms.rules) is not None
            writer = ChunkWriter(self._origin, whole_messages=whole)
            add = (
                partial(self._add, writer, handler.split)
                if handler.split
                else partial(self._add_whole, writer)
            )
            for batch in read_range(
                self._task.handler.client,
                self._origin,
                part.start,
                part.end,
                reader=self._task.handler.terms.group,
                prefetch_bytes=READ_AHEAD_BYTES,
                pace=self._task.pace(),
            ):
                if self._stop is not None:
                    break
                for message in batch.messages:
                    log_bytes += message.size
                    if (
                        self._stop is None
                        and message.offset >= self._watermark
                        and message.offset not in self._finished
                    ):
                        add(message)
                        yield from counted(writer.full())
            yield from counted(writer.flush())
        yield (
            MANIFEST,
            Manifest(
                part.partition,
                part.start,
                part.end,
                ranges_of(self._delivered),
                dict(self._subs),
                self._subs_before,
                dict(chunk_bytes),
                undivided=self._undivided,
                joined=None if self._too_many else self._components.sets,
                barriers=tuple(self._barriers),
                units=ranges_of(self._units),
                stop=self._stop,
                log_bytes=log_bytes,
                processor_s=thread_time() - begun_s,
                ignored=dict(self._ignored),
            ),
        )

    def _add(
        self,
        writer: ChunkWriter,
        split: Callable[[Message], Iterable[SubMessage]],
        message: Message,
    ) -> None:
        subs, keys = identify_or_reject(message, split_or_reject(split, message))
        self._delivered.append(message.offset)
        done = self._done(message, subs, keys)
        if subs and isinstance(unit := subs[0], Unsplit):
            shards = [DONE if done else self._shard_of(message, unit)]
        else:
            shards = self._shards_of(message, subs, keys, done)
        if SEVERAL in shards and self._undivided is None:
            self._undivided = message.offset
        if self._undivided is not None:
            return  # it is all to be read again
        if subs and not selects(subs[0]):  # all of a letter are, or none
            self._ignored[subs[0].payload] += sum(shard != DONE for shard in shards)
        writer.add(message, subs, keys, shards)

    def _shard_of(self, message: Message, unit: Unsplit) -> int:
        """The shard of a message that ``split`` rejected.

        Raises SplitFailed when the drain is to halt at it.
        """
        if unit.skip is None and self._task.failures.on_unsplit is OnFailure.HALT:
            raise split_failed(message, unit.why, PAST)
        unit.failures = self._task.failures
        if unit.skip is None and self._task.failures.stops_unsplit:
            self._stop = message.offset + 1
        self._units.append(message.offset)
        shard = self._shard_map.shard_of(unit, self._shards, self._joins)
        assert shard is not None, "a unit has one shard"
        return shard

    def _add_whole(self, writer: ChunkWriter, message: Message) -> None:
        subs = [SubMessage(message.key, message.value)]
        keys = identify(message, subs)
        self._delivered.append(message.offset)
        (shard,) = self._shards_of(message, subs, keys, self._done(message, subs, keys))
        if shard >= 0:
            writer.add_whole(shard, message)

    def _shards_of(
        self,
        message: Message,
        subs: Sequence[SubMessage],
        keys: Sequence[Hashable] | KeySums,
        done: int,
    ) -> list[int]:
        """The shard of each sub-message, or the reason why it has none."""
        shards, moved = self._shards, self._moved
        # The most common kind without a call for each: a backlog has millions of them.
        texts = cast("Sequence[str]", keys)
        if not done and self._by_sub_key and set(map(type, texts)) == {str} and _no_barrier(subs):
            places = [crc32(text.encode("utf-8", "surrogatepass")) for text in texts]
            if moved:
                return [moved[at] if at in moved else at % shards for at in places]
            return [at % shards for at in places]
        found = []
        for index, sub in enumerate(subs):
            if done >> index & 1:
                found.append(DONE)
            else:
                self._note(message, sub)
                shard = self._shard_map.shard_of(sub, shards, self._joins)
                found.append(SEVERAL if shard is None else shard)
        return found

    def _note(self, message: Message, sub: SubMessage) -> None:
        """Notes what a sub-message keeps together."""
        if isinstance(sub, Barrier):
            if len(self._barriers) <= BARRIERS_MOST:
                self._barriers.append(message.offset)
        elif sub.keys is not None and self._by_sub_key and not self._too_many:
            self._components.join(map(key_hash, sub.keys))

    @property
    def _too_many(self) -> bool:
        return len(self._components) > JOINED_MOST

    def _done(
        self, message: Message, subs: Sequence[SubMessage], keys: Sequence[Hashable] | KeySums
    ) -> int:
        done = 0
        known = self._partial.get(message.offset)
        if known is not None:
            known.ensure_same(message, keys)
            done = known.bits
        if self._other_claims is not None:
            done |= self._other_claims.finished(message, subs)
        self._subs_before += done.bit_count()
        return done


def _no_barrier(subs: Sequence[SubMessage]) -> bool:
    return not any(issubclass(kind, Barrier) for kind in set(map(type, subs)))
