"""What the engine itself takes on this machine: it drains a made-up backlog, without Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from drainer.core.dispatch import Dispatcher
from drainer.core.order import Order
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Progress
from drainer.engine.clock import now
from drainer.engine.local import LocalDrain
from drainer.engine.loop import event_loop
from drainer.engine.outside import Outside
from drainer.engine.settings import LocalSettings
from drainer.errors import DrainerError
from drainer.loader import LoadedHandler
from drainer.message import Message, Origin, SubMessage
from drainer.store.plan_file import PlanFile

Split = tuple[Message, list[SubMessage]]

SUB_MESSAGES = 30_000
CONCURRENCY_LEAST, CONCURRENCY_MOST = 400, 1000
THREADS_MOST = 64
LATENCY_PER_WORKER_S = 10e-6  # so short that the process is what binds, and timers are still used
BATCH_MESSAGES = 2000
PARTS = 8  # the median of so many is not moved by what else the machine does in one
LATE_SLEEP_S, LATE_SLEEPERS, LATE_FOR_S = 0.01, 10, 0.2
LATE_MOST_S = 0.001  # the resolution of the event loop's timers
WARM_UP = 0.2  # of the sub-messages, which are not looked at


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the engine takes, in seconds.

    Attributes:
        sub_message_s: what one sub-message costs the process, from its delivery to its end.
        late_s: how much later than asked an event loop with little to do wakes who waits.
    """

    sub_message_s: float
    late_s: float


def calibrate(*, fan_out: float, concurrency: int, is_async: bool) -> Calibration:
    """Drains messages of ``fan_out`` sub-messages with a handler that only sleeps.

    So shortly that nothing but this process binds. Takes a fraction of a second.
    """
    split = list(_backlog(max(1, round(fan_out)), SUB_MESSAGES))
    count = sum(len(subs) for _, subs in split)
    workers = min(CONCURRENCY_MOST, max(CONCURRENCY_LEAST, concurrency))
    if not is_async:
        workers = min(THREADS_MOST, concurrency)
    handler = (_OnTheLoop if is_async else _OnThreads)(workers * LATENCY_PER_WORKER_S, split)
    with TemporaryDirectory(prefix="drainer-calibrate-") as folder:
        file = PlanFile(Path(folder) / "plan.json")
        plan = _plan_of(split)
        file.write(plan)
        LocalDrain(
            plan,
            file,
            LoadedHandler("calibration", handler),
            LocalSettings(concurrency=workers),
            Outside(
                open_source=lambda dispatcher, notify: _Source(split, dispatcher, notify),
                committer=_Group(),
                lock=_Lock(),
                read_committed=dict,
            ),
            lambda status: None,
        ).run()
    return Calibration(handler.each_s(count), _late_s() if is_async else 0.0)


def _late_s() -> float:
    async def sleep_on() -> list[float]:
        late = []
        while (begun_s := time.perf_counter()) < end_s:
            await asyncio.sleep(LATE_SLEEP_S)
            late.append(time.perf_counter() - begun_s - LATE_SLEEP_S)
        return late

    async def together() -> float:
        found = await asyncio.gather(*(sleep_on() for _ in range(LATE_SLEEPERS)))
        late_s = median(each for some in found for each in some)
        return min(max(0.0, late_s), LATE_MOST_S)  # more is what else the machine does just now

    end_s = time.perf_counter() + LATE_FOR_S
    with event_loop() as loop:
        return loop.run_until_complete(together())


def _backlog(fan_out: int, sub_messages: int) -> Iterator[Split]:
    # Each on a lane of its own: lanes shall not bind.
    origin = Origin("", "", 0)
    for offset in range(max(1, sub_messages // fan_out)):
        first = offset * fan_out
        yield (
            Message(origin, offset, None, None),
            [SubMessage(key) for key in range(first, first + fan_out)],
        )


class _Sleeper:
    """Notes the time at some of the starts."""

    def __init__(self, latency_s: float, split: Sequence[Split]) -> None:
        self._latency_s = latency_s
        self._subs = {(m.partition, m.offset): subs for m, subs in split}
        self._begun = 0
        self._every = max(1, sum(len(subs) for _, subs in split) // 50)
        self._noted: list[tuple[int, float]] = []

    def split(self, message: Message) -> list[SubMessage]:
        return self._subs[message.partition, message.offset]

    def each_s(self, count: int) -> float:
        """Seconds of one sub-message."""
        seen = [each for each in self._noted if each[0] >= WARM_UP * count] or self._noted
        step = max(1, len(seen) // PARTS)
        marks = seen[::step]
        parts = [
            (at_s - before_s) / (number - before)
            for (before, before_s), (number, at_s) in pairwise(marks)
        ]
        return median(parts) if parts else 0.0

    def _note(self) -> None:
        self._begun += 1
        if not self._begun % self._every:
            self._noted.append((self._begun, time.perf_counter()))


class _OnTheLoop(_Sleeper):
    async def handle(self, sub: SubMessage) -> None:
        self._note()
        await asyncio.sleep(self._latency_s)


class _OnThreads(_Sleeper):
    def handle(self, sub: SubMessage) -> None:
        self._note()
        time.sleep(self._latency_s)


@dataclass(frozen=True, slots=True)
class _Batch:
    messages: Sequence[Message]
    reached: dict[int, int] = field(default_factory=dict)


class _Source:
    """Hands out all messages; at the end, the ends of the partitions."""

    trouble: str | None = None
    failure: DrainerError | None = None

    def __init__(
        self, split: Sequence[Split], dispatcher: Dispatcher, notify: Callable[[], None]
    ) -> None:
        self._batches = self._cut(split)
        self._notify = notify

    def start(self) -> None:
        self._notify()

    def next_batch(self) -> _Batch | None:
        return next(self._batches, None)

    def stop(self) -> None:
        pass

    @staticmethod
    def _cut(split: Sequence[Split]) -> Iterator[_Batch]:
        messages = (message for message, _ in split)
        while batch := list(islice(messages, BATCH_MESSAGES)):
            yield _Batch(batch)


class _Group:
    """A group that is committed for by nobody else."""

    def check(self, topic_id: str) -> None:
        pass

    def commit(self, offsets: Mapping[int, int], *_: object, **__: object) -> dict[int, int]:
        return dict(offsets)


class _Lock:
    lost: DrainerError | None = None
    unsure_since_s: float | None = None


def _plan_of(split: Sequence[Split]) -> OffsetPlan:
    ends: dict[int, int] = {}
    for message, _ in split:
        ends[message.partition] = message.offset + 1
    created = now()
    return OffsetPlan(
        drain_id="calibration",
        created=created,
        updated=created,
        generation=1,
        cluster_id="",
        bootstrap_servers="",
        client_config=None,
        isolation="read_committed",
        topic="",
        topic_id="",
        group="",
        handler="calibration",
        order=Order.SUB_KEY.value,
        partitions={number: PartitionPlan(0, end, None, None) for number, end in ends.items()},
        claims={ALL: {number: Progress(0) for number in ends}},
    )
