"""How long work takes, by running the real lanes on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from drainer.core.lanes import Lanes, look_ahead
from drainer.core.order import LANE_OF, Order
from drainer.message import Message, SubMessage


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated drain took.

    ``seconds`` is never less than ``bound_s``: max(W/C, L) for work W, C workers, longest lane L.
    """

    seconds: float
    work_s: float
    longest_lane_s: float
    bound_s: float


def simulate(
    messages: Iterable[tuple[Message, Iterable[SubMessage]]],
    *,
    order: Order,
    concurrency: int,
    latency_s: Callable[[SubMessage], float],
) -> Simulated:
    """Drains split messages on a virtual clock, reading on as far as the engine would.

    Sub-messages with several sub-keys hold a place in each lane; barriers are not simulated.
    """
    backlog = _Backlog(messages, order, latency_s)
    lanes, ready = backlog.lanes, look_ahead(concurrency)
    now = 0.0
    ties = count()  # sub-messages themselves have no order
    running: list[tuple[float, int, SubMessage]] = []
    while True:
        if lanes.ready < ready:
            backlog.read(ready)
        while len(running) < concurrency and (sub := lanes.take()) is not None:
            heappush(running, (now + latency_s(sub), next(ties), sub))
        if not running:
            break
        now, _, finished = heappop(running)
        lanes.finish(finished)
    longest = max(backlog.lane_s.values(), default=0.0)
    bound = max(backlog.work_s / concurrency, longest)
    return Simulated(now, backlog.work_s, longest, bound)


class _Backlog:
    """Messages on their way into lanes, and the work that has been seen so far."""

    def __init__(
        self,
        messages: Iterable[tuple[Message, Iterable[SubMessage]]],
        order: Order,
        latency_s: Callable[[SubMessage], float],
    ) -> None:
        self.lanes = Lanes()
        self.work_s = 0.0
        self.lane_s: dict[Hashable, float] = {}
        self._unread = iter(messages)
        self._lane_of = LANE_OF.get(order)
        self._latency_s = latency_s

    def read(self, ready: int) -> None:
        """Reads on until so many lanes are ready, or nothing is left."""
        lanes = self.lanes
        while lanes.ready < ready and (split := next(self._unread, None)) is not None:
            message, subs = split
            for sub in subs:
                sub.message = message
                self._push(sub)

    def _push(self, sub: SubMessage) -> None:
        took = self._latency_s(sub)
        self.work_s += took
        if self._lane_of is None and sub.keys is not None:
            self.lanes.push_to_all(sub, sub.keys)
            keys: tuple[Hashable, ...] = sub.keys
        else:
            key = sub.key if self._lane_of is None else self._lane_of(sub)
            self.lanes.push(sub, key)
            keys = (key,)
        for each in keys:
            self.lane_s[each] = self.lane_s.get(each, 0.0) + took
