"""What the engine itself takes on this machine: it drains messages, and handles none of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from drainer.core.bundles import Bundling
from drainer.core.dispatch import Dispatcher
from drainer.core.order import Order
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Progress
from drainer.engine.local import LocalDrain
from drainer.engine.loop import event_loop
from drainer.engine.ports import Held, Ports, Source
from drainer.engine.pump import Batch
from drainer.engine.runtime import THIS_PROCESS
from drainer.engine.settings import LocalSettings
from drainer.errors import DrainerError, Refused, SplitFailed
from drainer.insight.canary import CanaryOver, FirstMessages
from drainer.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.store.plan_file import PlanFile

SUB_MESSAGES = 30_000
CONCURRENCY_LEAST, CONCURRENCY_MOST = 400, 1000
THREADS_MOST = 64
TOGETHER = 50  # sub-messages in a call of a handler that folds
IN_CALLS_MOST = 20_000  # sub-messages at once: what lies deeper has left the processor's caches
ROUNDS = 4  # of as many as are in calls at once
LATENCY_PER_WORKER_S = 10e-6  # so short that the process is what binds, and timers are still used
PARTS = 8  # the median of so many is not moved by what else the machine does in one
LATE_SLEEP_S, LATE_SLEEPERS, LATE_FOR_S = 0.01, 10, 0.2
LATE_MOST_S = 0.001  # the resolution of the event loop's timers
WARM_UP = 0.2  # of the sub-messages, which are not looked at


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the engine takes, in seconds.

    Attributes:
        sub_message_s: what one sub-message costs the process, from the fetch to its end.
        late_s: how much later than asked an event loop with little to do wakes who waits.
        together_s: what one costs that is in a call with others.
    """

    sub_message_s: float
    late_s: float
    together_s: float = 0.0


def calibrate(
    ranges: Mapping[int, tuple[int, int]],
    open_source: Callable[[Callable[[], None]], Source],
    split: Callable[[Message], Iterable[SubMessage]] | None,
    *,
    fan_out: float,
    concurrency: int,
    is_async: bool,
    bundling: Bundling | None = None,
) -> Calibration:
    """Drains the first messages of a backlog with a handler that only sleeps.

    So shortly that nothing but this process binds, and with each sub-message on a lane of its own.
    Nothing is committed. Takes about half a second; with ``bundling`` as long again, for calls with
    as many sub-messages as are in them then.

    Raises Refused when ``split`` fails, and what else keeps the backlog from being read.

    Args:
        ranges: the backlog's offsets by partition.
        open_source: what reads it, as the engine has it; it gets what to call when something came.
        split: of the handler; None for the default one.
        fan_out: about how many sub-messages a message has.
        concurrency, is_async, bundling: of the drain.
    """
    workers = min(CONCURRENCY_MOST, max(CONCURRENCY_LEAST, concurrency))
    if not is_async:
        workers = min(THREADS_MOST, concurrency)
    make = _OnTheLoop if is_async else _OnThreads

    def drain(handler: _Sleeper, subs: int, workers: int, bundling: Bundling | None) -> None:
        most = max(1, round(subs / max(1.0, fan_out)))
        _drain(ranges, open_source, split, handler, most, workers, bundling)

    alone = make(workers * LATENCY_PER_WORKER_S)
    drain(alone, SUB_MESSAGES, workers, None)
    found = Calibration(alone.each_s, _late_s() if is_async else 0.0)
    if bundling is not None:
        together = bundling.most if bundling.most > 1 else TOGETHER
        calls = max(1, min(workers, concurrency, IN_CALLS_MOST // together))
        in_calls = calls * together
        many = make(in_calls * LATENCY_PER_WORKER_S / 10)
        subs = max(SUB_MESSAGES, ROUNDS * in_calls)
        drain(many, subs, calls, Bundling(most=together))
        found = replace(found, together_s=min(many.each_s, alone.each_s))
    return found


def _drain(
    ranges: Mapping[int, tuple[int, int]],
    open_real: Callable[[Callable[[], None]], Source],
    real_split: Callable[[Message], Iterable[SubMessage]] | None,
    handler: _Sleeper,
    messages: int,
    workers: int,
    bundling: Bundling | None,
) -> None:
    split = None if real_split is None else partial(handler.split_apart, real_split)

    def open_source(dispatcher: Dispatcher, notify: Callable[[], None]) -> Source:
        source: Source = FirstMessages(open_real(notify), messages, dispatcher)
        return source if split is not None else _Apart(source)

    loaded = LoadedHandler("calibration", handler)
    loaded.split, loaded.bundling = split, bundling
    with TemporaryDirectory(prefix="drainer-calibrate-") as folder:
        file = PlanFile(Path(folder) / "plan.json")
        plan = _plan_of(ranges)
        file.write(plan)
        held = Held(
            plan=plan,
            file=file,
            handler=loaded,
            running=LocalSettings(concurrency=workers),
            committer=_Group(),
            lock=_Lock(),
            read_committed=dict,
        )
        summary = LocalDrain(held, Ports(open_source)).run()
    if isinstance(summary.cause, SplitFailed):  # at a message that no sample has
        raise Refused(str(summary.cause), hint=summary.cause.hint) from summary.cause
    if summary.cause is not None and not isinstance(summary.cause, CanaryOver):
        raise summary.cause


def _late_s() -> float:
    async def sleep_on() -> list[float]:
        late = []
        while (begun_s := time.perf_counter()) < end_s:
            await asyncio.sleep(LATE_SLEEP_S)
            late.append(time.perf_counter() - begun_s - LATE_SLEEP_S)
        return late

    async def together() -> float:
        found = await asyncio.gather(*(sleep_on() for _ in range(LATE_SLEEPERS)))
        # What is much more is something else that the machine does just now.
        late_s = [min(max(0.0, each), 2 * LATE_MOST_S) for some in found for each in some]
        return min(sum(late_s) / max(1, len(late_s)), LATE_MOST_S)

    end_s = time.perf_counter() + LATE_FOR_S
    with event_loop() as loop:
        return loop.run_until_complete(together())


class _Sleeper:
    """Notes the time at some of the starts. It is a handler of single ones, and of bundles."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._begun = 0
        self._every = self._note_at = SUB_MESSAGES // 50
        self._noted: list[tuple[int, float]] = []
        self._keys = count()

    def split_apart(
        self, split: Callable[[Message], Iterable[SubMessage]], message: Message
    ) -> list[SubMessage]:
        """What a message splits into, each on a lane of its own: lanes shall not bind."""
        subs = [SubMessage() if isinstance(sub, Barrier) else sub for sub in split(message)]
        for sub in subs:
            sub.key = next(self._keys)
            sub.keys = None
        return subs

    @property
    def each_s(self) -> float:
        """Seconds of one sub-message."""
        seen = [each for each in self._noted if each[0] >= WARM_UP * self._begun] or self._noted
        marks = seen[:: max(1, len(seen) // PARTS)]
        parts = [
            (at_s - before_s) / (number - before)
            for (before, before_s), (number, at_s) in pairwise(marks)
        ]
        return median(parts) if parts else 0.0

    def _note(self, count: int) -> None:
        self._begun += count
        if self._begun >= self._note_at:
            self._note_at = self._begun + self._every
            self._noted.append((self._begun, time.perf_counter()))


class _OnTheLoop(_Sleeper):
    async def handle(self, sub: SubMessage) -> None:
        self._note(1)
        await asyncio.sleep(self._latency_s)

    async def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        self._note(len(subs))
        await asyncio.sleep(self._latency_s)


class _OnThreads(_Sleeper):
    def handle(self, sub: SubMessage) -> None:
        self._note(1)
        time.sleep(self._latency_s)

    def handle_batch(self, subs: Sequence[SubMessage]) -> None:
        self._note(len(subs))
        time.sleep(self._latency_s)


@dataclass(frozen=True, slots=True)
class _Batch:
    messages: Iterable[Message]
    reached: dict[int, int]


class _Apart:
    """A source whose messages all have keys of their own, for the default split."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._keys = count()
        self.start, self.stop = source.start, source.stop

    @property
    def trouble(self) -> str | None:
        return self._source.trouble

    @property
    def failure(self) -> DrainerError | None:
        return self._source.failure

    def next_batch(self) -> Batch | None:
        batch = self._source.next_batch()
        return None if batch is None else _Batch(self._rekeyed(batch.messages), batch.reached)

    def _rekeyed(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            message.key = b"%d" % next(self._keys)
            yield message


class _Group:
    """A group that is committed for by nobody else."""

    def check(self, topic_id: str) -> None:
        pass

    def commit(
        self, offsets: Mapping[int, int], expected: Mapping[int, Set[int | None]]
    ) -> dict[int, int]:
        return dict(offsets)


class _Lock:
    lost: DrainerError | None = None
    unsure_since_s: float | None = None


def _plan_of(ranges: Mapping[int, tuple[int, int]]) -> OffsetPlan:
    created = THIS_PROCESS.now()
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
        topic_partitions=1,
        group="",
        handler="calibration",
        order=Order.SUB_KEY.value,
        partitions={n: PartitionPlan(start, end, None, None) for n, (start, end) in ranges.items()},
        claims={ALL: {number: Progress(start) for number, (start, _) in ranges.items()}},
    )
