"""The chunks that Spark gives a task, as the source of messages of the engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from drainer.errors import DrainerError, Interrupted
from drainer.message import Origin, ShippedMessage
from drainer.model.claims import Shard, Stream
from drainer.model.plan import OffsetPlan
from drainer.spark.state.state import TaskInput
from drainer.spark.task.chunk import CHECKSUM_MASK, decode_chunk
from drainer.spark.task.rows import Row, counted

AHEAD_BYTES = 8 * 1024 * 1024  # This much is taken from Spark before the engine wants it.
WAIT_S = 0.1
STOP_S = 1.0
DOES_IT_SHUFFLE = "Resume with the plan. Check the Spark settings that change how it shuffles."


@dataclass(eq=False)
class ChunkSource:
    """Chunks as a source of messages. A thread takes them from Spark as Spark delivers them.

    The source compares what it gets of each partition with what the manifests say was ``given``.
    Offsets without a chunk count as holes, so a chunk that is missing would not be noticed. Counts
    of each span come before all chunks, so that most differences show before the first call.
    """

    rows: Iterable[Row]
    plan: OffsetPlan
    shard: Shard
    given: Mapping[int, TaskInput]
    notify: Callable[[], None]

    def __post_init__(self) -> None:
        self.trouble: str | None = None
        terms = self.plan.terms
        streams = {number: Stream(number, self.shard) for number in self.given}
        self._origins = {
            number: Origin(terms.topic, terms.topic_id, number, stream)
            for number, stream in streams.items()
        }
        self._ends: dict[int, int] = {streams[n]: each.end for n, each in self.given.items()}
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
            for origin, row in self._checked():
                while self._queue_bytes > AHEAD_BYTES and not self._stopping:
                    self._room.clear()
                    self._room.wait(WAIT_S)
                if self._stopping:
                    return
                self._put(_ChunkBatch({origin.stream: row.offset}, row.body, origin))
            self._put(_ChunkBatch(self._ends))
        except BaseException as error:
            why = f"Spark gave no more rows: {type(error).__name__}: {error}"
            stopped = Interrupted(why, hint="Resume with the plan.", cause=error)
            self.failure = error if isinstance(error, DrainerError) else stopped
            self.notify()

    def _checked(self) -> Iterator[tuple[Origin, Row]]:
        """Yield the chunks with the origins of their messages, by offset.

        Raises Interrupted if they are not those that were read: before the first chunk if the
        counts tell, and at the end otherwise.
        """
        counts, read = dict.fromkeys(self.given, (0, 0)), dict.fromkeys(self.given, (0, 0))
        compared = False
        for row in self.rows:
            is_count = row.partition < 0
            number = counted(row.partition) if is_count else row.partition
            origin, found = self._origins.get(number), counts if is_count else read
            if origin is None or row.shard != self.shard.number:
                raise Interrupted(
                    f"Spark gave the task of shard {self.shard.number} rows of shard {row.shard} in"
                    f" partition {number}, which are not its own",
                    hint=DOES_IT_SHUFFLE,
                )
            if not is_count and not compared:
                self._ensure_same(counts)
                compared = True
            subs, checksum = found[number]
            found[number] = subs + row.subs, (checksum + row.checksum) & CHECKSUM_MASK
            if not is_count:
                yield origin, row
        self._ensure_same(read)

    def _ensure_same(self, found: Mapping[int, tuple[int, int]]) -> None:
        for number, (start, end, *wanted) in self.given.items():
            if found[number] != tuple(wanted):
                raise Interrupted(
                    f"Spark gave the task of shard {self.shard.number} {found[number][0]:,}"
                    f" sub-messages of partition {number}, offsets {start:,} to {end - 1:,}, but"
                    f" {wanted[0]:,} were read, or others",
                    hint=DOES_IT_SHUFFLE,
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
