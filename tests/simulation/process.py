"""One simulated process: the real drain, with the parts of it that reach outside replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import filelock

from core.messages import sub_place
from drainer.core.dispatch import Dispatcher
from drainer.engine import threads
from drainer.engine.ports import Source
from drainer.engine.runtime import Runtime
from drainer.kafka import producer
from drainer.kafka.settings import ClientSettings
from drainer.message import SubMessage
from drainer.model.progress import Outcome
from drainer.operations.engine import InProcess
from drainer.policy import failures
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample
from drainer.store import atomic_file, journal, plan_file
from simulation.account import Account
from simulation.cluster import SimCluster, SimConsumer, SimLock
from simulation.disk import DiskPath
from simulation.letters import SimProducer
from simulation.loop import VirtualLoop
from simulation.threads import Threading, Threads
from simulation.world import EPOCH_S, World

if TYPE_CHECKING:
    from simulation.simulation import Simulation


class Process:
    """Process as it is seen from outside: its loop, its threads, its lock, its drain."""

    def __init__(self, world: World, cluster: SimCluster) -> None:
        self.world = world
        self.cluster = cluster
        self.random = world.random(f"process {world.steps}")
        self.loop = VirtualLoop(world)
        self.threads = Threads(world, self.loop, lambda: self.random.choice([0.0, 0.001, 0.03]))
        self.runs = False  # the event loop has begun
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.lock = SimLock(world)
        self.dispatcher: Dispatcher | None = None
        self.on_signal: Callable[[str], None] = lambda name: None
        self.gave_up_s: float | None = None  # on threads that are in the handler
        self.began: Callable[[], None] = lambda: None  # called when it does
        self.went_on: Callable[[], None] = lambda: None  # to another pass

    def begin(self) -> VirtualLoop:
        if self.runs:  # another pass
            self.loop = self.threads.loop = VirtualLoop(self.world)
            for at_s, happen in self._due:
                self._schedule(at_s, happen)
            self.went_on()
        else:
            self.runs = True
            self.began()
        return self.loop

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        """In so many seconds, unless the process ends before."""
        at_s = self.world.now_s + seconds
        self._due.append((at_s, happen))
        if not self.loop.is_closed():
            self._schedule(at_s, happen)

    def _schedule(self, at_s: float, happen: Callable[[], None]) -> None:
        def now() -> None:
            self._due.remove((at_s, happen))
            happen()

        self.loop.call_at(max(at_s, self.world.now_s), now)

    def pause(self, seconds: float) -> None:
        """A call takes its time: of its thread, or of a command that does not drain."""
        if self.threads.inside:
            if seconds:
                self.threads.sleep(seconds)
        elif not self.runs:
            self.world.wait(seconds)

    def end(self) -> None:
        """Nothing of it is left."""
        self.world.alive = False
        self.threads.kill()
        self.loop.bury()


class Whim(ConcurrencyLimit):
    """A limit that goes anywhere at any time: what comes of it must be right all the same."""

    look_s = 0.01

    def __init__(self, first: int, most: int, random: Random, world: World) -> None:
        super().__init__(first, most)
        self._random = random
        self._world = world

    def observe(self, interval: LoadSample) -> int:
        if self._random.random() < 0.3:
            self.limit = self._random.randint(1, self.most)
            self._world.tally["limits"] += 1
        return self.limit


def runtime(it: Simulation, now: Callable[[], Process]) -> Runtime:
    """The runtime of the process that is alive, which ``now`` gives."""
    world = it.world
    threads = Threading(lambda: now().threads)

    @contextmanager
    def stop_signals(_loop: object, observe: Callable[[str], None], _: object) -> Iterator[None]:
        now().on_signal = observe
        yield

    def blocking_call(function: Callable[..., Any], /, *args: object) -> Any:
        return now().threads.blocking_call(function, *args)

    def sleep(seconds: float) -> None:
        it.wait_between_passes()
        now().threads.sleep(seconds)

    def search(first: int, most: int) -> Whim:
        found = Whim(first, most, it.whims, it.world)
        it.account.limit = lambda: found.limit
        return found

    return Runtime(
        monotonic=world.monotonic,
        uptime=world.monotonic,
        wall=lambda: datetime.fromtimestamp(EPOCH_S, UTC) + timedelta(seconds=world.now_s),
        sleep=sleep,
        new_event_loop=lambda: now().begin(),
        interpreter=nullcontext,
        stop_signals=stop_signals,
        blocking_call=blocking_call,
        thread=threads.thread,
        event=threads.event,
        queue=threads.queue,
        random=lambda: now().random,
        search=search,
        processor=lambda threads: (0.0, 0.0),
        thread_time=lambda: 0.0,
    )


@dataclass(frozen=True)
class SimSettings(ClientSettings):
    """Makes clients of the simulated broker."""

    it: Any = None

    def consumer(self, conf: Mapping[str, Any]) -> Any:
        return SimConsumer(self.it.broker, self.it.process.pause, conf)

    def producer(self, conf: Mapping[str, Any]) -> Any:
        return SimProducer(
            self.it.broker,
            self.it.account.letters,
            self.it.process.pause,
            self.it.process.later,
        )


def engine(it: Simulation) -> InProcess:
    """The engine of this process, watched."""

    def wrap(source: Source, dispatcher: Dispatcher) -> Source:
        it.process.dispatcher = dispatcher
        watch(dispatcher, it.account)
        return source

    return InProcess(wrap)


@contextmanager
def replaced(it: Simulation, now: Callable[[], Process]) -> Iterator[None]:
    """Puts the disk in place of the real one, and notes threads that are abandoned."""
    world, disk = it.world, it.disk
    abandon = threads.ThreadWorkers.abandon

    async def abandoned(workers: threads.ThreadWorkers) -> None:
        now().gave_up_s = world.now_s
        await abandon(workers)

    replacements: list[tuple[Any, str, Any]] = [
        (threads.ThreadWorkers, "abandon", abandoned),
        (atomic_file, "os", disk),
        (atomic_file, "token_hex", disk.unforeseen),
        (atomic_file, "share_new", lambda descriptor, folder: None),
        (plan_file, "ensure_new_files_own", lambda folder: None),
        (plan_file, "ensure_own", lambda path: None),
        (plan_file, "mode_of_new", lambda folder: 0o600),
        (filelock.FileLock, "acquire", lambda lock, **_: None),  # one process lives at a time
        (filelock.FileLock, "release", lambda lock: None),
        (plan_file, "os", disk),
        (plan_file, "Path", DiskPath),
        (plan_file, "read_own", DiskPath.read_bytes),
        (journal, "os", disk),
        (journal, "read_own", DiskPath.read_bytes),
        (failures, "FAILURES", it.outages_after),
        (producer, "log_ends", lambda settings, topic: {}),
        (producer, "find_marks", it.broker.find),
        (DiskPath, "disk", disk),
    ]
    before = [(place, name, getattr(place, name, None)) for place, name, _ in replacements]
    try:
        for place, name, value in replacements:
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


def watch(dispatcher: Dispatcher, account: Account) -> None:
    """Report to the account what is given up: no other part sees it."""
    finish, park_behind = dispatcher.finish, dispatcher.park_behind

    def watched_finish(sub: SubMessage, outcome: Outcome = Outcome.DONE) -> None:
        if outcome is not Outcome.DONE:
            account.conclude(sub_place(sub), outcome)
        finish(sub, outcome)

    def watched_park_behind(sub: SubMessage, outcome: Outcome, error: str = "") -> None:
        account.conclude(sub_place(sub), outcome)
        park_behind(sub, outcome, error)

    if (sift := dispatcher._sift) is not None:  # noqa: SLF001

        def watched_sift(
            subs: Sequence[SubMessage], done: int, leave: Callable[[SubMessage], None]
        ) -> int:
            left = list[SubMessage]()

            def watched_leave(sub: SubMessage) -> None:
                left.append(sub)
                leave(sub)

            found = sift(subs, done, watched_leave)
            for sub in subs:
                if (found & ~done) >> sub.index & 1 and sub not in left:
                    account.rule_out(sub_place(sub))
            return found

        dispatcher._sift = watched_sift  # noqa: SLF001
    dispatcher.finish = watched_finish  # type: ignore[method-assign]
    dispatcher.park_behind = watched_park_behind  # type: ignore[method-assign]
