"""The reading of a drain on Spark: wave after wave, the next one while the last is handled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from drainer.engine.loop import blocking_call
from drainer.engine.meter import capped
from drainer.errors import BrokerUnreachable, DrainerError, Interrupted, SplitFailed
from drainer.kafka.settings import ClientSettings
from drainer.kafka.spans import HEADS_BYTES, Span, read_spans
from drainer.model.claims import JOINS_MOST, Components, Joins
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range, count_offsets
from drainer.model.status import CapStatus
from drainer.spark.assign.jobs import Jobs, PreparedWave
from drainer.spark.assign.schedule import HOT
from drainer.spark.read.slices import BARRIERS_MOST, JOINED_MOST, Manifest, SliceTask
from drainer.spark.read.waves import Waves, cut_at
from drainer.spark.session.slots import Slots
from drainer.spark.state.sharding import Sharding
from drainer.spark.task.python_worker import HandlerSpec

OUTAGE_S = 120.0  # of the broker, for those who read; as for the lock
READ_AGAIN_S = 1.0
CANCEL_S, CANCEL_AGAIN_S = 2.0, 0.2
NO_JOINS = Joins({})
ONE = Sharding(1), NO_JOINS  # task's
STRETCHES_MOST = 17  # of a wave: eight times messages with barriers; with more it is one task's
JOINED_FEW = 16  # places: so few in one shard do no harm
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

    A wave that does not fit into the shards, for sub-messages connect lanes of several, is read
    again by joins that keep these together; the wave after it is read by the same ones first. One
    with barriers is read again in stretches: messages with barriers are one task's.
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
        self._components = Components()  # that the next wave is expected to fit
        self._largest = 0, 0  # of these: its least place, and how many it has
        self._joins, self._streams = NO_JOINS, Sharding(settings.shards)  # by them
        self._joins_made = max(plan.account.joins, default=0)
        self.joined = 0  # places that the plan has joins of
        self._stretches: deque[tuple[Mapping[int, Range], Sharding, Joins]] = deque()  # to be read
        self._next: asyncio.Task[PreparedWave] | None = None  # until what it read was taken
        self._ahead = False  # it is read while something else has its slots first
        self._starved = True  # tasks waited for what was read last
        self._job: str | None = None
        self._messages = self._bytes = 0  # that were read
        # Partitions that are read no further, since ``split`` rejected a message.
        self.stops: set[int] = set()
        self.stopped = False  # whether no other wave is begun, and no broker waited for
        self.trouble: str | None = None  # why nothing is read

    @property
    def reads(self) -> bool:
        return self._job is not None

    @property
    def ready(self) -> bool:
        """Whether ``take`` gives a wave without waiting for it."""
        return self._next is not None and self._next.done()

    @property
    def about(self) -> int:
        """Number of waves to come, as far as is known."""
        return self._waves.about + len(self._stretches)

    def cap(self, elapsed_s: float, *, waited_for: bool) -> CapStatus | None:
        """Return how the reading of all tasks stands to its cap, by the waves that were read."""
        limits = self.plan.terms.limits
        if limits is None or not self._messages:
            return None
        cap = limits.reading.cap(max(1.0, self._bytes / self._messages))
        return capped(cap, self._messages, elapsed_s, binds=self.reads and waited_for)

    def begin(self, behind: str | None = None) -> None:
        """Begins to read the next wave, unless nothing is left.

        ``behind`` is a job that is to have its slots first. Without it, what is read would take
        them all, and nothing be handled meanwhile.
        """
        if self._next is None and (self._stretches or self._waves.left):
            self._ahead = behind is not None
            self._next = asyncio.create_task(self._read_next(behind))
            # After a stop nothing waits for what it raises.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())

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

    async def _read_next(self, behind: str | None) -> PreparedWave:
        if behind is not None:
            await blocking_call(
                self.jobs.wait_until_begun, behind, lambda: self.stopped or not self._ahead
            )
        prepared = await (self._read_again() if self._stretches else self._read_wave())
        self._leave_behind(prepared.stops)
        return prepared

    def _leave_behind(self, stops: Iterable[int]) -> None:
        """Reads no further in partitions that stop in what is handed out: a reading that is
        followed by another of the same messages decides nothing, for split may change its mind."""
        self.stops.update(stops)
        self._waves.stop(self.stops)
        left = [
            ({n: bounds for n, bounds in ranges.items() if n not in self.stops}, streams, joins)
            for ranges, streams, joins in self._stretches
        ]
        self._stretches = deque(each for each in left if each[0])

    async def _read_wave(self) -> PreparedWave:
        found = await self._read(self._waves.next(), self._streams, self._joins)
        prepared, joined = found, True
        if found.undivided is not None:
            await blocking_call(found.release)
            joined = await blocking_call(self._join, found.manifests)
            self._stretches.extend(self._cut(found) if joined else [(found.ranges, *ONE)])
            prepared = await self._read_again()
        crowded = not joined or self._is_crowded(prepared)
        processor_s = sum(each.processor_s for each in found.manifests)
        if self._waves.took(found.ranges, found.log_bytes, processor_s, crowded=crowded):
            self._components, self._joins, self._largest = Components(), NO_JOINS, (0, 0)
            self._streams = Sharding(self.settings.shards)
        return prepared

    async def _read_again(self) -> PreparedWave:
        """Reads what was read before, as it is to be divided."""
        prepared = await self._read(*self._stretches.popleft())
        if prepared.undivided is not None:  # it is in no chunk
            await blocking_call(prepared.release)
            number, offset = prepared.undivided
            raise SplitFailed(
                f"split is not deterministic: offset {offset} of partition {number} has other"
                " barriers or joined sub-keys than at the first read",
                hint="Make split depend on the message alone: not on time, chance or state.",
            )
        return prepared

    def _cut(self, found: PreparedWave) -> list[tuple[Mapping[int, Range], Sharding, Joins]]:
        barriers: dict[int, list[int]] = {}
        for each in found.manifests:
            barriers.setdefault(each.partition, []).extend(each.barriers)
        stretches = cut_at(found.ranges, barriers)
        too_many = any(len(each.barriers) > BARRIERS_MOST for each in found.manifests)
        if too_many or len(stretches) > STRETCHES_MOST:
            return [(found.ranges, *ONE)]
        # Those that are read later go by these, whatever later waves are divided by.
        divided = self._streams, self._joins
        return [(ranges, *(ONE if alone else divided)) for ranges, alone in stretches]

    def _join(self, manifests: Sequence[Manifest]) -> bool:
        """Makes joins of what a wave connects, and of what those before connected if that makes no
        crowd; False when they are too many."""
        own, shards = Components(), self.settings.shards
        for each in manifests:
            if each.joined is None or len(own) > JOINED_MOST:
                return False
            own.add(each.joined)
        together = Components()
        together.add((*own.sets, *self._components.sets))
        few = max(JOINED_FEW, 2 * own.largest[1])
        for components in (together, own):
            joins, largest = components.joins(shards), components.largest
            if largest[1] <= few and len(joins) + self.joined <= JOINS_MOST:
                break
        else:
            return False
        if joins != self._joins:
            self._joins_made += 1
            self._streams = Sharding(shards, self._joins_made if joins else 0)
        self._components, self._joins, self._largest = components, joins, largest
        return True

    def _is_crowded(self, prepared: PreparedWave) -> bool:
        """Whether the shard of the most sub-keys that are joined has much more than its share."""
        place, places = self._largest
        shards = prepared.streams.shards
        own = sum(prepared.subs.get(place % shards, {}).values())
        total = sum(sum(each.values()) for each in prepared.subs.values())
        return places > JOINED_FEW and own * shards > HOT * total

    async def _read(
        self, ranges: Mapping[int, Range], streams: Sharding, joins: Joins
    ) -> PreparedWave:
        """Reads until no partition stops before the end of its range; each time it is shorter."""
        while True:
            found = await self._read_patiently(ranges, streams, joins)
            if found.stops_at_ends:
                return found
            await blocking_call(found.release)
            stops = found.stops
            ranges = {n: (start, stops.get(n, end)) for n, (start, end) in found.ranges.items()}

    async def _read_patiently(
        self, ranges: Mapping[int, Range], streams: Sharding, joins: Joins
    ) -> PreparedWave:
        # Waits for a broker that doesn't answer, for it did when the tasks were looked at.
        since_s = monotonic()
        while True:
            self._ensure_running()
            try:
                prepared = await self._read_once(ranges, streams, joins)
            except BrokerUnreachable as error:
                if monotonic() - since_s > OUTAGE_S or self.stopped:
                    raise Interrupted(str(error), hint=error.hint) from error
                self.trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self.trouble = None
                self._messages += sum(count_offsets(each) for each in prepared.delivered.values())
                self._bytes += prepared.log_bytes
                return prepared

    async def _read_once(
        self, ranges: Mapping[int, Range], streams: Sharding, joins: Joins
    ) -> PreparedWave:
        plan, slots = self.plan, max(1, self.settings.slots.count)
        readers = slots
        if plan.terms.limits is not None:  # what waits for a cap leaves room for handling
            readers = max(1, slots // 2)
        elif self._ahead and not self._starved:  # what is dealt meanwhile would wait behind them
            readers = max(1, slots - self.settings.slots.handling)
        slices = tuple(self._waves.slices(ranges, readers))
        task = SliceTask(
            handler=self.settings.handler,
            streams=streams,
            joins={**plan.account.joins, streams.joins: joins}
            if streams.joins
            else plan.account.joins,
            slices=slices,
            known=plan.account.claims,
            failures=self.failures,
            share=1 / max(1, min(len(slices), slots)),
            message_bytes=self.settings.message_bytes,
        )
        self._job = name = f"drainer {plan.terms.drain_id}: reading {_shown(ranges)}"
        try:
            return await blocking_call(self.jobs.read, task, name)
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
