"""The traffic of ``drainer limits`` on Spark: a session, and one job of tasks that host clients."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Self

from pyspark import SparkContext

from drainer.errors import DrainerError, Interrupted, Refused
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.traffic import Places, no_test_topic
from drainer.limits.kafka.watch import InSyncWatch
from drainer.limits.search.reading import Calm, Report, TrafficReading, changing_share
from drainer.limits.search.trial import Point, Signals
from drainer.limits.spark.hosting import REPORT_S, Hosting
from drainer.limits.spark.jmx import Jmx, Login
from drainer.limits.spark.traffic_coordinator import TrafficCoordinator, TrafficOrder
from drainer.limits.trials import Observe
from drainer.mask import describe
from drainer.spark.failure import spark_failures
from drainer.spark.session import context_on, slots_at_rest, slots_now
from drainer.spark.settings import SparkLook

NAME = "drainer limits"
# Tasks begin all at once or not at all (barrier mode), which Spark does only on a set of executors
# that stays; and it looks for them as long as drainer waits.
_GANG = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "120",
}
LOCALHOST = "127.0.0.1"
TASKS_S = 60.0  # for all tasks to begin
READY_S = 60.0  # for the clients of an order to connect
STOP_S = 5.0
LOOK_S = 0.1
LOOKED_S = 1.5  # at brokers for the running signals: several looks lie in it
PROBE_PACE = 20.0  # messages/s that tell whether the brokers are at rest
PROBE_BYTES = 100
PROBE_S = 1.0
LAG_AT_REST = 2 * PROBE_PACE
ATTEMPTS = 3  # of a window that was disturbed


@dataclass(eq=False, repr=False)
class TrafficHost:
    """A session for the traffic; a context manager that begins it and ends it.

    One that runs already in this process is used, and left running.

    Raises UsageError and Refused as ``spark_session`` does.
    """

    place: SparkLook
    client: ClientSettings
    jmx: tuple[str, ...] = ()
    jmx_login: Login | None = None

    def __enter__(self) -> Self:
        self._opened = ExitStack()
        self._context = self._opened.enter_context(context_on(self.place, NAME, _GANG))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def traffic(self, places: Places) -> SparkTraffic:
        """Traffic on these topics, of as many tasks as can run at once."""
        slots = slots_now(self._context) if self.place.is_local else 0
        tasks = self.place.tasks or slots or slots_at_rest(self._context)
        if 0 < slots < tasks:  # elsewhere executors may come yet
            raise Refused(
                f"{self.place.master} runs {slots} tasks at once, but --tasks is {tasks}",
                hint="Lower --tasks, or remove it: all tasks must run at once.",
            )
        return SparkTraffic(self._context, self.client, places, tasks, self.jmx, self.jmx_login)


@dataclass(eq=False, repr=False)
class SparkTraffic:
    """Makes traffic on a test topic and says what was seen; a context manager.

    Nothing of it goes on without this process. All methods are for one thread, and raise
    Interrupted (or what a task raised) when it can't go on: a task is gone, Spark broke, or the
    clients lost the topic or the right to use it.
    """

    context: SparkContext
    client: ClientSettings
    places: Places
    tasks: int  # how many host; all of them have to run at once
    jmx: tuple[str, ...] = ()  # ``host:port`` of brokers' metrics, which ``jmx_login`` opens
    jmx_login: Login | None = None

    def __post_init__(self) -> None:
        self._reading = TrafficReading(self.tasks, self.places.groups)
        self._reports: deque[tuple[float, int, Report]] = deque()
        self._job_name = f"drainer limits: {self.places.topics[0]}"
        self._job_error: DrainerError | None = None
        self._job = threading.Thread(target=self._run_job, name="traffic-job", daemon=True)
        self._calm = Calm(PROBE_PACE)
        self._opened = ExitStack()

    def start(self) -> None:
        """Connects to the brokers and begins the tasks; there is no traffic yet.

        Raises Refused when a broker's metrics can't be read, or the topic can't be reached, or
        Spark has no room for so many tasks.
        """
        with ExitStack() as opened:
            self._in_sync = InSyncWatch(self.client, self.places.topics)
            opened.callback(self._in_sync.halt)
            self._jmx = Jmx(self.context, self.jmx, self.jmx_login)
            opened.callback(self._jmx.close)
            bind, host = _addresses(self.context)
            self._coordinator = TrafficCoordinator(bind, self.tasks, self._take)
            self._coordinator.open()
            opened.callback(self._end_job)
            self._hosting = Hosting(
                client=self.client,
                places=self.places,
                tasks=self.tasks,
                address=(host, self._coordinator.port),
                token=self._coordinator.token,
            )
            self._job.start()
            until_s = time.monotonic() + TASKS_S
            while (here := self._coordinator.here) < self.tasks:
                if time.monotonic() > until_s:
                    raise Refused(
                        f"only {here} of {self.tasks} tasks started in {TASKS_S:.0f} s",
                        hint="Lower --tasks, or give Spark more cores: all tasks must run at once.",
                    )
                self._look()
            self._in_sync.start()
            self._jmx.start()
            self._opened = opened.pop_all()

    def measure(
        self,
        point: Point,
        *,
        warm_up_s: float,
        window_s: float,
        observe: Observe = lambda *_: None,
        stop_when: Callable[[Signals], bool] = lambda _: False,
    ) -> Signals:
        """Makes this traffic for a while; gives what was seen in the window behind the warm-up.

        ``observe`` gets the phase and the signals of the last moments, ten times a second.
        When ``stop_when`` says so of these, in the warm-up too, the traffic stops at once and they
        are the result: its ``window_s`` is short.

        Raises Interrupted when it was disturbed again and again: the driver was kept from running.
        """
        try:
            observe("connecting", None)
            self._carry_out(point)
            for _ in range(ATTEMPTS):
                begun_s, silences = time.monotonic(), self._reading.silences
                self._reading.forget_before(begun_s)
                steady_s = begun_s + warm_up_s
                end_s = steady_s + window_s + 2 * REPORT_S  # reports begin and end a little inside
                while (now_s := time.monotonic()) < end_s:
                    self._look()
                    running = self._with_looks(
                        self._reading.running(point, begun_s, now_s), now_s - LOOKED_S, now_s
                    )
                    observe("warming up" if now_s < steady_s else "steady", running)
                    if running is not None and stop_when(running):
                        return running
                whole = self._with_looks(self._reading.signals(steady_s, end_s), steady_s, end_s)
                if whole is not None and self._reading.silences == silences:
                    return whole
        finally:
            self._halt()
        raise Interrupted(
            f"the driver's orders failed to reach the tasks {ATTEMPTS} times",
            hint="Check this machine's load, and the network to the executors.",
        )

    def rest(self, cool_down_s_most: float, observe: Observe = lambda *_: None) -> bool:
        """Waits until the groups have caught up and the brokers answer as when they are idle.

        A little traffic shows it. Gives False when that takes longer; the groups have skipped then
        what they had not read.
        """
        probe = Point(PROBE_BYTES, 1, PROBE_PACE)
        until_s = time.monotonic() + cool_down_s_most
        at_rest = False
        try:
            self._carry_out(probe)
            begun_s = time.monotonic()
            self._reading.forget_before(begun_s)
            while not at_rest and (now_s := time.monotonic()) < until_s:
                self._look()
                if now_s - begun_s < PROBE_S:
                    continue
                seen = self._reading.signals(now_s - PROBE_S, now_s)
                observe("cooling down", seen)
                caught_up = self._caught_up(now_s - PROBE_S, now_s)
                at_rest = seen is not None and self._calm.holds(seen) and caught_up
        finally:
            self._halt()
        if not at_rest:
            self._carry_out(None, skip=True)
        self._reading.set_caught_up()
        return at_rest

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the traffic, the tasks and the connections; does not raise."""
        self._opened.close()

    def _end_job(self) -> None:
        self._coordinator.close()
        if self._job.is_alive():
            self._job.join(STOP_S)
        if self._job.is_alive():
            with suppress(DrainerError), spark_failures():
                self.context.cancelJobGroup(self._job_name)
            self._job.join(STOP_S)

    def _caught_up(self, begin_s: float, end_s: float) -> bool:
        lag = self._reading.lag_between(begin_s, end_s)
        if lag is None:
            return not self.places.groups
        least, most = lag
        return most <= LAG_AT_REST and most - least <= LAG_AT_REST

    def _carry_out(self, point: Point | None, *, skip: bool = False) -> None:
        before = self._coordinator.order
        order = TrafficOrder(before.number + 1, point, before.skips + skip)
        self._coordinator.give(order)
        until_s = time.monotonic() + READY_S
        while not self._reading.ready(order.number):
            if time.monotonic() > until_s:
                raise Interrupted(
                    f"the clients are not ready after {READY_S:.0f} s",
                    hint="Check that the executors have room for them, and reach the brokers.",
                )
            self._look()

    def _halt(self) -> None:
        before = self._coordinator.order
        self._coordinator.give(TrafficOrder(before.number + 1, None, before.skips))

    def _with_looks(self, seen: Signals | None, begin_s: float, end_s: float) -> Signals | None:
        """With how idle request handlers were, and how long in-sync replicas changed."""
        if seen is None:
            return None
        return replace(
            seen,
            handlers_idle=self._jmx.handlers_idle(begin_s, end_s),
            isr_changing=changing_share(self._in_sync.within(begin_s, end_s), self._in_sync.usual),
        )

    def _take(self, task: int, report: Report) -> None:
        self._reports.append((time.monotonic(), task, report))  # in a thread of the coordinator

    def _look(self) -> None:
        """Waits for a moment and reads what was reported; raises what ended the traffic."""
        self._job.join(LOOK_S)
        while self._reports:
            self._reading.take(*self._reports.popleft())
        if self._in_sync.failure is not None:
            raise no_test_topic(str(self._in_sync.failure))
        if self._coordinator.lost is not None:
            raise self._coordinator.lost
        if self._job_error is not None:
            raise self._job_error
        if not self._job.is_alive():
            raise Interrupted("the tasks ended on their own", hint="Try again.")

    def _run_job(self) -> None:
        context = self.context
        try:
            with spark_failures():
                context.setJobGroup(self._job_name, self._job_name, interruptOnCancel=True)
                hosts = context.parallelize(range(self.tasks), self.tasks)
                hosts.barrier().mapPartitions(self._hosting).collect()
        except DrainerError as error:
            self._job_error = error
        except Exception as error:  # the session was stopped meanwhile, and has nothing left
            self._job_error = Interrupted(f"the Spark job failed: {describe(error)}", cause=error)


def _addresses(context: SparkContext) -> tuple[str, str]:
    """What to listen on, and how tasks reach it."""
    if str(context.master).startswith("local"):
        return LOCALHOST, LOCALHOST
    conf = context.getConf()
    bind, host = conf.get("spark.driver.bindAddress"), conf.get("spark.driver.host")
    return bind or "0.0.0.0", host or socket.gethostname()
