"""Messages of the driver to its tasks: that it has the lock, what it lends, when to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from drainer.engine.loop import blocking_call
from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, PlanRefused
from drainer.model.option import Concurrency
from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.policy.failures import Totals
from drainer.spark.assign.lending import Lender
from drainer.spark.state.lease import LeaseTimes, may_beat
from drainer.spark.state.state import DriverControl, QuotaGrant, State


@dataclass(eq=False)
class ControlChannel:
    """The control of one epoch. From ``begin`` to ``end`` a thread of its own writes beats, as long
    as the lock on the group is confirmed: see ``Lease``.

    ``confirmed_s`` gives when that was, by ``clock``.
    """

    state: State
    epoch: int
    times: LeaseTimes
    confirmed_s: Callable[[], float]
    clock: Callable[[], float] = boottime_s

    def __post_init__(self) -> None:
        self._control = DriverControl()
        self.lent = QuotaGrant()  # to tasks; the next message has it
        self.totals = Totals()  # what all tasks did; the next message has it
        self._writing = threading.Lock()  # one after the other: beat n + 1 proves that n is there
        self._ended = threading.Event()

    def begin(self) -> None:
        """Ends the epochs before it. Raises PlanRefused, PlanNotWritten or StateLost."""
        if not self.state.begin_epoch(self.epoch, self.times):
            raise PlanRefused(
                f"another process drains with the same plan (epoch {self.epoch} in"
                f" {self.state.uri})",
                hint="Let it end. Look for a copy of the plan on another machine.",
            )
        self.send()
        threading.Thread(target=self._beat_on, name="beat", daemon=True).start()

    def send(self, **changes: Any) -> None:
        """Send a message whose fields of ``DriverControl`` differ by these from now on.

        A beat repeats them, if this raises PlanNotWritten or StateLost.
        """
        with self._writing:
            self._control = replace(self._control, **changes)
            self._write(self._control)

    def end(self) -> None:
        """Nothing is written any more: what is removed now stays so."""
        self._ended.set()
        with self._writing:
            pass

    def beat(self) -> None:
        """Writes one, if the lock is confirmed. Raises PlanNotWritten or StateLost."""
        with self._writing:
            if may_beat(self.times, self.confirmed_s(), self.clock()):
                self._write(replace(self._control, beat=self._control.beat + 1))

    def _write(self, control: DriverControl) -> None:
        control = replace(control, lent=self.lent, totals=self.totals)
        if not self._ended.is_set():
            self.state.set_control(self.epoch, control)
            self._control = control  # a beat that may not have arrived is written again

    def _beat_on(self) -> None:
        while not self._ended.wait(self.times.beat_s):
            with suppress(DrainerError):  # it is tried again; tasks whose lease is over wait
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
        self.most = 0  # calls that are made at once by all tasks, whatever a search finds
        self.use(concurrency)

    def use(self, concurrency: Concurrency) -> None:
        """Lends that many from now on; a search goes on from what is lent."""
        self.most = most = concurrency.most_for(threads=self._threads)
        self.search = None
        if concurrency.is_auto:
            first = min(self.total or concurrency.first, most)
            self.search = ConcurrencyLimit(first, most)
        self.total = most if self.search is None else self.search.limit
        self.restart()

    def pause(self, paused: bool) -> None:
        """Lends nothing while paused."""
        if paused != self.paused:
            self.paused = paused
            self.restart()

    def restart(self) -> None:
        super().restart()
        self._due_s = 0.0  # now

    async def lend_to(self, tasks: Mapping[str, int], slots: int) -> None:
        """Lend to tasks that are about to begin, with so many sub-messages each; the first ones
        have the slots that are free."""
        for number, (task, subs) in enumerate(tasks.items()):
            self.begin(task, subs, waits=number >= slots)
        await self._lend()

    async def look(self) -> None:
        """Lend again, when it is time for it."""
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
            with suppress(DrainerError):  # the next beat repeats it
                await blocking_call(self._channel.send)
