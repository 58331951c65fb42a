"""The work of a drain on Spark: wave after wave is read, and handled while the next one is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

from drainer.aside import aside
from drainer.core.claims import Claim
from drainer.core.gathering import Gathering, Stretch, insist_conserved
from drainer.core.order import Order
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Progress, Range
from drainer.core.rules.settings import RuleAccount
from drainer.core.tuning.concurrency import Concurrency
from drainer.core.waves import Waves, cut_at
from drainer.engine.capping import capped
from drainer.engine.pump import PARKED_MOST
from drainer.engine.settings import LocalSettings
from drainer.engine.status import CapStatus
from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Halted,
    Interrupted,
    LanesParked,
    LockLost,
    SplitFailed,
    StateLost,
)
from drainer.kafka.settings import ClientSettings
from drainer.message import Origin
from drainer.spark.failure import error_of
from drainer.spark.following import Following
from drainer.spark.handling import Handling
from drainer.spark.jobs import Jobs, Prepared
from drainer.spark.splitting import Slice, Splitting
from drainer.spark.workplace import HandlerSpec
from drainer.store.state import State

REST_LOOK_S = 0.1
TASK_BUFFER_LEAST = 16 * 1024 * 1024
CUTS_MOST = 8  # of a wave, at messages that can't be divided; with more it is one task's
OUTAGE_S = 120.0  # of the broker, for those who read; as for the lock
READ_AGAIN_S = 1.0
GUESSED_BYTES = 1_000.0  # of one offset, until something was read


@dataclass(frozen=True, slots=True)
class Terms:
    """What the tasks of a drain work with.

    ``tasks`` handle at once, and ``slots`` is how many tasks of any kind can run; ``running`` is
    for all of them together.
    """

    client: ClientSettings
    handler: HandlerSpec
    letters_topic: str | None
    running: LocalSettings
    wave_bytes: int
    tasks: int
    slots: int
    message_bytes: float = 1.0  # on average, as far as it is known


class Work:
    """Runs the jobs of a drain, and folds what they did into ``gathering``.

    ``end`` is called when nothing is left to do, or with what ends the drain; ``hear`` lets the
    driver hear all that tasks have told.

    Attributes:
        trouble: why nothing is read.
        parked: lanes that this run leaves alone.
    """

    def __init__(
        self,
        plan: OffsetPlan,
        terms: Terms,
        jobs: Jobs,
        state: State,
        gathering: Gathering,
        following: Following,
        end: Callable[[BaseException | None], None],
        hear: Callable[[], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._terms = terms
        self._jobs = jobs
        self._state = state
        self._gathering = gathering
        self._following = following
        self._end_drain = end
        self._hear = hear
        self._claims = tuple(str(Claim(number, terms.tasks)) for number in range(terms.tasks))
        self._known = plan.claims
        lefts = {n: (gathering.watermarks[n], part.end) for n, part in plan.partitions.items()}
        self._waves = Waves(lefts, terms.wave_bytes, GUESSED_BYTES)
        self._left_parked: set[str] = set()
        self._job: str | None = None  # the one that handles
        self._read_messages = self._read_bytes = 0
        self._reading: str | None = None
        self._stopping = False
        self._at_rest = asyncio.Event()  # no task handles anything
        self._at_rest.set()
        self.trouble: str | None = None

    @property
    def parked(self) -> AbstractSet[str]:
        return self._gathering.parked | self._left_parked

    @property
    def reads(self) -> bool:
        return self._reading is not None

    def read_cap(self, elapsed_s: float) -> CapStatus | None:
        """How the reading of all tasks stands to its cap, by the waves that were read."""
        limits, messages = self._plan.limits, self._read_messages
        if limits is None or not messages:
            return None
        cap = limits.cap(max(1.0, self._read_bytes / messages))
        return capped(cap, messages, elapsed_s, binds=self.reads and self._job is None)

    def stop(self) -> None:
        """Begins no other wave, and waits for no broker."""
        self._stopping = True

    def _end(self, cause: BaseException | None) -> None:
        self._stopping = True
        self._end_drain(cause)

    async def run(self) -> None:
        """Until nothing is left, or something has ended the drain."""
        reading = self._read_next()
        while reading is not None:
            prepared = await reading
            if prepared.undivided:
                await self._handle_cut(prepared)
                reading = self._read_next()
            else:
                reading = self._read_next()  # while this one is handled
                await self._handle(prepared, self._claims)
        self._end(self._left_over())

    def _read_next(self) -> asyncio.Task[Prepared] | None:
        if not self._waves.left:
            return None
        reading = asyncio.create_task(self._read_wave())
        # A stop cancels it, and then nobody waits for what it raises.
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return reading

    async def _read_wave(self) -> Prepared:
        prepared = await self._read_again(self._waves.next(), self._terms.tasks)
        self._waves.took(prepared.ranges, prepared.read_bytes)
        self._read_messages += sum(
            end - start for each in prepared.delivered.values() for start, end in each
        )
        self._read_bytes += prepared.read_bytes
        return prepared

    async def _read_again(self, ranges: Mapping[int, Range], claims: int) -> Prepared:
        """Reads; waits for a broker that doesn't answer, for it did when the tasks were checked."""
        since_s = monotonic()
        while True:
            try:
                prepared = await self._read(ranges, claims)
            except BrokerUnreachable as error:
                if monotonic() - since_s > OUTAGE_S or self._stopping:
                    raise Interrupted(str(error), hint=error.hint) from error
                self.trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self.trouble = None
                return prepared

    async def _read(self, ranges: Mapping[int, Range], claims: int) -> Prepared:
        plan = self._plan
        # Readers that wait for a cap leave room for those that handle.
        readers = self._terms.slots if plan.limits is None else max(1, self._terms.slots // 2)
        pieces = self._waves.pieces(ranges, readers)
        splitting = Splitting(
            client=self._terms.client,
            handler=self._terms.handler,
            order=Order(plan.order),
            claims=claims,
            slices=tuple(
                Slice(Origin(plan.topic, plan.topic_id, p.partition), p.start, p.end, p.bytes_most)
                for p in pieces
            ),
            known=self._known,
            limits=plan.limits,
            share=1 / max(1, min(len(pieces), self._terms.slots)),
            message_bytes=self._terms.message_bytes,
        )
        self._reading = name = f"drainer {plan.drain_id}: reading {_shown(ranges)}"
        try:
            return await aside(self._jobs.prepare, splitting, pieces, name)
        finally:
            self._reading = None

    async def _handle_cut(self, prepared: Prepared) -> None:
        """Handles a wave with messages that several claims would need at once, one stretch after
        the other: such messages are one task's."""
        await aside(prepared.release)
        stretches = cut_at(prepared.ranges, prepared.undivided)
        if prepared.too_many or len(stretches) > CUTS_MOST:
            stretches = [(dict(prepared.ranges), False)]
        for ranges, divided in stretches:
            left = dict(ranges)
            while left:  # one that is all messages of megabytes may take several reads
                part = await self._read_again(left, self._terms.tasks if divided else 1)
                await self._handle(part, self._claims if divided else (ALL,))
                left = {n: (part.ranges[n][1], end) for n, (_, end) in left.items()}
                left = {n: each for n, each in left.items() if each[0] < each[1]}

    async def _handle(self, prepared: Prepared, claims: tuple[str, ...]) -> None:
        number = self._following.waves + 1
        stretch = Stretch(
            number,
            prepared.ranges,
            claims,
            prepared.delivered,
            {claim: prepared.subs.get(place, 0) for place, claim in enumerate(claims)},
        )
        if prepared.undivided and claims != (ALL,):
            raise SplitFailed(  # they are in no row
                f"split is not deterministic: {_first(prepared.undivided)} needs several tasks, and"
                " didn't when it was read before",
                hint="split must depend on the message alone; see docs/correctness.md",
            )
        behind = self._gathering.behind(stretch.ranges)
        self._gathering.begin(stretch)
        self._following.begin(number + self._waves.about, claims)
        self._following.positions |= {n: end for n, (_, end) in prepared.ranges.items()}
        self._state.follow(self._terms.handler.epoch, number, claims)
        handling = Handling(
            plan=self._plan_of(stretch),
            settings=share_of(self._terms.running, len(claims)),
            client=self._terms.client,
            handler=self._terms.handler,
            letters_topic=self._terms.letters_topic,
            epoch=self._terms.handler.epoch,
            wave=number,
            claims=claims,
            subs=tuple(stretch.subs[claim] for claim in claims),
            behind=behind,
        )
        self._job = f"drainer {self._plan.drain_id}: wave {number}"
        self._at_rest.clear()
        try:
            outcomes = await aside(self._jobs.handle, prepared, handling, self._job)
        except LockLost as error:
            meant = await self._meant(error)
            raise meant from (error.__cause__ if meant is error else error)
        finally:
            self._job = None
        self._at_rest.set()
        await self._hear()
        whole = True
        for claim, outcome in outcomes:
            self._following.ended(claim, outcome["status"])
            self._left_parked.update(outcome["parked"])
            if outcome["failure"] is not None:
                whole = False
                self._end(await self._meant(error_of(outcome["failure"])))
        if whole:
            insist_conserved(self._gathering)
            self.insist_on_limit()
            self._insist_on_room()
        self._gathering.end()
        await aside(prepared.release)
        if self._stopping:
            await asyncio.Event().wait()  # the driver ends this, when all is at rest

    async def _meant(self, error: DrainerError) -> DrainerError:
        """What an error of a task means for the drain: a task can't tell why the state is gone."""
        with suppress(DrainerError):
            if isinstance(error, LockLost) and await aside(self._state.control) is None:
                return StateLost(
                    f"the state at {self._state.uri} was removed, and not by this drain",
                    hint="find out who did; what was heard of the tasks is in the plan: resume",
                )
        return error

    def _plan_of(self, stretch: Stretch) -> OffsetPlan:
        plan, ruled = self._plan, self._gathering.ruled()
        rate = plan.failures.rate
        return replace(
            plan,
            partitions={n: PartitionPlan(*r, None, None) for n, r in stretch.ranges.items()},
            claims={ALL: {n: Progress(start) for n, (start, _) in stretch.ranges.items()}},
            failures=replace(
                plan.failures, rate=None if rate is None else rate / len(stretch.claims)
            ),
            parked=tuple(sorted(self.parked)),
            ruled=RuleAccount(asked_below=plan.ruled.asked_below, counts=ruled.counts),
            latency=None,
            state=None,
        )

    def insist_on_limit(self) -> None:
        """Ends the drain when all tasks together gave too much up."""
        most, given_up = self._plan.failures.max_dead, self._following.given_up
        if given_up and most.passed(given_up, self._gathering.counts()[1].finished):
            self._end(
                Halted(
                    f"{given_up:,} sub-messages were given up in all tasks, more than {most}",
                    hint="mend the cause, then resume",
                )
            )

    def _insist_on_room(self) -> None:
        parked = len(self.parked)
        if parked > PARKED_MOST:
            self._end(
                Halted(
                    f"{parked:,} lanes are parked behind sub-messages that failed; so much is"
                    " pending behind them that no more of the backlog was read",
                    hint="mend the cause, then resume",
                )
            )

    def _left_over(self) -> DrainerError | None:
        parked = len(self.parked)
        if self._gathering.complete:
            return None
        if not parked:
            return DrainerError(
                "nothing is left to be read, and not all is finished: the watermarks are at"
                f" {self._gathering.watermarks}",
                hint="this is a bug of drainer: report it, and keep the plan",
            )
        lanes = "1 lane is" if parked == 1 else f"{parked:,} lanes are"
        return LanesParked(
            f"{lanes} parked behind sub-messages that failed; all that could be drained without"
            " them is",
            hint="mend the cause, then resume"
            + (
                "; lanes behind a dead letter stay parked until --after-dead continue"
                if self._gathering.parked
                else ""
            ),
        )

    async def cancel_reading(self) -> None:
        await self._cancel(self._reading)

    async def cancel_handling(self) -> None:
        """Ends the tasks, whatever they are at."""
        await self._cancel(self._job)

    async def _cancel(self, job: str | None) -> None:
        if job is not None:
            with suppress(DrainerError):  # Spark itself may be what is gone
                await aside(self._jobs.cancel, job)

    async def rest(self) -> None:
        """Waits until no task handles anything: with their job, or when that failed each of them,
        has ended."""
        while not self._at_rest.is_set():
            with suppress(DrainerError):
                if self._job is None and await aside(
                    self._state.at_rest, self._terms.handler.epoch + 1
                ):
                    return
            await asyncio.sleep(REST_LOOK_S)


def share_of(running: LocalSettings, tasks: int) -> LocalSettings:
    """The settings of one of so many tasks."""
    whole = Concurrency.of(running.concurrency)
    share = replace(
        whole,
        first=max(1, whole.first // tasks),
        most=max(1, whole.most // tasks),
        most_threads=max(1, whole.most_threads // tasks),
    )
    buffer_bytes = max(TASK_BUFFER_LEAST, running.buffer_bytes // tasks)
    return replace(running, concurrency=share, buffer_bytes=buffer_bytes)


def _first(offsets: Mapping[int, Sequence[int]]) -> str:
    number = min(offsets)
    return f"offset {offsets[number][0]} of partition {number}"


def _shown(ranges: Mapping[int, Range]) -> str:
    return ", ".join(f"{n}: {start}-{end - 1}" for n, (start, end) in list(ranges.items())[:5])
