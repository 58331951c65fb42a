"""Tables of messages, sub-messages and outcomes, and the functions by which tasks go from one to
the next.

A row of sub-messages has the place of a sub-message in its message and in the topic, so a task can
bring them into their order again. ``key`` and ``payload`` are for people and for filters; if they
can't say exactly what ``handle`` is to get, ``sub`` has the sub-message itself, pickled.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import Raw
from pyspark import TaskContext

from drainer.core.dispatch import Dispatcher
from drainer.core.ledger import Ledger
from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, Ports
from drainer.engine.runtime import UNSIGNALLED
from drainer.errors import DrainerError, Interrupted, UsageError
from drainer.kafka.settings import ClientSettings
from drainer.loading.loader import LoadedHandler
from drainer.message import KeySums, Message, Origin, ShippedMessage, SubMessage
from drainer.model.account import PartitionPlan
from drainer.model.claims import ShardMap
from drainer.model.order import Order
from drainer.model.plan import OffsetPlan
from drainer.model.progress import DONE, Outcome, Progress
from drainer.model.settings import FailureSettings, LocalSettings
from drainer.model.sub_messages import identify_or_reject
from drainer.operations.in_memory import plan_in_memory
from drainer.operations.letters import letter_writers
from drainer.spark.session.failure import carrying
from drainer.spark.session.shipping import Shipped
from drainer.spark.task.chunk import PICKLE_PROTOCOL
from drainer.spark.task.journal import OutcomeJournal
from drainer.split.splitting import Outage, split_or_reject
from drainer.text.mask import describe
from drainer.text.plain_json import plain_json

_TIME = pa.timestamp("us", "UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
# The types of columns, by Spark's names for them.
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": _TIME,
    "array<struct<key:string,value:binary>>": pa.list_(pa.field("element", _HEADER)),
}
MESSAGES = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
SUBS = {
    "key": "string",
    "shard": "int",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "index": "int",
    "of": "int",
    "payload": "binary",
    "sub": "binary",
    "timestamp": "timestamp",
    "message_key": "binary",
    "message_value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
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
    "started": "timestamp",
    "ended": "timestamp",
}
BATCH_ROWS = 2_000
AHEAD_RUNS = 16  # This many runs of messages are taken from Spark before the engine wants them.
LOOK_S = 0.05  # What has finished is written to the journal and given to Spark this often.
_NEVER = 2**62  # The end of a ledger whose partition may always go on.
_MICRO = 1_000_000

OutcomeRow = tuple[Any, ...]  # The columns of ``OUTCOMES``, with times as microseconds since 1970.


def batch_of(rows: Sequence[tuple[Any, ...]], columns: Mapping[str, str]) -> pa.RecordBatch:
    """Return rows as an Arrow batch with these columns, which have the names of Spark's types."""
    arrays = [
        pa.array(values, _TYPES[kind])
        for values, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch with these columns. One that it lacks is None everywhere."""
    found = set(batch.schema.names)

    def column(name: str) -> list[Any]:
        if name not in found:
            return [None] * batch.num_rows
        values = batch.column(name)
        if pa.types.is_timestamp(values.type):
            values = values.cast(_TIME).cast(pa.int64())
        return list(values.to_pylist())

    return zip(*map(column, names), strict=True)


@dataclass(frozen=True, slots=True)
class TableSplitter:
    """The function that makes sub-messages of messages.

    Attributes:
        shards: the number of shards.
        values: whether the sub-messages get the values of their messages.
    """

    shipped: Shipped
    shards: int
    values: bool
    options: Mapping[str, str] = field(default_factory=dict)

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sub-messages of the messages in ``batches``, for ``mapInArrow``.

        Raises UsageError if something connects shards.
        """
        with carrying():
            handler = self.shipped.load().configured(self.options)
            shard_map = ShardMap(Order.SUB_KEY)
            for batch in batches:
                rows: list[tuple[Any, ...]] = []
                for message in _prepared(handler, list(_messages(batch))):
                    rows += self._rows_of(handler, message, shard_map)
                    if len(rows) >= BATCH_ROWS:
                        yield batch_of(rows, SUBS)
                        rows = []
                if rows:
                    yield batch_of(rows, SUBS)

    def _rows_of(
        self, handler: LoadedHandler, message: Message, shard_map: ShardMap
    ) -> Iterator[tuple[Any, ...]]:
        if handler.split is None:
            found: Iterable[SubMessage] = [SubMessage(message.key, message.value)]
        else:
            found = split_or_reject(handler.split, message)
        subs, _ = identify_or_reject(message, found)
        facts = message.timestamp, message.key, message.value if self.values else None
        headers = [{"key": key, "value": value} for key, value in message.headers]
        for sub in subs:
            shard = shard_map.shard_of(sub, self.shards)
            if shard is None:
                raise UsageError(
                    f"{message} has a barrier, or a sub-message with keys in several shards",
                    hint="Let one task handle all: split(…, shards=1).",
                )
            key, content = sub.key, sub.content
            plain = type(sub) is SubMessage and sub.keys is None and type(key) in (str, type(None))
            exact = plain and isinstance(content, bytes | None)
            timestamp = None if facts[0] is None else facts[0] * 1_000
            yield (
                *(_text(sub), shard, message.topic, message.partition, message.offset),
                *(sub.index, len(subs), _shown(content), None if exact else _pickled(sub)),
                *(timestamp, *facts[1:], headers),
            )


def _text(sub: SubMessage) -> str | None:
    if sub.keys is not None:
        return repr(sub.keys)
    return sub.key if isinstance(sub.key, str | None) else repr(sub.key)


def _shown(content: Any) -> bytes | None:
    """Return a payload as people read it."""
    if content is None or type(content) is bytes:
        return content
    try:
        return bytes(content) if isinstance(content, Raw) else plain_json(content)
    except TypeError:  # It is not like JSON.
        return repr(content).encode("utf-8", "replace")


def _pickled(sub: SubMessage) -> bytes:
    message, sub.message = sub.message, None  # type: ignore[assignment]
    try:
        return pickle.dumps(sub, PICKLE_PROTOCOL)
    finally:
        sub.message = message


def _messages(batch: pa.RecordBatch) -> Iterator[Message]:
    origins: dict[tuple[str, int], Origin] = {}
    for key, value, topic, number, offset, micros, headers in _rows(batch, MESSAGES):
        place = topic or "", number
        origin = origins.get(place) or origins.setdefault(place, Origin(place[0], place[0], number))
        timestamp = None if micros is None else micros // 1_000
        pairs = [(each["key"], each["value"]) for each in headers or ()]
        yield Message(origin, offset, key, value, timestamp, pairs)


def _prepared(handler: LoadedHandler, messages: list[Message]) -> Iterator[Message]:
    """Yield messages when what ``split`` needs for them is there, such as their schemas."""
    outage = Outage(inf, _wait)
    while handler.prepare is not None and messages:
        count = handler.prepare(messages, outage)
        yield from messages[:count]
        messages = messages[count:]
    yield from messages


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return True


class _Recorded(Ledger):
    """A ledger that passes each sub-message that is finished to a recorder."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__(0, _NEVER, Progress(0))
        self._recorder = recorder

    def finish(self, message: Message, index: int, outcome: Outcome = DONE) -> None:
        self._recorder.finished(message, index, outcome)
        super().finish(message, index, outcome)


class _Recorder:
    """Makes rows of sub-messages that are finished. ``letters`` is the topic of dead letters."""

    def __init__(self, handler: LoadedHandler, letters: str | None) -> None:
        self.rows: deque[OutcomeRow] = deque()
        self._letters = letters
        self._subs: dict[tuple[int, int], dict[int, SubMessage]] = {}
        self._started: dict[SubMessage, float] = {}
        handler.handle = self._noting(handler.handle, is_async=handler.is_async)
        handler.handle_batch = self._noting(handler.handle_batch, is_async=handler.is_async)

    def expect(self, message: ShippedMessage) -> None:
        """Note which sub-messages of a message are about to be delivered."""
        place = message.origin.stream, message.offset
        self._subs[place] = {sub.index: sub for sub in message.subs}

    def finished(self, message: Message, index: int, outcome: Outcome) -> None:
        """Make the row of a sub-message that is finished."""
        place = message.origin.stream, message.offset
        sub = self._subs[place].pop(index)
        if not self._subs[place]:
            del self._subs[place]
        ended = time.time()
        failing = None if outcome is DONE else getattr(sub, "failing", None)
        error = None if failing is None or failing.error is None else describe(failing.error)
        started = self._started.pop(sub, None)
        self.rows.append(
            (
                *(sub.id, _text(sub), message.topic, message.partition, message.offset, index),
                *(outcome.value, sub.attempt if started else 0, error),
                self._letters if outcome is Outcome.DEAD else None,
                None if started is None else int(started * _MICRO),
                int(ended * _MICRO),
            )
        )

    def _noting(self, call: Callable[[Any], Any], *, is_async: bool) -> Callable[[Any], Any]:
        def note(given: Any) -> None:
            now = time.time()
            for sub in getattr(given, "subs", (given,)):
                self._started.setdefault(sub, now)

        async def awaited(given: Any) -> Any:
            note(given)
            return await call(given)

        def called(given: Any) -> Any:
            note(given)
            return call(given)

        return awaited if is_async else called


def runs_of(
    batches: Iterable[pa.RecordBatch], *, values: bool = False
) -> Iterator[list[ShippedMessage]]:
    """Yield messages with the sub-messages that the rows have of them, in runs of one partition.

    The rows are sorted by topic, partition, offset and index. A message whose rows are in several
    batches is yielded whole. With ``values``, the messages have their values.
    """
    origins: dict[tuple[str, int], Origin] = {}
    run: list[ShippedMessage] = []
    subs: list[SubMessage] = []  # Those of the last message.
    last: tuple[str, int, int] | None = None
    for batch in batches:
        for row in _rows(batch, tuple(SUBS)):
            key, _, *place, index, of, payload, pickled, micros, message_key, value, headers = row
            if (at := tuple(place)) != last:
                topic, number, offset = last = at
                origin = origins.get((topic, number))
                if origin is None:
                    origin = Origin(topic, topic, number, len(origins) + 1)
                    origins[topic, number] = origin
                if run and (run[-1].origin is not origin or len(run) >= BATCH_ROWS):
                    yield run
                    run = []
                timestamp = None if micros is None else micros // 1_000
                pairs = [(each["key"], each["value"]) for each in headers or ()]
                sums = KeySums(of, 0)
                message = ShippedMessage(origin, offset, message_key, timestamp, pairs, sums)
                if values:
                    message.value = value
                message.subs = subs = []
                run.append(message)
            sub = SubMessage(key, payload) if pickled is None else pickle.loads(pickled)
            sub.index, sub.message = index, run[-1]
            subs.append(sub)
    if run:
        yield run


class _Batch(NamedTuple):
    messages: Sequence[ShippedMessage]
    reached: dict[int, int]


@dataclass(eq=False)
class _SubSource:
    """Rows of sub-messages as a source of messages. A thread takes them from Spark.

    The ledger of a partition is opened with its first message.
    """

    runs: Iterable[list[ShippedMessage]]
    dispatcher: Dispatcher
    recorder: _Recorder
    done: Mapping[tuple[str, int], Mapping[int, int]]  # Finished before: bits by offset.
    notify: Callable[[], None]

    def __post_init__(self) -> None:
        self.trouble: str | None = None
        self.failure: DrainerError | None = None
        self._queue: deque[_Batch] = deque()
        self._room = threading.Semaphore(AHEAD_RUNS)
        self._stopping = False

    def start(self) -> None:
        threading.Thread(target=self._read, name="drainer-rows", daemon=True).start()

    def next_batch(self) -> _Batch | None:
        if not self._queue:
            return None
        batch = self._queue.popleft()
        self._room.release()
        for message in batch.messages:
            self.recorder.expect(message)
            if (number := message.origin.stream) not in self.dispatcher.ledgers:
                self.dispatcher.open(number, _Recorded(self.recorder))
        return batch

    def stop(self) -> None:
        self._stopping = True
        self._room.release()

    def _read(self) -> None:
        streams = {0}
        try:
            for run in self.runs:
                left = self._left(run)
                streams.update(message.origin.stream for message in left[:1])
                self._put(_Batch(left, {}))
                if self._stopping:
                    return
            self._put(_Batch((), dict.fromkeys(streams, _NEVER)))
        except BaseException as error:
            why = f"Spark gave no more rows: {describe(error)}"
            self.failure = error if isinstance(error, DrainerError) else Interrupted(why)
            self.notify()

    def _put(self, batch: _Batch) -> None:
        self._room.acquire()
        self._queue.append(batch)
        self.notify()

    def _left(self, run: list[ShippedMessage]) -> list[ShippedMessage]:
        """Return messages without the sub-messages that were finished before."""
        done = self.done.get((run[0].topic, run[0].partition), {})
        for message in run if done else ():
            bits = done.get(message.offset, 0)
            message.subs = [sub for sub in message.subs if not bits >> sub.index & 1]
        return [message for message in run if message.subs]


class _Partitions(dict[int, PartitionPlan]):
    """The partitions of a table, which are known only as their rows come."""

    def __missing__(self, _: int) -> PartitionPlan:
        return PartitionPlan(0, _NEVER, None, None)


class _NoRecords:
    """A ``PlanStore`` that keeps nothing: a table has no offsets to commit."""

    path = "the task"

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


class _NoLock:
    lost: DrainerError | None = None
    silence: tuple[str, float] | None = None
    sure_until_s = inf


@dataclass(frozen=True, slots=True)
class TableHandler:
    """The function that handles sub-messages and returns their outcomes.

    Attributes:
        settings: the settings of one task.
        client: the client that writes dead letters; None without it.
        values: whether sub-messages have the values of their messages.
        journal: the place of the journal; None without one.
    """

    shipped: Shipped
    settings: LocalSettings
    failures: FailureSettings
    _: KW_ONLY
    client: ClientSettings | None = None
    values: bool = False
    journal: str | None = None

    def handle(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle sub-messages, and yield their outcomes, for ``mapInArrow``."""
        context = TaskContext.get()
        assert context is not None
        with carrying():
            if self.journal is None:
                yield from self._handled(batches, None)
                return
            with OutcomeJournal.of_task(self.journal, context.partitionId()) as journal:
                for rows in journal.before():
                    yield batch_of(rows, OUTCOMES)
                if journal.is_complete:
                    for _ in batches:  # Otherwise Spark would end this worker.
                        pass
                    return
                yield from self._handled(batches, journal)

    def _handled(
        self, batches: Iterable[pa.RecordBatch], journal: OutcomeJournal | None
    ) -> Iterator[pa.RecordBatch]:
        handler = self.shipped.load().configured(self.settings.options or {})
        # The ledger 0 stays open until all rows have come.
        plan = plan_in_memory({0: _NEVER}, handler.reference, self.failures, UNSIGNALLED.now())
        partitions = _Partitions(plan.account.partitions)
        plan = OffsetPlan(plan.terms, replace(plan.account, partitions=partitions))
        recorder = _Recorder(handler, self.failures.letters_topic)
        ends: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.Thread(
            target=lambda: ends.put(self._drain(batches, handler, plan, recorder, journal)),
            name="drainer-table",
            daemon=True,
        ).start()
        over = False
        while not over:
            try:
                error = ends.get(timeout=LOOK_S)
                over = True
            except Empty:
                pass
            rows = [recorder.rows.popleft() for _ in range(len(recorder.rows))]
            if rows and journal is not None:
                journal.append(rows)
            if rows:
                yield batch_of(rows, OUTCOMES)
        if error is not None:
            raise error
        if journal is not None:
            journal.complete()

    def _drain(
        self,
        batches: Iterable[pa.RecordBatch],
        handler: LoadedHandler,
        plan: OffsetPlan,
        recorder: _Recorder,
        journal: OutcomeJournal | None,
    ) -> BaseException | None:
        """Handle everything, and return the error by which that ended; None if all is done."""
        try:
            context = DrainContext(
                plan=plan,
                file=_NoRecords(),
                handler=handler,
                control=Control(self.settings),
                lock=_NoLock() if journal is None else journal.fence,
                read_committed=dict,
                runtime=UNSIGNALLED,
            )
            done = {} if journal is None else journal.done
            runs = runs_of(batches, values=self.values)
            with ExitStack() as opened:
                open_letters = None
                if self.client is not None:
                    open_letters = opened.enter_context(letter_writers(self.client, plan))
                ports = Ports(
                    lambda of, notify: _SubSource(runs, of, recorder, done, notify),
                    is_split=True,
                    open_letters=open_letters,
                )
                drain = LocalDrain(context, ports)
                if journal is not None:
                    journal.guard(drain.calls)
                return drain.run().cause
        except BaseException as error:
            return error
