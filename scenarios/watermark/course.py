"""A drain on a virtual clock: the real pump, ledger and lanes, and calls that only wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from unittest.mock import patch

import orjson

from drainer import Message, Origin, SubMessage
from drainer.core import dispatch
from drainer.core.lanes import Lanes, look_ahead
from drainer.core.ledger import Ledger
from drainer.engine.pump import Pump

ORIGIN = Origin("orders", "topic-id", 0)
BATCH_MESSAGES = 2_000
BUFFER_BYTES = 128 * 1024 * 1024
POINTS = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """Some messages, as the fetch thread hands them over."""

    messages: Iterable[Message]
    reached: dict[int, int]


@dataclass
class Course:
    """What a drain came to. Shares are between 0 and 1.

    Attributes:
        path: at each hundredth of the work, the share of the sub-messages that is done, the share
            of the messages below the watermark, and whether any lane is critical.
        plan_bytes: the longest text that a plan had for the progress.
        repeated: the most sub-messages above the watermark that were done. If the plan is lost,
            they are handled again.
        pending: the most messages that were delivered and not finished.
        pending_bytes: the most memory that they took.
    """

    seconds: float = 0.0
    path: list[tuple[float, float, bool]] = field(default_factory=list)
    plan_bytes: int = 0
    repeated: int = 0
    pending: int = 0
    pending_bytes: int = 0


class Events:
    """Raises what ends the pump, and ignores everything else."""

    awaits_more = False

    def halt(self, cause: BaseException) -> None:
        raise cause

    def on_moved(self) -> None: ...

    def on_idle(self) -> None: ...

    def on_busy_loop(self, now_s: float) -> None: ...


def play(
    backlog: Sequence[Sequence[int]],
    concurrency: int,
    latency_s: Callable[[Random], float],
    order: type[Lanes],
    seed: int,
) -> Course:
    """Play the drain of a backlog, which has the sub-keys of each message, in an order of lanes."""
    with patch.object(dispatch, "Lanes", order):
        return asyncio.run(_play(backlog, concurrency, latency_s, Random(seed)))


class Reading:
    """A backlog as the pump reads it, and what it has delivered of each sub-key.

    Attributes:
        waiting: by sub-key, the sub-messages that were delivered and did not start.
        below: by offset, how many sub-messages the messages before it have.
    """

    def __init__(self, backlog: Sequence[Sequence[int]]) -> None:
        self._backlog = backlog
        self._starts = iter(range(0, len(backlog), BATCH_MESSAGES))
        self.waiting = Counter[int]()
        self.below = [0, *accumulate(map(len, backlog))]

    def next_batch(self) -> Batch | None:
        start = next(self._starts, None)
        if start is None:
            return None
        last = len(self._backlog)
        end = min(start + BATCH_MESSAGES, last)
        messages = (Message(ORIGIN, offset, None, b"") for offset in range(start, end))
        return Batch(messages, {0: end} if end == last else {})

    def split(self, message: Message) -> list[SubMessage]:
        keys = self._backlog[message.offset]
        self.waiting.update(keys)
        return [SubMessage(key) for key in keys]


async def _play(
    backlog: Sequence[Sequence[int]],
    concurrency: int,
    latency_s: Callable[[Random], float],
    chance: Random,
) -> Course:
    dispatcher, reading = dispatch.Dispatcher({0: Ledger(0, len(backlog))}), Reading(backlog)
    dispatcher.lanes.adjust(workers=concurrency)
    now_s, events = 0.0, Events()
    pump = Pump(
        reading.next_batch,
        dispatcher,
        reading.split,
        is_split=False,
        capacity_bytes=BUFFER_BYTES,
        events=events,
        clock=lambda: now_s,
    )
    pump.ready_lanes = look_ahead(concurrency)
    course, done = Course(), 0
    running: list[tuple[float, int, SubMessage]] = []
    ties = count()

    def start(sub: SubMessage) -> None:
        reading.waiting[sub.key] -= 1  # type: ignore[index]
        heappush(running, (now_s + latency_s(chance), next(ties), sub))

    while True:
        # The engine also looks for room now and then, not after each call.
        if pump.awaits and dispatcher.ready < 0.9 * pump.ready_lanes:
            pump.poke()
            await asyncio.sleep(0)
        while len(running) < concurrency and (sub := dispatcher.take()) is not None:
            start(sub)
        if not running:
            break
        now_s, _, ended = heappop(running)
        if (following := dispatcher.finish_and_take(ended)) is not None:
            start(following)
        done += 1
        if done * POINTS // reading.below[-1] > len(course.path):
            _measure(course, dispatcher, reading, done)
    if not dispatcher.complete:
        raise RuntimeError("the drain stands still")
    course.seconds = now_s
    return course


def _measure(course: Course, dispatcher: dispatch.Dispatcher, reading: Reading, done: int) -> None:
    lanes, ledger, below = dispatcher.lanes, dispatcher.ledgers[0], reading.below
    least = lanes.critical_share * reading.waiting.total() / lanes.workers
    critical = max(reading.waiting.values(), default=0) > max(1, least)
    shares = done / below[-1], ledger.watermark / (len(below) - 1)
    course.path.append((*shares, critical))
    plan = orjson.dumps(ledger.progress().as_json(), default=str, option=orjson.OPT_NON_STR_KEYS)
    course.plan_bytes = max(course.plan_bytes, len(plan))
    course.repeated = max(course.repeated, done - below[ledger.watermark])
    course.pending = max(course.pending, dispatcher.counts()[0].pending)
    course.pending_bytes = max(course.pending_bytes, ledger.pending_bytes)
