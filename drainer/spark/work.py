"""The work of a drain on Spark: wave after wave is handled, as it was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from drainer.blocking import blocking_call
from drainer.core.claims import Claim
from drainer.core.parked import NONE_PARKED, ParkedLanes
from drainer.core.plan import ALL, OffsetPlan, PartitionPlan
from drainer.core.progress import Progress
from drainer.engine.outcome import judged_before, lanes_parked
from drainer.engine.pump import PARKED_MOST
from drainer.engine.settings import LocalSettings
from drainer.errors import (
    DrainerError,
    Halted,
    LockLost,
    SplitFailed,
    StateLost,
)
from drainer.policy.concurrency import Concurrency
from drainer.spark.aggregation import Aggregation, WaveSlice, insist_conserved
from drainer.spark.control import Loans
from drainer.spark.failure import error_of
from drainer.spark.handling import Handling
from drainer.spark.jobs import Jobs, PreparedWave
from drainer.spark.reading import Reader, Terms
from drainer.spark.state import State
from drainer.spark.task_monitor import TaskMonitor
from drainer.spark.waves import cut_at

REST_LOOK_S = 0.1
TASK_BUFFER_LEAST = 16 * 1024 * 1024
CUTS_MOST = 8  # of a wave, at messages that can't be divided; with more it is one task's


class WaveRunner:
    """Runs the jobs of a drain, and folds what they did into ``gathering``.

    ``end`` is called when nothing is left to do, or with what ends the drain; ``take_news`` takes
    in all that tasks have reported.

    Attributes:
        parked: lanes that this run leaves alone.
    """

    def __init__(
        self,
        plan: OffsetPlan,
        terms: Terms,
        jobs: Jobs,
        reader: Reader,
        state: State,
        aggregation: Aggregation,
        monitor: TaskMonitor,
        end: Callable[[BaseException | None], None],
        take_news: Callable[[], Awaitable[None]],
        loans: Loans,
    ) -> None:
        self._plan = plan
        self._terms = terms
        self._jobs = jobs
        self._reader = reader
        self._state = state
        self._aggregation = aggregation
        self._monitor = monitor
        self._end_drain = end
        self._take_news = take_news
        self._loans = loans
        self._claims = tuple(str(Claim(number, terms.tasks)) for number in range(terms.tasks))
        self._left_parked: set[str] = set()
        self._given_up_before = judged_before(plan).given_up
        self._job: str | None = None  # the one that handles
        self._at_rest = asyncio.Event()  # no task handles anything
        self._at_rest.set()

    @property
    def parked(self) -> AbstractSet[str]:
        return self._aggregation.parked | self._left_parked

    @property
    def handles(self) -> bool:
        return self._job is not None

    def _end(self, cause: BaseException | None) -> None:
        self._reader.stop()
        self._end_drain(cause)

    async def run(self) -> None:
        """Until nothing is left, or something has ended the drain."""
        while (prepared := await self._reader.take()) is not None:
            async with _released(prepared):
                if not prepared.undivided:
                    await self._handle(prepared, self._claims, reads_on=True)
            if prepared.undivided:
                await self._handle_cut(prepared)
        self._end(self._left_over())

    async def _handle_cut(self, prepared: PreparedWave) -> None:
        """Handles a wave with messages that several claims would need at once, one stretch after
        the other: such messages are one task's."""
        stretches = cut_at(prepared.ranges, prepared.undivided)
        if prepared.too_many or len(stretches) > CUTS_MOST:
            stretches = [(dict(prepared.ranges), False)]
        for ranges, divided in stretches:
            part = await self._reader.read(ranges, self._terms.tasks if divided else 1)
            async with _released(part):
                await self._handle(part, self._claims if divided else (ALL,))

    async def _handle(
        self, prepared: PreparedWave, claims: tuple[str, ...], *, reads_on: bool = False
    ) -> None:
        number = self._monitor.waves + 1
        stretch = WaveSlice(
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
        behind = self._aggregation.behind(stretch.ranges)
        self._aggregation.begin(stretch)
        self._monitor.begin(number + self._reader.about, claims)
        self._monitor.positions |= {n: end for n, (_, end) in prepared.ranges.items()}
        self._state.follow(self._terms.handler.epoch, number, claims)
        handling = Handling(
            plan=self._plan_of(stretch),
            settings=of_one_task(self._terms.running, len(claims)),
            handler=self._terms.handler,
            letters_topic=self._terms.letters_topic,
            wave=number,
            claims=claims,
            subs=tuple(stretch.subs[claim] for claim in claims),
            behind=behind,
        )
        self._job = f"drainer {self._plan.drain_id}: wave {number}"
        self._at_rest.clear()
        borrowers = [f"{number}/{claim}" for claim in claims]
        await self._loans.begin(borrowers)
        if reads_on:
            self._reader.begin(behind=self._job)
        try:
            outcomes = await blocking_call(self._jobs.handle, prepared, handling, self._job)
        except LockLost as error:
            meant = await self._meant(error)
            raise meant from (error.__cause__ if meant is error else error)
        finally:
            self._job = None
            self._loans.end(borrowers)
        self._at_rest.set()
        await self._take_news()
        whole = True
        for task, outcome in outcomes:
            self._monitor.ended(claims[task], outcome["status"])
            self._left_parked.update(outcome["parked"])
            lanes = replace(ParkedLanes.from_json(outcome["parked_lanes"]), total=len(self.parked))
            self._aggregation.parked_lanes = self._aggregation.parked_lanes.merge(lanes)
            if outcome["failure"] is not None:
                whole = False
                self._end(await self._meant(error_of(outcome["failure"])))
        if whole:
            insist_conserved(self._aggregation)
            self.insist_on_limit()
            self._insist_on_room()
        self._aggregation.end()
        if self._reader.stopped:
            await asyncio.Event().wait()  # the driver ends this, when all is at rest

    async def _meant(self, error: DrainerError) -> DrainerError:
        """What an error of a task means for the drain: tasks don't know why the state is gone."""
        with suppress(DrainerError):
            if isinstance(error, LockLost) and await blocking_call(self._state.epoch) is None:
                return StateLost(
                    f"the state at {self._state.uri} was removed, and not by this drain",
                    hint="find out who did; what the tasks reported is in the plan: resume",
                )
        return error

    def _plan_of(self, stretch: WaveSlice) -> OffsetPlan:
        plan, ruled = self._plan, self._aggregation.ruled()  # with what the limit has counted
        return replace(
            plan,
            partitions={n: PartitionPlan(*r, None, None) for n, r in stretch.ranges.items()},
            claims={ALL: {n: Progress(start) for n, (start, _) in stretch.ranges.items()}},
            parked=tuple(sorted(self.parked)),
            parked_lanes=NONE_PARKED,
            ruled=replace(ruled, skipped_by={}, skipped_for={}),
            latency=None,
            state=None,
        )

    def insist_on_limit(self) -> None:
        """Ends the drain when all tasks together gave too much up."""
        most = self._plan.failures.max_dead
        given_up = self._given_up_before + self._monitor.given_up
        if given_up and most.passed(given_up, self._aggregation.counts()[1].finished):
            self._end(
                Halted(
                    f"{given_up:,} sub-messages were given up in all tasks, more than {most}",
                    hint="fix the cause, then resume",
                )
            )

    def _insist_on_room(self) -> None:
        parked = len(self.parked)
        if parked > PARKED_MOST:
            self._end(lanes_parked(parked, read=False, behind_letters=False))

    def _left_over(self) -> DrainerError | None:
        parked = len(self.parked)
        if self._aggregation.complete:
            return None
        if not parked:
            return DrainerError(
                "nothing is left to be read, and not all is finished: the watermarks are at"
                f" {self._aggregation.watermarks}",
                hint="this is a bug of drainer: report it, and keep the plan",
            )
        return lanes_parked(parked, read=True, behind_letters=bool(self._aggregation.parked))

    async def cancel(self) -> None:
        """Ends the tasks that handle, whatever they are at."""
        if self._job is not None:
            with suppress(DrainerError):  # Spark itself may be what is gone
                await blocking_call(self._jobs.cancel, self._job)

    async def rest(self) -> None:
        """Waits until no task handles anything: with their job, or when that failed each of them,
        has ended."""
        while not self._at_rest.is_set():
            with suppress(DrainerError):
                if self._job is None and await blocking_call(
                    self._state.at_rest, self._terms.handler.epoch + 1
                ):
                    return
            await asyncio.sleep(REST_LOOK_S)


def of_one_task(running: LocalSettings, tasks: int) -> LocalSettings:
    """The settings of one of so many tasks, which borrows its concurrency."""
    buffer_bytes = max(TASK_BUFFER_LEAST, running.buffer_bytes // tasks)
    return replace(running, concurrency=Concurrency.fixed(1), buffer_bytes=buffer_bytes)


@asynccontextmanager
async def _released(prepared: PreparedWave) -> AsyncIterator[None]:
    """Lets go of the rows in the end."""
    try:
        yield
    finally:
        with suppress(DrainerError):  # Spark itself may be what is gone
            await blocking_call(prepared.release)


def _first(offsets: Mapping[int, Sequence[int]]) -> str:
    number = min(offsets)
    return f"offset {offsets[number][0]} of partition {number}"
