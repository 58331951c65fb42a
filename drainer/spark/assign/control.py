"""What the driver tells its tasks: that it has the lock, the calls that it lends, when to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, PlanRefused
from drainer.host.calls import blocking_call
from drainer.model.option import Concurrency
from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.policy.failures import Totals
from drainer.spark.assign.lending import Lender
from drainer.spark.state.lease import LeaseTimes, may_beat
from drainer.spark.state.state import DriverControl, QuotaGrant, State


@dataclass(eq=False)
class ControlChannel:
    """Writes the messages of one epoch. From ``begin`` to ``end``, a thread of its own writes beats
    as long as the lock on the group is confirmed (``Lease``).

    ``confirmed_s`` returns the time of the last confirmation by ``clock``.

    Attributes:
        lent: the calls that are lent to tasks, for the next message.
        totals: what all tasks did, for the next message.
    """

    state: State
    epoch: int
    times: LeaseTimes
    confirmed_s: Callable[[], float]
    clock: Callable[[], float] = boottime_s

    def __post_init__(self) -> None:
        self._control = DriverControl()
        self.lent = QuotaGrant()
        self.totals = Totals()
        # Messages are written one after the other, so that beat n + 1 proves that beat n is there.
        self._writing = threading.Lock()
        self._ended = threading.Event()

    def begin(self) -> None:
        """Begin the epoch, which ends all earlier ones, and start to write beats.

        Raises PlanRefused if another driver has begun it; PlanNotWritten or StateLost.
        """
        if not self.state.begin_epoch(self.epoch, self.times):
            raise PlanRefused(
                f"another process drains with the same plan (epoch {self.epoch} in"
                f" {self.state.uri})",
                hint="Let it end. Look for a copy of the plan on another machine.",
            )
        self.send()
        threading.Thread(target=self._beat_on, name="beat", daemon=True).start()

    def send(self, **changes: Any) -> None:
        """Send a message with changes to fields of ``DriverControl``.

        If this raises PlanNotWritten or StateLost, the next beat repeats them.
        """
        with self._writing:
            self._control = replace(self._control, **changes)
            self._write(self._control)

    def end(self) -> None:
        """Write nothing any more, so that a state which is removed now stays removed."""
        self._ended.set()
        with self._writing:
            pass

    def beat(self) -> None:
        """Write a beat if the lock is confirmed. Raises PlanNotWritten or StateLost."""
        with self._writing:
            if may_beat(self.times, self.confirmed_s(), self.clock()):
                self._write(replace(self._control, beat=self._control.beat + 1))

    def _write(self, control: DriverControl) -> None:
        control = replace(control, lent=self.lent, totals=self.totals)
        if not self._ended.is_set():
            self.state.set_control(self.epoch, control)
            self._control = control  # If writing fails, the same beat is written again.

    def _beat_on(self) -> None:
        while not self._ended.wait(self.times.beat_s):
            # If a beat fails, the next one is tried; tasks whose lease ends wait meanwhile.
            with suppress(DrainerError):
                self.beat()


class QuotaAllocator(Lender):
    """Lends a drain's concurrency to its tasks, as often as these look."""

    def __init__(
        self,
        concurrency: Concurrency,
        channel: ControlChannel,
        *,
        threads: bool,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(0)
        self._threads = threads
        self._channel = channel
        self._clock = clock
        self._due_s = 0.0
        self.most = 0  # the maximum of calls of all tasks, whatever a search finds
        self.use(concurrency)

    def use(self, concurrency: Concurrency) -> None:
        """Lend this many calls from now on. A search goes on from the present total."""
        self.most = most = concurrency.most_for(threads=self._threads)
        self.search = None
        if concurrency.is_auto:
            first = min(self.total or concurrency.first, most)
            self.search = ConcurrencyLimit(first, most)
        self.total = most if self.search is None else self.search.limit
        self.restart()

    def pause(self, paused: bool) -> None:
        """Lend nothing while the drain is paused."""
        if paused != self.paused:
            self.paused = paused
            self.restart()

    def restart(self) -> None:
        super().restart()
        self._due_s = 0.0

    async def lend_to(self, tasks: Mapping[str, int], slots: int) -> None:
        """Lend to tasks that are about to begin.

        ``tasks`` has the number of sub-messages of each. The first tasks get the free ``slots``.
        """
        for number, (task, subs) in enumerate(tasks.items()):
            self.begin(task, subs, waits=number >= slots)
        await self._lend()

    async def look(self) -> None:
        """Measure what the tasks did, and lend anew, if it is time to."""
        now_s = self._clock()
        if now_s >= self._due_s:
            self._due_s = now_s + self._channel.times.look_s
            if not self.paused:
                self.measure(now_s)
            await self._lend()

    async def _lend(self) -> None:
        before, calls = self.number, self.grants()
        if self.number != before:
            self._channel.lent = QuotaGrant(self.number, self.total, calls)
            with suppress(DrainerError):  # The next beat repeats it.
                await blocking_call(self._channel.send)
