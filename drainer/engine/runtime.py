"""The runtime of a drain: its clocks, event loop, threads and random numbers.

A simulation replaces it by one of its own.
"""

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

from drainer.engine.loop import hurried_interpreter, new_event_loop
from drainer.engine.signals import stop_signals
from drainer.host.calls import BlockingCall, blocking_call
from drainer.host.os_errors import user_at_host
from drainer.policy.concurrency_limit import ConcurrencyLimit

StopSignals = Callable[
    [asyncio.AbstractEventLoop, Callable[[str], None], Callable[[], None]],
    AbstractContextManager[None],
]


# The clock of leases and locks. It goes on while the machine is suspended, because other processes
# count that time. If the system has no such clock, it is the monotonic clock.
boottime_s: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


_SCHEDULED = Path("/proc/thread-self/schedstat")


_utc_now = partial(datetime.now, UTC)


def processor_s(threads: bool) -> tuple[float, float]:
    """Return the processor seconds that were used, and the seconds of waiting for a core.

    With ``threads``, the first number is that of all threads of this process, and the second is 0.
    Otherwise, both are those of this thread, and the second is 0 if the system does not report it.
    """
    if threads:
        return time.process_time(), 0.0
    waited_ns = 0
    with suppress(OSError):
        waited_ns = int(_SCHEDULED.read_bytes().split()[1])
    return time.thread_time(), waited_ns / 1e9


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a drain needs of its process and its machine, except for the disk.

    Attributes:
        monotonic: returns seconds from an arbitrary origin, for intervals.
        uptime: returns seconds from an arbitrary origin, for leases. It goes on while the machine
            is suspended.
        wall: returns the time now, with a zone.
        sleep: waits between two passes, while no event loop runs.
        interpreter: returns a context manager that sets Python up for a drain.
        stop_signals: reports on the event loop that a person or a supervisor wants a stop.
        thread, event, lock, queue: the classes of ``threading`` and ``queue``.
        random: makes the generator from which retries draw their delays.
        search: makes the search for the best concurrency, from the first limit and the maximum.
        user: returns the name of the user that the drain runs for, as "user@host".
        processor: returns the processor seconds that were used, and those that were waited for.
        thread_time: returns the processor seconds that this thread has used.
    """

    monotonic: Callable[[], float] = time.monotonic
    uptime: Callable[[], float] = boottime_s
    wall: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], None] = time.sleep
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    interpreter: Callable[[], AbstractContextManager[None]] = hurried_interpreter
    stop_signals: StopSignals = stop_signals
    blocking_call: BlockingCall = blocking_call
    thread: Callable[..., threading.Thread] = threading.Thread
    event: Callable[[], threading.Event] = threading.Event
    lock: Callable[[], threading.Lock] = threading.Lock
    queue: Callable[[], SimpleQueue[Any]] = SimpleQueue
    random: Callable[[], Random] = Random
    search: Callable[[int, int], ConcurrencyLimit] = ConcurrencyLimit
    user: Callable[[], str] = lambda: user_at_host(os.geteuid())
    processor: Callable[[bool], tuple[float, float]] = processor_s
    thread_time: Callable[[], float] = time.thread_time

    def now(self) -> str:
        """Return the time in ISO 8601 with milliseconds and zone, as plans and letters have it."""
        return self.wall().isoformat(timespec="milliseconds")


THIS_PROCESS = Runtime()
# The runtime of a drain that gets no signals, because a driver stops it.
UNSIGNALLED = Runtime(stop_signals=lambda loop, stop, give_up: nullcontext())
