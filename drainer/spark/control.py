"""What the driver says to its tasks: that it holds the lock, and when they are to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from drainer.engine.runtime import uptime_s
from drainer.errors import DrainerError, PlanRefused
from drainer.spark.lease import LeaseTimes, may_beat
from drainer.spark.state import Control, State


class ControlChannel:
    """The control of one epoch. From ``begin`` to ``end`` a thread of its own writes beats, as long
    as the lock on the group is confirmed: see ``Lease``.

    ``confirmed_s`` gives when that was, by ``clock``.
    """

    def __init__(
        self,
        state: State,
        epoch: int,
        times: LeaseTimes,
        confirmed_s: Callable[[], float],
        clock: Callable[[], float] = uptime_s,
    ) -> None:
        self._state = state
        self._epoch = epoch
        self._times = times
        self._confirmed_s = confirmed_s
        self._clock = clock
        self._control = Control()
        self._writing = threading.Lock()  # one after the other: beat n + 1 says that n is there
        self._ended = threading.Event()

    def begin(self) -> None:
        """Ends the epochs before it. Raises PlanRefused, PlanNotWritten or StateLost."""
        if not self._state.begin_epoch(self._epoch, self._times):
            raise PlanRefused(
                f"another process drains by the same plan (epoch {self._epoch} in"
                f" {self._state.uri})",
                hint="let that one finish; there may be a copy of the plan on another machine",
            )
        self._state.set_control(self._epoch, self._control)
        threading.Thread(target=self._beat_on, name="beat", daemon=True).start()

    def stop(self, reason: str) -> None:
        """They come to rest. Raises PlanNotWritten or StateLost."""
        with self._writing:
            self._control = replace(self._control, stop=reason)
            self._write(self._control)

    def end(self) -> None:
        """Nothing is written any more: what is removed now stays so."""
        self._ended.set()
        with self._writing:
            pass

    def beat(self) -> None:
        """Writes one, if the lock is confirmed. Raises PlanNotWritten or StateLost."""
        with self._writing:
            sure = may_beat(self._times, self._confirmed_s(), self._clock())
            if sure and not self._ended.is_set():
                self._write(replace(self._control, beat=self._control.beat + 1))

    def _write(self, control: Control) -> None:
        self._state.set_control(self._epoch, control)
        self._control = control  # one that may not have arrived is written again

    def _beat_on(self) -> None:
        while not self._ended.wait(self._times.beat_s):
            with suppress(DrainerError):  # it is tried again; tasks whose lease is over wait
                self.beat()
