"""The pump: splits fetched messages and delivers them to the dispatcher, in slices, while there is
room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Any

from drainer.core.dispatch import Dispatcher
from drainer.engine.ports import Events, Fetched
from drainer.message import Message, SubMessage
from drainer.split.splitting import split_or_reject

# The pump keeps the event loop for this long before other tasks get a turn.
SLICE_S = 0.005
# The pump stops at these numbers of messages that stay pending and of parked lanes, because both
# are kept in memory and in the plan.
LEFT_PENDING_MOST = 50_000
PARKED_MOST = 50_000
# The pump looks at the clock after this many messages. For every SLICE_CHECK sub-messages that a
# message splits into, it counts as one more message.
SLICE_CHECK = 32
# Messages that the pump need not split are delivered several at once, which may take up to
# 1/WHOLE_SHARE of the buffer.
WHOLE_SHARE = 32


@dataclass(eq=False)
class Pump:
    """Moves batches from the fetch thread's queue through ``split`` into the dispatcher.

    The pump stops while ``capacity_bytes`` are pending or ``ready_lanes`` wait for a worker,
    because more messages would only lie in memory. Call ``poke`` when there may be room again. The
    pump calls ``events.on_moved`` each time that it has delivered something. If ``split`` raises an
    error that no setting covers, the pump stops for good and halts the drain, because going on
    would leave out the message that failed.

    Attributes:
        is_split: whether the messages were split where they were read.
        ready_lanes: the pump stops splitting once this many lanes are ready. It is zero until a
            limit on calls is set.
        cut_off: whether the queue will give no further batch after the current one.
    """

    next_batch: Callable[[], Fetched | None]
    dispatcher: Dispatcher
    split: Callable[[Message], Iterable[SubMessage]] | None
    _: KW_ONLY
    is_split: bool
    capacity_bytes: int
    events: Events
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        dispatcher = self.dispatcher
        self._capacity_bytes = max(1, self.capacity_bytes)  # With 0, nothing would ever be let in.
        self.ready_lanes = 0
        self._lanes = dispatcher.lanes
        self._batch: Fetched | None = None
        self._messages: Iterator[Message] = iter(())
        self._deliver_some = self._deliver_split
        if self.split is None or self.is_split:
            whole = self.split is None
            deliver = dispatcher.deliver_whole if whole else dispatcher.deliver_parts
            self._deliver_some = partial(self._deliver_at_once, deliver)
        # Expressions take microseconds for each sub-message, so the clock is looked at more often.
        self._slice_check = 1 if dispatcher.evaluates else SLICE_CHECK
        self._at_once = self._slice_check
        self._scheduled = False
        self._stopped = False
        self.cut_off = False
        self._loop = asyncio.get_running_loop()

    def poke(self) -> None:
        """Look for work soon. Call this in the event loop's thread."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._run)

    @property
    def awaits(self) -> bool:
        """Whether the pump waits for another batch and has room for it."""
        if self.cut_off and self._batch is None:
            return False
        return self.has_room and not self.dispatcher.delivered

    def stop(self) -> None:
        self._stopped = True

    def _run(self) -> None:
        self._scheduled = False
        try:
            if self._deliver_for_a_slice():
                self.events.on_moved()
        except BaseException as error:
            self.stop()
            self.events.halt(error)

    def _deliver_for_a_slice(self) -> bool:
        slice_end = self.clock() + SLICE_S
        moved = False
        while not self._stopped and self.has_room:
            if self._batch is None:
                self._batch = self.next_batch()
                if self._batch is None:
                    break
                self._messages = iter(self._batch.messages)
            moved = True
            if not self._deliver_some():
                # The positions count only once the messages before them are delivered.
                for partition, position in self._batch.reached.items():
                    self.dispatcher.skip_to(partition, position)
                self._batch = None
            if self.clock() > slice_end:
                self.poke()
                break
        return moved

    @property
    def has_room(self) -> bool:
        """Whether another message may be delivered now."""
        return (
            self._lanes.ready < self.ready_lanes
            and self._lanes.parked < PARKED_MOST
            and self.dispatcher.load.left_pending < LEFT_PENDING_MOST
            and self.dispatcher.pending_bytes < self._capacity_bytes
        )

    def _deliver_at_once(self, deliver: Callable[[Sequence[Any]], None]) -> bool:
        messages = list(islice(self._messages, self._at_once))
        if not messages:
            return False
        before = self.dispatcher.pending_bytes
        deliver(messages)
        each = (self.dispatcher.pending_bytes - before) // len(messages)
        more = len(messages) == self._at_once
        room = self._capacity_bytes // WHOLE_SHARE // max(1, each)
        self._at_once = min(self._slice_check, max(1, room))
        return more

    def _deliver_split(self) -> bool:
        assert self.split is not None
        split, dispatcher = self.split, self.dispatcher
        room = self._capacity_bytes - dispatcher.pending_bytes
        left = self._slice_check
        for message in self._messages:
            left -= 1
            if dispatcher.wants(message):
                subs = split_or_reject(split, message)
                dispatcher.deliver(message, subs)
                room -= message.size
                left -= len(subs) // SLICE_CHECK
            if left <= 0 or room <= 0:
                return True
        return False
