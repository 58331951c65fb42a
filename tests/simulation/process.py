"""One simulated process: the real drain, with the parts of it that reach outside replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta, tzinfo
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from drainer import loader
from drainer.core.dispatch import Dispatcher
from drainer.core.progress import Outcome
from drainer.engine import (
    bundles,
    checkpointer,
    clock,
    conclusion,
    coroutines,
    ending,
    failures,
    limiter,
    local,
    loop,
    meter,
    pump,
    threads,
)
from drainer.errors import Refused
from drainer.kafka import dead_letters, fetch, loss, transactions
from drainer.kafka.dead_topic import DeadLetterTopicInfo
from drainer.message import Message, SubMessage
from drainer.operations import drain, hold, policy, resume, start
from drainer.policy import breaker
from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.policy.concurrency_trial import Interval
from drainer.store import journal, plan_file, whole
from simulation.account import Account, place_of
from simulation.cluster import SimCluster, SimConsumer, SimLock
from simulation.disk import DiskPath, Filelock
from simulation.letters import SimProducer
from simulation.loop import VirtualLoop
from simulation.threads import Threading, Threads
from simulation.world import EPOCH_S, World

if TYPE_CHECKING:
    from simulation.simulation import Simulation


class Process:
    """What of a process can be seen from outside: its loop, its threads, its lock, its drain."""

    def __init__(self, world: World, cluster: SimCluster) -> None:
        self.world = world
        self.cluster = cluster
        self.random = world.random(f"process {world.steps}")
        self.loop = VirtualLoop(world)
        self.threads = Threads(world, self.loop, lambda: self.random.choice([0.0, 0.001, 0.03]))
        self.runs = False  # the event loop has begun
        self.lock = SimLock(world)
        self.drain: local.LocalDrain | None = None
        self.hear: Callable[[str], None] = lambda name: None
        self.gave_up_s: float | None = None  # on threads that are in the handler
        self.began: Callable[[], None] = lambda: None  # called when it does

    def begin(self) -> VirtualLoop:
        self.runs = True
        self.began()
        return self.loop

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        """In so many seconds, unless the process ends before."""
        if not self.loop.is_closed():
            self.loop.call_later(seconds, happen)

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

    def __init__(self, first: int, most: int, random: Random, world: World) -> None:
        super().__init__(first, most)
        self._random = random
        self._world = world

    def hear(self, interval: Interval) -> int:
        if self._random.random() < 0.3:
            self.limit = self._random.randint(self.least, self.most)
            self._world.tally["limits"] += 1
        return self.limit


@contextmanager
def replaced(it: Simulation, now: Callable[[], Process]) -> Iterator[None]:
    """Lets the drain run in the world: ``now`` gives the process that is alive."""
    world, disk, broker, account = it.world, it.disk, it.broker, it.account
    threading = Threading(lambda: now().threads)
    filelock = Filelock(disk)
    abandon = threads.ThreadWorkers.abandon

    @contextmanager
    def stop_signals(_loop: object, heard: Callable[[str], None], _: object) -> Iterator[None]:
        now().hear = heard
        yield

    class WatchedDrain(local.LocalDrain):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            now().drain = self
            watch(self.dispatcher, account)

    def whim(first: int, most: int) -> Whim:
        found = Whim(first, most, it.whims, world)
        account.limit = lambda: found.limit
        return found

    def wall_clock(zone: tzinfo) -> datetime:
        return datetime.fromtimestamp(EPOCH_S, UTC) + timedelta(seconds=world.now_s)

    def blocking_call(function: Callable[..., Any], *args: object) -> Any:
        return now().threads.blocking_call(function, *args)

    def consumer(conf: Any) -> SimConsumer:
        return SimConsumer(broker, lambda seconds: now().pause(seconds), conf)

    def producer(conf: Any) -> SimProducer:
        return SimProducer(
            broker,
            account.letters,
            lambda seconds: now().pause(seconds),
            lambda seconds, happen: now().later(seconds, happen),
        )

    def look_at_dead_letter_topic(*_: object, **__: object) -> DeadLetterTopicInfo:
        broker.ask("dead-letter topic")
        return DeadLetterTopicInfo("orders.billing.dead", broker.dead_letter_topic, 1)

    def make_dead_letter_topic(*_: object) -> None:
        broker.ask("make dead-letter topic")
        broker.dead_letter_topic = True

    async def abandoned(workers: threads.ThreadWorkers) -> None:
        now().gave_up_s = world.now_s
        await abandon(workers)

    def unread(*_: object) -> None:
        raise Refused("nobody asks since when a transaction is open")

    def connect(*args: Any) -> SimCluster:
        return now().cluster.connected(*args)

    wall = SimpleNamespace(now=wall_clock)
    replacements: list[tuple[Any, str, Any]] = [
        (conclusion, "blocking_call", blocking_call),
        (ending, "blocking_call", blocking_call),
        (local, "monotonic", world.monotonic),
        (local, "hurried_interpreter", nullcontext),
        (local, "stop_signals", stop_signals),
        (local, "ConcurrencyLimit", whim),
        (limiter, "LOOK_S", 0.01),
        (limiter, "monotonic", world.monotonic),
        (loop, "new_event_loop", lambda: now().begin()),
        (checkpointer, "blocking_call", blocking_call),
        (checkpointer, "monotonic", world.monotonic),
        (clock, "datetime", wall),
        (pump, "monotonic", world.monotonic),
        (coroutines, "monotonic", world.monotonic),
        (failures, "monotonic", world.monotonic),
        (bundles, "monotonic", world.monotonic),
        (failures, "Random", lambda: now().random),
        (threads, "monotonic", world.monotonic),
        (threads, "threading", threading),
        (threads, "SimpleQueue", threading.SimpleQueue),
        (threads.ThreadWorkers, "abandon", abandoned),
        (meter.Meter.__init__, "__kwdefaults__", {"clock": world.monotonic}),
        (loader, "blocking_call", blocking_call),
        (whole, "os", disk),
        (whole, "token_hex", disk.unforeseen),
        (plan_file, "filelock", filelock),
        (plan_file, "Path", DiskPath),
        (plan_file, "read_own", DiskPath.read_bytes),
        (plan_file, "insist_new_files_own", lambda folder: None),
        (journal, "os", disk),
        (breaker, "FAILURES", it.outages_after),
        (dead_letters, "Producer", producer),
        (dead_letters, "threading", threading),
        (dead_letters, "time", SimpleNamespace(monotonic=world.monotonic)),
        (policy, "look_at_dead_letter_topic", look_at_dead_letter_topic),
        (policy, "make_dead_letter_topic", make_dead_letter_topic),
        (transactions, "SpanReader", unread),
        (fetch, "Consumer", consumer),
        (fetch, "time", SimpleNamespace(monotonic=world.monotonic)),
        (fetch, "threading", threading),
        (loss, "Cluster", SimpleNamespace(connect=connect)),
        (start, "os", disk),
        (start, "datetime", wall),
        (hold, "GroupLock", lambda *args, **kwargs: now().lock),
        (drain, "LocalDrain", WatchedDrain),
        (resume, "load_handler", lambda reference: it.handler),
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
    """Lets the account hear what is given up: nobody else sees it."""
    finish, park_behind = dispatcher.finish, dispatcher.park_behind

    def watched_finish(sub: SubMessage, outcome: Outcome = Outcome.DONE) -> None:
        if outcome is not Outcome.DONE:
            account.conclude(place_of(sub), outcome)
        finish(sub, outcome)

    def watched_park_behind(sub: SubMessage, outcome: Outcome, error: str = "") -> None:
        account.conclude(place_of(sub), outcome)
        park_behind(sub, outcome, error)

    if (sift := dispatcher._sift) is not None:

        def watched_sift(message: Message, subs: Sequence[SubMessage], done: int) -> int:
            taken = sift(message, subs, done)
            for index in range(len(subs)):
                if taken >> index & 1:
                    account.rule_out((message.partition, message.offset, index))
            return taken

        dispatcher._sift = watched_sift
    dispatcher.finish = watched_finish  # type: ignore[method-assign]
    dispatcher.park_behind = watched_park_behind  # type: ignore[method-assign]
