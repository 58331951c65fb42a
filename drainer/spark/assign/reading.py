"""The reading of a drain on Spark: wave after wave, the next one while the last is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from drainer.engine.loop import blocking_call
from drainer.errors import BrokerUnreachable, DrainerError, Interrupted, Refused, raised_as
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import HEADS_BYTES, Span, read_spans
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range, count_offsets
from drainer.model.rate_cap import CapStatus
from drainer.spark.assign.jobs import Jobs, PreparedWave
from drainer.spark.read.slices import SliceTask
from drainer.spark.read.waves import Waves
from drainer.spark.session.slots import Slots
from drainer.spark.state.sharding import Sharding
from drainer.spark.task.python_worker import HandlerSpec

Begun = Callable[[], Awaitable[bool]]

BEGUN_LOOK_S = 0.02
OUTAGE_S = 120.0  # of the broker, for those who read; as for the lock
READ_AGAIN_S = 1.0
CANCEL_S, CANCEL_AGAIN_S = 2.0, 0.2
UNDIVIDED = Sharding(1)
LOOKED_AT, LOOKED_AT_BYTES = 8, 64 * 1024  # partitions, for the size of the first wave; of each


@dataclass(frozen=True, slots=True)
class WaveSettings:
    """Settings of the waves of a drain.

    ``slots`` is how many tasks there are. ``shards`` are those of the sub-keys.
    """

    handler: HandlerSpec
    wave_bytes: int
    slots: Slots
    shards: int
    message_bytes: float = 1.0  # of those that come first, on average


class Reader:
    """Reads what is left of a plan above ``watermarks``, in waves.

    If barriers or sub-messages connect shards of a wave, it is read again, undivided: one task has
    all of it. The waves after it are read undivided at once, up to one without connections.
    """

    def __init__(
        self, plan: OffsetPlan, watermarks: Mapping[int, int], settings: WaveSettings, jobs: Jobs
    ) -> None:
        self.plan = plan
        self.failures = plan.terms.failures  # as they are now
        self.settings = settings
        self.jobs = jobs
        lefts = {n: (watermarks[n], part.end) for n, part in plan.account.partitions.items()}
        self._waves = Waves(lefts, settings.wave_bytes, settings.message_bytes)
        self._streams = Sharding(settings.shards)  # of the next wave
        self._next: asyncio.Task[PreparedWave] | None = None  # until what it read was taken
        self._ahead = False  # it is read while something else has its slots first
        self._starved = True  # tasks waited for what was read last
        self._job: str | None = None
        self._messages = self._bytes = 0  # that were read
        # Partitions that are read no further, since ``split`` rejected a message.
        self.stops: set[int] = set()
        self.stopped = False  # whether no other wave is begun, and no broker waited for
        self.trouble: str | None = None  # why nothing is read
        self.is_patient = False  # whether a broker is waited for, as it answered before

    @property
    def reads(self) -> bool:
        return self._job is not None

    @property
    def ready(self) -> bool:
        """Whether ``take`` ends without waiting: what was to be read was."""
        return self._next is not None and self._next.done()

    @property
    def about(self) -> int:
        """Number of waves to come, as far as is known."""
        return self._waves.about

    def cap(self, elapsed_s: float, *, waited_for: bool) -> CapStatus | None:
        """Return how the reading of all tasks stands to its cap, by the waves that were read."""
        limits = self.plan.terms.limits
        if limits is None or not self._messages:
            return None
        cap = limits.reading.cap(max(1.0, self._bytes / self._messages))
        return CapStatus.of(cap, self._messages, elapsed_s, binds=self.reads and waited_for)

    def begin(self, behind: Begun | None = None) -> bool:
        """Begins to read the next wave; False when nothing is left.

        ``behind`` is whether a job has begun that is to have its slots first. Without it, what is
        read would take them all, and nothing be handled meanwhile.
        """
        if self._next is None and self._waves.left:
            self._ahead = behind is not None
            self._next = asyncio.create_task(self._read_next(behind))
            # After a stop nothing waits for what it raises.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._next is not None

    async def take(self) -> PreparedWave | None:
        """The next wave, once it was read; None when nothing is left.

        Raises Interrupted when a stop was requested.
        """
        self.begin()
        self._ahead = False  # what it was to come behind is over
        self._starved = not self.ready
        if self._next is None:
            return None
        prepared = await asyncio.shield(self._next)  # else what it read would stay with Spark
        self._ensure_running()
        self._next = None
        return prepared

    async def ensure_read(self) -> None:
        """Raises Refused when the first wave could not be read."""
        assert self._next is not None
        with raised_as(Refused, Interrupted):
            await self._next

    def stop(self) -> None:
        self.stopped = True

    async def cancel(self) -> None:
        """Stops, ends the tasks that read, and releases what was not taken."""
        self.stop()
        reading, until_s = self._next, monotonic() + CANCEL_S
        if reading is None:
            return
        with suppress(DrainerError):  # Spark itself may be what is gone
            while not reading.done() and monotonic() < until_s:
                if self._job is not None:  # Spark may not know it yet
                    await blocking_call(self.jobs.cancel, self._job)
                await asyncio.wait({reading}, timeout=CANCEL_AGAIN_S)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                await blocking_call(reading.result().release)

    def _ensure_running(self) -> None:
        if self.stopped:
            raise Interrupted("something requested a stop")

    async def _read_next(self, behind: Begun | None) -> PreparedWave:
        while behind is not None and self._ahead and not self.stopped:
            if await behind():
                break
            await asyncio.sleep(BEGUN_LOOK_S)
        prepared = await self._read_wave()
        # A reading that is followed by another of the same messages stops nothing: split may
        # change its mind.
        self.stops.update(prepared.stops)
        self._waves.stop(self.stops)
        return prepared

    async def _read_wave(self) -> PreparedWave:
        """Reads until a wave can be handled: divided if nothing connects its shards, and without
        what follows a stop."""
        ranges: Mapping[int, Range] = self._waves.next()
        while True:
            prepared = await self._read_patiently(ranges, self._streams)
            if prepared.connected and self._streams != UNDIVIDED:
                self._streams = UNDIVIDED
            elif not prepared.stops_at_ends:
                stops = prepared.stops
                ranges = {n: (start, stops.get(n, end)) for n, (start, end) in ranges.items()}
            else:
                break
            await blocking_call(prepared.release)
        if not prepared.connected:
            self._streams = Sharding(self.settings.shards)
        processor_s = sum(each.processor_s for each in prepared.manifests)
        self._waves.took(ranges, prepared.log_bytes, processor_s)
        return prepared

    async def _read_patiently(self, ranges: Mapping[int, Range], streams: Sharding) -> PreparedWave:
        since_s = monotonic()
        while True:
            self._ensure_running()
            try:
                prepared = await self._read_once(ranges, streams)
            except BrokerUnreachable as error:
                if not self.is_patient:
                    raise
                if monotonic() - since_s > OUTAGE_S or self.stopped:
                    raise Interrupted(str(error), hint=error.hint) from error
                self.trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self.trouble = None
                self._messages += sum(count_offsets(each) for each in prepared.delivered.values())
                self._bytes += prepared.log_bytes
                return prepared

    async def _read_once(self, ranges: Mapping[int, Range], streams: Sharding) -> PreparedWave:
        plan, slots = self.plan, max(1, self.settings.slots.count)
        readers = slots
        if plan.terms.limits is not None:  # what waits for a cap leaves room for handling
            readers = max(1, slots // 2)
        elif self._ahead and not self._starved:  # what is dispatched would wait behind it
            readers = max(1, slots - self.settings.slots.handling)
        slices = tuple(self._waves.slices(ranges, readers))
        task = SliceTask(
            handler=self.settings.handler,
            shards=self.settings.shards,
            streams=streams,
            slices=slices,
            known=plan.account.claims,
            failures=self.failures,
            share=1 / max(1, min(len(slices), slots)),
            message_bytes=self.settings.message_bytes,
        )
        self._job = name = f"read {_shown(ranges)}"
        try:
            return await blocking_call(self.jobs.read, task, readers, name)
        finally:
            self._job = None


def typical_bytes(client: ClientSettings, plan: OffsetPlan) -> float:
    """Typical bytes of a message, by those that come first in a few partitions.

    Raises as ``read_spans``.
    """
    parts = [
        (n, plan.account.watermark(n), part.end) for n, part in plan.account.partitions.items()
    ]
    spans = [Span(*part, LOOKED_AT_BYTES) for part in parts if part[1] < part[2]][:LOOKED_AT]
    batches = read_spans(
        client, plan.terms.topic, plan.terms.topic_id, plan.terms.group, spans, HEADS_BYTES
    )
    sizes = [message.size for batch in batches for message in batch.messages]
    return sum(sizes) / len(sizes) if sizes else 1.0


def _shown(ranges: Mapping[int, Range]) -> str:
    return ", ".join(f"{n}: {start}-{end - 1}" for n, (start, end) in list(ranges.items())[:5])
