"""The work of a drain on Spark: waves are read, and dispatched to tasks shard by shard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from drainer.core.dispatch import all_of
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Settings
from drainer.engine.loop import blocking_call
from drainer.engine.outcome import lanes_parked, too_many_ignored
from drainer.engine.pump import LEFT_PENDING_MOST, PARKED_MOST
from drainer.errors import DrainerError, Halted, LockLost, StateLost
from drainer.message import Stream
from drainer.model.account import Account, ParkedLanes
from drainer.model.claims import ALL, Claim
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.settings import LocalSettings
from drainer.policy.failures import Totals
from drainer.spark.assign.control import QuotaAllocator
from drainer.spark.assign.dispatch import Dispatch
from drainer.spark.assign.jobs import PreparedWave
from drainer.spark.assign.reading import Reader
from drainer.spark.assign.schedule import Schedule
from drainer.spark.assign.task_monitor import TaskMonitor
from drainer.spark.session.failure import error_of
from drainer.spark.state.state import State
from drainer.spark.task.handling import TaskInput, TaskRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOK_S = 0.1
WORTH_BYTES = 64 * 1024  # of chunks, that are worth a task, if they are handled in no time
DISPATCHES_MOST = 8  # under way at once
FREE_S = 0.5  # a slot that is free for so long is given what is ready
SHARDS_LEAST, SHARDS_MOST = 16, 1024
TASK_BUFFER_LEAST = 16 * 1024 * 1024


class WaveRunner:
    """Runs the jobs of a drain, and folds what they did into the account of ``monitor``.

    ``checkpointer`` writes down which messages ``split`` rejected before tasks handle them. ``end``
    is called when nothing is left to do, or with what ends the drain.

    Attributes:
        settings: of tasks that are yet to begin.
        parked: lanes that this run leaves alone.
        ignored_letters: by a redrive: why, and how many records.
    """

    def __init__(
        self,
        reader: Reader,
        state: State,
        monitor: TaskMonitor,
        checkpointer: Checkpointer,
        quota: QuotaAllocator,
        settings: Settings,
        end: Callable[[BaseException | None], None],
    ) -> None:
        self.reader = reader
        self.plan, self.terms, self.jobs = reader.plan, reader.settings, reader.jobs
        self.state = state
        self.monitor = monitor
        self.aggregation = monitor.aggregation
        self.checkpointer = checkpointer
        self.quota = quota
        self.settings = settings
        self.end = end
        self._taking = asyncio.Lock()
        self._done_before = self.aggregation.counts()[1].done
        self._schedule = Schedule()
        self._waves: dict[int, PreparedWave] = {}  # of which something is to be handled
        self._waves_read = 0
        self._under_way: dict[int, Dispatch] = {}  # whose jobs run
        self._handling: set[asyncio.Task[None]] = set()
        self._free_since_s: float | None = None
        self._least = 1  # sub-messages that are worth a task of their own
        self._broken = False  # whether a job failed whose tasks may still be at work
        self._left_parked: set[str] = set()
        self._stopping: dict[int, AbstractSet[str]] = {}  # partitions, by the wave they stop in
        self.ignored_letters: Counter[str] = Counter()

    @property
    def parked(self) -> AbstractSet[str]:
        return self.aggregation.parked | self._left_parked

    @property
    def busy(self) -> int:
        """Number of tasks that have something left to handle, or wait for a slot."""
        return sum(each.busy for each in self._under_way.values())

    @property
    def handles(self) -> bool:
        return bool(self._under_way)

    def _end(self, cause: BaseException | None) -> None:
        self.reader.stop()
        self.end(cause)

    async def run(self) -> None:
        """Drain until nothing is left, or something has ended the drain.

        The next wave is read while parts of earlier ones are handled. What is ready is dispatched
        as slots come free.
        """
        try:
            await self._run()
        finally:
            for each in self._handling:
                each.cancel()
        self._end(self._left_over())

    async def _run(self) -> None:
        while True:
            await self._work()
            works = self._under_way or self._schedule.waves
            if works and (self.reader.stopped or not self.reader.ready):
                continue
            prepared = await self.reader.take()
            if prepared is None:
                return
            await self._add(prepared)

    async def take_news(self) -> None:
        """Take in what tasks have reported, as ``State.news`` gives it."""
        async with self._taking:
            found = {each.number: len(each.tasks) for each in self.aggregation.dispatches.values()}
            epoch = self.terms.handler.epoch
            for attempt, head in await blocking_call(self.state.news, epoch, found):
                dispatch = self.aggregation.dispatches.get(attempt.dispatch)
                if dispatch is None:
                    continue  # it has ended: an attempt that was given up has woken up
                task = dispatch.tasks[attempt.task]
                is_under_way = dispatch.number in self._under_way
                for claim in self.aggregation.take(task, head):
                    if is_under_way:
                        self._schedule.done(Claim.parse(claim).number)
                self.monitor.take(task, attempt, head.status)
                if is_under_way and head.status is not None:
                    if head.status.borrowed is None:  # this try at it is over
                        self.quota.end(task.name)
                    else:
                        self.quota.reported(task.name, head.status.borrowed)

    def totals(self) -> Totals:
        """Totals of all tasks in this run."""
        subs, skipped = self.aggregation.counts()[1], self.aggregation.unhandled().without_call
        return Totals(
            subs.done - self._done_before,
            self.monitor.given_up,
            subs.finished - skipped,
            self.monitor.began_s,
        )

    async def _add(self, prepared: PreparedWave) -> None:
        """Takes a wave that was read, to be dispatched."""
        prepared.ensure_ends()
        self._waves_read += 1
        number = self._waves_read
        self._waves[number] = prepared
        subs = {prepared.streams.claim(shard): each for shard, each in prepared.subs.items()}
        self.aggregation.begin(number, prepared.ranges, prepared.delivered, subs, prepared.units)
        if any(prepared.units.values()):
            await self.checkpointer.wait_until_written()
        for each in prepared.manifests:
            self.ignored_letters.update(each.ignored)
        self.monitor.begin_wave(number + self.reader.about, prepared.manifests)
        counts = {shard: sum(each.values()) for shard, each in prepared.subs.items()}
        self._schedule.add(number, counts, prepared.streams)
        chunk_bytes = sum(sum(each.bytes.values()) for each in prepared.manifests)
        self._least = int(WORTH_BYTES * sum(counts.values()) / max(1, chunk_bytes))
        await self._release_done()

    async def _work(self) -> None:
        """Dispatches what is ready, reads on behind it, and waits a moment for news."""
        if self.reader.stopped:
            await asyncio.gather(*self._handling)
            await asyncio.Event().wait()  # the driver ends this, when all is at rest
        self._dispatch()
        if self._schedule.wants_to_read:
            newest = max(self._under_way, default=None)
            self.reader.begin(behind=None if newest is None else partial(self._has_begun, newest))
        if self._handling:
            ended, self._handling = await asyncio.wait(
                self._handling, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            for each in ended:
                each.result()
        elif self._schedule.waves:  # paused, or Spark has no slot
            await asyncio.sleep(LOOK_S)
        await self._release_done()

    async def _has_begun(self, dispatch: int) -> bool:
        """Whether a task of a dispatch has, or all have ended."""
        return dispatch not in self._under_way or self._under_way[dispatch].has_begun

    def _dispatch(self) -> None:
        if len(self._under_way) >= DISPATCHES_MOST:
            return
        busy, now_s = self.busy, monotonic()
        free = min(self.terms.slots.room(busy), self.quota.room)
        self._free_since_s = (self._free_since_s or now_s) if free > 0 else None
        urgent = self._free_since_s is not None and now_s - self._free_since_s > FREE_S
        tasks = self._schedule.dispatch(free, busy, urgent=urgent, least=self._least)
        if tasks is None:
            return
        self._free_since_s = None
        by_shard: dict[int, dict[int, int]] = {}  # tasks, by wave and shard
        for task, parts in enumerate(tasks):
            for part in parts:
                by_shard.setdefault(part.wave, {})[part.shard] = task
        waves = {number: self._waves[number] for number in sorted(by_shard)}
        streams, behind = next(iter(waves.values())).streams, set[int]()
        if streams.shards == 1:  # there may be barriers
            at = self.aggregation.watermarks
            behind = {n for e in waves.values() for n, (s, _) in e.ranges.items() if at[n] < s}
        given: tuple[Mapping[int, TaskInput], ...] = tuple(
            {
                Stream(n, part.shard): each
                for part in parts
                for n, each in waves[part.wave].given(part.shard).items()
            }
            for parts in tasks
        )
        dispatch = self.aggregation.dispatch(
            [(part.wave, streams.claim(part.shard)) for part in parts] for parts in tasks
        )
        self.monitor.begin()
        for number in waves.keys() - self._stopping.keys():
            # What is parked by now is parked by something before this wave, and stays so.
            self._stopping[number] = set(map(all_of, waves[number].stops)) - self.parked
        self._under_way[dispatch.number] = dispatch
        handling = TaskRunner(
            plan=self._plan_of_tasks(),
            settings=of_one_task(self.settings.running, self.terms.slots.handling),
            handler=self.terms.handler,
            dispatch=dispatch.number,
            streams=streams,
            given=given,
            behind=frozenset(behind),
        )
        rows = [(waves[number].rows, of_wave) for number, of_wave in by_shard.items()]
        self._handling.add(
            asyncio.create_task(self._handle(dispatch, rows, handling), name=dispatch.name)
        )

    async def _handle(
        self,
        dispatch: Dispatch,
        rows: Sequence[tuple[DataFrame, Mapping[int, int]]],
        handling: TaskRunner,
    ) -> None:
        try:
            slots = self.terms.slots.count - self.busy + len(dispatch.tasks)
            await self.quota.lend_to({task.name: task.subs for task in dispatch.tasks}, slots)
            outcomes = await blocking_call(self.jobs.handle, rows, handling, dispatch.name)
        except BaseException as error:
            del self._under_way[dispatch.number]
            self._broken = True
            if not isinstance(error, LockLost):
                raise
            meant = await self._meant(error)
            raise meant from (error.__cause__ if meant is error else error)
        whole = True
        try:
            await self.take_news()
            for number, outcome in outcomes:
                task = dispatch.tasks[number]
                task.ended, task.status = True, outcome["status"]
                self._left_parked.update(outcome["parked"])
                lanes = replace(
                    ParkedLanes.from_json(outcome["parked_lanes"]), total=len(self.parked)
                )
                self.aggregation.parked_lanes = self.aggregation.parked_lanes.merge(lanes)
                if outcome["failure"] is not None:
                    whole = False
                    self._end(await self._meant(error_of(outcome["failure"])))
            if whole:
                self.check_limit()
                self._check_room()
            await self._end_dispatch(dispatch, whole=whole)
        finally:
            del self._under_way[dispatch.number]
        for task in dispatch.tasks:  # after an error they may still be at work
            self.quota.end(task.name)
            for shard in task.shards_left:  # what is parked stays so in this run
                self._schedule.done(shard)

    async def end_dispatches(self) -> None:
        """Ends those that are left: no task is at work any more."""
        for dispatch in list(self.aggregation.dispatches.values()):
            await self._end_dispatch(dispatch, whole=False)

    async def _end_dispatch(self, dispatch: Dispatch, *, whole: bool) -> None:
        """Take in what tasks leave. All that a ``whole`` dispatch was given is in its account."""
        left = {n: task for n, task in enumerate(dispatch.tasks) if task.unfinished}
        shares = [(self.terms.handler.epoch, dispatch.number, n) for n in left]
        found = await blocking_call(self.state.reports_of, shares)
        for task, report in zip(left.values(), found, strict=True):
            self.aggregation.take_all(task, report.record)
        if whole:
            self.aggregation.ensure_conserved(dispatch)
        self.monitor.end(dispatch)
        self.aggregation.end_dispatch(dispatch)

    async def _release_done(self) -> None:
        """Lets go of waves whose parts are all handled."""
        kept = set().union(*(each.waves for each in self._under_way.values()))
        for number in list(self._waves):
            if number not in kept and number not in self._schedule.waves:
                await self._release(self._waves.pop(number))

    async def _release(self, prepared: PreparedWave) -> None:
        with suppress(DrainerError):  # Spark itself may be what is gone
            await blocking_call(prepared.release)

    async def _meant(self, error: DrainerError) -> DrainerError:
        """Return what an error of a task means for the drain: tasks don't know why the state is
        gone."""
        with suppress(DrainerError):
            if isinstance(error, LockLost) and await blocking_call(self.state.epoch) is None:
                return StateLost(
                    f"something else removed the state at {self.state.uri}",
                    hint="Find out what did, then resume: all below the plan's watermarks is done.",
                )
        return error

    def _plan_of_tasks(self) -> OffsetPlan:
        known = self.plan.account
        account = Account(
            known.updated,
            known.generation,
            partitions={},
            claims={ALL: {}},
            # Where the reader stopped, nothing is behind what is parked.
            parked=tuple(sorted(self.parked - set().union(*self._stopping.values()))),
        )
        terms = replace(self.plan.terms, failures=self.settings.failures)
        return OffsetPlan(terms, account)

    def check_limit(self) -> None:
        """Ends the drain when all tasks together gave too much up."""
        most = self.settings.failures.max_failures
        given_up = self.monitor.given_up
        if given_up and most.passed(given_up, self.aggregation.counts()[1].finished):
            self._end(
                Halted(
                    f"drainer gave up {given_up:,} sub-messages in all tasks, more than {most}",
                    hint="Fix the cause, then resume.",
                )
            )

    def _check_room(self) -> None:
        parked = len(self.parked)
        if parked > PARKED_MOST:
            self._end(lanes_parked(parked, read=False, behind_letters=False))
        elif (alone := self.ignored_letters.total()) > LEFT_PENDING_MOST:
            self._end(too_many_ignored(alone))

    def _left_over(self) -> DrainerError | None:
        parked = len(self.parked)
        if self.aggregation.complete:
            return None
        if not parked and self.reader.stops:
            return Halted(
                f"split rejected a message of partition {min(self.reader.stops)}, and drainer read"
                " no further there",
                hint="Resume.",
            )
        if not parked and self.aggregation.counts()[1].pending == self.ignored_letters.total():
            return None
        if not parked:
            return DrainerError(
                "everything is read, but not everything is done: the watermarks are at"
                f" {self.aggregation.watermarks}",
                hint="This is a bug in drainer: report it, and keep the plan.",
            )
        return lanes_parked(parked, read=True, behind_letters=bool(self.aggregation.parked))

    async def cancel(self) -> None:
        """End the tasks that handle, at once, and release all that was read."""
        for each in list(self._under_way.values()):
            with suppress(DrainerError):  # Spark itself may be what is gone
                await blocking_call(self.jobs.cancel, each.name)
        while self._waves:
            await self._release(self._waves.popitem()[1])

    async def rest(self) -> None:
        """Waits until no task handles anything: with their jobs, or when one failed each of them,
        has ended."""
        while self._under_way or self._broken:
            with suppress(DrainerError):
                if not self._under_way and await blocking_call(
                    self.state.at_rest, self.terms.handler.epoch + 1
                ):
                    return
            await asyncio.sleep(LOOK_S)


def shards_for(slots: int) -> int:
    """Many and small, so that each dispatch suits the slots that there are by then."""
    return min(max(SHARDS_LEAST, 3 * slots), SHARDS_MOST)


def of_one_task(running: LocalSettings, tasks: int) -> LocalSettings:
    """The settings of one of so many tasks, which borrows its concurrency."""
    buffer_bytes = max(TASK_BUFFER_LEAST, running.buffer_bytes // tasks)
    fixed = Concurrency.fixed(1)
    return replace(running, concurrency=fixed, buffer_bytes=buffer_bytes)
