"""Messages of the driver to its tasks: that it has the lock, what it lends, when to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic

from drainer.engine.loop import blocking_call
from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, PlanRefused
from drainer.model.option import Concurrency
from drainer.model.settings import FailureSettings
from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.policy.failures import Totals
from drainer.spark.assign.lending import Lender, SharedSearch
from drainer.spark.state.lease import LeaseTimes, may_beat
from drainer.spark.state.records import Borrowed
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
        self.totals = Totals()  # what all tasks did; the next beat has it
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
        self.state.set_control(self.epoch, self._control)
        threading.Thread(target=self._beat_on, name="beat", daemon=True).start()

    def stop(self, reason: str) -> None:
        """Stop the tasks. Raises PlanNotWritten or StateLost."""
        with self._writing:
            self._control = replace(self._control, stop=reason)
            self._write(self._control)

    def lend(self, lent: QuotaGrant) -> None:
        """Lend calls to tasks; a beat repeats it, if this raises PlanNotWritten or StateLost."""
        with self._writing:
            if lent.number < self._control.lent.number:  # of two threads the later one was first
                return
            self._update(replace(self._control, lent=lent))

    def change(self, failures: FailureSettings) -> None:
        """Change the settings of tasks; a beat repeats it, if this raises PlanNotWritten or
        StateLost."""
        with self._writing:
            self._update(replace(self._control, failures=failures))

    def end(self) -> None:
        """Nothing is written any more: what is removed now stays so."""
        self._ended.set()
        with self._writing:
            pass

    def beat(self) -> None:
        """Writes one, if the lock is confirmed. Raises PlanNotWritten or StateLost."""
        with self._writing:
            sure = may_beat(self.times, self.confirmed_s(), self.clock())
            if sure and not self._ended.is_set():
                beat = self._control.beat + 1
                self._write(replace(self._control, beat=beat, totals=self.totals))

    def _update(self, control: DriverControl) -> None:
        self._control = control
        if not self._ended.is_set():
            self._write(control)

    def _write(self, control: DriverControl) -> None:
        self.state.set_control(self.epoch, control)
        self._control = control  # one that may not have arrived is written again

    def _beat_on(self) -> None:
        while not self._ended.wait(self.times.beat_s):
            with suppress(DrainerError):  # it is tried again; tasks whose lease is over wait
                self.beat()


class QuotaAllocator:
    """Lends a drain's concurrency to its tasks, as often as these look."""

    def __init__(
        self,
        concurrency: Concurrency,
        channel: ControlChannel,
        *,
        threads: bool,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._threads = threads
        self._lender = Lender[str](0)
        self._channel = channel
        self._period_s = channel.times.look_s
        self._clock = clock
        self._due_s = 0.0
        self._dealt = set[str]()
        self._paused = False
        # What finds the concurrency, when it is ``auto``.
        self.search: ConcurrencyLimit | None = None
        self._shared: SharedSearch[str] | None = None
        self.total = self.most = (
            0  # how many calls are made at once by all tasks, unless it is paused
        )
        self.use(concurrency)

    def use(self, concurrency: Concurrency) -> None:
        """Lends that many from now on; a search goes on from what is lent."""
        self.most = most = concurrency.most_for(threads=self._threads)
        first = min(self.total or concurrency.first, most) if concurrency.is_auto else most
        self.search = ConcurrencyLimit(first, most) if concurrency.is_auto else None
        self.total = first
        self._restart()

    def pause(self, paused: bool) -> None:
        """Lends nothing while paused."""
        if paused != self._paused:
            self._paused = paused
            self._restart()

    def _restart(self) -> None:
        # A search measures from here on: what was measured before proves nothing.
        self._shared = None
        if self.search is not None:
            self._shared = SharedSearch(self._lender, self.search, self._clock())
        self._lender.total = 0 if self._paused else self.total
        self._due_s = 0.0  # now

    @property
    def room(self) -> int:
        """Number of tasks that may begin."""
        return self._lender.room

    async def begin(self, tasks: Mapping[str, int], slots: int) -> None:
        """Lend to tasks that are about to begin, with so many sub-messages each; the first ones
        have the slots
        that are free."""
        for number, (task, subs) in enumerate(tasks.items()):
            self._dealt.add(task)
            self._lender.begin(task, subs, waits=number >= slots)
        await self._lend()

    def end(self, tasks: Iterable[str]) -> None:
        """Take back what was lent to tasks that have no call in flight and are not tried again."""
        for task in tasks:
            self._dealt.discard(task)
            self._lender.end(task)

    def reported(self, task: str, borrowed: Borrowed | None) -> None:
        """Take a task's report; None when this try at it is over."""
        if borrowed is None:
            self._lender.end(task)
        elif task in self._dealt:
            self._lender.reported(task, borrowed)

    async def look(self) -> None:
        """Lend again, when it is time for it."""
        now_s = self._clock()
        if now_s >= self._due_s:
            self._due_s = now_s + self._period_s
            if self._shared is not None and not self._paused:
                self._shared.look(now_s)
                self.total = self._lender.total
            await self._lend()

    async def _lend(self) -> None:
        lender, before = self._lender, self._lender.number
        calls = lender.grants()
        if lender.number != before:
            with suppress(DrainerError):  # the next beat repeats it
                await blocking_call(
                    self._channel.lend, QuotaGrant(lender.number, lender.total, calls)
                )
