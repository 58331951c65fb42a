"""The fence: a task looks whether it is still the one that is to do its share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from drainer.engine.runtime import uptime_s
from drainer.errors import DrainerError, Interrupted, LockLost
from drainer.spark.state import Attempt, State

JOIN_S = 1.0


class Fence:
    """Looks at the driver's word and for newer attempts, from a thread of its own.

    It is the engine's lock in a task. After ``lease_s`` without a look that was answered nobody
    knows whether another attempt is at work, so this one is to begin nothing: ``sure`` says so from
    that very moment, also on a process that stood still in the meantime.

    Attributes:
        lost: why the task is to end: LockLost when a newer driver or attempt has taken over,
            Interrupted when the driver asks for a stop.
        trouble: why the last look was not answered.
    """

    def __init__(
        self,
        state: State,
        attempt: Attempt,
        *,
        look_s: float | None = None,
        lease_s: float | None = None,
        clock: Callable[[], float] = uptime_s,
    ) -> None:
        self.lost: DrainerError | None = None
        self.trouble: str | None = None
        self._state = state
        self._attempt = attempt
        self._look_s = state.look_s if look_s is None else look_s
        self._lease_s = state.lease_s if lease_s is None else lease_s
        self._clock = clock
        self._sure_until_s = float("-inf")
        self._confirmed_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fence", daemon=True)

    def start(self) -> None:
        """Looks once, and from then on in its thread. Raises what is ``lost``, or StateLost."""
        self._look()
        if self.lost is not None:
            raise self.lost
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    @property
    def sure(self) -> bool:
        """Whether the task may begin something at this moment."""
        return self._clock() < self._sure_until_s

    @property
    def unsure_since_s(self) -> float | None:
        """Since when it may begin nothing (``time.monotonic``), None when it may."""
        return None if self.sure else self._confirmed_s

    def _watch(self) -> None:
        while not self._ended.wait(self._look_s):
            try:
                self._look()
            except Interrupted as error:
                self.trouble = str(error)
            if isinstance(self.lost, LockLost):
                return

    def _look(self) -> None:
        begun_s = self._clock()
        try:
            control = self._state.insist_on(self._attempt)
        except LockLost as error:
            self._sure_until_s = float("-inf")
            self.lost = error
            return
        self.trouble = None
        # A mounted folder may still show the word of an earlier driver.
        if control.stop is not None and control.epoch == self._attempt.epoch and not self.lost:
            self.lost = Interrupted(control.stop)
        # What is read was true at some time after the question: the lease counts from there.
        if control.paused:
            self._sure_until_s = float("-inf")
        else:
            self._sure_until_s = begun_s + self._lease_s
            self._confirmed_s = time.monotonic()
