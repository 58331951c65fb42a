"""The fence, by which a Python worker checks whether it may still make calls for its driver."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NoReturn

from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, Interrupted, LockLost, StateLost
from drainer.spark.state.lease import Lease, LeaseTimes
from drainer.spark.state.state import Attempt, DriverControl, State

CUT_LOOK_S = 0.1
EXIT_CUT = 75  # exit code of a Python worker whose calls are cut off: try again (EX_TEMPFAIL)


def _no_calls() -> int:
    return 0


def _exit() -> NoReturn:
    os._exit(EXIT_CUT)


@dataclass(eq=False)
class Fence:
    """Looks for messages of the driver, and for newer drivers and attempts, in a thread of its own.

    A Python worker has a fence for as long as its handler is open. For the engine in a task, the
    fence is the lock. After the end of its lease no call begins, even in a process that stood still
    in the meantime. If a call goes on after the cut, the fence ends the whole process.

    ``looked`` is called with the fence after each look, in the thread of the fence.
    """

    state: State
    epoch: int
    times: LeaseTimes
    looked: Callable[[Fence], None] = lambda fence: None
    _: KW_ONLY
    clock: Callable[[], float] = boottime_s
    end_process: Callable[[], object] = _exit

    def __post_init__(self) -> None:
        # Why the task has to end: LockLost if a newer driver or attempt has taken over, Interrupted
        # if the driver requests a stop.
        self.lost: DrainerError | None = None
        self.trouble: str | None = None  # why the last look was not answered
        self.calls: Callable[[], int] = _no_calls  # returns how many calls are in the handler
        self.control = DriverControl()  # the newest message of the driver
        self._lease = Lease(self.times)
        self._attempt: Attempt | None = None
        self._looking = threading.Lock()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start to look."""
        threading.Thread(target=self._watch, name="fence", daemon=True).start()
        threading.Thread(target=self._watch_lease, name="fence-cut", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def guard(self, attempt: Attempt, calls: Callable[[], int]) -> None:
        """Guard an attempt from now on. ``calls`` returns how many of its calls are in the handler.

        Raises the error by which the attempt is ``lost``, or StateLost.
        """
        with self._looking:
            self._attempt, self.lost, self.calls = attempt, None, calls
            self._look()
            if self.lost is not None:
                raise self.lost

    def leave(self) -> bool:
        """Guard the attempt no more; return whether it has no call left in the handler.

        A call that is left goes on until it is cut off, since nothing waits for it.
        """
        with self._looking:
            self._attempt = None
        if self.calls():
            return False
        self.calls = _no_calls
        return True

    def ensure_at_rest(self) -> None:
        """Return once no call of an earlier task goes on; those that do are cut off."""
        while self.calls():
            self.end()
            time.sleep(CUT_LOOK_S)

    def end(self) -> None:
        """End the lease: no call begins any more, and calls that go on are cut off."""
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
                    else:  # Reading the message alone renews no lease.
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
