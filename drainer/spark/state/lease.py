"""The lease: until when a task may begin calls, by the beats that it sees of its driver.

The driver writes *beats*, numbers that rise by one, and each only while the coordinator's last
answer to its lock is fresh. Once they stop, tasks begin no more within a lease, and what is still
in a handler is cut off. All of that is over before the lock's session is, so whoever gets the lock
next works alone, whatever froze or was cut off, and on whichever machine. Nothing compares the
clocks of two machines; docs/explanation/proofs.md has the proof.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from drainer.process import ProcessMark
from drainer.store.plan_file import this_machine

MARGIN_S = 2.0  # for clocks that run at different paces, and a thread that wakes up late


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of one drain; its driver chooses them, and writes them down for all."""

    beat_s: float  # between two beats
    look_s: float  # between two looks of a Python worker
    stale_s: float  # how old what a look finds may be, where machines keep what they have read
    confirm_s: float  # how old the lock's last confirmation may be for a beat to be written
    lease_s: float  # how long after a look a call may begin
    cut_s: float  # how long after the lease a call may go on
    # Between two readings of the driver's messages, which are no looks; 0 for none.
    listen_s: float = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds for which a task may be at work after it was overtaken."""
        return self.lease_s + self.cut_s

    @property
    def session_s(self) -> float:
        """Seconds for which the group's coordinator keeps others out when the driver falls
        silent."""
        return self.confirm_s + self.wait_s + MARGIN_S


LOCAL = LeaseTimes(beat_s=0.5, look_s=0.2, stale_s=0, confirm_s=4, lease_s=6, cut_s=4)
# A look is four requests, and a task makes three per second at most, records and all.
REMOTE = LeaseTimes(beat_s=1, look_s=4, stale_s=0, confirm_s=5, lease_s=11, cut_s=5, listen_s=1.34)
# NFS keeps what it knows of a folder for up to a minute.
MOUNTED = LeaseTimes(beat_s=1, look_s=2.5, stale_s=60, confirm_s=5, lease_s=150, cut_s=5)


class Lease:
    """Permission of one process to work for its driver, by the looks that it took and a clock of
    its own.

    A beat that differs from the one before may have been on its way for long, and the driver may
    have stood still between its look at the clock and the write. But beat n + 2 was only begun when
    n + 1 was there: whoever saw n at a time, and sees n + 2 now, knows that the driver was sure of
    its lock at some moment after that time. The first beat that is seen proves nothing.
    """

    def __init__(self, times: LeaseTimes) -> None:
        self._times = times
        self._seen: deque[tuple[float, int]] = deque()  # when the look began, and the beat
        self.sure_until_s = float("-inf")  # calls begin only before that

    @property
    def cut_at_s(self) -> float:
        """No call goes on after that."""
        return self.sure_until_s + self._times.cut_s

    def seen(self, begun_s: float, beat: int) -> None:
        """A look that began at that time was answered, and found this beat."""
        seen = self._seen
        if seen and beat < seen[-1][1]:
            return  # a late copy of an earlier one
        if seen and beat == seen[-1][1]:
            seen.pop()
        seen.append((begun_s, beat))
        while seen[0][1] <= beat - 2:
            since_s, _ = seen.popleft()
            self.sure_until_s = since_s - self._times.stale_s + self._times.lease_s

    def end(self, now_s: float) -> None:
        """No call begins any more, and what is in a handler has ``cut_s`` left."""
        self._seen.clear()
        self.sure_until_s = min(self.sure_until_s, now_s)


def may_beat(times: LeaseTimes, confirmed_s: float, now_s: float) -> bool:
    """Whether the driver may begin to write a beat, when its lock was last confirmed then."""
    return now_s - confirmed_s <= times.confirm_s


@dataclass(frozen=True, slots=True)
class Process:
    """One process: where it runs, and which it is there; None when that isn't known."""

    host: str
    mark: ProcessMark | None


def this_process() -> Process:
    with suppress(OSError):
        return Process(this_machine(), ProcessMark.of(os.getpid()))
    return Process(this_machine(), None)


def is_dead(process: Process) -> bool:
    """Whether a process is known not to live any more; False when that isn't known."""
    if process.host == this_machine() and process.mark is not None:
        with suppress(OSError):
            return not process.mark.alive()
    return False
