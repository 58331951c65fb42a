"""One simulated process: the real drain, with the parts of it that reach outside replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any

from drainer import loader
from drainer.engine import coroutines, failures, keeper, local, loop, meter, pump, threads
from drainer.kafka import fetch, loss
from drainer.loader import LoadedHandler
from drainer.operations import clock, drain, hold, resume, start
from drainer.store import journal, plan_file
from simulation.cluster import Broker, SimCluster, SimConsumer, SimLock
from simulation.disk import Disk, DiskPath, Filelock
from simulation.loop import VirtualLoop
from simulation.threads import Threading, Threads
from simulation.world import EPOCH_S, World


class Process:
    """What of a process can be seen from outside: its loop, its threads, its lock, its drain."""

    def __init__(self, world: World, cluster: SimCluster) -> None:
        self.world = world
        self.cluster = cluster
        self.random = world.random(f"process {world.steps}")
        self.loop: VirtualLoop | None = None
        self.threads: Threads | None = None
        self.lock = SimLock(world)
        self.drain: local.LocalDrain | None = None
        self.hear: Callable[[str], None] = lambda name: None
        self.gave_up_s: float | None = None  # on threads that are in the handler
        self.began: Callable[[], None] = lambda: None  # called when the event loop is there

    def new_loop(self) -> VirtualLoop:
        self.loop = VirtualLoop(self.world)
        self.threads = Threads(
            self.world, self.loop, lambda: self.random.choice([0.0, 0.001, 0.03])
        )
        self.began()
        return self.loop

    def the_threads(self) -> Threads:
        assert self.threads is not None
        return self.threads

    def aside(self, function: Callable[..., Any], *args: object) -> Any:
        return self.the_threads().aside(function, *args)

    def pause(self, seconds: float) -> None:
        """A call takes its time: of its thread, or of a command that has not begun to drain."""
        if self.threads is None:
            self.world.wait(seconds)
        elif self.threads.inside and seconds:
            self.threads.sleep(seconds)

    def end(self) -> None:
        """Nothing of it is left."""
        self.world.alive = False
        if self.threads is not None:
            self.threads.kill()
        if self.loop is not None:
            self.loop.bury()


@contextmanager
def replaced(
    world: World, disk: Disk, broker: Broker, handler: LoadedHandler, now: Callable[[], Process]
) -> Iterator[None]:
    """Lets the drain run in the world: ``now`` gives the process that is alive."""
    threading = Threading(lambda: now().the_threads())
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

    def wall_clock(zone: tzinfo) -> datetime:
        return datetime.fromtimestamp(EPOCH_S, UTC) + timedelta(seconds=world.now_s)

    def aside(function: Callable[..., Any], *args: object) -> Any:
        return now().aside(function, *args)

    def consumer(conf: Any) -> SimConsumer:
        return SimConsumer(broker, lambda seconds: now().pause(seconds), conf)

    async def abandoned(workers: threads.ThreadWorkers) -> None:
        now().gave_up_s = world.now_s
        await abandon(workers)

    def connect(*args: Any) -> SimCluster:
        return now().cluster.connected(*args)

    wall = SimpleNamespace(now=wall_clock)
    replacements: list[tuple[Any, str, Any]] = [
        (local, "aside", aside),
        (local, "monotonic", world.monotonic),
        (local, "hurried_interpreter", nullcontext),
        (local, "stop_signals", stop_signals),
        (loop, "new_event_loop", lambda: now().new_loop()),
        (keeper, "aside", aside),
        (keeper, "monotonic", world.monotonic),
        (keeper, "datetime", wall),
        (clock, "datetime", wall),
        (pump, "monotonic", world.monotonic),
        (coroutines, "monotonic", world.monotonic),
        (failures, "monotonic", world.monotonic),
        (failures, "Random", lambda: now().random),
        (threads, "monotonic", world.monotonic),
        (threads, "threading", threading),
        (threads, "SimpleQueue", threading.SimpleQueue),
        (threads.ThreadWorkers, "abandon", abandoned),
        (meter.Meter.__init__, "__kwdefaults__", {"clock": world.monotonic}),
        (loader, "aside", aside),
        (plan_file, "os", disk),
        (plan_file, "filelock", filelock),
        (plan_file, "Path", DiskPath),
        (journal, "os", disk),
        (fetch, "Consumer", consumer),
        (fetch, "time", SimpleNamespace(monotonic=world.monotonic)),
        (fetch, "threading", threading),
        (loss, "Cluster", SimpleNamespace(connect=connect)),
        (start, "os", disk),
        (start, "datetime", wall),
        (hold, "GroupLock", lambda *args, **kwargs: now().lock),
        (drain, "LocalDrain", WatchedDrain),
        (resume, "load_handler", lambda reference: handler),
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
