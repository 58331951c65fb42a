"""Workers take sub-messages from the dispatcher and give them to the handler.

They live as long as the drain, and create no task or future per sub-message. They are coroutines on
the event loop for an async handler (``coroutines.py``), and threads for a plain one
(``threads.py``), with the same methods. The dispatcher has one owner, the event loop: threads get
their sub-messages from it, and hand them back to it in batches.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drainer.engine.failures import Failures
from drainer.engine.loop import spawn
from drainer.engine.ports import CallInput, Events, Lock
from drainer.engine.runtime import Runtime

# Workers look for overdue calls after this share of the timeout, within these bounds.
WATCH_SHARE = 0.1
WATCH_LEAST_S, WATCH_MOST_S = 0.02, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Settings of the calls of a handler.

    Attributes:
        timeout_s: how long a call may take; 0 for no limit.
        lease: tells until when calls may begin.
        record_latency: is given a latency, its gap and its processor seconds, and returns the next
            gap (``Latencies.record``).
    """

    handle: Callable[[CallInput], Any]
    timeout_s: float
    lease: Lock
    record_latency: Callable[[float, int, float], int]
    runtime: Runtime


class Workers(ABC):
    """Base of the workers that are coroutines or threads. ``limit`` sets how many there are."""

    def __init__(self, calls: Calls, failures: Failures, events: Events) -> None:
        self._source = failures.source
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
    """Return the seconds between two looks for overdue calls.

    Workers also look while there is no timeout (0), because it may be changed at any time.
    """
    if not timeout_s:
        return WATCH_MOST_S
    return min(WATCH_MOST_S, max(WATCH_LEAST_S, WATCH_SHARE * timeout_s))
