"""A Python worker of Spark, which keeps the open handler and its event loop from task to task.

Spark runs one task after another in a worker, and ends an idle worker without a word. So the first
task that needs the handler opens it. It is closed when the drain is over, or when the worker had
nothing to do for a while; then the next task opens it again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from zipimport import zipimporter

from drainer.engine.loop import hurried_interpreter, new_event_loop
from drainer.errors import DrainerError
from drainer.handler import Context
from drainer.kafka.settings import ClientSettings
from drainer.kafka.writer import TopicWriter
from drainer.loading.extensions import Extension
from drainer.model.terms import Terms
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.session.shipping import Shipped
from drainer.spark.state.lease import LeaseTimes
from drainer.spark.state.state import State
from drainer.spark.task.fence import Fence
from drainer.text.mask import describe

IDLE_S = 20.0  # until an idle worker closes the handler; Spark ends the worker after a minute


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """The handler of a drain, with all that a task needs to open it.

    Attributes:
        epoch: the epoch of the driver.
        state: the URI of the drain's state.
        lease: the times of the task's lease.
        concurrency: the maximum number of calls of ``handle`` that one task makes at once.
        options: the options of the handler.
        share: the share of the terms' ``limits`` that the task may write until it has borrowed
            calls.
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

    By its ``name`` in the state, the driver knows whether it is open.

    Raises Refused if the handler can't be opened; LockLost if the drain is over.
    """

    def __init__(self, spec: HandlerSpec, looked: Callable[[Fence], None]) -> None:
        terms = spec.terms
        self.drain = terms.drain_id, spec.epoch
        self._state = State.open(spec.state, terms.drain_id)
        self.name = self._state.opening(spec.epoch)
        self._reads = False
        # The fence keeps two drivers, and two attempts, apart. It starts before the handler is
        # opened, so that it has a lease by the time of the first call.
        self.fence = Fence(self._state, spec.epoch, spec.lease, looked)
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
            self._end(None)  # The error reports that it is not open.
            raise

    def report_reading(self) -> None:
        """Report to the driver that this process has reached Kafka."""
        if not self._reads:
            self._state.report_reading(self.drain[1])
            self._reads = True

    def use_share(self, share: float) -> None:
        """Change the share of the ``limits`` that the handler may write from now on."""
        if self._pace is not None and share:
            self._pace.share = share

    def close(self) -> None:
        """Close the handler, and report to the driver how that went."""
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
        with suppress(DrainerError):  # If the state is gone, no driver reads it any more.
            self._state.closed(self.name, failure)


class PythonWorker:
    """The Python worker that this process is."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held while a task is at work, or the handler is closed
        self._opened: OpenHandler | None = None
        self._idle_since_s = 0.0

    @contextmanager
    def at_work(self, spec: HandlerSpec) -> Iterator[OpenHandler]:
        """The open handler, for as long as the block lasts.

        Raises Refused if it can't be opened; LockLost if the drain is over.
        """
        with self._lock:
            opened = self._opened
            if opened is not None:
                opened.fence.ensure_at_rest()  # A task that was overtaken may have left calls.
                if opened.drain != (spec.terms.drain_id, spec.epoch):
                    self._opened = None
                    opened.close()
            if self._opened is None:
                self._opened = OpenHandler(spec, self._close_if_over)
                forget_zip_files()
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
            if fence.calls():  # The task has given them up.
                fence.end()
            else:
                self._opened = None
                opened.close()
        finally:
            self._lock.release()


_python_worker = PythonWorker()


def python_worker() -> PythonWorker:
    """Return the Python worker that this process is."""
    return _python_worker


def forget_zip_files() -> None:
    """Make Python forget the zip files that it imports from; imported modules stay.

    Before each task (with PySpark 4.3, if the path has changed) Spark invalidates the caches of
    importers. Python then reads a zip file once for each folder in it: PySpark's own takes 0.4 s.
    """
    for path, found in list(sys.path_importer_cache.items()):
        if isinstance(found, zipimporter):
            sys.path_importer_cache.pop(path, None)
