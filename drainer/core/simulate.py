"""How long work takes, by running the real lanes on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from drainer.core.lanes import Lanes
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
    """Drains split messages on a virtual clock, all of them in the buffer from the start.

    Sub-messages with several sub-keys hold a place in each lane; barriers are not simulated.
    """
    lanes, lane_of = Lanes(), LANE_OF.get(order)
    totals: dict[object, float] = {}
    work = 0.0
    for message, subs in messages:
        for sub in subs:
            sub.message = message
            took = latency_s(sub)
            work += took
            if lane_of is None and sub.keys is not None:
                lanes.push_to_all(sub, sub.keys)
                keys: tuple[object, ...] = sub.keys
            else:
                key = sub.key if lane_of is None else lane_of(sub)
                lanes.push(sub, key)
                keys = (key,)
            for each in keys:
                totals[each] = totals.get(each, 0.0) + took
    longest = max(totals.values(), default=0.0)
    seconds = _run(lanes, concurrency, latency_s)
    return Simulated(seconds, work, longest, max(work / concurrency, longest))


def _run(lanes: Lanes, concurrency: int, latency_s: Callable[[SubMessage], float]) -> float:
    now = 0.0
    ties = count()  # sub-messages themselves have no order
    running: list[tuple[float, int, SubMessage]] = []
    while len(running) < concurrency and (sub := lanes.take()) is not None:
        heappush(running, (latency_s(sub), next(ties), sub))
    while running:
        now, _, finished = heappop(running)
        sub = lanes.finish_and_take(finished)
        while sub is not None:
            heappush(running, (now + latency_s(sub), next(ties), sub))
            sub = lanes.take() if len(running) < concurrency else None
    return now
