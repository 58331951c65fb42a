"""How long work takes, by running the real dispatcher and its lanes on a virtual clock.

The engine's own rules are played: how far the pump reads ahead, in which slices, when a worker is
woken, and that one event loop does all of it, one thing after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any

from drainer.core.bundles import Bundle, Bundler, Bundling
from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import look_ahead
from drainer.core.ledger import Ledger
from drainer.core.order import LANE_OF, Order
from drainer.message import Barrier, Message, SubMessage
from drainer.policy.admission import Admission, Rate, Retries
from drainer.policy.breaker import Breaker

# The engine's (engine/pump.py, engine/local.py, engine/failures.py).
SLICE_S = 0.005
SLICE_CHECK = 32
WATCH_INTERVAL_S = 0.05
TICK_LEAST_S = 0.001
BUFFER_BYTES = 256 * 1024 * 1024
NOTE_EVERY = 8192  # sub-messages between two journal records: nobody reads them here

Split = tuple[Message, Iterable[SubMessage]]


@dataclass(frozen=True, slots=True)
class Costs:
    """What the process itself takes, in seconds, beside what the handler waits for.

    ``sub_message_s`` is the event loop's for each sub-message, from delivery to its end. In a call
    with others the second and each further one costs ``together_s`` instead, and ``fold_s`` more
    when it was folded.
    ``message_s`` its further share for each message: the split, and what the fetch thread takes
    from the interpreter. The first message is there after ``begin_s``, and each further one
    ``fetch_s`` after the one before it.
    """

    sub_message_s: float = 0.0
    message_s: float = 0.0
    fetch_s: float = 0.0
    begin_s: float = 0.0
    together_s: float = 0.0
    fold_s: float = 0.0

    def of(self, messages: float, sub_messages: float, calls: float, folded: float) -> float:
        """All that the process does for so much."""
        return (
            messages * self.message_s
            + calls * self.sub_message_s
            + (sub_messages - calls) * self.together_s
            + folded * self.fold_s
        )


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated drain took.

    ``seconds`` is never less than ``bound_s``: max(W/C, L) for work W, C workers, longest lane L.
    ``calls`` of the handler had all sub-messages in them; ``folded`` were done by another one.
    """

    seconds: float
    work_s: float
    longest_lane_s: float
    bound_s: float
    messages: int
    sub_messages: int
    calls: int
    folded: int


def simulate(
    messages: Iterable[Split],
    *,
    order: Order,
    concurrency: int,
    latency_s: Callable[[Any], float],
    costs: Costs = Costs(),
    rate: float | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    bundling: Bundling | None = None,
) -> Simulated:
    """Drains split messages on a virtual clock, reading on as far as the engine would.

    ``latency_s`` is asked once for each call: for a sub-message, or with ``bundling`` for a bundle.
    ``rate`` is in starts per second.
    """
    play = _Play(messages, order, concurrency, latency_s, costs, rate, buffer_bytes, bundling)
    play.run()
    longest = max(play.lane_s.values(), default=0.0)
    return Simulated(
        seconds=play.now,
        work_s=play.work_s,
        longest_lane_s=longest,
        bound_s=max(play.work_s / concurrency, longest),
        messages=play.delivered,
        sub_messages=play.started,
        calls=play.calls,
        folded=play.folded,
    )


class _Play:
    """One drain on a virtual clock; ``now`` is when the event loop is free again."""

    def __init__(
        self,
        messages: Iterable[Split],
        order: Order,
        concurrency: int,
        latency_s: Callable[[Any], float],
        costs: Costs,
        rate: float | None,
        buffer_bytes: int,
        bundling: Bundling | None,
    ) -> None:
        self.dispatcher = Dispatcher({}, order)
        self.now = 0.0
        self.work_s = 0.0
        self.lane_s: dict[Hashable, float] = {}
        self.delivered = self.started = self.calls = self.folded = 0
        self._lanes = self.dispatcher.lanes
        self._unread: Iterator[Split] = iter(messages)
        self._all_read = False
        self._starving = False  # what was fetched is delivered, and more is to come
        self._lane_of = LANE_OF.get(order)
        self._latency_s = latency_s
        self._costs = costs
        self._capacity_bytes = max(1, buffer_bytes // 2)
        self._concurrency = self._idle = concurrency
        self._noted = NOTE_EVERY
        self._poked = True
        self._running: list[tuple[float, int, Any]] = []
        self._ties = count()  # sub-messages themselves have no order
        # What stands between workers and dispatcher, as in engine/local.py.
        starter: Any = self.dispatcher
        self._admission = self._bundler = None
        if rate is not None:
            starter = self._admission = Admission(
                *(self.dispatcher, Retries(), Breaker(), Rate(rate, 0.0)),
                lambda: self.now,
                recovered=lambda: None,
            )
        if bundling is not None:
            starter = self._bundler = Bundler(starter, bundling)
        self._take = starter.take
        self._finish_and_take = starter.finish_and_take
        self._ready_most = look_ahead(self._concurrency * (bundling.lanes if bundling else 1))

    def run(self) -> None:
        watch_s = WATCH_INTERVAL_S
        while True:
            if self._poked:
                self._poked = False
                if self._pump():
                    self._wake()
            self._finish_what_is_due()
            if self._poked and not self._starving and self._has_room():
                continue
            next_s = self._next_s(watch_s)
            if next_s is None:
                return
            self.now = max(self.now, next_s)
            if self.now >= watch_s:
                self._poked = True
                watch_s = self.now + WATCH_INTERVAL_S
            if self._admission and self._idle:
                self._wake()

    def _next_s(self, watch_s: float) -> float | None:
        times = [self._running[0][0]] if self._running else []
        if not self._all_read:
            if self._starving and self._has_room():
                costs = self._costs
                times.append(costs.begin_s + (self.delivered + SLICE_CHECK) * costs.fetch_s)
                self._poked = True
            elif self._has_room() or not times:
                times.append(watch_s)
        if self._admission and self._idle and self._lanes.ready:
            held_s = self._admission.next_at_s
            if held_s is not None:
                times.append(max(held_s, self.now + TICK_LEAST_S))
        return min(times, default=None)

    def _has_room(self) -> bool:
        return (
            not self._all_read
            and self._lanes.ready < self._ready_most
            and self.dispatcher.pending_bytes < self._capacity_bytes
        )

    def _pump(self) -> bool:
        """Delivers for a slice; whether it delivered anything."""
        costs, moved = self._costs, False
        slice_end = self.now + SLICE_S
        self._starving = False
        while self._has_room():
            most = self._arrived()
            if not most:
                self._starving = True
                break
            came = 0
            for message, subs in islice(self._unread, most):
                self._deliver(message, subs)
                came += 1
            self.now += came * costs.message_s
            self.delivered += came
            self._all_read = came < most
            moved = True
            if self.now > slice_end:
                self._poked = True
                break
        return moved

    def _arrived(self) -> int:
        """How many messages could be delivered now, up to a look at the clock."""
        since_s = self.now - self._costs.begin_s
        if since_s < 0:
            return 0
        if not self._costs.fetch_s:
            return SLICE_CHECK
        # Half a message more: what was waited for is not missed by a rounding.
        return min(SLICE_CHECK, int(since_s / self._costs.fetch_s + 0.5) - self.delivered)

    def _deliver(self, message: Message, subs: Iterable[SubMessage]) -> None:
        ledgers, partition = self.dispatcher.ledgers, message.partition
        if partition not in ledgers:
            ledgers[partition] = Ledger(message.offset, sys.maxsize)
        self.dispatcher.deliver(message, subs)

    def _wake(self) -> None:
        while self._idle and (sub := self._take()) is not None:
            self._idle -= 1
            self._start(sub)

    def _start(self, work: Any) -> None:
        took_s = self._latency_s(work)
        self.calls += 1
        self.work_s += took_s
        if self._bundler is None:
            self.started += 1
            self._hold_lanes(work, took_s)
        else:
            members = len(work.members)
            self.started += members
            self.folded += members - len(work.subs)
            for lead, _ in work.runs:
                self._hold_lanes(lead, took_s)
        heappush(self._running, (self.now + took_s, next(self._ties), work))

    def _hold_lanes(self, sub: SubMessage, took_s: float) -> None:
        if isinstance(sub, Barrier):
            return
        lane_s = self.lane_s
        if self._lane_of is not None:
            key = self._lane_of(sub)
            lane_s[key] = lane_s.get(key, 0.0) + took_s
        else:
            for key in (sub.key,) if sub.keys is None else sub.keys:
                lane_s[key] = lane_s.get(key, 0.0) + took_s

    def _cost_s(self, work: Bundle) -> float:
        members = len(work.members)
        return self._costs.of(0, members, 1, members - len(work.subs))

    def _finish_what_is_due(self) -> None:
        running, due_s = self._running, self.now
        finish_and_take, lanes = self._finish_and_take, self._lanes
        cost_s, bundles = self._costs.sub_message_s, self._bundler is not None
        while running and running[0][0] <= due_s:
            finished = heappop(running)[2]
            self.now += self._cost_s(finished) if bundles else cost_s
            work = finish_and_take(finished)
            if work is None:
                self._idle += 1
                self._poked = True
            else:
                self._start(work)
                if self.started > self._noted:
                    self._noted = self.started + NOTE_EVERY
                    self.dispatcher.changes()
            if self._idle and lanes.ready:
                self._wake()
