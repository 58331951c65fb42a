"""A Python worker of Spark, with the handler that it keeps open and the fence around its calls.

Spark runs one task after another in a worker, and ends an idle worker without notice. So the first
task that needs the handler opens it, and later tasks find it open with its event loop. It is closed
when the drain is over, or when the worker had nothing to do for a while.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from time import monotonic
from zipimport import zipimporter

from drainer.engine.loop import hurried_interpreter, new_event_loop
from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, Interrupted, LockLost, StateLost
from drainer.handler import Context
from drainer.kafka.settings import ClientSettings
from drainer.kafka.writer import TopicWriter
from drainer.loading.extensions import Extension
from drainer.model.terms import Terms
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.session.shipping import Shipped
from drainer.spark.state.lease import Lease, LeaseTimes
from drainer.spark.state.state import Attempt, DriverControl, State
from drainer.text.mask import describe

CUT_LOOK_S = 0.1
EXIT_CUT = 75  # A worker whose calls are cut off exits with "try again" (EX_TEMPFAIL).
IDLE_S = 20.0  # An idle worker closes the handler after this time; Spark ends it after a minute.


@dataclass(eq=False)
class Fence:
    """Ensures that no call begins once another process may be at work on the same sub-messages.

    A thread of its own looks for messages of the driver, and for newer drivers and attempts. Each
    look that succeeds renews a lease, and after the end of the lease no call begins, even in a
    process that stood still meanwhile. If calls go on some seconds later, the fence ends the
    process. A worker has a fence while its handler is open, and the engine takes it for its lock.

    ``looked`` is called with the fence, in its thread, after each look and each reading of the
    driver's message.
    """

    state: State
    epoch: int
    times: LeaseTimes
    looked: Callable[[Fence], None] = lambda fence: None
    _: KW_ONLY
    clock: Callable[[], float] = boottime_s
    end_process: Callable[[], object] = partial(os._exit, EXIT_CUT)

    def __post_init__(self) -> None:
        # The reason why the task has to end: LockLost if a newer driver or attempt has taken over,
        # Interrupted if the driver requests a stop.
        self.lost: DrainerError | None = None
        self.silence: tuple[str, float] | None = None  # A task does not ask the brokers.
        self.trouble: str | None = None  # The reason why the last look failed.
        self.calls: Callable[[], int] = lambda: 0  # It returns how many calls are in the handler.
        self.control = DriverControl()  # The newest message of the driver.
        self._lease = Lease(self.times)
        self._attempt: Attempt | None = None
        self._looking = threading.Lock()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the threads that look and that cut calls off."""
        threading.Thread(target=self._watch, name="fence", daemon=True).start()
        threading.Thread(target=self._watch_lease, name="fence-cut", daemon=True).start()

    def stop(self) -> None:
        """End the threads of the fence."""
        self._stopped.set()

    def guard(self, attempt: Attempt | None = None, calls: Callable[[], int] = lambda: 0) -> None:
        """Guard the calls of an attempt. ``calls`` returns how many of them are in the handler.

        Without an attempt, as for a task that reads or waits, only the end of the drain counts.

        Raises ``lost`` if the task has to end at once, and StateLost if the state is out of reach.
        """
        with self._looking:
            self._attempt, self.lost, self.calls = attempt, None, calls
            self._look()
            if self.lost is not None:
                raise self.lost

    def await_lease(self) -> None:
        """Wait until calls may begin, but no longer than a lease lasts.

        A handler that was just opened has seen no beats yet, which says nothing about the lock.
        """
        latest_s = self.clock() + self.times.lease_s
        while self.lost is None and self.sure_until_s < self.clock() < latest_s:
            time.sleep(CUT_LOOK_S)

    def leave(self) -> bool:
        """Stop guarding the attempt; return whether none of its calls is left in the handler.

        Nothing waits for a call that is left. It goes on until it is cut off.
        """
        with self._looking:
            self._attempt = None
        if self.calls():
            return False
        self.calls = lambda: 0
        return True

    def ensure_at_rest(self) -> None:
        """Return when no call of an earlier task goes on. Calls that do are cut off."""
        while self.calls():
            self.end()
            time.sleep(CUT_LOOK_S)

    def end(self) -> None:
        """End the lease, so that no call begins, and calls that go on are cut off."""
        with self._looking:
            self._lease.end(self.clock())

    @property
    def sure_until_s(self) -> float:
        """The time until which calls may begin, by ``boottime_s``."""
        return self._lease.sure_until_s

    def _watch(self) -> None:
        due_s = self.clock()
        while not self._stopped.is_set():
            is_look = self.clock() >= due_s
            try:
                with self._looking:
                    if is_look:
                        self._look()
                    else:  # This only reads the message, which does not renew the lease.
                        self._take(self.state.control(self.epoch))
            except StateLost as error:
                self.trouble = str(error)
            self.looked(self)
            if is_look:
                due_s = self.clock() + self.times.look_s
            left_s = max(0.0, due_s - self.clock())
            self._stopped.wait(min(left_s, self.times.listen_s or left_s))

    def _look(self) -> None:
        begun_s = self.clock()
        try:
            if self._attempt is None:
                self.state.ensure_epoch(self.epoch)
            else:
                self.state.ensure_newest(self._attempt)
            control = self.state.control(self.epoch)
        except LockLost as error:
            self.lost = error
            self._lease.end(self.clock())
            return
        self.trouble = None
        self._take(control)
        if control is not None:
            self._lease.seen(begun_s, control.beat)

    def _take(self, control: DriverControl | None) -> None:
        if control is None:
            return
        self.control = control
        if control.stop is not None and self.lost is None:
            self.lost = Interrupted(control.stop)

    def _watch_lease(self) -> None:
        while not self._stopped.wait(CUT_LOOK_S):
            late_s = self.clock() - self._lease.cut_at_s
            if late_s >= 0 and (calls := self.calls()):
                sys.stderr.write(
                    f"drainer: {calls:,} calls are cut off: the driver has not confirmed its lock"
                    f" for {late_s + self.times.wait_s:.1f} s\n"
                )
                sys.stderr.flush()
                self.end_process()


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """The handler of a drain, with everything that a task needs to open it.

    Attributes:
        epoch: the epoch of the driver.
        state: the URI of the drain's state.
        lease: the times of the task's lease.
        concurrency: the maximum number of calls of ``handle`` that one task makes at once.
        options: the options of the handler.
        share: the share of the terms' ``limits`` on writing that the task may use until the driver
            lends it calls.
    """

    shipped: Shipped
    client: ClientSettings
    terms: Terms
    epoch: int
    state: str
    lease: LeaseTimes
    concurrency: int
    options: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0


class OpenHandler:
    """The handler of a drain, open in this process, with its event loop and its fence.

    The driver sees in the state, under ``name``, whether it is still open.

    Raises Refused if the handler can't be opened; LockLost if the drain is over.
    """

    def __init__(self, spec: HandlerSpec, looked: Callable[[Fence], None]) -> None:
        terms = spec.terms
        self.drain = terms.drain_id, spec.epoch
        self.state = State.open(spec.state, terms.drain_id)
        self.name = self.state.opening(spec.epoch)
        self._reads = False
        # The fence starts before the handler is opened, to have a lease by the time of the first
        # call.
        self.fence = Fence(self.state, spec.epoch, spec.lease, looked)
        self.fence.start()
        self.loop = new_event_loop()
        try:
            limits = terms.limits
            self._pace = None if limits is None else RateLimiter(limits, spec.share)
            self.handler = spec.shipped.load().configured(spec.options)
            if terms.redrive is not None:
                self.handler = Extension.REDRIVING.load().redriving(
                    self.handler, terms.redrive, spec.client
                )
            context = Context(
                topic=terms.topic,
                group=terms.group,
                drain_id=terms.drain_id,
                concurrency=spec.concurrency,
                options=dict(spec.options),
                write_to=partial(TopicWriter, spec.client, pace=self._pace),
                extras=spec.client.extension,
            )
            self.loop.run_until_complete(self.handler.open(context))
        except BaseException:
            self._end(None)  # The error itself tells the driver that the handler is not open.
            raise

    def report_reading(self) -> None:
        """Report to the driver that this process has reached Kafka."""
        if not self._reads:
            self.state.report_reading(self.drain[1])
            self._reads = True

    def use_share(self, share: float) -> None:
        """Set the share of the ``limits`` on writing that the handler may use from now on."""
        if self._pace is not None and share:
            self._pace.share = share

    def close(self) -> None:
        """Close the handler, and report to the driver whether that failed."""
        failure = None
        try:
            self.loop.run_until_complete(self.handler.close())
        except Exception as error:
            failure = describe(error)
        finally:
            self._end(failure)

    def _end(self, failure: str | None) -> None:
        self.fence.stop()
        self.loop.close()
        with suppress(DrainerError):  # If the state is gone, no driver waits for the report.
            self.state.closed(self.name, failure)


class PythonWorker:
    """The state of this process as a Python worker of Spark: at most one open handler."""

    def __init__(self) -> None:
        # Whoever has this lock may use the handler: the task at work, or the one that closes it.
        self._lock = threading.RLock()
        self._opened: OpenHandler | None = None
        self._idle_since_s = 0.0

    @contextmanager
    def at_work(self, spec: HandlerSpec) -> Iterator[OpenHandler]:
        """Provide the open handler for as long as the block lasts.

        Raises Refused if it can't be opened; LockLost if the drain is over.
        """
        with self._lock:
            opened = self._opened
            if opened is not None:
                opened.fence.ensure_at_rest()  # A task that lost its lease may have left calls.
                if opened.drain != (spec.terms.drain_id, spec.epoch):
                    self._opened = None
                    opened.close()
            if self._opened is None:
                self._opened = OpenHandler(spec, self._close_if_over)
                forget_zip_files()
            self._opened.fence.guard()
            try:
                with hurried_interpreter():
                    yield self._opened
            finally:
                self._idle_since_s = monotonic()

    def _close_if_over(self, fence: Fence) -> None:
        idle = monotonic() - self._idle_since_s > IDLE_S
        if (fence.lost is None and not idle) or not self._lock.acquire(blocking=False):
            return
        try:
            opened = self._opened
            if opened is None or opened.fence is not fence:
                return
            if fence.calls():  # The task has ended without waiting for these calls.
                fence.end()
            else:
                self._opened = None
                opened.close()
        finally:
            self._lock.release()


@cache
def python_worker() -> PythonWorker:
    """Return the ``PythonWorker`` of this process."""
    return PythonWorker()


def forget_zip_files() -> None:
    """Make Python forget the zip files that it imports from. Imported modules stay.

    Before each task (with PySpark 4.3, if the path has changed) Spark invalidates the caches of
    importers. Python then reads each zip file once for each folder in it, which takes 0.4 s for
    PySpark's own.
    """
    for path, found in list(sys.path_importer_cache.items()):
        if isinstance(found, zipimporter):
            sys.path_importer_cache.pop(path, None)
