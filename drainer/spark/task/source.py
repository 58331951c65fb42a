"""The chunks that Spark gives a task, as the source of messages of the engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from drainer.errors import DrainerError, Interrupted
from drainer.message import Origin, ShippedMessage
from drainer.model.claims import Stream
from drainer.model.plan import OffsetPlan
from drainer.spark.task.chunk import CHECKSUM_MASK, decode_chunk
from drainer.spark.task.rows import Row

AHEAD_BYTES = 8 * 1024 * 1024  # This much is taken from Spark before the engine wants it.
WAIT_S = 0.1
STOP_S = 1.0
DOES_IT_SHUFFLE = "Resume with the plan. Check the Spark settings that change how it shuffles."


class TaskInput(NamedTuple):
    """The share of a stream that a task is given.

    Attributes:
        start, end: the offsets ``[start, end)``.
        slices: by the first offset of each slice, the number of its sub-messages, and a checksum
            that tells which they are.
    """

    start: int
    end: int
    slices: Mapping[int, tuple[int, int]]

    @property
    def total(self) -> tuple[int, int]:
        """The number of all its sub-messages, and the checksum of all of them."""
        subs, checksums = zip(*self.slices.values(), strict=True)
        return sum(subs), sum(checksums) & CHECKSUM_MASK


@dataclass(eq=False)
class ChunkSource:
    """Chunks as a source of messages. A thread takes them from Spark as Spark delivers them.

    If Spark loses rows, it computes them again, and by then the log may have other messages. So the
    source compares what it gets with what the manifests say was ``given``. Rows with the counts of
    each slice come before the chunks, so that a difference shows before the first call.
    """

    rows: Iterable[Row]
    plan: OffsetPlan
    given: Mapping[int, TaskInput]
    notify: Callable[[], None]

    def __post_init__(self) -> None:
        self.trouble: str | None = None
        terms, given = self.plan.terms, self.given
        # The number and the checksum of the sub-messages that were read, by stream.
        self._read = dict.fromkeys(given, (0, 0))
        self._origins: dict[int, Origin] = {}
        self._streams: dict[tuple[int, int], Stream] = {}  # By partition and number of the shard.
        self._together: dict[int, list[int]] = {}  # The streams of each partition.
        for stream in map(Stream, given):
            self._origins[stream] = Origin(terms.topic, terms.topic_id, stream.partition, stream)
            self._streams[stream.partition, stream.shard.number] = stream
            self._together.setdefault(stream.partition, []).append(stream)
        self._ends = {stream: each.end for stream, each in given.items()}
        self._queue: deque[_ChunkBatch] = deque()
        self._queue_bytes = 0
        self._room = threading.Event()
        self._stopping = False
        self.failure: DrainerError | None = None
        self._thread = threading.Thread(target=self._read_rows, name="drainer-chunks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next_batch(self) -> _ChunkBatch | None:
        if not self._queue:
            return None
        batch = self._queue.popleft()
        self._queue_bytes -= len(batch.body)
        self._room.set()
        return batch

    def stop(self) -> None:
        self._stopping = True
        self._room.set()
        self._thread.join(STOP_S)

    def _read_rows(self) -> None:
        try:
            for stream, row in self._checked():
                while self._queue_bytes > AHEAD_BYTES and not self._stopping:
                    self._room.clear()
                    self._room.wait(WAIT_S)
                if self._stopping:
                    return
                # Rows are sorted by offset, so all streams of the partition have come this far.
                reached = dict.fromkeys(self._together[row.partition], row.offset)
                self._put(_ChunkBatch(reached, row.body, self._origins[stream]))
            self._put(_ChunkBatch(self._ends))
        except BaseException as error:
            why = f"Spark gave no more rows: {type(error).__name__}: {error}"
            stopped = Interrupted(why, hint="Resume with the plan.", cause=error)
            self.failure = error if isinstance(error, DrainerError) else stopped
            self.notify()

    def _checked(self) -> Iterator[tuple[Stream, Row]]:
        """Yield the chunks with their streams.

        Raises Interrupted if they are not the chunks that were read first.
        """
        slices: dict[int, dict[int, tuple[int, int]]] = {stream: {} for stream in self.given}
        compared = False
        for row in self.rows:
            stream = self._streams.get((row.partition, row.shard))
            if stream is None:
                raise Interrupted(
                    f"Spark gave a task rows of shard {row.shard}, of another task",
                    hint=DOES_IT_SHUFFLE,
                )
            if not row.body:
                slices[stream][row.offset] = row.subs, row.checksum
                continue
            if not compared:
                self._ensure_same(slices)
                compared = True
            subs, checksum = self._read[stream]
            self._read[stream] = subs + row.subs, (checksum + row.checksum) & CHECKSUM_MASK
            yield stream, row
        if not compared:
            self._ensure_same(slices)
        # Offsets without a chunk count as holes, so a chunk that is missing would not be noticed.
        for number, each in self.given.items():
            if self._read[number] != each.total:
                raise self._changed(number, self._read[number][0])

    def _ensure_same(self, slices: Mapping[int, Mapping[int, tuple[int, int]]]) -> None:
        for stream, each in self.given.items():
            if slices[stream] != each.slices:
                raise self._changed(stream, sum(subs for subs, _ in slices[stream].values()))

    def _changed(self, stream: int, found: int) -> Interrupted:
        left = self.given[stream].total[0] - found
        what = f"{left:,} fewer" if left > 0 else f"{-left:,} more" if left else "other"
        return Interrupted(
            f"shard {Stream(stream).shard.number} has {what} sub-messages than at the first read:"
            " Spark had lost rows and read them again, but the log, or what split makes of it, had"
            " changed",
            hint="Resume with the plan: that reads again what is not done.",
        )

    def _put(self, batch: _ChunkBatch) -> None:
        self._queue_bytes += len(batch.body)
        self._queue.append(batch)
        self.notify()


class _ChunkBatch(NamedTuple):
    """A chunk as a batch of the engine. It is decoded when its messages are wanted."""

    reached: dict[int, int]
    body: bytes = b""
    origin: Origin | None = None

    @property
    def messages(self) -> Iterable[ShippedMessage]:
        return () if self.origin is None else decode_chunk(self.body, self.origin)
