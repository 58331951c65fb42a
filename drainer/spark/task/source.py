"""What Spark gives a task, as the source of messages of the engine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from drainer.engine.ports import Fetched
from drainer.errors import DrainerError, Interrupted
from drainer.message import Origin, ShippedMessage
from drainer.model.claims import Shard, Stream
from drainer.model.plan import OffsetPlan
from drainer.spark.state.state import TaskInput
from drainer.spark.task.chunk import CHECKSUM_MASK, decode_chunk
from drainer.spark.task.rows import Row, counted
from drainer.text.mask import describe

AHEAD_BYTES = 8 * 1024 * 1024  # The thread is this much, and a batch, ahead of the engine.
WAIT_S = 0.1
STOP_S = 1.0
DOES_IT_SHUFFLE = "Resume with the plan. Check the Spark settings that change how it shuffles."


class TaskBatch(Fetched, Protocol):
    """A batch of messages with about its size in bytes."""

    @property
    def size(self) -> int: ...


B = TypeVar("B", bound=TaskBatch)


@dataclass(eq=False)
class TaskSource(Generic[B]):
    """The source from which the engine of a task takes messages.

    A thread makes batches as Spark delivers the rows.
    """

    batches: Iterable[B]
    notify: Callable[[], None]

    def __post_init__(self) -> None:
        self.trouble: str | None = None
        self.failure: DrainerError | None = None
        self._queue: deque[B] = deque()
        # Each of the two threads has a sum of its own, since a sum that both change may go wrong.
        self._put_bytes = self._taken_bytes = 0
        self._room = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._read, name="drainer-rows", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next_batch(self) -> B | None:
        if not self._queue:
            return None
        batch = self._queue.popleft()
        self._taken_bytes += batch.size
        self._room.set()
        return batch

    def stop(self) -> None:
        self._stopping = True
        self._room.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _read(self) -> None:
        try:
            for batch in self.batches:
                while self._put_bytes - self._taken_bytes > AHEAD_BYTES and not self._stopping:
                    self._room.clear()
                    self._room.wait(WAIT_S)
                if self._stopping:
                    return
                self._put_bytes += batch.size
                self._queue.append(batch)
                self.notify()
        except BaseException as error:
            why = f"Spark failed to deliver rows: {describe(error)}"
            stopped = Interrupted(why, hint="Resume with the plan.", cause=error)
            self.failure = error if isinstance(error, DrainerError) else stopped
            self.notify()


class ChunkBatch(NamedTuple):
    """A chunk as a batch of the engine. It is decoded when its messages are wanted."""

    reached: dict[int, int]
    body: bytes = b""
    origin: Origin | None = None

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def messages(self) -> Iterable[ShippedMessage]:
        return () if self.origin is None else decode_chunk(self.body, self.origin)


def chunk_batches(
    rows: Iterable[Row], plan: OffsetPlan, shard: Shard, given: Mapping[int, TaskInput]
) -> Iterator[ChunkBatch]:
    """Yield the chunks of a shard by partition and offset, and then where its streams end.

    Offsets without a chunk count as holes, so a lost chunk would pass for one. Therefore what there
    is of each partition is compared with what the manifests say was ``given``. Counts of each span
    come before all chunks, so that most differences show before the first call.

    Raises Interrupted if the chunks are not those that were read: before the first chunk if the
    counts tell, and at the end otherwise.
    """
    terms = plan.terms
    origins = {n: Origin(terms.topic, terms.topic_id, n, Stream(n, shard)) for n in given}
    counts, read = dict.fromkeys(given, (0, 0)), dict.fromkeys(given, (0, 0))
    compared = False
    for row in rows:
        is_count = row.partition < 0
        number = counted(row.partition) if is_count else row.partition
        origin, found = origins.get(number), counts if is_count else read
        if origin is None or row.shard != shard.number:
            raise Interrupted(
                f"Spark gave the task of shard {shard.number} rows of shard {row.shard} in"
                f" partition {number}, which are not its own",
                hint=DOES_IT_SHUFFLE,
            )
        if not is_count and not compared:
            _ensure_same(shard, given, counts)
            compared = True
        subs, checksum = found[number]
        found[number] = subs + row.subs, (checksum + row.checksum) & CHECKSUM_MASK
        if not is_count:
            yield ChunkBatch({origin.stream: row.offset}, row.body, origin)
    _ensure_same(shard, given, read)
    yield ChunkBatch({origins[n].stream: each.end for n, each in given.items()})


def _ensure_same(
    shard: Shard, given: Mapping[int, TaskInput], found: Mapping[int, tuple[int, int]]
) -> None:
    for number, (start, end, *wanted) in given.items():
        if found[number] != tuple(wanted):
            raise Interrupted(
                f"Spark gave the task of shard {shard.number} {found[number][0]:,}"
                f" sub-messages of partition {number}, offsets {start:,} to {end - 1:,}, but"
                f" {wanted[0]:,} were read, or others",
                hint=DOES_IT_SHUFFLE,
            )
