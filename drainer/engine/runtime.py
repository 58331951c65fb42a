"""Runtime of a drain: clocks, an event loop, threads, chance. A simulation has its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

from drainer.engine.loop import BlockingCall, blocking_call, hurried_interpreter, new_event_loop
from drainer.engine.signals import stop_signals
from drainer.ownership import user_at_host
from drainer.policy.concurrency_limit import ConcurrencyLimit

StopSignals = Callable[
    [asyncio.AbstractEventLoop, Callable[[str], None], Callable[[], None]],
    AbstractContextManager[None],
]


# Seconds that go on while the machine is suspended, where the system has them: for leases and
# locks, which others count on meanwhile.
boottime_s: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


_SCHEDULED = Path("/proc/thread-self/schedstat")


_utc_now = partial(datetime.now, UTC)


def processor_s(threads: bool) -> tuple[float, float]:
    """Processor seconds of this thread, or of all ``threads`` of this process.

    Beside them, for how long this thread has waited for a core, where the system reports that; of
    many threads it has nothing.
    """
    if threads:
        return time.process_time(), 0.0
    waited_ns = 0
    with suppress(OSError):
        waited_ns = int(_SCHEDULED.read_bytes().split()[1])
    return time.thread_time(), waited_ns / 1e9


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that a drain needs of its process and its machine, but for the disk."""

    monotonic: Callable[[], float] = time.monotonic  # seconds of any origin, for intervals
    # The same, and it goes on while the machine is suspended: for leases.
    uptime: Callable[[], float] = boottime_s
    wall: Callable[[], datetime] = _utc_now  # the time now, with a zone
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    # Sets Python up for a drain, while its block lasts.
    interpreter: Callable[[], AbstractContextManager[None]] = hurried_interpreter
    # Reports, on the loop, that a person or a supervisor wants it to stop.
    stop_signals: StopSignals = stop_signals
    blocking_call: BlockingCall = blocking_call
    # thread, event, lock, queue: as those of ``threading`` and ``queue``.
    thread: Callable[..., threading.Thread] = threading.Thread
    event: Callable[[], threading.Event] = threading.Event
    lock: Callable[[], threading.Lock] = threading.Lock
    queue: Callable[[], SimpleQueue[Any]] = SimpleQueue
    random: Callable[[], Random] = Random  # makes what retries draw their pauses from
    # Makes what finds the best concurrency, of the first to try and the most.
    search: Callable[[int, int], ConcurrencyLimit] = ConcurrencyLimit
    # Gives the name of whom it runs for, as "user@host".
    user: Callable[[], str] = lambda: user_at_host(os.geteuid())
    # processor, thread_time: give the processor time that was spent; the first, also the time that
    # was waited for it.
    processor: Callable[[bool], tuple[float, float]] = processor_s
    thread_time: Callable[[], float] = time.thread_time

    def now(self) -> str:
        """The time as plans and dead letters have it: ISO 8601 with offset, milliseconds."""
        return self.wall().isoformat(timespec="milliseconds")


THIS_PROCESS = Runtime()
# For a drain that others stop.
UNSIGNALLED = Runtime(stop_signals=lambda loop, stop, give_up: nullcontext())
