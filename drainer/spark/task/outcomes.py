"""Tables of outcomes, and the function by which tasks handle sub-messages with the engine that
drains in one process. Rows that Spark brings take the place of Kafka."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, Ports
from drainer.engine.runtime import UNSIGNALLED
from drainer.errors import DrainerError, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.kafka.writer import TopicWriter
from drainer.loading.loader import LoadedHandler
from drainer.message import KeySums, Message, Origin, ShippedMessage, SubMessage, Unsplit
from drainer.model.account import PartitionPlan
from drainer.model.plan import OffsetPlan
from drainer.model.progress import DONE, Outcome, Progress
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.status import Status
from drainer.model.sub_messages import Payloads
from drainer.operations.in_memory import NoLock, plan_in_memory
from drainer.operations.letters import letter_writers
from drainer.spark.session.shipping import Shipped
from drainer.spark.task.chunk import not_restored
from drainer.spark.task.handling import NEVER_S
from drainer.spark.task.journal import OutcomeJournal
from drainer.spark.task.source import TaskSource
from drainer.spark.task.table import (
    BATCH_ROWS,
    SUBS,
    THE_ONE,
    batch_of,
    explained,
    key_text,
    prepared,
    rows_of,
)
from drainer.split import decoding
from drainer.text.mask import describe

OUTCOMES = {
    "id": "string",
    "key": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "index": "int",
    "outcome": "string",
    "attempts": "int",
    "error": "string",
    "letter": "string",
    "started": "timestamp_ltz",
    "ended": "timestamp_ltz",
}
RUN_BYTES = 512 * 1024  # Rows become runs of messages of about this size.
MESSAGE_BYTES = 1024  # A message takes about this much memory beside its contents.
LOOK_S = 0.05  # Without a journal, what has finished is given to Spark this often.
RECORD_S = 1.0  # The engine's own journal goes nowhere, so it is written now and then.
_NEVER = 2**62  # The end of a ledger whose partition may always go on.
_WHOLE = 0  # The stream of a ledger that stays open until all rows have come.
_MICRO = 1_000_000

OutcomeRow = tuple[Any, ...]  # The columns of ``OUTCOMES``, with times as microseconds since 1970.
Runs = Iterator[list[ShippedMessage]]


class _Recorded(Ledger):
    """A ledger that passes each sub-message that is finished to a recorder."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__(0, _NEVER, Progress(0))
        self._recorder = recorder

    def finish(self, message: Message, index: int, outcome: Outcome = DONE) -> None:
        self._recorder.finished(message, index, outcome)
        super().finish(message, index, outcome)


class _Recorder:
    """Makes rows of sub-messages that are finished.

    Attributes:
        waiting: the sub-messages that were delivered and are not finished, by index, by the stream
            and the offset of their message.
        letters: the topic of dead letters.
    """

    def __init__(self, handler: LoadedHandler, letters: str | None) -> None:
        self.rows: deque[OutcomeRow] = deque()
        self.waiting: dict[tuple[int, int], dict[int, SubMessage]] = {}
        self._letters = letters
        self._started: dict[SubMessage, float] = {}
        handler.handle = self._noting(handler.handle, is_async=handler.is_async)
        handler.handle_batch = self._noting(handler.handle_batch, is_async=handler.is_async)

    def expect(self, message: ShippedMessage) -> None:
        """Note which sub-messages of a message are about to be delivered."""
        place = message.origin.stream, message.offset
        self.waiting[place] = {sub.index: sub for sub in message.subs}

    def finished(self, message: Message, index: int, outcome: Outcome) -> None:
        """Make the row of a sub-message that is finished."""
        place = message.origin.stream, message.offset
        sub = self.waiting[place].pop(index)
        if not self.waiting[place]:
            del self.waiting[place]
        ended = time.time()
        failing = getattr(sub, "failing", None)
        error = None if failing is None or failing.error is None else describe(failing.error)
        if error is None and isinstance(sub, Unsplit):
            error = sub.why
        started = self._started.pop(sub, None)
        self.rows.append(
            (
                *(sub.id, key_text(sub), message.topic, message.partition, message.offset, index),
                *(outcome.value, sub.attempt if started else 0, error),
                self._letters if outcome is Outcome.DEAD else None,
                None if started is None else int(started * _MICRO),
                int(ended * _MICRO),
            )
        )

    def _noting(self, call: Callable[[Any], Any], *, is_async: bool) -> Callable[[Any], Any]:
        def note(given: Any) -> None:
            now = time.time()
            for sub in getattr(given, "members", (given,)):
                self._started.setdefault(sub, now)

        async def awaited(given: Any) -> Any:
            note(given)
            return await call(given)

        def called(given: Any) -> Any:
            note(given)
            return call(given)

        return awaited if is_async else called


def _keep(
    recorder: _Recorder,
    journal: OutcomeJournal | None,
    ends: SimpleQueue[BaseException | None],
    made: SimpleQueue[pa.RecordBatch | BaseException | None],
) -> None:
    """Write what has finished to the journal, and put it into ``made``, until a drain has ended.

    The last thing that is put is the error by which that ended, or None.
    """
    over, error, pause_s = False, None, LOOK_S
    try:
        while not over:
            with suppress(Empty):
                error = ends.get(timeout=pause_s)
                over = True
            if rows := [recorder.rows.popleft() for _ in range(len(recorder.rows))]:
                if journal is not None:
                    pause_s = journal.append(rows)
                made.put(batch_of(rows, OUTCOMES))
    except BaseException as raised:
        error = raised
    made.put(error)


def runs_of(
    batches: Iterable[pa.RecordBatch], task: int = 0, tasks: int = 1, *, values: bool = False
) -> Runs:
    """Yield messages with the sub-messages that the rows have of them, in runs of one partition.

    The rows are those of one of so many tasks, sorted by topic, partition, offset and index. A
    message whose rows are in several batches is yielded whole. A row that is repeated counts once.
    With ``values``, the messages have their values.

    Raises UsageError if a row has no place, if two rows have one place and differ, or if there are
    several tasks for a row of the one shard; DrainerError if Spark has not sorted the rows or has
    given this task those of another.
    """
    origins: dict[tuple[str, int], Origin] = {}
    run: list[ShippedMessage] = []
    size = 0
    payloads = Payloads(decoded=False)
    last: tuple[Any, ...] = ()
    for batch in batches:
        for row in rows_of(batch, SUBS):
            _ensure_own(row, task, tasks)
            topic, number, offset, index, of, *_, micros, message_key, value, headers = row[2:]
            if (place := row[2:6]) <= last[2:6]:
                if place < last[2:6]:
                    raise _misplaced("has not sorted the rows of a task")
                _ensure_same(row, last)
                continue
            if place[:3] != last[2:5]:
                origin = origins.get((topic, number))
                if origin is None:
                    origin = Origin(topic, topic, number, len(origins) + 1)
                    origins[topic, number] = origin
                if run:
                    run[-1].size += payloads.bytes_of(run[-1], run[-1].subs)
                    size += run[-1].size
                    full = len(run) >= BATCH_ROWS or size >= RUN_BYTES
                    if full or run[-1].origin is not origin:
                        yield run
                        run, size = [], 0
                timestamp = None if micros is None else micros // 1_000
                sums, pairs = KeySums(of, 0), pickle.loads(headers) if headers else ()
                message = ShippedMessage(origin, offset, message_key, timestamp, pairs, sums)
                message.size += len(headers or b"")
                if values:
                    message.value = value
                    message.size += len(value or b"")
                message.subs = []
                run.append(message)
            sub = _sub_of(row)
            sub.index, sub.message = index, run[-1]
            run[-1].subs.append(sub)  # type: ignore[attr-defined]
            last = row
    if run:
        yield run


def _ensure_own(row: tuple[Any, ...], task: int, tasks: int) -> None:
    """Ensure that a row has a place, is of this task, and needs no rows of the others."""
    if None in row[1:7]:
        raise UsageError(
            f"a row of sub-messages has no {list(SUBS)[row.index(None, 1)]}",
            hint="Give handle() what split() returned, or some rows of it.",
        )
    if row[1] % tasks != task:
        raise _misplaced("has given a task rows of another one")
    if row[1] == THE_ONE and tasks > 1:
        raise UsageError(
            f"{_place_of(row)} was split with one_shard=True, and there are {tasks} tasks",
            hint="Let one task handle all rows: handle(…, tasks=1). A journal that was begun with"
            " more tasks can't be used for that.",
        )


def _sub_of(row: tuple[Any, ...]) -> SubMessage:
    key, payload, pickled = row[0], row[7], row[9]
    if pickled is None:
        return SubMessage(key, payload)
    try:
        sub: SubMessage = pickle.loads(pickled)
    except Exception as error:  # The payload's own code may raise anything.
        raise not_restored(f"the payload of {_place_of(row)}", error) from error
    return sub


def _ensure_same(row: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Ensure that two rows of one place are of one sub-message."""
    # The columns key, of, rejected, timestamp and message_key. How the shard was chosen may differ.
    of = 0, 6, 8, 10, 11
    # What is not bytes may look different, and be pickled in another way, each time that it is
    # made.
    differ = row[7] != other[7] and row[9] is None
    if differ or any(row[column] != other[column] for column in of):
        raise UsageError(
            f"two rows have the place {_place_of(row)}, and differ",
            hint="Give handle() rows of one topic of one cluster. If the topic was deleted and"
            " created again, handle its old and its new messages one after the other.",
        )


def _place_of(row: tuple[Any, ...]) -> str:
    return "{}/{}/{}[{}]".format(*row[2:6])


def _misplaced(what: str) -> DrainerError:
    return DrainerError(
        f"Spark {what}, so drainer could not keep the order",
        hint="Report this with the physical plan, which outcomes.explain() prints.",
    )


class _Batch(NamedTuple):
    messages: Sequence[ShippedMessage]
    reached: dict[int, int]
    size: int = 0


def _batches(runs: Runs) -> Iterator[_Batch]:
    """Yield the runs, and at the end the ends of their streams and of ``_WHOLE``."""
    streams = {_WHOLE}
    for run in runs:
        streams.add(run[0].origin.stream)
        yield _Batch(run, {}, sum(message.size + MESSAGE_BYTES for message in run))
    yield _Batch((), dict.fromkeys(streams, _NEVER))


class _SubSource(TaskSource[_Batch]):
    """Runs of messages as the source of an engine.

    The ledger of a partition is opened with its first message.
    """

    def __init__(
        self, runs: Runs, dispatcher: Dispatcher, recorder: _Recorder, notify: Callable[[], None]
    ) -> None:
        super().__init__(_batches(runs), notify)
        self._dispatcher = dispatcher
        self._recorder = recorder

    def next_batch(self) -> _Batch | None:
        batch = super().next_batch()
        for message in () if batch is None else batch.messages:
            self._recorder.expect(message)
            if (number := message.origin.stream) not in self._dispatcher.ledgers:
                self._dispatcher.open(number, _Recorded(self._recorder))
        return batch


class _Partitions(dict[int, PartitionPlan]):
    """The partitions of a table, which are known only as their rows come."""

    def __missing__(self, _: int) -> PartitionPlan:
        return PartitionPlan(0, _NEVER, None, None)


class _NoRecords:
    """A ``PlanStore`` that keeps nothing: a table has no offsets to commit."""

    path = "the task"
    trouble: str | None = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


class _Trouble:
    """Logs what a task waits for, such as an outage, since Spark has no view of it."""

    def __init__(self) -> None:
        self._last: str | None = None

    def observe(self, status: Status) -> None:
        if (trouble := status.health.trouble) != self._last:
            self._last = trouble
            logging.getLogger("drainer").warning("%s", trouble or "it is over: calls succeed again")


@dataclass(frozen=True, slots=True)
class TableHandler:
    """The function that handles sub-messages and returns their outcomes.

    Attributes:
        concurrency: how many calls all tasks together make at once, which is at least ``tasks``.
        tasks: the number of tasks.
        failures: the failure settings of one task.
        client: the client that writes dead letters, and with which the handler writes; None without
            it.
        values: whether sub-messages have the values of their messages.
        journal: the place of the journal; None without one.
    """

    shipped: Shipped
    concurrency: int
    tasks: int
    failures: FailureSettings
    options: Mapping[str, str]
    _: KW_ONLY
    client: ClientSettings | None = None
    values: bool = False
    journal: str | None = None

    def handle(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle sub-messages, and yield their outcomes, for ``mapInArrow``."""
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        with explained(), ExitStack() as opened:
            runs: Runs = runs_of(batches, task, self.tasks, values=self.values)
            journal = None
            if self.journal is not None:
                journal = opened.enter_context(OutcomeJournal.of_task(self.journal, task))
                runs = journal.left_of(runs)
            # If there is nothing to handle, the handler is not opened.
            if (first := next(runs, None)) is not None:
                yield from self._handled(chain([first], runs), task, journal)
            for rows in () if journal is None else journal.met():
                yield batch_of(rows, OUTCOMES)

    def _handled(
        self, runs: Runs, task: int, journal: OutcomeJournal | None
    ) -> Iterator[pa.RecordBatch]:
        handler = self.shipped.load().configured(self.options)
        runs = self._restored(runs, handler, whole=handler.split is None)
        # Without a split of its own, the engine would make sub-messages of the messages again.
        handler.split = handler.split or decoding.whole
        plan = plan_in_memory({_WHOLE: _NEVER}, handler.reference, self.failures, UNSIGNALLED.now())
        partitions = _Partitions(plan.account.partitions)
        plan = OffsetPlan(plan.terms, replace(plan.account, partitions=partitions))
        recorder = _Recorder(handler, self.failures.letters_topic)
        ends: SimpleQueue[BaseException | None] = SimpleQueue()
        made: SimpleQueue[pa.RecordBatch | BaseException | None] = SimpleQueue()

        def drain() -> None:
            ends.put(self._drain(runs, task, handler, plan, recorder, journal))

        # Spark may take no rows for many seconds, and the journal must not wait for it.
        for work in drain, partial(_keep, recorder, journal, ends, made):
            threading.Thread(target=work, daemon=True).start()
        while isinstance(batch := made.get(), pa.RecordBatch):
            yield batch
        if batch is not None:
            raise batch
        if recorder.waiting:
            raise DrainerError(
                f"{len(recorder.waiting):,} messages have sub-messages without an outcome",
                hint="This is a bug in drainer: report it.",
            )

    def _restored(self, runs: Runs, handler: LoadedHandler, *, whole: bool) -> Runs:
        """Yield the runs with the values of messages as ``split`` saw them, as far as they came.

        With ``whole``, each message is its only sub-message.
        """
        decoder = handler.decoding
        for run in runs:
            if self.values and decoder is not None:
                for message in prepared(handler, run):
                    decoder.decoded(message)
            for message in run if whole else ():
                message.value = message.subs[0].content
            yield run

    def _drain(
        self,
        runs: Runs,
        task: int,
        handler: LoadedHandler,
        plan: OffsetPlan,
        recorder: _Recorder,
        journal: OutcomeJournal | None,
    ) -> BaseException | None:
        """Handle everything, and return the error by which that ended; None if all is done."""
        calls, more = divmod(self.concurrency, self.tasks)
        running = LocalSettings(
            concurrency=calls + (task < more),
            options=self.options,
            plan_interval_s=NEVER_S,
            journal_interval_s=RECORD_S,
        )
        try:
            context = DrainContext(
                plan=plan,
                file=_NoRecords(),
                handler=handler,
                control=Control(running),
                lock=NoLock() if journal is None else journal.fence,
                read_committed=dict,
                observe=_Trouble().observe,
                runtime=UNSIGNALLED,
            )
            with ExitStack() as opened:
                ports = Ports(
                    lambda of, notify: _SubSource(runs, of, recorder, notify), is_split=True
                )
                if (client := self.client) is not None:
                    ports = replace(
                        ports,
                        open_letters=opened.enter_context(letter_writers(client, plan)),
                        write_to=partial(TopicWriter, client),
                        extras=client.extension,
                    )
                drain = LocalDrain(context, ports)
                if journal is not None:
                    journal.guard(drain.calls)
                return drain.run().cause
        except BaseException as error:
            return error
