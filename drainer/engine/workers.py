"""Workers take sub-messages from the dispatcher and give them to the handler.

They live as long as the drain, and make no task or future for a sub-message. They are coroutines on
the event loop for an async handler (``coroutines.py``), and threads for a plain one
(``threads.py``), with the same methods. The dispatcher has one owner, the event loop: threads get
their sub-messages from it, and hand them back to it in batches.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drainer.core.lanes import Lanes
from drainer.engine.loop import spawn
from drainer.engine.ports import Events, Lock
from drainer.engine.runtime import Runtime
from drainer.handler import Retry
from drainer.message import SubMessage

RETRY_S = 0.1  # A call that may not begin, because the lease is over, is tried again so much later.
# Workers look for overdue calls after this share of the timeout, within these bounds.
WATCH_SHARE = 0.1
WATCH_LEAST_S, WATCH_MOST_S = 0.02, 1.0

# What goes to the handler in one call: a SubMessage, or a Batch if it wants several at once.
CallInput = Any


class LeaseOver(Retry):
    """Raised in place of a call that may not begin now; it is no attempt."""

    def __init__(self) -> None:
        super().__init__("another drain may be running", after=RETRY_S)


class TimedOut(TimeoutError):
    """An attempt that took longer than it may."""

    letter_reason = "timeout"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"handle took longer than --tune timeout={timeout_s:g}s")


class WorkSource(Protocol):
    """Where workers take their calls from: ``Failures``, or what makes batches of what that lets
    start."""

    @property
    def lanes(self) -> Lanes: ...

    @property
    def ready(self) -> int:
        """Calls that may start now."""

    def take(self) -> CallInput | None: ...

    def finish(self, work: CallInput) -> None: ...

    def finish_and_take(self, work: CallInput) -> CallInput | None: ...


class FailedCalls(Protocol):
    """Decides what becomes of calls that fail, or take too long (failures.py)."""

    @property
    def late(self) -> Collection[SubMessage]:
        """Sub-messages that are overdue, and still in their threads."""

    def failed(self, call: CallInput, error: BaseException) -> None:
        """Decide on the sub-messages of a call that ended with an error."""

    def overdue(self, calls: Sequence[CallInput], *, stuck: bool) -> None:
        """Note the calls that go on in their threads after their time. All threads are blocked by
        such calls if the drain is ``stuck``."""

    def returned(self, call: CallInput) -> None:
        """Note that a call that may have been overdue has ended; its result comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Settings of the calls of a handler.

    Attributes:
        timeout_s: how long a call may take; 0 for no limit.
        lease: tells until when calls may begin.
        record_latency: is given a latency, its gap and its processor seconds, and returns the next
            gap (latencies.py).
    """

    handle: Callable[[CallInput], Any]
    timeout_s: float
    lease: Lock
    record_latency: Callable[[float, int, float], int]
    runtime: Runtime


class Workers(ABC):
    """Base of coroutines and threads; ``limit`` sets how many there are."""

    def __init__(
        self, source: WorkSource, calls: Calls, failures: FailedCalls, events: Events
    ) -> None:
        self._source = source
        self._handle = calls.handle
        self._timeout_s = calls.timeout_s
        self._lease = calls.lease
        self._record_latency = calls.record_latency
        self._runtime = calls.runtime
        self._clock = calls.runtime.monotonic
        self._uptime = calls.runtime.uptime
        self._failures = failures
        self._events = events
        self._concurrency = 0
        self._stopping = False
        self._watcher: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def watch(self) -> None:
        """Look for calls that take too long from now on."""
        self._watcher = spawn(self._watch(), "timeouts", self._events.halt)

    @abstractmethod
    async def _watch(self) -> None: ...

    def _watch_no_more(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()


def watch_interval_s(timeout_s: float) -> float:
    """Return the seconds between two looks for overdue calls. A timeout of 0 is none, but may be
    changed."""
    if not timeout_s:
        return WATCH_MOST_S
    return min(WATCH_MOST_S, max(WATCH_LEAST_S, WATCH_SHARE * timeout_s))
