"""The traffic of ``drainer limits`` on Spark: one job, whose tasks run the clients."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from drainer.errors import DrainerError, Interrupted, Refused
from drainer.kafka.settings import ClientSettings
from drainer.limits.kafka.traffic import TrafficTargets, no_test_topic
from drainer.limits.kafka.watch import InSyncWatch, Loop
from drainer.limits.search.reading import (
    IdleDetector,
    TrafficReading,
    TrafficReport,
    changing_share,
)
from drainer.limits.search.trial import Point, Signals
from drainer.limits.spark.hosting import Hosting
from drainer.limits.spark.jmx import Jmx, java_machine
from drainer.limits.spark.traffic_coordinator import REPORT_S, TrafficCoordinator
from drainer.limits.trials import Observe
from drainer.spark.session.failure import spark_failures
from drainer.spark.session.session import Session
from drainer.spark.session.settings import SessionSettings, is_local
from drainer.spark.session.start import session_on
from drainer.text.mask import describe

NAME = "drainer limits"
# Reports, each with the time of its arrival and the number of its task.
Reports = deque[tuple[float, int, TrafficReport]]
LOCALHOST = "127.0.0.1"
TASKS_S = 60.0  # All tasks have to begin within this time.
READY_S = 60.0  # All clients of an order have to be connected within this time.
STOP_S = 5.0
POLL_S = 0.1
# The live view shows broker metrics of the last BROKERS_S, in which there are several samples.
BROKERS_S = 1.5
# Between two trials, drainer sends this many messages/s of this size to see whether the brokers are
# idle.
PROBE_PACE = 20.0
PROBE_BYTES = 100
PROBE_S = 1.0  # Signals of the traffic between two trials are taken over this time.
LAG_AT_REST = 2 * PROBE_PACE  # A group with at most this lag counts as caught up.
ATTEMPTS = 3  # If a window was disturbed, it is repeated until there were this many windows.
# On a cluster, executors start one after the other. If none has started for QUIET_S, no more are
# expected.
EXECUTORS_S, QUIET_S = 30.0, 3.0


@contextmanager
def traffic_host(
    place: SessionSettings, client: ClientSettings, jmx: tuple[str, ...] = ()
) -> Iterator[Callable[[TrafficTargets], AbstractContextManager[SparkTraffic]]]:
    """Start a Spark session, and yield a function that begins traffic in all of its slots.

    A session that already runs in this process is used, and left running.

    Raises UsageError and Refused as ``session_on`` does.
    """
    # Nobody would be told the address of Spark's UI.
    without_ui = replace(place, conf={"spark.ui.enabled": "false", **place.conf})
    with session_on(without_ui, NAME) as session:

        def traffic(targets: TrafficTargets) -> AbstractContextManager[SparkTraffic]:
            slots = session.slots() if place.is_local else 0
            tasks = place.tasks or slots or _slots_at_rest(session)
            if 0 < slots < tasks:  # On a cluster, more executors may come.
                raise Refused(
                    f"{place.master} runs {slots} tasks at once, but drainer.tasks is {tasks}",
                    hint="Lower drainer.tasks, or remove it: all tasks must run at once.",
                )
            return spark_traffic(session, client, targets, tasks, jmx)

        yield traffic


def _slots_at_rest(session: Session) -> int:
    """Wait until no more executors seem to come, and return the number of slots."""
    session.spark.range(1).count()  # This returns once the first executor has started.
    known, until_s = 0, time.monotonic() + EXECUTORS_S
    while (found := session.slots()) != known and time.monotonic() < until_s:
        known = found
        time.sleep(QUIET_S)
    return found


@contextmanager
def spark_traffic(
    session: Session,
    client: ClientSettings,
    targets: TrafficTargets,
    tasks: int,
    jmx: tuple[str, ...] = (),
) -> Iterator[SparkTraffic]:
    """Connect to the brokers, and start the tasks, all of which have to run at once.

    Traffic, tasks and connections end with the block. ``jmx`` has the addresses ``host:port`` of
    the brokers' metrics.

    Raises Refused when a broker's metrics can't be read, when the topics can't be reached, or when
    Spark has no room for all tasks.
    """
    with ExitStack() as opened:
        in_sync = InSyncWatch(client, targets.topics)
        opened.callback(in_sync.halt)
        metrics = Jmx(opened.enter_context(java_machine()) if jmx else None, jmx)
        opened.callback(metrics.close)
        bind, host = _addresses(session)
        reports: Reports = deque()
        coordinator = TrafficCoordinator(
            bind, tasks, lambda task, report: reports.append((time.monotonic(), task, report))
        )
        hosting = Hosting(client, targets, tasks, (host, coordinator.port), coordinator.token)
        job = HostingJob(session, hosting)
        opened.callback(job.halt)
        opened.callback(coordinator.close)  # This ends the job.
        reading = TrafficReading(tasks, targets.groups)
        traffic = SparkTraffic(reading, job, coordinator, reports, in_sync, metrics)
        job.start()
        traffic.wait_for_tasks()
        in_sync.start()
        yield traffic


class HostingJob(Loop):
    """A thread that runs the Spark job of the tasks."""

    def __init__(self, session: Session, hosting: Hosting) -> None:
        super().__init__("traffic-job", STOP_S, [self._cancel])
        self._session = session
        self._hosting = hosting
        self._name = f"{NAME}: {hosting.targets.topics[0]}"

    def _go_on(self) -> None:
        tasks = self._hosting.tasks
        try:
            with spark_failures():
                self._session.name_jobs(self._name, self._name)
                numbers = self._session.spark.range(0, tasks, 1, tasks)  # One number for each task.
                numbers.mapInArrow(self._hosting, numbers.schema).collect()
        except DrainerError:
            raise
        except Exception as error:  # A session that was stopped meanwhile may raise any exception.
            raise Interrupted(f"the Spark job failed: {describe(error)}", cause=error) from error

    def runs(self, wait_s: float) -> bool:
        """Wait up to ``wait_s`` for the end of the job, and return whether it still runs."""
        self._thread.join(wait_s)
        return self._thread.is_alive()

    def _cancel(self) -> None:
        if self._thread.is_alive():
            with suppress(DrainerError), spark_failures():
                self._session.cancel(self._name)
            self._thread.join(STOP_S)


@dataclass(eq=False)
class SparkTraffic:
    """Traffic on test topics, and its signals. ``spark_traffic`` makes it.

    All traffic ends with this process. Only one thread may call the methods. They raise
    Interrupted, or what a task raised, when the traffic can't continue: a task is gone, Spark
    failed, the clients lost a topic or the right to use it, or the brokers are gone.
    """

    _reading: TrafficReading
    _job: HostingJob
    _coordinator: TrafficCoordinator
    _reports: Reports
    _in_sync: InSyncWatch
    _metrics: Jmx
    _idle: IdleDetector = field(default_factory=lambda: IdleDetector(PROBE_PACE))

    def wait_for_tasks(self) -> None:
        """Wait until all tasks are connected. Raises Refused when one is not in time."""
        tasks, until_s = self._reading.tasks, time.monotonic() + TASKS_S
        while (connected := len(self._coordinator.connected)) < tasks:
            if time.monotonic() > until_s:
                raise Refused(
                    f"only {connected} of {tasks} tasks started in {TASKS_S:.0f} s",
                    hint="Lower drainer.tasks, or give Spark more cores: all must run at once.",
                )
            self._poll()

    def measure(
        self, point: Point, *, warm_up_s: float, window_s: float, observe: Observe = lambda *_: None
    ) -> Signals:
        """Make this traffic, and return the signals of the window after the warm-up.

        ``observe`` gets the phase and the signals of the last moments, ten times a second.

        A window is disturbed if a task stopped its traffic because this process sent no order in
        time. Raises Interrupted if that happens to ATTEMPTS windows.
        """
        try:
            observe("connecting", None)
            self._carry_out(point)
            for _ in range(ATTEMPTS):
                begun_s, silences = time.monotonic(), self._reading.silences
                self._reading.forget_before(begun_s)
                steady_s = begun_s + warm_up_s
                # At both ends, up to one report lies outside the window, so it is made longer.
                end_s = steady_s + window_s + 2 * REPORT_S
                while (now_s := time.monotonic()) < end_s:
                    self._poll()
                    latest = self._reading.running(point, begun_s, now_s)
                    running = self._with_broker_signals(latest, now_s - BROKERS_S, now_s)
                    observe("warming up" if now_s < steady_s else "steady", running)
                window = self._reading.signals(steady_s, end_s)
                whole = self._with_broker_signals(window, steady_s, end_s)
                if whole is not None and self._reading.silences == silences:
                    self._coordinator.give()
                    # Brokers that don't answer even without traffic are gone, not overloaded.
                    self._in_sync.ensure_answers()
                    return whole
        finally:
            self._coordinator.give()
        raise Interrupted(
            f"the driver's orders failed to reach the tasks {ATTEMPTS} times",
            hint="Check this machine's load, and the network to the executors.",
        )

    def rest(self, cool_down_s_most: float, observe: Observe = lambda *_: None) -> bool:
        """Wait until the groups have caught up and the brokers answer as quickly as when idle.

        A little traffic shows how quickly they answer. If this takes too long, the groups skip what
        they have not read, and the result is False.
        """
        probe = Point(PROBE_BYTES, 1, PROBE_PACE)
        until_s = time.monotonic() + cool_down_s_most
        at_rest = False
        try:
            self._carry_out(probe)
            begun_s = time.monotonic()
            self._reading.forget_before(begun_s)
            while not at_rest and (now_s := time.monotonic()) < until_s:
                self._poll()
                if now_s - begun_s < PROBE_S:
                    continue
                seen = self._reading.signals(now_s - PROBE_S, now_s)
                observe("cooling down", seen)
                caught_up = self._caught_up(now_s - PROBE_S, now_s)
                at_rest = seen is not None and self._idle.update(seen) and caught_up
        finally:
            self._coordinator.give()
        if not at_rest:
            self._carry_out(None, skip=True)
        self._reading.set_caught_up()
        return at_rest

    def _caught_up(self, begin_s: float, end_s: float) -> bool:
        lag = self._reading.lag_between(begin_s, end_s)
        if lag is None:
            return not self._reading.groups
        least, most = lag
        return most <= LAG_AT_REST and most - least <= LAG_AT_REST

    def _carry_out(self, point: Point | None, *, skip: bool = False) -> None:
        order = self._coordinator.give(point, skip=skip)
        until_s = time.monotonic() + READY_S
        while not self._reading.ready(order.number):
            if time.monotonic() > until_s:
                raise Interrupted(
                    f"the clients are not ready after {READY_S:.0f} s",
                    hint="Check that the executors have room for them, and reach the brokers.",
                )
            self._poll()

    def _with_broker_signals(
        self, seen: Signals | None, begin_s: float, end_s: float
    ) -> Signals | None:
        """Add the idle share of request handlers, and the share of time with ISR changes."""
        if seen is None:
            return None
        return replace(
            seen,
            handlers_idle=self._metrics.handlers_idle(begin_s, end_s),
            isr_changing=changing_share(self._in_sync.within(begin_s, end_s), self._in_sync.usual),
        )

    def _poll(self) -> None:
        """Wait for a moment, and take the new reports.

        Raises the error because of which the traffic has ended, if it has.
        """
        runs = self._job.runs(POLL_S)
        while self._reports:
            self._reading.take(*self._reports.popleft())
        if self._in_sync.failure is not None:
            raise no_test_topic(str(self._in_sync.failure))
        if self._coordinator.lost is not None:
            raise self._coordinator.lost
        self._job.ensure_working()
        if not runs:
            raise Interrupted("the tasks ended on their own", hint="Try again.")


def _addresses(session: Session) -> tuple[str, str]:
    """Return the address to listen on, and the one by which tasks reach it."""
    if is_local(session.master):
        return LOCALHOST, LOCALHOST
    if session.is_remote:
        # Tasks can reach this machine by the address from which it reaches the server. To connect a
        # datagram socket sends nothing.
        host = session.spark.client.host.strip("[]")
        family, kind, _, _, place = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            own = str(probe.getsockname()[0])
        return own, own
    host = session.conf("spark.driver.host", socket.gethostname())
    return session.conf("spark.driver.bindAddress", "0.0.0.0"), host
