"""The reading of a drain on Spark: wave after wave, the next one while the last is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from drainer.blocking import blocking_call
from drainer.core.order import Order
from drainer.core.plan import OffsetPlan
from drainer.core.progress import Range, count
from drainer.engine.meter import capped
from drainer.engine.settings import LocalSettings
from drainer.engine.status import CapStatus
from drainer.errors import BrokerUnreachable, DrainerError, Interrupted
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import HEADS_BYTES, Span, read_spans
from drainer.spark.jobs import Jobs, PreparedWave
from drainer.spark.python_worker import HandlerSpec
from drainer.spark.slices import SliceTask
from drainer.spark.waves import Waves

OUTAGE_S = 120.0  # of the broker, for those who read; as for the lock
READ_AGAIN_S = 1.0
CANCEL_S, CANCEL_AGAIN_S = 2.0, 0.2
LOOKED_AT, LOOKED_AT_BYTES = 8, 64 * 1024  # partitions, for the size of the first wave; of each


@dataclass(frozen=True, slots=True)
class Terms:
    """What the tasks of a drain work with.

    ``tasks`` handle at once, and ``slots`` is how many tasks of any kind can run; ``running`` is
    for all of them together. ``shards`` are those of the sub-keys.
    """

    handler: HandlerSpec
    letters_topic: str | None
    running: LocalSettings
    wave_bytes: int
    tasks: int
    slots: int
    shards: int
    message_bytes: float = 1.0  # of those that come first, on average


class Reader:
    """Reads what is left of a plan above ``watermarks``, in waves.

    Attributes:
        stopped: whether no other wave is begun, and no broker waited for.
        trouble: why nothing is read.
    """

    def __init__(
        self, plan: OffsetPlan, watermarks: Mapping[int, int], terms: Terms, jobs: Jobs
    ) -> None:
        self._plan = plan
        self._terms = terms
        self._jobs = jobs
        lefts = {n: (watermarks[n], part.end) for n, part in plan.partitions.items()}
        self._waves = Waves(lefts, terms.wave_bytes, terms.message_bytes)
        self._next: asyncio.Task[PreparedWave] | None = None  # until somebody has what it read
        self._ahead = False  # it is read while something else has its slots first
        self._starved = True  # tasks waited for what was read last
        self._job: str | None = None
        self._messages = self._bytes = 0  # that were read
        self.stopped = False
        self.trouble: str | None = None

    @property
    def reads(self) -> bool:
        return self._job is not None

    @property
    def ready(self) -> bool:
        """Whether ``take`` gives a wave without waiting for it."""
        return self._next is not None and self._next.done()

    @property
    def about(self) -> int:
        """How many waves are to come, as far as is known."""
        return self._waves.about

    def cap(self, elapsed_s: float, *, waited_for: bool) -> CapStatus | None:
        """How the reading of all tasks stands to its cap, by the waves that were read."""
        limits = self._plan.limits
        if limits is None or not self._messages:
            return None
        cap = limits.cap(max(1.0, self._bytes / self._messages))
        return capped(cap, self._messages, elapsed_s, binds=self.reads and waited_for)

    def begin(self, behind: str | None = None) -> None:
        """Begins to read the next wave, unless nothing is left.

        ``behind`` is a job that is to have its slots first. Without it, what is read would take
        them all, and nothing be handled meanwhile.
        """
        if self._next is None and self._waves.left:
            self._ahead = behind is not None
            self._begin(self._read_wave(behind))

    async def take(self) -> PreparedWave | None:
        """The next wave, once it was read; None when nothing is left.

        Raises Interrupted when a stop was asked for.
        """
        self.begin()
        self._ahead = False  # what it was to come behind is over
        self._starved = not self.ready
        return None if self._next is None else await self._given(self._next)

    async def read(self, ranges: Mapping[int, Range], shards: int) -> PreparedWave:
        """Reads just that, while no wave is read. Raises as ``take`` does."""
        return await self._given(self._begin(self._read(ranges, shards)))

    def stop(self) -> None:
        self.stopped = True

    async def cancel(self) -> None:
        """Stops, ends the tasks that read, and lets go of what nobody took."""
        self.stop()
        reading, until_s = self._next, monotonic() + CANCEL_S
        if reading is None:
            return
        with suppress(DrainerError):  # Spark itself may be what is gone
            while not reading.done() and monotonic() < until_s:
                if self._job is not None:  # Spark may not know it yet
                    await blocking_call(self._jobs.cancel, self._job)
                await asyncio.wait({reading}, timeout=CANCEL_AGAIN_S)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                await blocking_call(reading.result().release)

    def _begin(self, reading: Coroutine[None, None, PreparedWave]) -> asyncio.Task[PreparedWave]:
        self._next = asyncio.create_task(reading)
        # After a stop nobody waits for what it raises.
        self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._next

    async def _given(self, reading: asyncio.Task[PreparedWave]) -> PreparedWave:
        prepared = await asyncio.shield(reading)  # else nobody would let go of what it read
        self._insist_on_going_on()
        self._next = None
        return prepared

    def _insist_on_going_on(self) -> None:
        if self.stopped:
            raise Interrupted("a stop was asked for")

    async def _read_wave(self, behind: str | None) -> PreparedWave:
        if behind is not None:
            await blocking_call(
                self._jobs.wait_until_begun, behind, lambda: self.stopped or not self._ahead
            )
        prepared = await self._read(self._waves.next(), self._terms.shards)
        self._waves.took(prepared.ranges, prepared.log_bytes)
        self._messages += sum(count(each) for each in prepared.delivered.values())
        self._bytes += prepared.log_bytes
        return prepared

    async def _read(self, ranges: Mapping[int, Range], shards: int) -> PreparedWave:
        # Waits for a broker that doesn't answer, for it did when the tasks were looked at.
        since_s = monotonic()
        while True:
            self._insist_on_going_on()
            try:
                prepared = await self._read_once(ranges, shards)
            except BrokerUnreachable as error:
                if monotonic() - since_s > OUTAGE_S or self.stopped:
                    raise Interrupted(str(error), hint=error.hint) from error
                self.trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self.trouble = None
                return prepared

    async def _read_once(self, ranges: Mapping[int, Range], shards: int) -> PreparedWave:
        plan, slots = self._plan, self._terms.slots
        readers = slots
        if plan.limits is not None:  # those that wait for a cap leave room for those that handle
            readers = max(1, slots // 2)
        elif self._ahead and not self._starved:  # what is dealt meanwhile would wait behind them
            readers = max(1, slots - self._terms.tasks)
        slices = tuple(self._waves.slices(ranges, readers))
        task = SliceTask(
            handler=self._terms.handler,
            order=Order(plan.order),
            shards=shards,
            topic_id=plan.topic_id,
            slices=slices,
            known=plan.claims,
            rules=plan.rules,
            read_ahead_bytes=self._waves.read_ahead_bytes(slices),
            share=1 / max(1, min(len(slices), slots)),
            message_bytes=self._terms.message_bytes,
        )
        self._job = name = f"drainer {plan.drain_id}: reading {_shown(ranges)}"
        try:
            return await blocking_call(self._jobs.read, task, name)
        finally:
            self._job = None


def typical_bytes(client: ClientSettings, plan: OffsetPlan) -> float:
    """Of messages, by those that come first in a few partitions.

    Raises as ``read_spans``.
    """
    parts = [(n, plan.watermark(n), part.end) for n, part in plan.partitions.items()]
    spans = [Span(*part, LOOKED_AT_BYTES) for part in parts if part[1] < part[2]][:LOOKED_AT]
    batches = read_spans(client, plan.topic, plan.topic_id, plan.group, spans, HEADS_BYTES)
    sizes = [message.size for batch in batches for message in batch.messages]
    return sum(sizes) / len(sizes) if sizes else 1.0


def _shown(ranges: Mapping[int, Range]) -> str:
    return ", ".join(f"{n}: {start}-{end - 1}" for n, (start, end) in list(ranges.items())[:5])
