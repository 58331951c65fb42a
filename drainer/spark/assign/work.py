"""The work of a drain on Spark: it drains slice by slice, with one query for each of them.

A query reads a slice, divides it into shards and handles each shard in a task. Its tasks wait until
the driver has seen what the slice has, and gives them their shares. The next query begins while the
last tasks of a query run: it reads the next slice, and then each of its tasks waits until the task
of the same shard before it is over. So each lane keeps its order, and shards don't wait for others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

from drainer.core.dispatch import all_of
from drainer.engine.checkpointer import Checkpointer
from drainer.engine.control import Settings
from drainer.engine.loop import spawn
from drainer.engine.outcome import lanes_parked, too_many_ignored
from drainer.engine.pump import LEFT_PENDING_MOST, PARKED_MOST
from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Halted,
    Interrupted,
    LockLost,
    StateLost,
    raised_as,
)
from drainer.host.calls import blocking_call
from drainer.model.account import Account
from drainer.model.claims import ALL
from drainer.model.option import Concurrency
from drainer.model.plan import OffsetPlan
from drainer.model.ranges import Range, count_offsets
from drainer.model.rate_cap import CapsStatus, CapStatus
from drainer.model.settings import LocalSettings
from drainer.model.status import Status
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.assign.aggregation import Slice
from drainer.spark.assign.control import QuotaAllocator
from drainer.spark.assign.query import Queries, SliceContents
from drainer.spark.assign.slicing import Slicer
from drainer.spark.assign.task_monitor import TaskMonitor
from drainer.spark.reading.slices import Manifest, SliceReader
from drainer.spark.session.failure import error_of
from drainer.spark.session.session import Slots
from drainer.spark.state.state import State, TaskShare
from drainer.spark.task.handling import TaskOutcome, TaskRunner
from drainer.spark.task.python_worker import HandlerSpec

LOOK_S = 0.05
OUTAGE_S = 120.0  # A driver waits this long for a broker. The lock waits as long.
READ_AGAIN_S = 1.0
CANCEL_S, CANCEL_AGAIN_S = 2.0, 0.2
TASK_BUFFER_LEAST = 16 * 1024 * 1024

Outcomes = list[tuple[int, TaskOutcome | None]]


@dataclass(eq=False)
class _Query:
    """A query under way.

    Attributes:
        number: the number of its slice.
        reader, runner: the functions of its tasks.
        job: the future of its end.
        contents: what its slice has; None while that is read.
        yields: is set if its tasks have left their slots to those of an earlier slice, until it has
            begun again.
    """

    number: int
    reader: SliceReader
    runner: TaskRunner
    job: asyncio.Future[Outcomes]
    yields: asyncio.Event | None = None
    contents: SliceContents | None = None


@dataclass(eq=False)
class SliceRunner:
    """Runs the queries of a drain, and adds what they did to the account of ``monitor``.

    If barriers or sub-messages connect shards of a slice, the slice is read again without dividing
    it, so that one task handles all of it. The following slices are not divided either, up to the
    first one without connections.

    Attributes:
        slice_bytes: the maximum size of a slice.
        message_bytes: the mean size of the first messages.
        checkpointer: writes down which messages ``split`` rejected before tasks handle them.
        settings: the settings of tasks that are yet to begin.
        end: called when nothing is left to do, or with the error that ends the drain.
        left_alone: the number of letters that a redrive leaves alone, by the reason.
        stopped: whether no other query begins, and nothing waits for a broker.
        trouble: the reason why nothing can be read; None while reading goes on.
        is_patient: whether reading waits for a broker. It does once brokers have answered.
    """

    plan: OffsetPlan
    queries: Queries
    handler: HandlerSpec
    slots: Slots
    slice_bytes: int
    message_bytes: float
    state: State
    monitor: TaskMonitor
    checkpointer: Checkpointer
    quota: QuotaAllocator
    settings: Settings
    end: Callable[[BaseException | None], None]

    def __post_init__(self) -> None:
        self.left_alone: Counter[str] = Counter()
        self._left_alone_subs = 0  # The number of pending sub-messages of these letters.
        self._aggregation = self.monitor.aggregation
        marks, parts = self._aggregation.watermarks, self.plan.account.partitions
        lefts = {n: (marks[n], part.end) for n, part in parts.items()}
        self._slicer = Slicer(lefts, self.slice_bytes, self.message_bytes)
        self._divides = True  # Whether the next slice is divided.
        self._number = 0  # The number of the last query.
        self.reading: asyncio.Task[None] | None = None  # It reads the next slice.
        self._queries: dict[int, _Query] = {}  # The queries under way, by number.
        self._ends: set[asyncio.Task[None]] = set()  # They wait for the ends of slices.
        self._reading_reports = asyncio.Lock()
        self._broken = False  # Whether a query has failed whose tasks may still be at work.
        self._left_parked: set[str] = set()
        # The lanes "all of partition n" of partitions that stop.
        self._stopping: set[str] = set()
        self._stops: set[int] = set()  # The partitions that are read no further.
        limits = self.plan.terms.limits
        # It only counts what all tasks read. Each task limits itself to its share of the cap.
        self._flow = (
            None
            if limits is None
            else RateLimiter(limits.reading, message_bytes=self.message_bytes)
        )
        self.stopped = False
        self.trouble: str | None = None
        self.is_patient = False

    @property
    def parked(self) -> AbstractSet[str]:
        """The lanes that are parked in this run."""
        return self._aggregation.parked | self._left_parked

    @property
    def reads(self) -> bool:
        """Whether a query reads at this moment."""
        return self.reading is not None and not self.reading.done()

    def complete_status(self, status: Status) -> Status:
        """Add how fast all tasks read compared with the cap, if there is one."""
        flow = self._flow
        if flow is None or not flow.flowed:
            return status
        binds = self.reads and not self._aggregation.slices  # Whether tasks wait for a slice.
        found = CapStatus.of(flow.overall, flow.flowed, status.timing.elapsed_s, binds=binds)
        return replace(status, caps=CapsStatus(found))

    def begin(self) -> bool:
        """Begin to read the next slice; return False if nothing is left."""
        if self.reading is None and self._slicer.left:
            self.reading = spawn(self._read_next(), "reading", _ignore)
        return self.reading is not None

    def _begin_if_due(self) -> bool:
        """Begin to read the next slice if that is due; return whether one is read now."""
        yields = any(query.yields for query in self._queries.values())
        if not yields and self._aggregation.wants_next(self.slots.count):
            return self.begin()
        return self.reading is not None

    async def run(self) -> None:
        """Drain until nothing is left. After a stop, wait until the driver cancels this.

        Queries that are under way then go on to their ends, unless ``cancel`` is called.
        """
        while not self.stopped and (self._begin_if_due() or self._aggregation.slices):
            reading = () if self.reading is None else (self.reading,)
            waited = {*reading, *self._ends}
            await asyncio.wait(waited, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if self.reading is not None and self.reading.done():
                self.reading.result()
                self.reading = None
            for each in [each for each in self._ends if each.done()]:
                self._ends.remove(each)
                each.result()
            await self._give()
            await self._yield_slots()
        if self.stopped:
            await asyncio.gather(*self._ends)
            await asyncio.Event().wait()  # The driver cancels this once all tasks are at rest.
        self._end(self._left_over())

    def stop(self) -> None:
        """Begin no other query, and wait for no broker."""
        self.stopped = True
        for query in self._queries.values():
            if query.yields is not None:
                query.yields.set()

    def _end(self, cause: BaseException | None) -> None:
        self.stop()
        self.end(cause)

    # --- reading ---

    async def _read_next(self) -> None:
        """Read the next slice, and begin it in the account.

        It is read again if it can't be handled as it is: undivided if something connects its
        shards, and without the messages that follow if ``split`` stops partitions before their
        ends. ``split`` may reject other messages each time, so only the last reading counts.
        """
        ranges: Mapping[int, Range] = self._slicer.next()
        while True:
            query, found = await self._read_patiently(ranges)
            if found.connected and query.reader.divided:
                self._divides = False
            elif not found.stops_at_ends:
                ranges = {n: (start, found.stops.get(n, end)) for n, (start, end) in ranges.items()}
            else:
                break
            await self._abandon(query)
        self._divides = self._divides or not found.connected
        self._stops.update(found.stops)
        self._slicer.took(ranges, found.log_bytes, found.processor_s)
        self._slicer.stop(found.stops)
        await self._add(query, found)

    async def _read_patiently(self, ranges: Mapping[int, Range]) -> tuple[_Query, SliceContents]:
        since_s = monotonic()
        while True:
            if self.stopped:
                raise Interrupted("something requested a stop")
            query = await self._submit(ranges)
            try:
                found = await self._contents(query)
            except DrainerError as error:
                del self._queries[query.number]
                if not isinstance(error, BrokerUnreachable) or not self.is_patient:
                    raise
                if monotonic() - since_s > OUTAGE_S or self.stopped:
                    raise Interrupted(str(error), hint=error.hint) from error
                self.trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self.trouble = None
                if self._flow is not None:
                    messages = sum(count_offsets(each) for each in found.delivered.values())
                    self._flow.came(monotonic(), messages, found.log_bytes)
                return query, found

    async def _submit(self, ranges: Mapping[int, Range]) -> _Query:
        """Begin a query for a slice."""
        self._number += 1
        slots, limits = max(1, self.slots.count), self.plan.terms.limits
        tasks = max(1, min(self.slots.handling, self.quota.most))
        if limits is not None:  # Readers wait for the cap, so tasks leave them half of the slots.
            slots = max(1, slots // 2)
            tasks = min(tasks, slots)
        spans = self._slicer.spans(ranges, slots)
        reader = SliceReader(
            handler=self.handler,
            slice=self._number,
            shards=tasks,
            divided=self._divides and tasks > 1,
            spans=spans,
            known=self.plan.account.claims,
            failures=self.settings.failures,
            share=1 / min(len(spans), max(1, self.slots.count)),  # Spark reads on all slots.
            message_bytes=self.message_bytes,
        )
        runner = TaskRunner(
            plan=self._plan_of_tasks(),
            settings=of_one_task(self.settings.running, reader.of),
            handler=self.handler,
            slice=self._number,
            order=self._aggregation.order(reader.of),
        )
        await blocking_call(self.state.submit, self.handler.epoch, self._number)
        job = self._begun(reader, runner)
        self._queries[self._number] = query = _Query(self._number, reader, runner, job)
        return query

    def _begun(self, reader: SliceReader, runner: TaskRunner) -> asyncio.Future[Outcomes]:
        job = blocking_call(self.queries.drain, reader, runner)
        # If nobody waits for it any more, asyncio would log its error.
        job.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return job

    async def _contents(self, query: _Query) -> SliceContents:
        """Wait until a slice is read, and return what it has. Raises the error of the query."""
        reader, manifests = query.reader, dict[int, Manifest]()
        while len(manifests) < len(reader.spans):
            ended = query.job.done()
            await blocking_call(
                self.state.spans, self.handler.epoch, query.number, Manifest, manifests
            )
            if len(manifests) == len(reader.spans):
                break
            if ended:
                await query.job  # It raises the error, since no task can end before its share.
                raise self.state.not_shared("tasks write to {}, but this process can't see it")
            await asyncio.wait({query.job}, timeout=self.state.look_s)
        return SliceContents.of_spans(reader.of, list(manifests.values()))

    async def _abandon(self, query: _Query) -> None:
        """End a query whose slice can't be handled as it is: its tasks have nothing to do."""
        await blocking_call(
            *(self.state.give, self.handler.epoch, query.number),
            {shard: TaskShare() for shard in range(query.reader.of)},
        )
        try:
            await asyncio.shield(query.job)
        finally:
            del self._queries[query.number]

    async def _add(self, query: _Query, found: SliceContents) -> None:
        """Add a slice that was read to the account. Its tasks wait for their shares."""
        begun = self._aggregation.begin(
            *(query.number, found.of, found.ranges, found.delivered, found.subs(), found.units)
        )
        if any(found.units.values()):
            await self.checkpointer.wait_until_written()
        for each in found.manifests:
            self.left_alone.update(each.left_alone)
            self._left_alone_subs += each.left_alone_subs
        self.monitor.note_slice(self._slicer.about, found.manifests)
        # A lane that is parked by now was parked by an earlier slice, and stays parked.
        self._stopping |= set(map(all_of, found.stops)) - self.parked
        query.contents = found
        end = self._see_to_end(query, begun)
        self._ends.add(spawn(end, f"slice {query.number}", _ignore))

    # --- handling ---

    async def _give(self) -> None:
        """Let the tasks begin that may: those whose shard has nothing left in earlier slices."""
        free: dict[int, list[int]] = {}
        for each, task in self._aggregation.free():
            free.setdefault(each.number, []).append(task.shard.number)
        for number, shards in free.items():
            query = self._queries.get(number)
            # Without contents, it waits until the plan on disk has what split rejected.
            if query is not None and query.contents is not None and not self.stopped:
                await self._give_to(query, query.contents, shards)

    async def _give_to(self, query: _Query, found: SliceContents, shards: list[int]) -> None:
        of = self._aggregation.slices[query.number]
        at, behind = self._aggregation.watermarks, tuple[int, ...]()
        if found.of == 1:  # Only a slice that is not divided may have barriers.
            behind = tuple(n for n, (start, _) in found.ranges.items() if at[n] < start)
        # If a partition stops in a slice, no later message of it is read, so its lane does not have
        # to be parked, unless an earlier slice has left it behind a barrier.
        parked = tuple(sorted((self._aggregation.parked - self._stopping) | self._left_parked))
        shares = {n: TaskShare(found.given.get(n, {}), parked, behind) for n in shards}
        at_work = sum(task.given and task.is_busy for task in self._aggregation.tasks)
        room = self.slots.count - at_work
        for n in shards:
            of.tasks[n].given = True
        self.monitor.note_begin([of.tasks[n] for n in shards])
        begun = {of.tasks[n].name: of.tasks[n].total for n in shards if of.tasks[n].left}
        await self.quota.lend_to(begun, room)
        await blocking_call(self.state.give, self.handler.epoch, query.number, shares)

    async def _yield_slots(self) -> None:
        """Cancel queries if an earlier slice has lost a task, and begin them again later.

        Spark repeats that task once a slot is free. If Spark has lost executors, tasks of later
        slices may have all slots that are left, and wait for that very task, or for the end of its
        query. A query begins again once a slot is free for it.
        """
        lost, busy = False, 0  # Of earlier slices.
        for number, each in list(self._aggregation.slices.items()):
            query = self._queries.get(number)
            if query is not None and query.contents is not None:
                waits = not all(task.given for task in each.tasks)
                if lost and waits and query.yields is None:
                    query.yields = asyncio.Event()
                if query.yields is not None and not query.job.done():
                    # Spark may not know the next job of the query yet, so this is repeated. If
                    # Spark is gone, the query ends by itself.
                    with suppress(DrainerError):
                        await blocking_call(self.queries.cancel, number)
                elif query.yields is not None and not lost and busy < max(1, self.slots.count):
                    query.job = self._begun(query.reader, query.runner)
                    query.yields.set()
                    query.yields = None
                    self.monitor.note_begin([task for task in each.tasks if task.given])
            lost, busy = lost or self.monitor.has_lost(each), busy + each.busy

    async def _see_to_end(self, query: _Query, of: Slice) -> None:
        """Wait for the end of a query, and add its outcome to the account."""
        try:
            outcomes = await self._outcomes(query)
        except BaseException as error:
            del self._queries[query.number]
            self._broken = True
            if not isinstance(error, LockLost):
                raise
            meant = await self._meant(error)
            raise meant from (error.__cause__ if meant is error else error)
        whole = not self.stopped  # After a stop, tasks that have not begun do nothing.
        try:
            await self.read_reports()
            for number, outcome in outcomes:
                if outcome is None:
                    continue
                of.tasks[number].status = outcome.status
                self._left_parked.update(outcome.parked)
                lanes = replace(outcome.parked_lanes, total=len(self.parked))
                self._aggregation.parked_lanes = self._aggregation.parked_lanes.merge(lanes)
                if outcome.failure is not None:
                    whole = False
                    self._end(await self._meant(error_of(outcome.failure)))
            if whole:
                self.check_limit()
                self._check_room()
            await self._end_slice(of, whole=whole)
        finally:
            del self._queries[query.number]
        # After an error, this is not reached: the tasks may still be at work.
        for task in of.tasks:
            self.quota.end(task.name)

    async def _outcomes(self, query: _Query) -> Outcomes:
        """Wait for the end of a query that does not yield its slots, and return its outcomes."""
        while True:
            job = query.job
            try:
                # If Spark has lost rows, it reads them again, and brokers may not answer then.
                with raised_as(Interrupted, BrokerUnreachable):
                    return await asyncio.shield(job)
            except DrainerError:
                if query.yields is not None and not self.stopped:
                    # When it begins again, records tell its tasks what is done.
                    await query.yields.wait()
                elif job is query.job:
                    raise

    async def end_slices(self) -> None:
        """End the remaining slices. No task may be at work any more."""
        for each in list(self._aggregation.slices.values()):
            await self._end_slice(each, whole=False)

    async def _end_slice(self, of: Slice, *, whole: bool) -> None:
        """Add all that the tasks of a slice have reported to the account.

        The tasks of a ``whole`` slice must account for all that they were given.
        """
        left = of.unfinished
        shares = [(self.handler.epoch, of.number, task.shard.number) for task in left]
        found = await blocking_call(self.state.reports_of, shares)
        for task, report in zip(left, found, strict=True):
            self._aggregation.add_whole_record(of, task, report.record)
        if whole:
            self._aggregation.ensure_conserved(of)
        self.monitor.note_end(of)
        self._aggregation.end_slice(of)

    def _plan_of_tasks(self) -> OffsetPlan:
        known = self.plan.account
        account = Account(known.updated, known.generation, partitions={}, claims={ALL: {}})
        terms = replace(self.plan.terms, failures=self.settings.failures)
        return OffsetPlan(terms, account)

    # --- what tasks report ---

    async def read_reports(self) -> None:
        """Read what tasks have reported since the last time, and add it to the account."""
        async with self._reading_reports:
            slices, epoch = self._aggregation.slices, self.handler.epoch
            shares = [
                (epoch, number, task.shard.number)
                for number, each in slices.items()
                for task in each.tasks
                if task.given and task.subs
            ]
            times = self.handler.lease
            # On a mounted folder, this machine may not see a new attempt until ``stale_s`` later.
            wait_s = times.wait_s - times.stale_s
            for attempt, head in await blocking_call(self.state.news, shares, wait_s):
                of = slices.get(attempt.slice)
                if of is None:
                    continue  # An attempt woke up after its slice had ended.
                task = of.tasks[attempt.task]
                self._aggregation.add_progress(of, task, head)
                self.monitor.note_report(task, attempt, head.status)
                if head.status is not None and head.status.failure is not None:
                    self._end(await self._meant(error_of(head.status.failure)))
                if head.status is not None and of.number in self._queries:
                    if head.status.borrowed is None:  # This attempt is over.
                        self.quota.end(task.name)
                    else:
                        self.quota.reported(task.name, head.status.borrowed)

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
        if self._stops:
            return Halted(
                f"split rejected a message of partition {min(self._stops)}, and drainer read no"
                " further there",
                hint="Resume.",
            )
        if self._aggregation.counts()[1].pending == self._left_alone_subs:
            return None
        return DrainerError(
            "everything is read, but not everything is done: the watermarks are at"
            f" {self._aggregation.watermarks}",
            hint="This is a bug in drainer: report it, and keep the plan.",
        )

    async def cancel(self, *, reading: bool = False) -> None:
        """Let Spark kill the tasks of all queries, or of those that read, and wait a moment."""
        until_s = monotonic() + CANCEL_S
        queries = (each for each in self._queries.values() if not (reading and each.contents))
        jobs = {query.job: query.number for query in queries}
        with suppress(DrainerError):  # Spark itself may be gone.
            while (left := {job for job in jobs if not job.done()}) and monotonic() < until_s:
                for job in left:  # Spark may not know a query yet, so this is repeated.
                    await blocking_call(self.queries.cancel, jobs[job])
                await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        if not reading:
            for each in self._ends:
                each.cancel()

    async def rest(self) -> None:
        """Wait until no task handles anything.

        The end of a query means that its tasks have ended, unless it has failed. Then each task
        must have reported its end, or its process must be dead.
        """
        # A query that still reads handles nothing.
        while (handling := any(each.contents for each in self._queries.values())) or self._broken:
            with suppress(DrainerError):
                if not handling and await blocking_call(
                    self.state.attempts_are_over, self.handler.epoch + 1
                ):
                    return
            await asyncio.sleep(LOOK_S)


def _ignore(_: object) -> None:
    """Drop an error that ``run`` or somebody else gets by waiting for the task, if anybody does."""


def of_one_task(running: LocalSettings, tasks: int) -> LocalSettings:
    """Return the settings of one of ``tasks`` tasks. Each task borrows its concurrency."""
    buffer_bytes = max(TASK_BUFFER_LEAST, running.buffer_bytes // tasks)
    fixed = Concurrency.fixed(1)
    return replace(running, concurrency=fixed, buffer_bytes=buffer_bytes)
