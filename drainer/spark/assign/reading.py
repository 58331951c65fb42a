"""Reads the waves of a drain on Spark, each while tasks handle the wave before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

from drainer.errors import BrokerUnreachable, DrainerError, Interrupted, Refused, raised_as
from drainer.host.calls import blocking_call
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import HEADS_BYTES, Span, read_spans
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range, count_offsets
from drainer.model.rate_cap import CapsStatus, CapStatus
from drainer.model.status import Status
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.assign.jobs import Jobs, PreparedWave
from drainer.spark.assign.schedule import Waves
from drainer.spark.read.slices import SliceTask
from drainer.spark.session.session import Slots
from drainer.spark.task.python_worker import HandlerSpec

Begun = Callable[[], Awaitable[bool]]

BEGUN_LOOK_S = 0.02
OUTAGE_S = 120.0  # The reader waits this long for a broker. The lock waits as long.
READ_AGAIN_S = 1.0
CANCEL_S, CANCEL_AGAIN_S = 2.0, 0.2
# The mean size of a message is estimated from the first bytes of this many partitions.
LOOKED_AT, LOOKED_AT_BYTES = 8, 64 * 1024


@dataclass(frozen=True, slots=True)
class WaveSettings:
    """The settings of the waves of a drain.

    Attributes:
        wave_bytes: the maximum size of a wave.
        shards: the number of shards of a divided wave.
        message_bytes: the mean size of the first messages.
    """

    handler: HandlerSpec
    wave_bytes: int
    slots: Slots
    shards: int
    message_bytes: float = 1.0


class Reader:
    """Reads what is left of a plan above the ``watermarks``, in waves.

    If barriers or sub-messages connect shards of a wave, the wave is read again without dividing it
    into shards, so that one task handles all of it. The following waves are not divided either, up
    to the first wave without connections.

    Attributes:
        waves: cuts what is left into waves.
        failures: the failure settings for the next wave.
        stops: the partitions that are read no further, since ``split`` rejected a message.
        stopped: whether the reader begins no other wave, and waits for no broker.
        trouble: the reason why nothing can be read; None while reading goes on.
        is_patient: whether the reader waits for a broker. It does once brokers have answered.
    """

    def __init__(
        self, plan: OffsetPlan, watermarks: Mapping[int, int], settings: WaveSettings, jobs: Jobs
    ) -> None:
        self.plan = plan
        self.failures = plan.terms.failures
        self.settings = settings
        self.jobs = jobs
        lefts = {n: (watermarks[n], part.end) for n, part in plan.account.partitions.items()}
        self.waves = Waves(lefts, settings.wave_bytes, settings.message_bytes)
        self._divides = settings.shards > 1  # Whether the next wave is divided.
        self._next: asyncio.Task[PreparedWave] | None = None  # The task that reads the next wave.
        self._ahead = False  # Whether a dispatch takes its slots before the reading job does.
        self._starved = True  # Whether tasks waited for the wave that was read last.
        self._job: str | None = None
        limits, size = plan.terms.limits, settings.message_bytes
        # It only counts what all tasks read. Each task limits itself to its share of the cap.
        self._flow = None if limits is None else RateLimiter(limits.reading, message_bytes=size)
        self.stops: set[int] = set()
        self.stopped = False
        self.trouble: str | None = None
        self.is_patient = False

    @property
    def reads(self) -> bool:
        """Whether a job reads at this moment."""
        return self._job is not None

    @property
    def ready(self) -> bool:
        """Whether the next wave is read, so that ``next_wave`` returns without waiting."""
        return self._next is not None and self._next.done()

    def complete_status(self, status: Status, *, waited_for: bool) -> Status:
        """Add how fast all tasks read compared with the cap, if there is one.

        ``waited_for`` is whether tasks wait for the next wave.
        """
        flow = self._flow
        if flow is None or not flow.flowed:
            return status
        elapsed_s, binds = status.timing.elapsed_s, self.reads and waited_for
        found = CapStatus.of(flow.overall, flow.flowed, elapsed_s, binds=binds)
        return replace(status, caps=CapsStatus(found))

    def begin(self, behind: Begun | None = None) -> bool:
        """Begin to read the next wave; return False if nothing is left.

        With ``behind``, reading begins only when that returns True, so that another job gets its
        slots first. Otherwise, reading may take all slots.
        """
        if self._next is None and self.waves.left:
            self._ahead = behind is not None
            self._next = asyncio.create_task(self._read_next(behind))
            # After a stop nobody waits for this task, and asyncio would log its error.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._next is not None

    async def next_wave(self) -> PreparedWave | None:
        """Return the next wave once it is read; None if nothing is left.

        Raises Interrupted if something has requested a stop.
        """
        self.begin()
        self._ahead = False  # The dispatch that went first is over.
        self._starved = not self.ready
        if self._next is None:
            return None
        # If this call is cancelled, reading goes on, and ``cancel`` releases the wave.
        prepared = await asyncio.shield(self._next)
        self._ensure_running()
        self._next = None
        return prepared

    async def ensure_read(self) -> None:
        """Ensure that the first wave was read. Raises Refused if it could not be."""
        assert self._next is not None
        with raised_as(Refused, Interrupted):
            await self._next

    def stop(self) -> None:
        """Begin no other wave, and wait for no broker."""
        self.stopped = True

    async def cancel(self) -> None:
        """Stop, cancel the job that reads, and release a wave that nobody has taken."""
        self.stop()
        reading, until_s = self._next, monotonic() + CANCEL_S
        if reading is None:
            return
        with suppress(DrainerError):  # Spark itself may be gone.
            while not reading.done() and monotonic() < until_s:
                if self._job is not None:  # Spark may not know the job yet, so this is repeated.
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
        # A wave may be read several times, and split may reject other messages each time. So only
        # the last reading counts.
        self.stops.update(prepared.stops)
        self.waves.stop(self.stops)
        return prepared

    async def _read_wave(self) -> PreparedWave:
        """Read the next wave, and read it again if it can't be handled as it is.

        If something connects its shards, it is read again without dividing it. If partitions stop
        before their ends, it is read again without the messages that follow the stops.
        """
        ranges: Mapping[int, Range] = self.waves.next()
        while True:
            prepared = await self._read_patiently(ranges)
            if prepared.connected and self._divides:
                self._divides = False
            elif not prepared.stops_at_ends:
                stops = prepared.stops
                ranges = {n: (start, stops.get(n, end)) for n, (start, end) in ranges.items()}
            else:
                break
            await blocking_call(prepared.release)
        if not prepared.connected:
            self._divides = self.settings.shards > 1
        processor_s = sum(each.processor_s for each in prepared.manifests)
        self.waves.took(ranges, prepared.log_bytes, processor_s)
        return prepared

    async def _read_patiently(self, ranges: Mapping[int, Range]) -> PreparedWave:
        since_s = monotonic()
        while True:
            self._ensure_running()
            try:
                prepared = await self._read_once(ranges)
            except BrokerUnreachable as error:
                if not self.is_patient:
                    raise
                if monotonic() - since_s > OUTAGE_S or self.stopped:
                    raise Interrupted(str(error), hint=error.hint) from error
                self.trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self.trouble = None
                if self._flow is not None:
                    messages = sum(count_offsets(each) for each in prepared.delivered.values())
                    self._flow.came(monotonic(), messages, prepared.log_bytes)
                return prepared

    async def _read_once(self, ranges: Mapping[int, Range]) -> PreparedWave:
        plan, slots = self.plan, max(1, self.settings.slots.count)
        readers = slots
        if plan.terms.limits is not None:  # Readers wait for the cap, so they get half the slots.
            readers = max(1, slots // 2)
        elif self._ahead and not self._starved:  # The next dispatch must find slots.
            readers = max(1, slots - self.settings.slots.handling)
        slices = tuple(self.waves.slices(ranges, readers))
        task = SliceTask(
            handler=self.settings.handler,
            shards=self.settings.shards,
            divided=self._divides,
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
    """Estimate the mean size of a message from the first messages of a few partitions.

    Raises the same errors as ``read_spans``.
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
