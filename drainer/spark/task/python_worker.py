"""The Python worker of Spark, which keeps things from task to task: the handler, open, and its
event loop.

Spark runs one task after another in a worker, and ends idle ones without a word. So the handler is
opened by the first task that needs it, and closed when the drain is over, or when the worker has
had nothing to do for a while; the next task opens it again then.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping
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
from drainer.loader import LoadedHandler
from drainer.mask import describe
from drainer.model.terms import Terms
from drainer.policy.rate_cap import RateLimiter
from drainer.spark.session.shipping import Shipped
from drainer.spark.state.lease import LeaseTimes
from drainer.spark.state.state import State
from drainer.spark.task.fence import Fence

IDLE_S = 20.0  # Spark ends a worker that is idle for a minute


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """The handler of a drain, as a task needs it.

    ``concurrency`` is how many calls of ``handle`` one task makes at most. ``share`` is what of the
    ``limits`` of the terms it may write until it has borrowed some.
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


class PythonWorker:
    """The one of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held while a task is at work, or the handler is closed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handler: LoadedHandler | None = None
        self._spec: HandlerSpec | None = None
        self._name = ""
        self._fence: Fence | None = None
        self._pace: RateLimiter | None = None
        self._idle_since_s = 0.0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The handler's; for whoever is at work."""
        assert self._loop is not None
        return self._loop

    @property
    def fence(self) -> Fence:
        """Fence that keeps two drivers and two attempts apart; for whoever is at work."""
        assert self._fence is not None
        return self._fence

    def use_share(self, share: float) -> None:
        """Change the share of the ``limits`` that the handler may write from now on."""
        if self._pace is not None and share:
            self._pace.share = share

    @contextmanager
    def at_work(self, spec: HandlerSpec) -> Iterator[LoadedHandler]:
        """The handler, open, for as long as the block lasts.

        Raises Refused when it can't be opened, LockLost when the drain is over.
        """
        with self._lock:
            if self._fence is not None:  # an overtaken task may have left calls behind
                self._fence.ensure_at_rest()
            if self._spec is not None and _whose(self._spec) != _whose(spec):
                self._close()
            if self._handler is None:
                self._open(spec)
            assert self._handler is not None
            try:
                with hurried_interpreter():
                    yield self._handler
            finally:
                self._idle_since_s = monotonic()

    def _open(self, spec: HandlerSpec) -> None:
        state = State.open(spec.state, spec.terms.drain_id)
        name = state.opening(spec.epoch)
        fence = Fence(state, spec.epoch, spec.lease, lambda: self._close_if_over(fence))
        fence.start()  # to be sure by the time that the first call is to begin
        try:
            limits = spec.terms.limits
            self._pace = None if limits is None else RateLimiter(limits, spec.share)
            loop, handler = _opened(spec, self._pace)
        except BaseException:
            fence.stop()
            with suppress(DrainerError):  # the error reports that it isn't open
                state.closed(name, None)
            raise
        self._loop, self._handler, self._spec, self._name = loop, handler, spec, name
        self._fence = fence
        self._idle_since_s = monotonic()
        forget_zip_files()

    def _close(self) -> None:
        """Closes the handler and reports to the driver how that went."""
        spec, handler, loop = self._spec, self._handler, self._loop
        self._spec = self._handler = self._loop = None
        assert spec is not None
        assert handler is not None
        assert loop is not None
        self.fence.stop()
        failed = None
        try:
            loop.run_until_complete(handler.close())
        except Exception as error:
            failed = describe(error)
        finally:
            loop.close()
        with suppress(DrainerError):  # the state is gone: no driver reads it any more
            State.open(spec.state, spec.terms.drain_id).closed(self._name, failed)

    def _close_if_over(self, fence: Fence) -> None:
        idle = monotonic() - self._idle_since_s > IDLE_S
        if (fence.lost is None and not idle) or not self._lock.acquire(blocking=False):
            return
        try:
            if self._fence is not fence:
                return
            if fence.calls():  # that their task has given up
                fence.end()
            else:
                self._close()
        finally:
            self._lock.release()


_python_worker = PythonWorker()


def python_worker() -> PythonWorker:
    """Return the one that the tasks of this process share."""
    return _python_worker


def forget_zip_files() -> None:
    """Forget zip files; what was imported stays. Before a task Spark has Python look again what
    there is to import
    (PySpark 4.3 if the path has changed), and it reads a zip file for each folder in it: 0.4 s for
    PySpark's own."""
    for path, found in list(sys.path_importer_cache.items()):
        if isinstance(found, zipimporter):
            sys.path_importer_cache.pop(path, None)


def _opened(
    spec: HandlerSpec, pace: RateLimiter | None
) -> tuple[asyncio.AbstractEventLoop, LoadedHandler]:
    handler = spec.shipped.load()
    if spec.terms.redrive is not None:
        handler = handler.redriving(spec.terms.redrive)
    loop = new_event_loop()
    context = Context(
        topic=spec.terms.topic,
        group=spec.terms.group,
        drain_id=spec.terms.drain_id,
        concurrency=spec.concurrency,
        options=dict(spec.options),
        write_to=partial(TopicWriter, spec.client, pace=pace),
    )
    try:
        loop.run_until_complete(handler.open(context))
    except BaseException:
        loop.close()
        raise
    return loop, handler


def _whose(spec: HandlerSpec) -> tuple[str, int]:
    return spec.terms.drain_id, spec.epoch
