"""The work of a drain on Spark: reading waves, and dispatching them to tasks shard by shard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

from drainer.core.dispatch import all_of
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Settings
from drainer.engine.outcome import lanes_parked, too_many_ignored
from drainer.engine.pump import LEFT_PENDING_MOST, PARKED_MOST
from drainer.errors import DrainerError, Halted, LockLost, StateLost
from drainer.host.calls import blocking_call
from drainer.model.account import Account, ParkedLanes
from drainer.model.claims import ALL, Shard
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.settings import LocalSettings
from drainer.policy.failures import Totals
from drainer.spark.assign.aggregation import Dispatch
from drainer.spark.assign.control import QuotaAllocator
from drainer.spark.assign.jobs import PreparedWave, WaveShare
from drainer.spark.assign.reading import Reader
from drainer.spark.assign.schedule import Part, Schedule
from drainer.spark.assign.task_monitor import TaskMonitor
from drainer.spark.session.failure import error_of
from drainer.spark.state.state import State
from drainer.spark.task.handling import TaskRunner
from drainer.spark.task.source import TaskInput

LOOK_S = 0.1
WORTH_BYTES = 64 * 1024  # With this many bytes of chunks, a task is worth its start.
DISPATCHES_MOST = 8  # This many dispatches may be under way at once.
FREE_S = 0.5  # After this time, a free slot gets whatever is ready.
SHARDS_LEAST, SHARDS_MOST = 16, 1024
TASK_BUFFER_LEAST = 16 * 1024 * 1024


@dataclass(eq=False)
class WaveRunner:
    """Runs the jobs of a drain, and adds what they did to the account of ``monitor``.

    Attributes:
        checkpointer: writes down which messages ``split`` rejected before tasks handle them.
        settings: the settings of tasks that are yet to begin.
        end: called when nothing is left to do, or with the error that ends the drain.
        left_alone: the number of letters that a redrive leaves alone, by the reason.
    """

    reader: Reader
    state: State
    monitor: TaskMonitor
    checkpointer: Checkpointer
    quota: QuotaAllocator
    settings: Settings
    end: Callable[[BaseException | None], None]

    def __post_init__(self) -> None:
        reader = self.reader
        self.left_alone: Counter[str] = Counter()
        self._left_alone_subs = 0  # The number of pending sub-messages of these letters.
        self._plan, self._jobs = reader.plan, reader.jobs
        self._handler, self._slots = reader.settings.handler, reader.settings.slots
        self._aggregation = self.monitor.aggregation
        self._reading_reports = asyncio.Lock()
        self._done_before = self._aggregation.counts()[1].done
        self._schedule = Schedule()
        self._waves: dict[int, PreparedWave] = {}  # The waves that are not handled completely.
        self._waves_read = 0
        self.under_way: dict[int, Dispatch] = {}  # The dispatches whose jobs run.
        self._dispatch_runs: set[asyncio.Task[None]] = set()
        self._free_since_s: float | None = None
        self._least = 1  # The number of sub-messages that is worth a task of its own.
        self._broken = False  # Whether a job has failed whose tasks may still be at work.
        self._left_parked: set[str] = set()
        # By wave, the lanes "all of partition n" of partitions that stop in this wave.
        self._stopping: dict[int, AbstractSet[str]] = {}

    @property
    def parked(self) -> AbstractSet[str]:
        """The lanes that are parked in this run."""
        return self._aggregation.parked | self._left_parked

    @property
    def busy(self) -> int:
        """The number of tasks that have something left to handle, or wait for a slot."""
        return sum(each.busy for each in self.under_way.values())

    async def run(self) -> None:
        """Drain until nothing is left, or until something ends the drain.

        The next wave is read while tasks handle parts of earlier ones. Parts that are ready are
        dispatched as slots become free.
        """
        try:
            await self._drain_waves()
        finally:
            for each in self._dispatch_runs:
                each.cancel()
        self._end(self._left_over())

    async def _drain_waves(self) -> None:
        while True:
            await self._step()
            works = self.under_way or self._schedule.waves
            if works and (self.reader.stopped or not self.reader.ready):
                continue
            prepared = await self.reader.next_wave()
            if prepared is None:
                return
            await self._add_wave(prepared)

    async def _step(self) -> None:
        """Dispatch what is ready, begin to read the next wave, and wait a moment."""
        if self.reader.stopped:
            await asyncio.gather(*self._dispatch_runs)
            await asyncio.Event().wait()  # The driver cancels this once all tasks are at rest.
        self._dispatch()
        if self._schedule.wants_to_read:
            newest = max(self.under_way, default=None)
            begun = None if newest is None else partial(self._has_begun, newest)
            self.reader.begin(behind=begun)
        if self._dispatch_runs:
            ended, self._dispatch_runs = await asyncio.wait(
                self._dispatch_runs, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            for each in ended:
                each.result()
        elif self._schedule.waves:  # The drain is paused, or Spark has no slot.
            await asyncio.sleep(LOOK_S)
        await self._release_done()

    def _end(self, cause: BaseException | None) -> None:
        self.reader.stop()
        self.end(cause)

    # --- waves ---

    async def _add_wave(self, prepared: PreparedWave) -> None:
        """Add a wave that was read, to be dispatched."""
        prepared.ensure_ends()
        self._waves_read += 1
        number = self._waves_read
        self._waves[number] = prepared
        subs = {str(shard): each for shard, each in prepared.subs.items()}
        self._aggregation.begin(number, prepared.ranges, prepared.delivered, subs, prepared.units)
        if any(prepared.units.values()):
            await self.checkpointer.wait_until_written()
        for each in prepared.manifests:
            self.left_alone.update(each.left_alone)
            self._left_alone_subs += each.left_alone_subs
        self.monitor.note_wave(number + self.reader.waves.about, prepared.manifests)
        counts = {shard: sum(each.values()) for shard, each in prepared.subs.items()}
        self._schedule.add(number, counts)
        chunk_bytes = sum(each.chunk_bytes for each in prepared.manifests)
        self._least = int(WORTH_BYTES * sum(counts.values()) / max(1, chunk_bytes))
        await self._release_done()

    async def _release_done(self) -> None:
        """Release the waves whose parts are all handled."""
        kept = set().union(*(each.waves for each in self.under_way.values()))
        for number in list(self._waves):
            if number not in kept and number not in self._schedule.waves:
                await self._release(self._waves.pop(number))

    async def _release(self, prepared: PreparedWave) -> None:
        with suppress(DrainerError):  # Spark itself may be gone.
            await blocking_call(prepared.release)

    # --- dispatches ---

    async def _has_begun(self, dispatch: int) -> bool:
        """Return whether a task of a dispatch has begun, or all have ended."""
        under_way = self.under_way.get(dispatch)
        return under_way is None or any(task.attempt for task in under_way.tasks)

    def _dispatch(self) -> None:
        """Begin a dispatch if enough slots are free for what is ready."""
        if len(self.under_way) >= DISPATCHES_MOST:
            return
        busy, now_s = self.busy, monotonic()
        free = min(self._slots.room(busy), self.quota.room)
        self._free_since_s = (self._free_since_s or now_s) if free > 0 else None
        urgent = self._free_since_s is not None and now_s - self._free_since_s > FREE_S
        tasks = self._schedule.dispatch(free, busy, urgent=urgent, least=self._least)
        if tasks is None:
            return
        self._free_since_s = None
        by_shard: dict[int, dict[Shard, int]] = {}  # Numbers of tasks, by wave and shard.
        for task, parts in enumerate(tasks):
            for part in parts:
                by_shard.setdefault(part.wave, {})[part.shard] = task
        waves = {number: self._waves[number] for number in sorted(by_shard)}
        dispatch = self._aggregation.dispatch(
            [(part.wave, str(part.shard)) for part in parts] for parts in tasks
        )
        self.monitor.note_dispatch()
        for number in waves.keys() - self._stopping.keys():
            # A lane that is parked by now was parked by an earlier wave, and stays parked.
            self._stopping[number] = set(map(all_of, waves[number].stops)) - self.parked
        self.under_way[dispatch.number] = dispatch
        runner = TaskRunner(
            plan=self._plan_of_tasks(),
            settings=of_one_task(self.settings.running, self._slots.handling),
            handler=self._handler,
            dispatch=dispatch.number,
            given=tuple(map(self._given, tasks)),
            behind=self._behind(tasks, waves),
        )
        rows = [(waves[number].rows, of_wave) for number, of_wave in by_shard.items()]
        run = self._run_dispatch(dispatch, rows, runner)
        self._dispatch_runs.add(asyncio.create_task(run, name=dispatch.name))

    def _given(self, parts: Sequence[Part]) -> Mapping[int, TaskInput]:
        """Return what a task with these parts is given of each stream."""
        return {
            stream: each
            for part in parts
            for stream, each in self._waves[part.wave].given(part.shard).items()
        }

    def _behind(
        self, tasks: Sequence[Sequence[Part]], waves: Mapping[int, PreparedWave]
    ) -> frozenset[int]:
        """Return the partitions in which something before these waves is unfinished.

        Barriers wait for that. Only a wave that is not divided may have barriers.
        """
        if tasks[0][0].shard.of > 1:
            return frozenset()
        at = self._aggregation.watermarks
        starts = ((n, start) for wave in waves.values() for n, (start, _) in wave.ranges.items())
        return frozenset(n for n, start in starts if at[n] < start)

    async def _run_dispatch(
        self, dispatch: Dispatch, rows: Sequence[WaveShare], runner: TaskRunner
    ) -> None:
        """Run the job of a dispatch to its end, and add its outcome to the account."""
        try:
            slots = self._slots.count - self.busy + len(dispatch.tasks)
            await self.quota.lend_to({task.name: task.subs for task in dispatch.tasks}, slots)
            outcomes = await blocking_call(self._jobs.handle, rows, runner, dispatch.name)
        except BaseException as error:
            del self.under_way[dispatch.number]
            self._broken = True
            if not isinstance(error, LockLost):
                raise
            meant = await self._meant(error)
            raise meant from (error.__cause__ if meant is error else error)
        whole = True
        try:
            await self.read_reports()
            for number, outcome in outcomes:
                task = dispatch.tasks[number]
                task.ended, task.status = True, outcome["status"]
                self._left_parked.update(outcome["parked"])
                lanes = replace(
                    ParkedLanes.from_json(outcome["parked_lanes"]), total=len(self.parked)
                )
                self._aggregation.parked_lanes = self._aggregation.parked_lanes.merge(lanes)
                if outcome["failure"] is not None:
                    whole = False
                    self._end(await self._meant(error_of(outcome["failure"])))
            if whole:
                self.check_limit()
                self._check_room()
            await self._end_dispatch(dispatch, whole=whole)
        finally:
            del self.under_way[dispatch.number]
        # After an error, this is not reached: the tasks may still be at work.
        for task in dispatch.tasks:
            self.quota.end(task.name)
            for shard in task.shards_left:  # What the task left stays parked.
                self._schedule.done(shard)

    async def end_dispatches(self) -> None:
        """End the remaining dispatches. No task may be at work any more."""
        for dispatch in list(self._aggregation.dispatches.values()):
            await self._end_dispatch(dispatch, whole=False)

    async def _end_dispatch(self, dispatch: Dispatch, *, whole: bool) -> None:
        """Add all that the tasks of a dispatch have reported to the account.

        The tasks of a ``whole`` dispatch must account for all that they were given.
        """
        left = {n: task for n, task in enumerate(dispatch.tasks) if task.unfinished}
        shares = [(self._handler.epoch, dispatch.number, n) for n in left]
        found = await blocking_call(self.state.reports_of, shares)
        for task, report in zip(left.values(), found, strict=True):
            self._aggregation.add_whole_record(task, report.record)
        if whole:
            self._aggregation.ensure_conserved(dispatch)
        self.monitor.note_end(dispatch)
        self._aggregation.end_dispatch(dispatch)

    def _plan_of_tasks(self) -> OffsetPlan:
        known = self._plan.account
        account = Account(
            known.updated,
            known.generation,
            partitions={},
            claims={ALL: {}},
            # If a partition stops in a wave, no later message of it is read, so its lane does not
            # have to be parked.
            parked=tuple(sorted(self.parked - set().union(*self._stopping.values()))),
        )
        terms = replace(self._plan.terms, failures=self.settings.failures)
        return OffsetPlan(terms, account)

    # --- what tasks report ---

    async def read_reports(self) -> None:
        """Read what tasks have reported since the last time, and add it to the account."""
        async with self._reading_reports:
            dispatches = self._aggregation.dispatches
            tasks = {each.number: len(each.tasks) for each in dispatches.values()}
            news = await blocking_call(self.state.news, self._handler.epoch, tasks)
            for attempt, head in news:
                dispatch = dispatches.get(attempt.dispatch)
                if dispatch is None:
                    continue  # An attempt woke up after its dispatch had ended.
                task = dispatch.tasks[attempt.task]
                is_under_way = dispatch.number in self.under_way
                for claim in self._aggregation.add_progress(task, head):
                    if is_under_way:
                        self._schedule.done(Shard.parse(claim))
                self.monitor.note_report(task, attempt, head.status)
                if is_under_way and head.status is not None:
                    if head.status.borrowed is None:  # This attempt is over.
                        self.quota.end(task.name)
                    else:
                        self.quota.reported(task.name, head.status.borrowed)

    def totals(self) -> Totals:
        """Return the totals of all tasks in this run."""
        subs, skipped = self._aggregation.counts()[1], self._aggregation.unhandled().without_call
        return Totals(
            subs.done - self._done_before,
            self.monitor.given_up,
            subs.finished - skipped,
            self.monitor.began_s,
        )

    async def _meant(self, error: DrainerError) -> DrainerError:
        """Return what an error of a task means for the drain.

        A task that finds no state assumes that the drain is over, but something else may have
        removed the state.
        """
        with suppress(DrainerError):
            if isinstance(error, LockLost) and await blocking_call(self.state.epoch) is None:
                return StateLost(
                    f"something else removed the state at {self.state.uri}",
                    hint="Find out what did, then resume: all below the plan's watermarks is done.",
                )
        return error

    # --- the end ---

    def check_limit(self) -> None:
        """End the drain if all tasks together have given up too much."""
        most = self.settings.failures.max_failures
        given_up = self.monitor.given_up
        if given_up and most.passed(given_up, self._aggregation.counts()[1].finished):
            self._end(
                Halted(
                    f"drainer gave up {given_up:,} sub-messages in all tasks, more than {most}",
                    hint="Fix the cause, then resume.",
                )
            )

    def _check_room(self) -> None:
        """End the drain if too much is left pending to read on."""
        parked = len(self.parked)
        if parked > PARKED_MOST:
            self._end(lanes_parked(parked, read=False, behind_letters=False))
        elif (alone := self.left_alone.total()) > LEFT_PENDING_MOST:
            self._end(too_many_ignored(alone))

    def _left_over(self) -> DrainerError | None:
        """Return the error if not all is done, although all was read; None if all is done."""
        if self._aggregation.complete:
            return None
        if parked := len(self.parked):
            behind_letters = bool(self._aggregation.parked)
            return lanes_parked(parked, read=True, behind_letters=behind_letters)
        if self.reader.stops:
            return Halted(
                f"split rejected a message of partition {min(self.reader.stops)}, and drainer read"
                " no further there",
                hint="Resume.",
            )
        if self._aggregation.counts()[1].pending == self._left_alone_subs:
            return None
        return DrainerError(
            "everything is read, but not everything is done: the watermarks are at"
            f" {self._aggregation.watermarks}",
            hint="This is a bug in drainer: report it, and keep the plan.",
        )

    async def cancel(self) -> None:
        """Let Spark kill the tasks that handle, and release all waves."""
        for each in list(self.under_way.values()):
            with suppress(DrainerError):  # Spark itself may be gone.
                await blocking_call(self._jobs.cancel, each.name)
        while self._waves:
            await self._release(self._waves.popitem()[1])

    async def rest(self) -> None:
        """Wait until no task handles anything.

        The end of a job means that its tasks have ended, unless the job has failed. Then each task
        must have reported its end, or its process must be dead.
        """
        while self.under_way or self._broken:
            with suppress(DrainerError):
                if not self.under_way and await blocking_call(
                    self.state.attempts_are_over, self._handler.epoch + 1
                ):
                    return
            await asyncio.sleep(LOOK_S)


def shards_for(slots: int) -> int:
    """Return the number of shards for a number of slots.

    There are several times as many shards as slots, so that they can be dealt out to any number of
    slots.
    """
    return min(max(SHARDS_LEAST, 3 * slots), SHARDS_MOST)


def of_one_task(running: LocalSettings, tasks: int) -> LocalSettings:
    """Return the settings of one of ``tasks`` tasks. Each task borrows its concurrency."""
    buffer_bytes = max(TASK_BUFFER_LEAST, running.buffer_bytes // tasks)
    fixed = Concurrency.fixed(1)
    return replace(running, concurrency=fixed, buffer_bytes=buffer_bytes)
