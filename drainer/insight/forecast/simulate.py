"""A simulation of a drain: the real dispatcher and its lanes run on a virtual clock.

The engine's own rules are played: how far the pump reads ahead, in which slices, and that one event
loop does all of it, one thing after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any

from drainer.core.batches import Batcher, Batching
from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import look_ahead
from drainer.core.ledger import Ledger
from drainer.message import Message, SubMessage
from drainer.model.order import Order

# The engine's (engine/pump.py).
SLICE_S = 0.005
SLICE_CHECK = 32
BUFFER_BYTES = 256 * 1024 * 1024

SplitMessage = tuple[Message, Iterable[SubMessage]]


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the process itself, beside the waiting of the handler.

    ``sub_message_s`` is the event loop's for each sub-message, from delivery to its end. In a call
    with others the second and each further one costs ``together_s`` instead.
    ``message_s`` its further share for each message: the split, and what the fetch thread takes
    from the interpreter. The first message is there after ``begin_s``, and each further one
    ``fetch_s`` after the one before it.
    """

    sub_message_s: float = 0.0
    message_s: float = 0.0
    fetch_s: float = 0.0
    begin_s: float = 0.0
    together_s: float = 0.0

    def of(self, messages: float, sub_messages: float, calls: float) -> float:
        """Seconds of the process for so much work."""
        return (
            messages * self.message_s
            + calls * self.sub_message_s
            + (sub_messages - calls) * self.together_s
        )


@dataclass(frozen=True, slots=True)
class Simulated:
    """Results of a simulated drain.

    ``calls`` of the handler had all sub-messages in them; ``folded`` were done by another one.
    """

    seconds: float
    messages: int
    sub_messages: int
    calls: int
    folded: int


class Simulation:
    """A drain of split messages on a virtual clock, reading on as far as the engine would.

    ``latency_s`` is called once per call: with a sub-message, or with ``batching`` with a batch.
    """

    def __init__(
        self,
        messages: Iterable[SplitMessage],
        *,
        order: Order,
        concurrency: int,
        latency_s: Callable[[Any], float],
        costs: Costs = Costs(),
        buffer_bytes: int = BUFFER_BYTES,
        batching: Batching | None = None,
    ) -> None:
        self._now = 0.0  # when the event loop is free again
        self._delivered = self._started = self._calls = self._folded = 0
        self._dispatcher = Dispatcher({}, order)
        self._lanes = self._dispatcher.lanes
        self._unread: Iterator[SplitMessage] = iter(messages)
        self._all_read = False
        self._latency_s = latency_s
        self._costs = costs
        self._capacity_bytes = max(1, buffer_bytes // 2)
        self._idle = concurrency
        self._running: list[tuple[float, int, Any]] = []
        self._ties = count()  # sub-messages themselves have no order
        self._batches = batching is not None
        starter: Any = self._dispatcher
        if batching is not None:
            starter = Batcher(starter, batching)
        self._take, self._finish_and_take = starter.take, starter.finish_and_take
        self._ready_most = look_ahead(concurrency * (batching.lanes if batching else 1))

    def run(self) -> Simulated:
        next_s: float | None = 0.0
        while next_s is not None:
            self._now = max(self._now, next_s)
            slice_end_s = self._now + SLICE_S
            while self._now <= slice_end_s and self._deliver_some():
                pass
            self._wake()
            self._finish_what_is_due()
            next_s = self._next_s()
        started = self._started
        return Simulated(self._now, self._delivered, started, self._calls, self._folded)

    def _next_s(self) -> float | None:
        times = [self._running[0][0]] if self._running else []
        if self._has_room():
            few = 1 if self._arrived() else SLICE_CHECK
            times.append(self._costs.begin_s + (self._delivered + few) * self._costs.fetch_s)
        return min(times, default=None)

    def _has_room(self) -> bool:
        return (
            not self._all_read
            and self._lanes.ready < self._ready_most
            and self._dispatcher.pending_bytes < self._capacity_bytes
        )

    def _arrived(self) -> int:
        """Number of messages that could be delivered now, up to a check of the clock."""
        since_s = self._now - self._costs.begin_s
        if since_s < 0:
            return 0
        if not self._costs.fetch_s:
            return SLICE_CHECK
        # Half a message more: what was waited for is not missed by a rounding.
        return min(SLICE_CHECK, int(since_s / self._costs.fetch_s + 0.5) - self._delivered)

    def _deliver_some(self) -> bool:
        """Whether there was anything to deliver, and room for it."""
        most = self._arrived() if self._has_room() else 0
        if most <= 0:
            return False
        ledgers, came = self._dispatcher.ledgers, 0
        for message, subs in islice(self._unread, most):
            if message.partition not in ledgers:
                self._dispatcher.open(message.partition, Ledger(message.offset, sys.maxsize))
            self._dispatcher.deliver(message, subs)
            came += 1
        self._now += came * self._costs.message_s
        self._delivered += came
        self._all_read = came < most
        return True

    def _wake(self) -> None:
        while self._idle and (work := self._take()) is not None:
            self._idle -= 1
            self._start(work)

    def _start(self, work: Any) -> None:
        self._calls += 1
        if self._batches:
            self._started += len(work.members)
            self._folded += len(work.members) - len(work.subs)
        else:
            self._started += 1
        heappush(self._running, (self._now + self._latency_s(work), next(self._ties), work))

    def _finish_what_is_due(self) -> None:
        running, due_s, costs = self._running, self._now, self._costs
        while running and running[0][0] <= due_s:
            finished = heappop(running)[2]
            members = len(finished.members) if self._batches else 1
            self._now += costs.of(0, members, 1)
            work = self._finish_and_take(finished)
            if work is None:
                self._idle += 1
                self._wake()
            else:
                self._start(work)
                if self._idle and self._lanes.ready:
                    self._wake()
