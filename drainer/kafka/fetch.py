"""The fetch thread: it reads the backlog ahead of the drain, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf
from queue import SimpleQueue

from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError, Interrupted, RecordsDeleted
from drainer.kafka.reader import FetchedBatch, RangeReader
from drainer.kafka.settings import ClientSettings
from drainer.policy.rate_cap import RateLimiter
from drainer.split.splitting import Outage, Prepare

BATCHES_IN_QUEUE = 4  # The queue has room for this many batches, unless messages are huge.
ROOM_WAIT_S = 0.1
BALANCE_EVERY_S = 0.01
DRY_S = 1.0  # See ``FetchThread``.
STOP_TIMEOUT_S = 2.0


class MovingEnds:
    """The ends of a backlog that follows its log: the drain sets them for the fetch thread."""

    def __init__(self) -> None:
        self.are_final = False
        self._moved = SimpleQueue[Mapping[int, tuple[int, int]]]()

    def move(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Let the fetch thread read these partitions up to the ends of the ranges.

        A partition that is new is read from the start of its range.
        """
        self._moved.put(ranges)

    def take(self) -> Mapping[int, tuple[int, int]] | None:
        """Return the next ranges whose ends have moved; None if there are no more of them."""
        return None if self._moved.empty() else self._moved.get()

    def finish(self) -> None:
        """Let the fetch thread end at the ends that were set last."""
        self.are_final = True


class BatchQueue:
    """Batches on their way from the fetch thread to the drain, with a line for each partition.

    The partitions take turns by the share of their ``ranges`` that was taken, so that they come to
    their ends together. If the drain passes over a partition, the others don't wait. The fetch
    thread puts batches and the drain's thread takes them. No lock is needed, because only one
    thread writes each counter, and no step of Python's sees a dictionary that grows meanwhile.
    """

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._ranges = ranges
        self._lines: dict[int, deque[FetchedBatch]] = {p: deque() for p in ranges}
        # The share of each partition that was taken. Of those with equal shares, the first was
        # taken from the longest time ago.
        self._shares = dict.fromkeys(ranges, 0.0)
        self._put = dict.fromkeys(self._lines, 0)
        self._taken = dict.fromkeys(self._lines, 0)

    def extend(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Move the ends of partitions, or add partitions. The fetch thread calls this."""
        for partition in ranges.keys() - self._lines.keys():
            self._put[partition] = self._taken[partition] = 0
            self._lines[partition] = deque()
        self._ranges = {**self._ranges, **ranges}
        for partition in ranges:
            self._shares.setdefault(partition, 0.0)  # The drain takes from it from now on.

    def put(self, batch: FetchedBatch) -> bool:
        """Queue a batch, and return whether its partition had none."""
        partition = batch.origin.partition
        line = self._lines[partition]
        self._put[partition] += batch.bytes
        line.append(batch)
        # This is checked after the append. So if the drain has just seen an empty line, the caller
        # will notify it.
        return len(line) == 1

    def take(self, passed_over: Callable[[int], bool]) -> FetchedBatch | None:
        """Take the next batch of the next partition that has one and is not passed over."""
        shares = self._shares
        for partition in sorted(filter(self.has, list(shares)), key=shares.__getitem__):
            if not passed_over(partition):
                batch = self._lines[partition].popleft()
                self._taken[partition] += batch.bytes
                share = shares.pop(partition)
                if batch.records:
                    start, end = self._ranges[partition]
                    share = ((batch.records[-1].offset() or 0) + 1 - start) / (end - start)
                shares[partition] = share
                return batch
        return None

    def has(self, partition: int) -> bool:
        """Return whether a partition has anything in the queue."""
        return bool(self._lines[partition])

    def bytes_of(self, partition: int) -> int:
        """Return the bytes of a partition in the queue."""
        return self._put[partition] - self._taken[partition]

    @property
    def bytes(self) -> int:
        """The bytes of all partitions in the queue."""
        return sum(self._put.values()) - sum(self._taken.values())


@dataclass(eq=False)
class FetchThread:
    """A thread that reads the backlog's partitions, and queues batches for the drain.

    It never joins the group, and never commits. Only the drain's thread calls ``next_batch`` and
    reads the properties. Raises UsageError when librdkafka rejects the settings.

    No partition starves another. Each has a share of the queue and of ``load_bytes``. A partition
    that exceeds its share is paused until it uses only half of it. It is not resumed earlier,
    because the client throws away what it has read ahead of a paused partition. A partition that
    has nothing in the queue, but uses between half and all of its share, is resumed after DRY_S,
    because the drain may have parked its messages. The last partition is never paused.
    """

    settings: ClientSettings
    group: str  # The drained group. The broker uses the name for quotas and rights only.
    topic: str
    topic_id: str
    ranges: Mapping[int, tuple[int, int]]  # The offsets [start, end) to read, by partition.
    _: KW_ONLY
    # The bytes that may be in the queue, which always has room for one batch. With several
    # partitions, half of the bytes are for those that are being read, and half for paused ones.
    queue_bytes: int
    prefetch_bytes: int  # The bytes that the client may buffer in addition to the queue.
    partition_load: Callable[[int], int]  # Returns the pending bytes of a partition.
    load_bytes: int  # The bytes that may be pending, of all partitions together.
    # The thread calls this when it queues a batch of a partition that had none, and when it ends.
    # Then the drain must take batches until there are none, or come back later.
    notify: Callable[[], None]
    pace: RateLimiter | None = None  # The cap on reading.
    # The thread calls ``prepare`` with the messages of a batch before it queues them. If an outage
    # lasts longer than ``patience_s``, reading ends.
    prepare: Prepare | None = None
    patience_s: float = inf
    # Where the ends of the ranges move to; None if they are final.
    moving: MovingEnds | None = None
    runtime: Runtime = THIS_PROCESS

    def __post_init__(self) -> None:
        self._clock = self.runtime.monotonic
        self._queue_bytes = max(2, self.queue_bytes)  # Half of it must be at least one byte.
        self.queue = BatchQueue(self.ranges)
        self._room = self.runtime.event()
        self._stopping = False
        self._ended = False
        self._balanced_s = 0.0
        self._outage = Outage(self.patience_s, self._pause, self._clock)
        # The batches that are not completely prepared: the partition of each, and an iterator that
        # prepares its next part.
        self._unprepared: list[tuple[int, Iterator[FetchedBatch]]] = []
        # The error that records were deleted. It becomes ``failure`` when the drain has taken
        # everything that was read before.
        self._gone: RecordsDeleted | None = None
        self._thread = self.runtime.thread(target=self._run, name="drainer-fetch", daemon=True)
        self.reader = RangeReader(
            *(self.settings, self.topic, self.topic_id, self.group),
            prefetch_bytes=self.prefetch_bytes,
            batch_bytes=self._queue_bytes // BATCHES_IN_QUEUE,
            pace=self.pace,
            clock=self._clock,
        )
        self.failure: DrainerError | None = None

    @property
    def done(self) -> bool:
        """Whether all partitions are read to their ends, and everything is in the queue."""
        left = self.reader.open or self._unprepared
        return self._ended and not left and self.failure is None

    @property
    def trouble(self) -> str | None:
        """The reason why no records arrive, now or ever again; None while they do."""
        if self._gone is not None:
            return f"reading has stopped: {self._gone}"
        return self._outage.trouble or self.reader.trouble

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def next_batch(self) -> FetchedBatch | None:
        """Take the next batch, without blocking. The partitions take turns.

        Returns None when there is none, or when each partition that has one exceeds its share.
        """
        limit = self._share_of(self.load_bytes)
        batch = self.queue.take(lambda partition: self.partition_load(partition) > limit)
        if batch is not None and not self._room.is_set():
            self._room.set()
        return batch

    def stop(self) -> None:
        """End the thread, whatever it is doing. The queue keeps its batches."""
        self._stopping = True
        self._room.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._read()
        except RecordsDeleted as error:
            self._gone = error
            # What is in the queue may be deleted next, so a resume could not read it again.
            while any(map(self.queue.has, self.ranges)) and self._pause(ROOM_WAIT_S):
                pass
            self.failure = error
        except DrainerError as error:
            self.failure = error
        except Exception as error:  # Nobody would see an error that ends a thread.
            self.failure = Interrupted(
                f"the fetch thread failed: {type(error).__name__}: {error}",
                hint="This is a bug in drainer: report it. Nothing is lost: resume with the plan.",
                cause=error,
            )
        try:
            self.reader.close()
        finally:
            self._ended = True
            self.notify()

    def _read(self) -> None:
        reader = self.reader
        reader.assign(self.ranges)
        while not self._stopping and (self._follow() or reader.open or self._unprepared):
            self._balance()
            if not (reader.open or self._unprepared):
                reader.starved_since_s = None
                self._pause(ROOM_WAIT_S)
            elif not self._has_room():
                reader.starved_since_s = None
                self._wait_for_room()
            elif not self._prepare_next():
                for batch in reader.poll():
                    if self.prepare is None:
                        self._put(batch)
                    else:
                        parts = batch.prepared(self.prepare, self._outage)
                        self._unprepared.append((batch.origin.partition, parts))

    def _follow(self) -> bool:
        """Take over the ends that have moved, and return whether they may move again."""
        if self.moving is None:
            return False
        may_move = not self.moving.are_final  # This is read first: nothing moves after it.
        while (moved := self.moving.take()) is not None:
            starts = {n: self.ranges.get(n, each)[0] for n, each in moved.items()}
            ranges = {n: (starts[n], end) for n, (_, end) in moved.items()}
            self.queue.extend(ranges)
            self.ranges = {**self.ranges, **ranges}
            self.reader.extend(ranges)
        return may_move

    def _put(self, batch: FetchedBatch) -> None:
        if self.queue.put(batch):
            self.notify()

    def _prepare_next(self) -> bool:
        """Prepare and queue a part of the first batch whose partition is not paused.

        Returns whether there is such a batch.
        """
        for place, (partition, parts) in enumerate(self._unprepared):
            if partition not in self.reader.paused:
                part = next(parts, None)
                if part is None:
                    del self._unprepared[place]
                elif not self._stopping:
                    self._put(part)
                return True
        return False

    def _pause(self, seconds: float) -> bool:
        self._room.clear()
        if not self._stopping:
            self._room.wait(seconds)
        return not self._stopping

    def _wait_for_room(self) -> None:
        self._room.clear()
        if not self._has_room() and not self._stopping:
            self._room.wait(ROOM_WAIT_S)

    def _has_room(self) -> bool:
        # The batches of paused partitions must not take the room of the others.
        if len(self.ranges) == 1:
            return self.queue.bytes < self._queue_bytes
        paused = sum(self.queue.bytes_of(partition) for partition in self.reader.paused)
        return self.queue.bytes - paused < self._queue_bytes // 2

    def _balance(self) -> None:
        now, reader, queue = self._clock(), self.reader, self.queue
        if (len(reader.open) < 2 and not reader.paused) or now - self._balanced_s < BALANCE_EVERY_S:
            return
        self._balanced_s = now
        over: list[int] = []
        under = list(reader.paused)
        if len(reader.open) > 1:
            load = self._share_of(self.load_bytes)
            queued = self._share_of(self._queue_bytes // 2)
            used = {
                p: max(self.partition_load(p) / load, queue.bytes_of(p) / queued)
                for p in reader.open
            }
            over = [p for p in used if used[p] > 1 and p not in reader.paused]
            reader.paused.update({p: now for p in reader.paused if queue.has(p)})
            under = [
                p
                for p, dry_s in reader.paused.items()
                if used[p] <= 0.5 or (used[p] <= 1 and now - dry_s > DRY_S)
            ]
        if over:
            reader.pause(over)
        if under:
            reader.resume(under)

    def _share_of(self, size: int) -> float:
        # The share of a partition is more than an equal part, because partitions are not equally
        # busy, but it is never everything.
        count = sum(1 for p in self.ranges if p in self.reader.open or self.queue.has(p))
        return inf if count < 2 else max(1.0, 2 * size / (count + 1))
