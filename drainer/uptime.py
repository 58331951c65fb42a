"""A clock for leases and locks: others count on while this machine sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# Seconds that go on while the machine is suspended, where the system can tell.
uptime_s: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
