"""Handling some shards' parts of waves in a task: the in-process engine, with chunks for Kafka."""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from drainer.core.dispatch import Dispatcher
from drainer.core.merge import TaskRecord
from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, NoCommitter, Ports
from drainer.engine.runtime import UNSIGNALLED
from drainer.errors import DrainerError, Interrupted, LanesParked, LockLost
from drainer.message import Origin, ShippedMessage, Stream
from drainer.model.account import PartitionPlan
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.progress import Progress
from drainer.model.settings import LocalSettings
from drainer.model.status import Status, Summary
from drainer.operations.letters import letter_writers
from drainer.spark.session.failure import carrying, error_as_json
from drainer.spark.state.records import Borrowed, TaskRecords, TaskStatus
from drainer.spark.state.sharding import Sharding
from drainer.spark.state.state import Attempt, State
from drainer.spark.task.borrower import Borrower
from drainer.spark.task.chunk import CHECKSUM_MASK, decode_chunk
from drainer.spark.task.python_worker import HandlerSpec, OpenHandler, python_worker
from drainer.spark.task.rows import OUTCOMES, Row, batch_of, rows_of

AHEAD_BYTES = 8 * 1024 * 1024  # that are taken from Spark before the engine wants them
WAIT_S = 0.1
NEVER_S = 1e7  # between two plans of a task: its records are all that is read
STOP_S = 1.0
DOES_IT_SHUFFLE = "Resume with the plan. Check the Spark settings that change how it shuffles."


class TaskInput(NamedTuple):
    """Share of a stream that a task is given: offsets ``[start, end)``, how many sub-messages, and
    of each slice, by its first offset, how many with which checksum."""

    start: int
    end: int
    subs: int
    slices: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Function that handles a dispatch; sent to its tasks.

    ``plan`` is the drain's; ``given`` is what each task gets, by stream. In partitions of
    ``behind`` something before that stays unfinished.
    """

    plan: OffsetPlan
    settings: LocalSettings  # of one task
    handler: HandlerSpec
    dispatch: int
    streams: Sharding
    given: tuple[Mapping[int, TaskInput], ...]
    behind: frozenset[int] = frozenset()

    def handle(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle the chunks of a task, and give its outcome; for ``mapInArrow``."""
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        with carrying():
            outcome = self._handle(number, context.taskAttemptId(), rows_of(batches))
        yield batch_of([(number, pickle.dumps(outcome))], OUTCOMES)

    def _handle(self, number: int, attempt_number: int, rows: Iterable[Row]) -> Mapping[str, Any]:
        given = self.given[number]
        state = State.open(self.handler.state, self.handler.terms.drain_id)
        attempt = Attempt(self.handler.epoch, self.dispatch, number, attempt_number)
        with python_worker().at_work(self.handler) as opened:
            starts = {stream: each.start for stream, each in given.items()}
            records = state.begin(attempt, self.streams, starts)
            outcome: Mapping[str, Any] = {}
            fence = opened.fence
            letters = ExitStack()
            reporter = _StatusReporter(records)
            try:
                earlier = state.revoke_lease(attempt, self.handler.lease)
                records.go_on_from(earlier)
                plan = self._plan_of(given, earlier)
                fence.guard(attempt)
                writers = letters.enter_context(letter_writers(self.handler.client, plan))
                running = replace(self.settings, plan_interval_s=NEVER_S)
                running = replace(running, journal_interval_s=state.journal_interval_s)
                context = DrainContext(
                    plan=plan,
                    file=records,
                    handler=opened.handler.borrowed(),
                    control=Control(running),
                    committer=NoCommitter(),  # the driver commits
                    lock=fence,
                    read_committed=dict,
                    observe=reporter.observe,
                    runtime=UNSIGNALLED,  # people stop the driver
                )
                ports = Ports(
                    lambda _, notify: _ChunkSource(rows, plan, given, notify),
                    is_split=True,
                    open_letters=writers,
                    totals=lambda: fence.control.totals,
                )
                drain = self._drain_of(context, ports, opened, attempt.borrower, reporter)
                summary = drain.run_on(opened.loop)
                if isinstance(summary.cause, LockLost):
                    raise summary.cause  # another attempt decides how the task ends
                outcome = _outcome(summary, drain.dispatcher, reporter.task_status())
            finally:
                letters.close()
                if fence.leave():
                    reporter.over()
                    records.end()
        return outcome

    def _drain_of(
        self,
        context: DrainContext,
        ports: Ports,
        opened: OpenHandler,
        name: str,
        shown: _StatusReporter,
    ) -> LocalDrain:
        """The drain of a task, with as many calls at once as the driver lends to ``name``."""
        fence = opened.fence
        borrower = Borrower(
            name,
            context.plan.terms.failures,
            control=lambda: fence.control,
            report=shown.report_quota,
            use_share=opened.use_share,
        )
        drain = LocalDrain(context, replace(ports, quota=borrower))
        shown.borrowed = partial(borrower.borrowed, drain)
        drain.dispatcher.behind = self.behind
        for ledger in drain.dispatcher.ledgers.values():
            ledger.reports_outcomes = True
        fence.calls = drain.calls
        return drain

    def _plan_of(self, given: Mapping[int, TaskInput], earlier: TaskRecord) -> OffsetPlan:
        """The plan of a task, with what earlier attempts finished; its partitions are streams."""
        found, claim = self.streams.changes(earlier.claims), {}
        for stream, each in given.items():
            begun = Progress(each.start)
            claim[stream] = begun.merge(found[stream]) if stream in found else begun
        account = replace(
            self.plan.account,
            partitions={n: PartitionPlan(e.start, e.end, None, None) for n, e in given.items()},
            claims={ALL: claim},
        )
        account = account.without_pending().merge({}, earlier.parked, earlier.unhandled)
        return OffsetPlan(self.plan.terms, account)


class _ChunkSource:
    """Chunks as a source of messages: read in a thread, as Spark delivers them at its own pace.

    There are to be the sub-messages that were ``given``, by the manifests: Spark computes lost rows
    again, and the log may have others by then. What each slice has comes before the chunks, so a
    difference is found before the first call.
    """

    trouble: str | None = None

    def __init__(
        self,
        rows: Iterable[Row],
        plan: OffsetPlan,
        given: Mapping[int, TaskInput],
        notify: Callable[[], None],
    ) -> None:
        self._rows = rows
        self._notify = notify
        self._given = given
        self._read = dict.fromkeys(given, (0, 0))  # sub-messages, and their checksum
        self._origins: dict[int, Origin] = {}
        self._together: dict[int, list[int]] = {}  # streams by partition
        for stream in map(Stream, given):
            self._origins[stream] = Origin(
                plan.terms.topic, plan.terms.topic_id, stream.partition, stream
            )
            self._together.setdefault(stream.partition, []).append(stream)
        self._ends = {stream: each.end for stream, each in given.items()}
        self._queue: deque[_ChunkBatch] = deque()
        self._waiting = 0  # bytes in the queue
        self._room = threading.Event()
        self._stopping = False
        self.failure: DrainerError | None = None
        self._thread = threading.Thread(target=self._run, name="drainer-chunks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def next_batch(self) -> _ChunkBatch | None:
        if not self._queue:
            return None
        batch = self._queue.popleft()
        self._waiting -= batch.bytes
        self._room.set()
        return batch

    def stop(self) -> None:
        self._stopping = True
        self._room.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            for row in self._checked():
                while self._waiting > AHEAD_BYTES and not self._stopping:
                    self._room.clear()
                    self._room.wait(WAIT_S)
                if self._stopping:
                    return
                # What begins before it came before, of all streams.
                reached = dict.fromkeys(self._together[row.partition], row.offset)
                origin = self._origins[Stream(row.partition, row.shard)]
                self._put(_ChunkBatch(row.body, origin, reached))
            self._put(_ChunkBatch(None, None, self._ends))
        except DrainerError as error:
            self.failure = error
            self._notify()
        except BaseException as error:
            self.failure = Interrupted(
                f"Spark gave no more rows: {type(error).__name__}: {error}",
                hint="Resume with the plan.",
                cause=error,
            )
            self._notify()

    def _checked(self) -> Iterator[Row]:
        """The chunks; raises Interrupted when they are not those that were read first."""
        slices: dict[int, dict[int, tuple[int, int]]] = {stream: {} for stream in self._given}
        compared = False
        for row in self._rows:
            stream = Stream(row.partition, row.shard)
            if stream not in self._given:
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
            yield row
        if not compared:
            self._ensure_same(slices)
        for number, each in self._given.items():  # or what is missing would be a hole
            checksum = sum(checksum for _, checksum in each.slices.values()) & CHECKSUM_MASK
            if self._read[number] != (each.subs, checksum):
                raise self._changed(number, self._read[number][0])

    def _ensure_same(self, slices: Mapping[int, Mapping[int, tuple[int, int]]]) -> None:
        for stream, each in self._given.items():
            if slices[stream] != each.slices:
                raise self._changed(stream, sum(subs for subs, _ in slices[stream].values()))

    def _changed(self, stream: int, found: int) -> Interrupted:
        left = self._given[stream].subs - found
        what = f"{left:,} fewer" if left > 0 else f"{-left:,} more" if left else "other"
        return Interrupted(
            f"shard {Stream(stream).shard} has {what} sub-messages than at the first read: Spark"
            " read lost rows again, but the log, or what split makes of it, had changed",
            hint="Resume with the plan: that reads again what is not done.",
        )

    def _put(self, batch: _ChunkBatch) -> None:
        self._waiting += batch.bytes
        self._queue.append(batch)
        self._notify()


class _ChunkBatch:
    """The engine's ``Batch``: a chunk, decoded when its messages are wanted."""

    def __init__(self, body: bytes | None, origin: Origin | None, reached: dict[int, int]) -> None:
        self._body = body
        self._origin = origin
        self.reached = reached
        self.bytes = 0 if body is None else len(body)

    @property
    def messages(self) -> Iterable[ShippedMessage]:
        if self._body is None or self._origin is None:
            return ()
        return decode_chunk(self._body, self._origin)


class _StatusReporter:
    """Puts the engine's status among the records, for the driver to show."""

    def __init__(self, records: TaskRecords) -> None:
        self._records = records
        self._status: Status | None = None
        self._observed_s = self._began_s = 0.0
        self.borrowed: Callable[[], Borrowed | None] = Borrowed  # until there is a drain
        records.status = self.task_status

    def observe(self, status: Status) -> None:
        if status.timing.latency_recent and status.timing.latency != (
            self._status and self._status.timing.latency
        ):
            # A call has ended well since the last status, and took no longer than the longest.
            began_s = self._observed_s - status.timing.latency_recent.percentiles_s[-1]
            self._began_s = max(self._began_s, began_s)
        self._observed_s = time.time()
        self._status = status
        with suppress(DrainerError):  # the next record repeats it
            self._records.beat()

    def report_quota(self) -> None:
        """Report what is borrowed, at once: others wait for what this task has no more."""
        self._records.hurry()
        with suppress(DrainerError):  # the next record repeats it
            self._records.beat()

    def over(self) -> None:
        """Nothing is borrowed any more."""
        self.borrowed = lambda: None
        self.report_quota()

    def task_status(self) -> TaskStatus | None:
        """The last status."""
        status = self._status
        if status is None:
            return None
        return TaskStatus(
            host=socket.gethostname(),
            running=status.limits.running,
            lanes=status.limits.lanes,
            lanes_ready=status.limits.lanes_ready,
            hottest=tuple((repr(key)[:80], waiting) for key, waiting in status.limits.hottest),
            buffered_bytes=status.limits.buffered_bytes,
            trouble=status.health.trouble,
            latency=status.timing.latency,
            latency_recent=status.timing.latency_recent,
            undecided=status.rules.undecided,
            why=status.rules.why,
            failures=replace(status.failures, errors=status.failures.errors[:10]),
            borrowed=self.borrowed(),
            began_s=self._began_s,
            busy=status.limits.workers_busy,
            processor=status.limits.processor,
        )


def _outcome(
    summary: Summary, dispatcher: Dispatcher, status: TaskStatus | None
) -> Mapping[str, Any]:
    """Return how the task ended; lanes that it leaves behind don't fail the wave."""
    cause = summary.cause
    failed = cause is not None and not isinstance(cause, LanesParked)
    return {
        "failure": error_as_json(cause) if cause is not None and failed else None,
        "parked": [] if failed else sorted(dispatcher.left_behind()),
        "parked_lanes": summary.parked.as_json(),
        "status": status,
    }
