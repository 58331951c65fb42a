"""The journal of outcomes: what a table's sub-messages came to, so that none is handled again.

It is a state of its own (``State``), in which nobody is the driver: each task that handles a
partition of the table is an attempt at a task of its slice 1. The objects ``rows-N`` of an attempt
have outcomes, and the object ``complete`` of a task says that nothing of it is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from drainer.errors import Refused
from drainer.spark.state.lease import LOCAL, REMOTE, LeaseTimes
from drainer.spark.state.objects import Objects
from drainer.spark.state.state import Attempt, DriverControl, State, open_objects
from drainer.spark.task.python_worker import Fence
from drainer.store.journal import decode_line, encode_line

NAME = "outcomes"  # In place of a drain's id.
HEAD, COMPLETE, ROWS = "head", "complete", "rows"
EPOCH = SLICE = 1


class _Undriven(State):
    """A state without a driver. A task works as long as it reaches the state, and is the newest."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects, NAME)
        self._beat = 0

    def control(self, epoch: int) -> DriverControl:
        self._beat += 1
        return DriverControl(self._beat)


def begin_journal(uri: str, handler: str, tasks: int) -> int:
    """Begin a journal, or go on with it; return into how many partitions its table is divided.

    Raises UsageError, StateRefused or StateLost if it can't be kept there, and Refused if it is the
    journal of another handler.
    """
    state = _Undriven(open_objects(uri))
    state.begin_epoch(EPOCH, _times(state))
    name, head = f"{NAME}/{HEAD}", {"handler": handler, "tasks": str(tasks)}
    if state.objects.create(name, encode_line(head)):
        return tasks
    known = decode_line(state.objects.get(name) or b"", dict[str, str])
    if known["handler"] != handler:
        raise Refused(
            f"the journal at {state.uri} has the outcomes of {known['handler']}, not of {handler}",
            hint="Give each table and each handler a journal of its own.",
        )
    return int(known["tasks"])


def _times(state: State) -> LeaseTimes:
    return LOCAL if state.objects.is_local else REMOTE


class OutcomeJournal:
    """The journal of one partition, as an attempt at it reads and writes it.

    Attributes:
        done: what earlier attempts have finished: bits of sub-messages, by offset and partition.
        fence: keeps calls from beginning once another attempt has taken over.
    """

    def __init__(self, state: State, attempt: Attempt) -> None:
        self._state = state
        self._attempt = attempt
        self._written = 0
        self.done: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        self.fence = Fence(state, EPOCH, _times(state))
        self._complete = f"{NAME}/{EPOCH}/{SLICE}/{attempt.task}/{COMPLETE}"
        self.is_complete = state.objects.get(self._complete) is not None

    @classmethod
    @contextmanager
    def of_task(cls, uri: str, task: int) -> Iterator[OutcomeJournal]:
        """Begin an attempt at a partition, once all earlier attempts at it are over."""
        state = _Undriven(open_objects(uri))
        earlier = state.attempts((EPOCH, SLICE, task))
        attempt = Attempt(EPOCH, SLICE, task, earlier[-1].number + 1 if earlier else 1)
        records = state.begin(attempt, {})
        journal = cls(state, attempt)
        journal.fence.start()
        try:
            state.await_earlier_attempts(attempt, _times(state))
            yield journal
        finally:
            if journal.fence.leave():
                records.end()
            journal.fence.stop()

    def before(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the outcomes that earlier attempts have written, and note them in ``done``."""
        for attempt in self._state.attempts(self._attempt.share)[:-1]:
            number = 1
            while (data := self._state.objects.get(self._name(attempt, number))) is not None:
                rows = decode_line(data, list[tuple[Any, ...]])
                for _, _, topic, partition, offset, index, *_ in rows:
                    of_partition = self.done[topic, partition]
                    of_partition[offset] = of_partition.get(offset, 0) | 1 << index
                yield rows
                number += 1

    def guard(self, calls: Callable[[], int]) -> None:
        """Let calls begin as long as this is the newest attempt. ``calls`` counts them."""
        self.fence.guard(self._attempt, calls)
        self.fence.await_lease()

    def append(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write outcomes. Raises PlanNotWritten or StateLost."""
        self._written += 1
        name = self._name(self._attempt, self._written)
        self._state.objects.put(name, encode_line(rows), beside=True)

    def complete(self) -> None:
        """Note that nothing of the partition is left."""
        self._state.objects.create(self._complete, encode_line({}), beside=True)

    @staticmethod
    def _name(attempt: Attempt, number: int) -> str:
        return f"{NAME}/{attempt.name}/{ROWS}-{number:08d}"
