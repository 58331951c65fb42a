"""Drains on a fake Kafka, with a handler that keeps account of what it was given and in which
order."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Never

import orjson
import pytest

from builders import a_partition, a_plan, changed
from core.messages import Place, finished_subs, sub_of, sub_place
from drainer.core.dispatch import Dispatcher
from drainer.engine.control import Control
from drainer.engine.local import LocalDrain
from drainer.engine.ports import DrainContext, Ports
from drainer.engine.runtime import THIS_PROCESS, Runtime
from drainer.errors import DrainerError
from drainer.handler import Handler
from drainer.kafka.committer import GroupCommitter
from drainer.kafka.settings import ClientSettings
from drainer.loading.loader import LoadedHandler
from drainer.message import Barrier, Message, SubMessage
from drainer.model.claims import ALL
from drainer.model.plan import OffsetPlan
from drainer.model.resuming import Resuming
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.model.status import Status, Summary
from drainer.operations.engine import InProcess
from drainer.operations.passes import in_passes
from drainer.policy.failures import Totals
from drainer.store.plan_file import PlanFile
from fake_kafka import FakeCluster, FakeKafka, FakeLock, FakeSource, Log, Record
from simulation.loop import VirtualLoop, work
from simulation.threads import Threading, Threads
from simulation.world import EPOCH_S, World

TOPIC, TOPIC_ID = "orders", "topic-id"
CLIENT = ClientSettings("fake:9092")
QUICK = LocalSettings(concurrency=8, plan_interval_s=0.02, grace_s=5.0)
UNHURRIED = replace(QUICK, plan_interval_s=0.2)  # In virtual time a plan costs more than a wait.
HANG_S = 60  # no drain here takes as long; one that does has hung

Spec = str | list[str] | None  # a sub-key, several of them, or a barrier


def log_of(*records: Sequence[Spec], start: int = 0, holes: int = 0) -> Log:
    """Messages on successive offsets, which split into these; with some holes behind them."""
    made = {
        offset: Record(b"key", orjson.dumps(record)) for offset, record in enumerate(records, start)
    }
    end = start + len(records) + holes
    return Log(start, end, end, made)


def in_lanes(count: int, lanes: int | None = None) -> dict[int, Log]:
    """Messages of one sub-message each; they take turns in so many lanes, or each has its own."""
    return {0: log_of(*([f"k{n % (lanes or count)}"] for n in range(count)))}


def kafka_of(logs: Mapping[int, Log]) -> FakeKafka:
    return FakeKafka(TOPIC, TOPIC_ID, "group", logs)


class Watched(World):
    """A world in which nothing goes wrong by chance: a drain that hangs is the test's failure."""

    def ensure(self, kept: object, law: str) -> None:
        assert kept, law


class VirtualTime:
    """The time of a drain, which passes only while all wait; its threads take turns.

    ``start`` begins what somebody does beside the drain, as one of its threads. ``signal`` sends a
    drain that runs a signal, by its name.
    """

    def __init__(self) -> None:
        self.world = Watched(1)
        self.loop = VirtualLoop(self.world)
        self._threads = Threads(self.world, self.loop, lambda: 0.001)
        made = Threading(lambda: self._threads)
        self.event, self.start, self.sleep = made.event, self._threads.start, self._threads.sleep
        self.runtime = Runtime(
            monotonic=self.world.monotonic,
            uptime=self.world.monotonic,
            wall=lambda: datetime.fromtimestamp(EPOCH_S + self.world.now_s, UTC),
            sleep=self._sleep_between_passes,
            new_event_loop=self._begin,
            interpreter=nullcontext,
            stop_signals=self._takes_signals,
            blocking_call=self._threads.blocking_call,
            thread=made.thread,
            event=made.event,
            queue=made.queue,
            random=lambda: Random(1),
            processor=lambda threads: (0.0, 0.0),
            thread_time=lambda: 0.0,
        )

    def signal(self, name: str) -> None:
        self._on_signal(name)

    @contextmanager
    def _takes_signals(
        self, loop: object, on_signal: Callable[[str], None], give_up: object
    ) -> Iterator[None]:
        self._on_signal = on_signal
        yield

    def _sleep_between_passes(self, seconds: float) -> None:
        self._begin().run_until_complete(work(seconds))

    def _begin(self) -> VirtualLoop:
        if self.loop.is_closed():
            self.loop = self._threads.loop = VirtualLoop(self.world)
        return self.loop

    def finish(self) -> None:
        """Let whoever waits beside a drain that has ended look again."""
        loop = self._begin()
        self._threads.wake_all()
        loop.run_until_complete(work(1.0))
        loop.close()


class Group(GroupCommitter):
    """The group of a fake; a commit raises ``trouble``, or what ``allowed`` raises just before it.

    The drain's tries are counted.
    """

    def __init__(self, kafka: FakeKafka) -> None:
        super().__init__(FakeCluster(kafka, CLIENT), kafka.group, kafka.topic)
        self._kafka = kafka
        self.tries = 0
        self.trouble: Callable[[], DrainerError | None] = lambda: None
        self.allowed: Callable[[Mapping[int, int]], None] = lambda offsets: None

    @property
    def committed(self) -> dict[int, int | None]:
        return self._kafka.committed

    def commit(
        self, offsets: Mapping[int, int], expected: Mapping[int, Set[int | None]]
    ) -> dict[int, int]:
        self.tries += 1
        error = self.trouble()
        if error is not None:
            raise error
        self.allowed(offsets)
        return super().commit(offsets, expected)


class Letters:
    """A dead-letter topic that acknowledges letters at once, unless it ``keeps_silent``."""

    trouble: str | None = None

    def __init__(self) -> None:
        self.written: list[Place] = []
        self.keeps_silent = False
        self.failure: DrainerError | None = None
        self.unanswered: list[Callable[[DrainerError | None], None]] = []
        self.closed_within_s: list[float] = []

    def send(
        self, sub: SubMessage, error: BaseException, reported: Callable[[DrainerError | None], None]
    ) -> None:
        self.written.append(sub_place(sub))
        self.unanswered.append(reported)
        if not self.keeps_silent:
            self.answer()

    def answer(self) -> None:
        while self.unanswered:
            reported = self.unanswered.pop()
            reported(self.failure)

    def close(self, timeout_s: float) -> None:
        self.closed_within_s.append(timeout_s)


class Account:
    """Sub-messages that began and ended, and every breach of the law of order."""

    def __init__(self) -> None:
        self.began: list[Place] = []
        self.finished: list[Place] = []
        self.failed: list[Place] = []  # an entry for each attempt
        self.breaches: list[str] = []
        self._lock = threading.Lock()
        self._running: dict[Place, SubMessage] = {}
        self._last: dict[tuple[int, Hashable], Place] = {}
        self._last_barrier: dict[int, Place] = {}

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def begin(self, sub: SubMessage) -> None:
        with self._lock:
            place = sub_place(sub)
            for other in self._running.values():
                alone = isinstance(sub, Barrier) or isinstance(other, Barrier)
                same_partition = sub.message.partition == other.message.partition
                if (alone and same_partition) or not _keys(sub).isdisjoint(_keys(other)):
                    self.breaches.append(f"{sub} began while {other} ran")
            for key in _keys(sub):
                lane = (place[0], key)
                if self._last.get(lane, place) > place:
                    self.breaches.append(f"{sub} began after {self._last[lane]}")
                self._last[lane] = place
            if self._last_barrier.get(place[0], place) > place:
                self.breaches.append(f"{sub} began after a barrier behind it")
            if isinstance(sub, Barrier):
                self._last_barrier[place[0]] = place
            self._running[place] = sub
            self.began.append(place)

    @contextmanager
    def handling(self, sub: SubMessage) -> Iterator[None]:
        self.begin(sub)
        try:
            yield
        except BaseException:
            self._end(sub, self.failed)
            raise
        self._end(sub, self.finished)

    def _end(self, sub: SubMessage, places: list[Place]) -> None:
        with self._lock:
            del self._running[sub_place(sub)]
            places.append(sub_place(sub))


def _keys(sub: SubMessage) -> set[Hashable]:
    if isinstance(sub, Barrier):
        return set()
    return {sub.key} if sub.keys is None else set(sub.keys)


def split_specs(message: Message) -> Iterator[SubMessage]:
    assert message.value is not None
    return map(sub_of, orjson.loads(message.value))


Step = Callable[[Any], Any]


class Accounting(Handler):
    """Splits what the log holds and keeps an account; ``step`` is what it does in between."""

    def __init__(self, step: Step = lambda sub: None) -> None:
        self.account = Account()
        self.step = step
        self.opened = self.closed = 0

    def open(self, context: object) -> None:
        self.opened += 1

    def split(self, message: Message) -> Iterable[SubMessage]:
        return split_specs(message)

    def close(self) -> None:
        self.closed += 1


class OnTheLoop(Accounting):
    """Handles with coroutines."""

    async def handle(self, sub: SubMessage) -> Any:
        with self.account.handling(sub):
            if (waits := self.step(sub)) is not None:
                return await waits


class OnThreads(Accounting):
    """Handles with threads."""

    def handle(self, sub: SubMessage) -> Any:
        with self.account.handling(sub):
            return self.step(sub)


work_on_a_thread = time.sleep  # a call of a handler that takes so long
Kind = type[OnTheLoop | OnThreads]
both_kinds = pytest.mark.parametrize("kind", [OnTheLoop, OnThreads])


def handler_of(
    kind: Kind,
    step: Callable[[SubMessage], float | None],
    sleep: Callable[[float], None] = work_on_a_thread,
) -> OnTheLoop | OnThreads:
    """One of this kind. ``step`` gives the seconds that it takes after it."""

    async def on_the_loop(sub: SubMessage) -> None:
        await asyncio.sleep(0)
        if (takes_s := step(sub)) is not None:
            await work(takes_s)

    def on_a_thread(sub: SubMessage) -> None:
        if (takes_s := step(sub)) is not None:
            sleep(takes_s)

    return OnTheLoop(on_the_loop) if kind is OnTheLoop else OnThreads(on_a_thread)


class Hung(SystemExit):
    """Raised when a drain has not ended after HANG_S: a kind that nothing here catches."""


@contextmanager
def not_for_ever() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> Never:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    # Again each second: the loop waits for its tasks when it is left, and they may hang too.
    signal.setitimer(signal.ITIMER_REAL, HANG_S, 1)
    try:
        yield
    except Hung:
        pytest.fail(f"the drain has not ended after {HANG_S} s")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def new_plan(logs: Mapping[int, Log]) -> OffsetPlan:
    return a_plan(partitions={n: a_partition(log.start, log.end) for n, log in logs.items()})


@dataclass(frozen=True)
class FakeEngine(InProcess):
    """The engine of this process, on the fakes of a rehearsal."""

    rehearsal: Any = None

    def __call__(self, context: DrainContext) -> Summary:
        found: Summary = self.rehearsal.run(context)
        return found


@dataclass
class Rehearsal:
    """A backlog, a group and a folder, to run drains on one after the other.

    ``drain`` runs a new plan, or resumes the one on disk as ``drainer resume`` does; what it did is
    left in the other fields.
    """

    folder: Path
    logs: Mapping[int, Log]
    settings: LocalSettings = QUICK
    observe: Callable[[Status], None] = lambda status: None
    prepare: Callable[[LocalDrain], None] = lambda drain: None
    source_options: dict[str, Any] = field(default_factory=dict)
    failures: FailureSettings = field(default_factory=FailureSettings)
    letters: Letters = field(default_factory=Letters)
    control: Control = field(init=False)
    runtime: Runtime = THIS_PROCESS
    totals: Callable[[], Totals] = Totals
    quota: Any = None
    read_committed: Callable[[], dict[int, int | None]] | None = None
    resolve: Callable[[FailureSettings], FailureSettings] = lambda failures: failures
    log: Any = None  # The log that the drain follows.
    finished_ever: set[Place] = field(default_factory=set)  # by drains before it, too
    kafka: FakeKafka = field(init=False)
    group: Group = field(init=False)
    lock: FakeLock = field(init=False)
    source: FakeSource = field(init=False)
    file: PlanFile = field(init=False)
    statuses: list[Status] = field(init=False)

    def __post_init__(self) -> None:
        self.kafka = kafka_of(self.logs)
        self.group = Group(self.kafka)
        self.group.allowed = self._check_commit
        self.file = PlanFile(self.folder / "orders.plan.json")

    @property
    def places(self) -> set[Place]:
        """Every sub-message of the backlog."""
        return {
            (number, offset, index)
            for number, log in self.logs.items()
            for offset, record in log.records.items()
            for index in range(len(orjson.loads(record.value)))
        }

    def drain(self, handler: Handler, *wheres: str, only: bool = False) -> Summary:
        """Runs a drain to its end, these classes first; whatever that is, the plan on disk must be
        true."""
        self.lock, self.statuses, self.control = FakeLock(), [], Control(self.settings)
        self.file.acquire()
        try:
            plan = self._resumed() if self.file.path.exists() else new_plan(self.logs)
            classes = (
                plan.account.classes.requested(wheres, only=only)
                if wheres
                else plan.account.classes.resumed()
            )
            plan = changed(plan, failures=self.failures, classes=classes)
            plan = OffsetPlan(plan.terms, plan.account.begun())
            self.file.write(plan)
            context: Any = DrainContext(
                plan=plan,
                file=self.file,
                handler=LoadedHandler(plan.terms.handler, handler),
                commit=self.group.commit_plan,
                lock=self.lock,
                runtime=self.runtime,
                read_committed=self.read_committed or (lambda: dict(self.group.committed)),
                observe=self._observe,
                control=self.control,
                resolve=self.resolve,
                resuming=lambda: Resuming(concurrency=str(self.control.running.concurrency)),
            )
            with not_for_ever():
                return in_passes(context, FakeEngine(rehearsal=self))
        finally:
            self.file.release()
            self.check_plan_against(handler)

    def run(self, context: DrainContext) -> Summary:
        """One pass of it."""
        ports = Ports(self._open_source, lambda _: self.letters, totals=self.totals, log=self.log)
        drain = LocalDrain(context, replace(ports, quota=self.quota))
        self.prepare(drain)
        return drain.run()

    def resumes_exactly(self, before: Accounting) -> None:
        """A resume begins all that had not finished and nothing else."""
        finished = set(before.account.finished)
        again = OnTheLoop()
        assert self.drain(again).exit_code == 0
        assert sorted(again.account.began) == sorted(self.places - finished)
        assert again.account.breaches == before.account.breaches == []
        assert self.group.committed == {number: log.end for number, log in self.logs.items()}

    def finished_by_the_plan(self) -> set[Place]:
        """Every sub-message that is finished by the plan and journal on disk, read naively."""
        return {
            (number, offset, index)
            for number, progress in self.file.load().plan.account.claims[ALL].items()
            for offset, record in self.logs[number].records.items()
            for index in finished_subs(progress, offset, len(orjson.loads(record.value)))
        }

    def check_plan_against(self, handler: Handler) -> None:
        if isinstance(handler, Accounting) and not handler.account.breaches:
            self.finished_ever |= set(handler.account.finished)
            if self.failures.on_failure is not OnFailure.HALT:
                self.finished_ever |= set(handler.account.failed)  # and perhaps given up
            if self.failures.skip or self.failures.divert:
                return  # what they took out is finished, and was handled by no handler
            assert self.finished_by_the_plan() <= self.finished_ever, "the plan claims too much"
            self._check_commit(
                {n: o for n, o in self.group.committed.items() if o is not None},
            )

    def _check_commit(self, offsets: Mapping[int, int]) -> None:
        plan = self.file.load().written
        for number, offset in offsets.items():
            assert offset <= plan.account.watermark(number), "committed past the plan on disk"

    def _resumed(self) -> OffsetPlan:
        plan = self.file.load().plan
        partitions = {
            n: replace(p, committed=self.group.committed[n])
            for n, p in plan.account.partitions.items()
        }
        account = plan.account.without_pending()
        plan = OffsetPlan(plan.terms, account)
        return changed(plan, partitions=partitions, generation=account.generation + 2)

    def _open_source(self, dispatcher: Dispatcher, notify: Callable[[], None]) -> FakeSource:
        self.source = FakeSource(self.kafka, dispatcher, notify, **self.source_options)
        return self.source

    def _observe(self, status: Status) -> None:
        self.statuses.append(status)
        self.observe(status)


class VirtualDrains(VirtualTime):
    """Drains in virtual time, whose files are in one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def rehearsal(self, logs: Mapping[int, Log], *more: Any, **named: Any) -> Rehearsal:
        named = {"runtime": self.runtime, **named}
        if not more:
            named.setdefault("settings", UNHURRIED)
        return Rehearsal(self.folder, logs, *more, **named)

    def handler(
        self, kind: Kind, step: Callable[[SubMessage], float | None]
    ) -> OnTheLoop | OnThreads:
        """A handler of this kind. ``step`` gives the seconds that it takes after it."""
        return handler_of(kind, step, self.sleep)
