"""The engine on Spark: the driver's side of a drain, wave by wave, until the backlog is empty.

It ends as the in-process engine does: when everything is finished, a person interrupts, the
handler fails, or something outside makes it unsafe to go on. Whatever it was, what is finished
is in the plan.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
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
from drainer.engine.conclusion import concluded, partition_results
from drainer.engine.ending import NOT_OURS
from drainer.engine.keeper import Keeper
from drainer.engine.local import Signalled
from drainer.engine.loop import event_loop
from drainer.engine.outside import Outside
from drainer.engine.pump import PARKED_MOST
from drainer.engine.settings import LocalSettings
from drainer.engine.signals import stop_signals
from drainer.engine.status import FailureStatus, Status, Summary
from drainer.engine.tasks import spawn
from drainer.errors import (
    BrokerUnreachable,
    DrainerError,
    Halted,
    Interrupted,
    LanesParked,
    Refused,
    SplitFailed,
    both,
)
from drainer.kafka.settings import ClientSettings
from drainer.loader import LoadedHandler, describe
from drainer.message import Origin
from drainer.spark.checking import Checking, insist_on_probes
from drainer.spark.failure import error_of, spark_failures
from drainer.spark.following import Following
from drainer.spark.handling import Handling
from drainer.spark.jobs import Jobs, Prepared
from drainer.spark.session import drain_session
from drainer.spark.settings import SparkSettings
from drainer.spark.shipping import Shipped, ship
from drainer.spark.splitting import Slice, Splitting
from drainer.spark.workplace import HandlerSpec
from drainer.store.attempt import Control
from drainer.store.plan_file import PlanFile
from drainer.store.state import State, state_beside

STATUS_INTERVAL_S = 0.5
FOLLOW_INTERVAL_S = 0.1
LEAVE_S = 5.0  # beyond the grace, for tasks to say that they have stopped
CLOSE_S = 10.0  # for the handlers of all workers to be closed
TASK_BUFFER_LEAST = 16 * 1024 * 1024
CUTS_MOST = 8  # of a wave, at messages that can't be divided; with more it is one task's
OUTAGE_S = 120.0  # of the broker, for those who read; as for the lock
READ_AGAIN_S = 1.0
GUESSED_BYTES = 1_000.0  # of one offset, until something was read


class SparkDrain:
    """One run of a drain on Spark, from a plan on disk to a summary.

    ``observe`` and ``give_up`` are as for ``LocalDrain``. Of ``outside`` it needs the committer,
    the lock and the group's offsets: tasks read, and write dead letters.
    """

    def __init__(
        self,
        plan: OffsetPlan,
        file: PlanFile,
        handler: LoadedHandler,
        running: LocalSettings,
        spark: SparkSettings,
        outside: Outside,
        client_settings: ClientSettings,
        letters_topic: str | None,
        observe: Callable[[Status], None],
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan = plan
        self._file = file
        self._handler = handler
        self._running = running
        self._spark = spark
        self._outside = outside
        self._client = client_settings
        self._letters_topic = letters_topic
        self._observe = observe
        self._give_up = give_up
        self._asked: Signalled | None = None
        self._job: str | None = None  # the one that handles
        self._reading: str | None = None
        self._trouble: str | None = None  # of reading
        self._paused = False
        self._stop_said: str | None = None

    def run(self) -> Summary:
        """Drains until it ends, one way or another.

        Raises Refused when Spark can't be started. Everything else that stops it is told in the
        summary; an error that nobody thought of is raised after the plan was saved.
        """
        try:
            with spark_failures():
                on = drain_session(self._spark, self._plan.drain_id)
        except KeyboardInterrupt:
            raise Signalled("interrupted while Spark was starting; nothing was handled") from None
        # No more of them than calls are asked for: each makes one at least.
        tasks = min(on.tasks, self._most(self._running))
        self._jobs, self._tasks, self._slots = Jobs(on.session), tasks, on.slots
        try:
            with tempfile.TemporaryDirectory(prefix="drainer-") as folder, event_loop() as loop:
                context = on.session.sparkContext
                self._prepare_run(ship(context, self._handler, self._spark, Path(folder)))
                return loop.run_until_complete(self._run())
        finally:
            if on.owned:
                with suppress(DrainerError):
                    self._jobs.stop()

    def _prepare_run(self, shipped: Shipped) -> None:
        plan, running = self._plan, self._running
        self._epoch = plan.generation  # which rises from run to run
        uri = self._spark.state or state_beside(self._file.path)
        self._state = State.open(uri, plan.drain_id)
        self._claims = tuple(str(Claim(number, self._tasks)) for number in range(self._tasks))
        self._share = _share_of(running, self._tasks)
        self._spec = HandlerSpec(
            shipped=shipped,
            topic=plan.topic,
            group=plan.group,
            drain_id=plan.drain_id,
            epoch=self._epoch,
            state=uri,
            concurrency=self._most(self._share),
            options=dict(running.options or {}),
        )
        self._gathering = Gathering(plan, uri, self._epoch)
        self._left_parked: set[str] = set()  # lanes, for this run
        self._oldest_wave = 1  # of which the state has something
        self._known = plan.claims

    async def _look_at_tasks(self) -> None:
        """Raises Refused when the tasks could not work, or what stopped it meanwhile; nothing was
        handled then."""
        name = f"drainer {self._plan.drain_id}: looking at the tasks"
        checking = Checking(self._client, self._spec, self._plan.topic_id)
        try:
            await aside(self._state.set_control, self._word())
            look = aside(self._jobs.check, checking, self._slots, self._tasks, name)
            await asyncio.wait((look, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if not look.done():
                await self._cancel(name)
                raise self._ended.result() or Interrupted("it was stopped")
            await aside(insist_on_probes, self._state, look.result())
        except BaseException:
            with suppress(DrainerError):
                await aside(self._state.remove, self._file.path)
            raise

    async def _run(self) -> Summary:
        loop = self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[BaseException | None] = loop.create_future()
        self._forced = asyncio.Event()
        self._hearing = asyncio.Lock()
        self._at_rest = asyncio.Event()  # no task handles anything
        self._at_rest.set()
        with stop_signals(loop, self._signalled, self._give_up):
            await self._look_at_tasks()
            self._following = Following(
                self._plan,
                self._gathering,
                concurrency=self._most(self._running),
                buffer_bytes=self._share.buffer_bytes * self._tasks,
                plan_path=str(self._file.path),
            )
            self._keeper = Keeper(
                self._plan,
                self._file,
                self._gathering,
                self._following,
                self._outside.committer,
                self._running.plan_interval_s,
                self._outside.lock,
                failed=self._end,
            )
            # The plan tells where tasks write before the first of them does.
            await self._keeper.save(commit=False)
            self._keeper.start()
            work = spawn(self._drain_waves(), "waves", self._end)
            watch = spawn(self._watch(), "watch", self._end)
            cause = await asyncio.shield(self._ended)
            if isinstance(cause, Refused) and self._following.waves:
                # As its readers of the first wave could and those of a later one can't.
                cause = Interrupted(str(cause), hint="resume with the plan", cause=cause)
            cause = await self._stop(cause, work)
            watch.cancel()
            return await self._summary(cause)

    async def _drain_waves(self) -> None:
        lefts = {
            number: (self._gathering.watermarks[number], part.end)
            for number, part in self._plan.partitions.items()
        }
        self._waves = Waves(lefts, self._spark.wave_bytes, GUESSED_BYTES)
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
        prepared = await self._read_again(self._waves.next(), self._tasks)
        self._waves.took(prepared.ranges, prepared.read_bytes)
        return prepared

    async def _read_again(self, ranges: Mapping[int, Range], claims: int) -> Prepared:
        """Reads; waits for a broker that doesn't answer, for it did when the tasks were checked."""
        since_s = monotonic()
        while True:
            try:
                prepared = await self._read(ranges, claims)
            except BrokerUnreachable as error:
                if monotonic() - since_s > OUTAGE_S or self._stop_said is not None:
                    raise Interrupted(str(error), hint=error.hint) from error
                self._trouble = str(error)
                await asyncio.sleep(READ_AGAIN_S)
            else:
                self._trouble = None
                return prepared

    async def _read(self, ranges: Mapping[int, Range], claims: int) -> Prepared:
        plan = self._plan
        pieces = self._waves.pieces(ranges, self._slots)
        splitting = Splitting(
            client=self._client,
            handler=self._spec,
            order=Order(plan.order),
            claims=claims,
            slices=tuple(
                Slice(Origin(plan.topic, plan.topic_id, p.partition), p.start, p.end, p.bytes_most)
                for p in pieces
            ),
            known=self._known,
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
                part = await self._read_again(left, self._tasks if divided else 1)
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
        self._state.follow(self._epoch, number, claims)
        handling = Handling(
            plan=self._plan_of(stretch),
            settings=_share_of(self._running, len(claims)),
            client=self._client,
            handler=self._spec,
            letters_topic=self._letters_topic,
            epoch=self._epoch,
            wave=number,
            claims=claims,
            subs=tuple(stretch.subs[claim] for claim in claims),
            behind=behind,
        )
        self._job = f"drainer {self._plan.drain_id}: wave {number}"
        self._at_rest.clear()
        try:
            outcomes = await aside(self._jobs.handle, prepared, handling, self._job)
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
                self._end(error_of(outcome["failure"]))
        if whole:
            insist_conserved(self._gathering)
            self._insist_on_limit()
            self._insist_on_room()
        self._gathering.end()
        await aside(prepared.release)
        if self._ended.done():
            await asyncio.Event().wait()  # it is being stopped, and begins no other wave

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
            parked=tuple(sorted(self._gathering.parked | self._left_parked)),
            ruled=RuleAccount(asked_below=plan.ruled.asked_below, counts=ruled.counts),
            latency=None,
            state=None,
        )

    async def _watch(self) -> None:
        """Looks after what lives elsewhere, hears the tasks, and shows the status."""
        due = 0.0
        while True:
            if self._outside.lock.lost is not None:
                self._end(self._outside.lock.lost)
            await self._tell_tasks()
            await self._hear()
            self._insist_on_limit()
            await self._forget_waves()
            if monotonic() >= due:
                self._observe(self._status())
                due = monotonic() + STATUS_INTERVAL_S
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    def _word(self, *, stop: str | None = None, paused: bool = False) -> Control:
        mounted = self._state.objects.is_local and not self._spark.is_local
        return Control(self._epoch, stop, paused, mounted)

    async def _tell_tasks(self) -> None:
        # Another drain may hold the lock by now: it should find no one at work.
        paused = self._outside.lock.unsure_since_s is not None
        if paused != self._paused and self._stop_said is None:
            await aside(self._state.set_control, self._word(paused=paused))
            self._paused = paused

    async def _forget_waves(self) -> None:
        """Removes what tasks told of waves that the plan on disk has: it would grow for hours."""
        reference = self._keeper.written.state
        while reference is not None and self._oldest_wave < reference.wave:
            try:
                await aside(self._state.remove_wave, self._epoch, self._oldest_wave)
            except DrainerError:
                return  # once more, soon
            self._oldest_wave += 1

    async def _hear(self) -> None:
        async with self._hearing:
            for attempt, record in await aside(self._state.news):
                self._gathering.hear(
                    attempt.claim,
                    record.changes,
                    record.parked,
                    record.ruled,
                    attempt.number,
                    attempt.wave,
                )
                self._following.hear(attempt, record.status)

    def _insist_on_limit(self) -> None:
        most, given_up = self._plan.failures.max_dead, self._following.given_up
        if given_up and most.passed(given_up, self._gathering.counts()[1].finished):
            self._end(
                Halted(
                    f"{given_up:,} sub-messages were given up in all tasks, more than {most}",
                    hint="mend the cause, then resume",
                )
            )

    def _insist_on_room(self) -> None:
        parked = len(self._gathering.parked | self._left_parked)
        if parked > PARKED_MOST:
            self._end(
                Halted(
                    f"{parked:,} lanes are parked behind sub-messages that failed; so much is"
                    " pending behind them that no more of the backlog was read",
                    hint="mend the cause, then resume",
                )
            )

    def _left_over(self) -> DrainerError | None:
        parked = len(self._gathering.parked | self._left_parked)
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

    async def _stop(
        self, cause: BaseException | None, work: asyncio.Task[None]
    ) -> BaseException | None:
        reason = "the drain is over" if cause is None else f"the drain is stopping: {cause}"
        at_rest = await self._bring_to_rest(reason, work)
        try:
            await self._hear()
        except DrainerError:
            at_rest = False  # what they told last is still there, for a resume
        at_rest = at_rest and not self._gathering.doubtful
        if at_rest:  # else they may tell more, which the plan is to know it has not
            self._gathering.end()
            self._gathering.tasks_are_over()  # the plan that is written now has all of it
            cause = await self._close_handlers(cause)
        await self._keeper.stop()
        lost = self._outside.lock.lost
        try:
            ours = lost is None and not isinstance(cause, NOT_OURS)
            ours = ours and not self._gathering.doubtful
            await self._keeper.finish(commit=ours and not self._forced.is_set())
        except DrainerError as error:
            cause = both(cause, error)
        else:
            if at_rest:
                with suppress(DrainerError):
                    await aside(self._state.remove, self._file.path)
        return cause if lost is None or lost is cause else both(cause, lost)

    async def _bring_to_rest(self, reason: str, work: asyncio.Task[None]) -> bool:
        """Whether all tasks have said that they are; else they may still be at work."""
        self._stop_said = reason
        told = True
        try:
            await aside(self._state.set_control, self._word(stop=reason))
        except DrainerError:
            told = False  # Spark ends them
            await self._cancel(self._job)
        await self._cancel(self._reading)
        resting = asyncio.create_task(self._rest())
        forced = asyncio.create_task(self._forced.wait())
        await asyncio.wait(
            (resting, forced),
            timeout=self._running.grace_s + LEAVE_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        forced.cancel()
        at_rest = resting.done()
        resting.cancel()
        work.cancel()
        await self._cancel(self._job)
        return at_rest and told

    async def _cancel(self, job: str | None) -> None:
        if job is not None:
            with suppress(DrainerError):  # Spark itself may be what is gone
                await aside(self._jobs.cancel, job)

    async def _rest(self) -> None:
        """Waits until no task handles anything: with their job, or when that failed each of them,
        has ended."""
        while not self._at_rest.is_set():
            with suppress(DrainerError):
                if self._job is None and await aside(self._state.at_rest, self._epoch + 1):
                    return
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    async def _close_handlers(self, cause: BaseException | None) -> BaseException | None:
        """Waits for the workers to close their handlers, which they do once the drain is over."""
        until_s = monotonic() + CLOSE_S
        while True:
            still_open, failed = await aside(self._state.handlers, self._epoch)
            if not still_open or monotonic() > until_s or self._forced.is_set():
                break
            await asyncio.sleep(FOLLOW_INTERVAL_S)
        if failed:
            told = Halted(
                failed[0],
                hint="all that the plan calls done was handled; whether the handler held something"
                " of it back until close(), only it knows",
            )
            return both(cause, told)
        return cause

    async def _summary(self, cause: BaseException | None) -> Summary:
        self._observe(self._status())
        committed: Mapping[int, int | None] = {
            number: part.committed for number, part in self._keeper.plan.partitions.items()
        }
        if not self._forced.is_set():
            with suppress(DrainerError):
                committed = await aside(self._outside.read_committed)
        messages, subs = self._gathering.counts()
        status, code, told = concluded(cause, messages, subs, dead=subs.dead)
        following = self._following
        return Summary(
            status=status,
            exit_code=code,
            elapsed_s=following.elapsed_s,
            messages=messages,
            sub_messages=subs,
            partitions=partition_results(self._plan, self._gathering.watermarks, committed),
            plan=str(self._file.path),
            sub_messages_per_s=following.rate_average,
            cause=told,
            failures=self._failure_status(),
            latency=following.overall(),
            rules=following.rules(),
            engine="spark",
            waves=following.waves,
            tasks=following.tasks_most,
        )

    def _status(self) -> Status:
        stopping = None
        if self._ended.done() and (cause := self._ended.result()) is not None:
            stopping = str(cause) if isinstance(cause, DrainerError) else describe(cause)
        status = self._following.status(
            self._keeper.plan,
            plan_age_s=monotonic() - self._keeper.written_at,
            stopping=stopping,
            trouble=self._keeper.trouble or self._trouble,
            ahead=self._reading is not None,
        )
        return replace(status, failures=self._failure_status())

    def _failure_status(self) -> FailureStatus:
        parked = len(self._gathering.parked | self._left_parked)
        return replace(
            self._following.failures(self._plan.failures.dead_letter_topic), parked_lanes=parked
        )

    def _most(self, settings: LocalSettings) -> int:
        concurrency = Concurrency.of(settings.concurrency)
        return concurrency.most_for(threads=not self._handler.is_async)

    def _end(self, cause: BaseException | None) -> None:
        if not self._ended.done():
            self._ended.set_result(cause)

    def _signalled(self, name: str) -> None:
        asked = Signalled(f"interrupted by {name}")
        if self._asked is not None and name != "SIGHUP":
            self._forced.set()
        self._asked = asked
        self._end(asked)


def _share_of(running: LocalSettings, tasks: int) -> LocalSettings:
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
