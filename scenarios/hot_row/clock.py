"""A virtual clock, which shows how long the real lanes take for a backlog if calls only wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

from drainer.core.batches import Batcher, Batching
from drainer.core.dispatch import Dispatcher
from drainer.core.lanes import look_ahead
from drainer.core.ledger import Ledger
from drainer.message import Message, SubMessage
from drainer.model.order import Order


@dataclass(frozen=True, slots=True)
class Played:
    """The seconds of a drain that was played, and the calls that it made."""

    seconds: float
    calls: int


def play(
    messages: Iterable[tuple[Message, list[SubMessage]]],
    concurrency: int,
    latency_s: Callable[[], float],
    order: Order = Order.SUB_KEY,
    batching: Batching | None = None,
) -> Played:
    """Play a drain with so many calls at once. The processor time of drainer itself is left out."""
    dispatcher = Dispatcher({}, order)
    source: Any = dispatcher if batching is None else Batcher(dispatcher, batching)
    lanes = concurrency * (batching.lanes if batching else 1)
    dispatcher.lanes.adjust(workers=lanes)
    ready_most = look_ahead(lanes)
    # The ties are needed because sub-messages themselves have no order.
    unread, ties = iter(messages), count()
    running: list[tuple[float, int, Any]] = []
    now_s, calls = 0.0, 0
    while True:
        while dispatcher.lanes.ready < ready_most and (found := next(unread, None)):
            message, subs = found
            if message.partition not in dispatcher.ledgers:
                dispatcher.open(message.partition, Ledger(message.offset, sys.maxsize))
            dispatcher.deliver(message, subs)
        while len(running) < concurrency and (work := source.take()) is not None:
            calls += 1
            heappush(running, (now_s + latency_s(), next(ties), work))
        if not running:
            return Played(now_s, calls)
        now_s, _, finished = heappop(running)
        source.finish(finished)
