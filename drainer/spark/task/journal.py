"""The journal of outcomes: what a table's sub-messages came to, so that none is handled again.

It is a state of its own (``State``), in which nobody is the driver: each task that handles a
partition of the table is an attempt at a task of its slice 1. The objects ``rows-N`` of an attempt
have outcomes.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from drainer.engine.checkpointer import JOURNAL_SHARE, JOURNAL_SLOWEST_S
from drainer.errors import LockLost, Refused, StateLost, StateRefused
from drainer.message import ShippedMessage
from drainer.spark.state.lease import LOCAL, REMOTE, LeaseTimes
from drainer.spark.state.records import TaskRecords
from drainer.spark.state.state import REQUESTS_AT_ONCE, Attempt, DriverControl, State, open_objects
from drainer.spark.task.python_worker import Fence
from drainer.store.journal import decode_line, encode_line
from drainer.store.objects import Objects

NAME = "outcomes"  # In place of a drain's id.
HEAD, ROWS = "head", "rows-"
EPOCH = SLICE = 1
OUTCOME_ROWS = 5_000  # This many outcomes go into one batch.

T = TypeVar("T")
Row = tuple[Any, ...]  # A row of outcomes. Its columns 2 to 5 are the place of a sub-message.


class _Undriven(State):
    """A state without a driver. A task works as long as it reaches the state, and is the newest."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects, NAME)
        self._beat = 0

    def control(self, epoch: int) -> DriverControl:
        self._beat += 1
        return DriverControl(self._beat)

    def ensure_epoch(self, epoch: int) -> None:
        if self.epoch() is None:
            raise LockLost(
                f"{socket.gethostname()} does not find the journal at {self.uri}",
                hint="Give a place that the driver and all executors reach, and keep it until the"
                " query is over.",
            )


def begin_journal(uri: str, handler: str, tasks: int) -> tuple[str, int]:
    """Begin a journal, or go on with it.

    Return its absolute URI, and into how many partitions its table is divided. Raises UsageError,
    StateRefused or StateLost if it can't be kept there, and Refused if it is the journal of another
    handler.
    """
    state = _Undriven(open_objects(uri))
    state.begin_epoch(EPOCH, _times(state))
    name, head = f"{NAME}/{HEAD}", {"handler": handler, "tasks": str(tasks)}
    if state.objects.create(name, encode_line(head)):
        return state.uri, tasks
    known = _read(state, name, dict[str, str])
    if known["handler"] != handler:
        raise Refused(
            f"the journal at {state.uri} has the outcomes of {known['handler']}, not of {handler}",
            hint="Give each handler a journal of its own.",
        )
    return state.uri, int(known["tasks"])


def _times(state: State) -> LeaseTimes:
    return LOCAL if state.objects.is_local else REMOTE


def _read(state: State, name: str, kind: Any) -> Any:
    """Return the content of an object. Raises StateLost if it is gone or damaged."""
    try:
        return decode_line(state.objects.get(name) or b"", kind)
    except ValueError as error:
        raise StateLost(
            f"{state.uri}/{name} is damaged or gone",
            hint="Find out what else writes there. With a new journal, everything is handled anew.",
        ) from error


class OutcomeJournal:
    """The journal of one partition, as an attempt at it reads and writes it.

    Attributes:
        fence: keeps calls from beginning once another attempt has taken over.
    """

    def __init__(self, state: State, attempt: Attempt) -> None:
        self._state = state
        self._attempt = attempt
        self._written = 0
        self.fence = Fence(state, EPOCH, _times(state))
        # Bits of sub-messages, by offset and partition: those that earlier attempts have finished,
        # and those of them that were met again.
        self._done: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        self._met: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)

    @classmethod
    @contextmanager
    def of_task(cls, uri: str, task: int) -> Iterator[OutcomeJournal]:
        """Begin an attempt at a partition, once all earlier attempts at it are over."""
        state = _Undriven(open_objects(uri))
        attempt, records = _begin(state, task)
        journal = cls(state, attempt)
        journal.fence.start()
        try:
            state.await_earlier_attempts(attempt, _times(state))
            yield journal
        finally:
            if journal.fence.leave():
                records.end()
                journal.fence.stop()
            else:
                journal.fence.end()  # Calls that go on are cut off, before another attempt begins.

    def left_of(self, runs: Iterator[list[ShippedMessage]]) -> Iterator[list[ShippedMessage]]:
        """Yield messages without the sub-messages that earlier attempts have finished."""
        for row in self._earlier():
            _add(self._done, row)
        for run in runs:
            place = run[0].topic, run[0].partition
            done, met = self._done.get(place, {}), self._met[place]
            for message in run if done else ():
                if bits := done.get(message.offset, 0):
                    found = sum(1 << sub.index for sub in message.subs) & bits
                    met[message.offset] = found
                    message.subs = [sub for sub in message.subs if not found >> sub.index & 1]
            if left := [message for message in run if message.subs]:
                yield left

    def met(self) -> Iterator[Sequence[Row]]:
        """Yield the outcomes of what ``left_of`` has left out, each of them once."""
        if not any(self._met.values()):
            return

        def take(row: Row) -> bool:
            of, offset, bit = self._met[row[2], row[3]], row[4], 1 << row[5]
            is_met = bool(of.get(offset, 0) & bit)
            if is_met:  # An attempt that was replaced may have written the same outcome late.
                of[offset] ^= bit
            return is_met

        yield from _batched(filter(take, self._earlier()), OUTCOME_ROWS)

    def _earlier(self) -> Iterator[Row]:
        """Yield the outcomes that earlier attempts have written."""
        state, names = self._state, list[str]()
        for attempt in state.attempts(self._attempt.share):
            folder = f"{NAME}/{attempt.name}"
            if attempt < self._attempt:
                written = (n for n in state.objects.children(folder) if n.startswith(ROWS))
                names += [f"{folder}/{name}" for name in written]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, "journal") as threads:
            for some in _batched(iter(names), 4 * REQUESTS_AT_ONCE):
                for rows in threads.map(lambda name: _read(state, name, list[Row]), some):
                    yield from rows

    def guard(self, calls: Callable[[], int]) -> None:
        """Let calls begin as long as this is the newest attempt. ``calls`` counts them."""
        self.fence.guard(self._attempt, calls)
        self.fence.await_lease()

    def append(self, rows: Sequence[Row]) -> float:
        """Write outcomes; return for how many seconds to wait with the next ones.

        Raises PlanNotWritten or StateLost.
        """
        begun_s = time.thread_time()
        self._written += 1
        name = f"{NAME}/{self._attempt.name}/{ROWS}{self._written:08d}"
        self._state.objects.put(name, encode_line(rows), beside=True)
        took_s = time.thread_time() - begun_s
        return max(self._state.journal_interval_s, min(took_s / JOURNAL_SHARE, JOURNAL_SLOWEST_S))


def _begin(state: State, task: int) -> tuple[Attempt, TaskRecords]:
    share = EPOCH, SLICE, task
    while True:
        earlier = state.attempts(share)
        attempt = Attempt(*share, earlier[-1].number + 1 if earlier else 1)
        try:
            return attempt, state.begin(attempt, {})
        except StateRefused:
            if state.attempts(share) == earlier:
                raise  # Nobody else has begun this attempt meanwhile.


def _add(bits: defaultdict[tuple[str, int], dict[int, int]], row: Row) -> None:
    _, _, topic, partition, offset, index, *_ = row
    of = bits[topic, partition]
    of[offset] = of.get(offset, 0) | 1 << index


def _batched(items: Iterator[T], count: int) -> Iterator[tuple[T, ...]]:
    while some := tuple(islice(items, count)):
        yield some
