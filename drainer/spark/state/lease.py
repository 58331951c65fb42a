"""The lease of a task: how long it may begin calls after it has seen beats of its driver.

The driver writes *beats*, numbers that rise by one, while the group's coordinator keeps confirming
its lock. When the beats stop, tasks begin no calls after the time of a lease, and later the calls
that are still in a handler are cut off. All of this happens before the session of the lock ends. So
the next process that gets the lock works alone, whichever process or machine stood still or lost
its connection. Clocks of two machines are never compared. docs/explanation/proofs.md has the proof.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from drainer.host.process import ProcessMark
from drainer.store.plan_file import this_machine

MARGIN_S = 2.0  # It allows for clocks of different speeds, and for threads that wake up late.


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of one drain's leases. The driver chooses them, and the tasks obey them.

    Attributes:
        beat_s: the time between two beats.
        look_s: the time between two looks of a Python worker.
        stale_s: how old the content that a look finds may be, since machines cache what they read.
        confirm_s: how old the last confirmation of the lock may be when a beat is written.
        lease_s: how long after a look a call may begin.
        cut_s: how long after the end of the lease a call may go on.
        listen_s: how often the driver's message is read between two looks, which does not renew the
            lease; 0 for never.
    """

    beat_s: float
    look_s: float
    stale_s: float
    confirm_s: float
    lease_s: float
    cut_s: float
    listen_s: float = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds for which a task may still be at work after another one has replaced it."""
        return self.lease_s + self.cut_s

    @property
    def session_s(self) -> float:
        """Seconds for which the group's coordinator keeps other drains out when the driver has gone
        silent."""
        return self.confirm_s + self.wait_s + MARGIN_S


LOCAL = LeaseTimes(beat_s=0.5, look_s=0.2, stale_s=0, confirm_s=4, lease_s=6, cut_s=4)
# A look takes four requests. A task makes at most three requests per second, including its records.
REMOTE = LeaseTimes(beat_s=1, look_s=4, stale_s=0, confirm_s=5, lease_s=11, cut_s=5, listen_s=1.34)
# An NFS client caches the content of a folder for up to a minute.
MOUNTED = LeaseTimes(beat_s=1, look_s=2.5, stale_s=60, confirm_s=5, lease_s=150, cut_s=5)


class Lease:
    """The permission of one process to work for its driver, from its looks and its own clock.

    One new beat proves little: it may have taken long to arrive, or the driver may have stood still
    between looking at its clock and writing. But the driver begins beat n + 2 only after it has
    written beat n + 1. So a process that saw beat n at some time, and sees beat n + 2 now, knows
    that the driver was sure of its lock at a moment after that time.
    """

    def __init__(self, times: LeaseTimes) -> None:
        self._times = times
        self._seen: deque[tuple[float, int]] = deque()  # The beginning and the beat of each look.
        self.sure_until_s = float("-inf")  # The time until which calls may begin.

    @property
    def cut_at_s(self) -> float:
        """The time until which calls may go on."""
        return self.sure_until_s + self._times.cut_s

    def seen(self, begun_s: float, beat: int) -> None:
        """Renew the lease by a look that began at this time, and that found this beat."""
        seen = self._seen
        if seen and beat < seen[-1][1]:
            return  # The look found an old copy of the driver's message.
        if seen and beat == seen[-1][1]:
            seen.pop()
        seen.append((begun_s, beat))
        while seen[0][1] <= beat - 2:
            since_s, _ = seen.popleft()
            self.sure_until_s = since_s - self._times.stale_s + self._times.lease_s

    def end(self, now_s: float) -> None:
        """End the lease: no call begins, and calls in a handler have ``cut_s`` seconds left."""
        self._seen.clear()
        self.sure_until_s = min(self.sure_until_s, now_s)


def may_beat(times: LeaseTimes, confirmed_s: float, now_s: float) -> bool:
    """Whether the driver may write a beat now if its lock was last confirmed at that time."""
    return now_s - confirmed_s <= times.confirm_s


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its machine, and its mark there. The mark is None if it can't be known."""

    host: str
    mark: ProcessMark | None


def this_process() -> Process:
    """Return this process."""
    with suppress(OSError):
        return Process(this_machine(), ProcessMark.of(os.getpid()))
    return Process(this_machine(), None)


def is_dead(process: Process) -> bool:
    """Whether a process is known to be dead; False if that can't be known from here."""
    if process.host == this_machine() and process.mark is not None:
        with suppress(OSError):
            return not process.mark.alive()
    return False
