"""What the driver tells its tasks: that it has the lock, what it lends them, and when to end.

A task with few lanes gives its share of the calls to tasks with many. Calls that are taken from a
task are lent to another one only after the first has reported that it obeys, so the sum never
exceeds the total. Shares are max-min fair: no task has a larger share than another task that wants
more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from drainer.engine.runtime import boottime_s
from drainer.errors import DrainerError, PlanRefused
from drainer.host.calls import blocking_call
from drainer.model.option import Concurrency
from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample
from drainer.policy.failures import Totals
from drainer.spark.state.lease import LeaseTimes, may_beat
from drainer.spark.state.records import Borrowed
from drainer.spark.state.state import DriverControl, QuotaGrant, State


@dataclass(slots=True)
class _Borrower:
    """A task that borrows calls.

    Attributes:
        expected: the number of calls that it will want before it reports how much work it has.
        waits: whether it waits for a slot, as far as is known.
        wanted: the number of calls that it wants.
        granted: the number of calls that it may have in flight.
        reported: its newest report.
        since: the number and the size of each grant, beginning with the newest one that it obeys. A
            grant is left out if a later one is at least as large.
    """

    expected: int = 1
    waits: bool = False
    wanted: int = 1
    granted: int = 0
    reported: Borrowed = Borrowed()
    since: list[tuple[int, int]] = field(default_factory=list)

    @property
    def reserved(self) -> int:
        """The number of calls that the task may have in flight, as far as its reports tell."""
        return max([self.reported.in_flight, self.granted, *(grant for _, grant in self.since)])


class Lender:
    """Lends ``total`` calls to tasks, and none while it is ``paused``. Both may change at any time.

    A ``search`` looks for the total at which the downstream has the highest throughput. It
    measures the work of all tasks together.
    """

    def __init__(self, total: int, search: ConcurrencyLimit | None = None) -> None:
        self.total = total
        self.search = search
        self.paused = False
        # The number of the newest grants. Tasks report the number of the grants that they obey.
        self.number = 0
        self._tasks: dict[str, _Borrower] = {}
        self._over = Borrowed()  # The work of tasks and attempts that have ended.
        self._gone = False  # Whether a task has ended since the last grants.
        self._first_of_total = 0  # The number of the first grants under the current total.
        # The last measurement: its time, the work done by then, and calls that were not in use.
        self._last: tuple[float, Borrowed, int] | None = None

    @property
    def _left(self) -> int:
        return 0 if self.paused else self.total

    def begin(self, task: str, expected: int = 1, *, waits: bool = False) -> None:
        """Begin to lend calls to a task.

        Before its first report it wants one call, and then ``expected`` calls until it has work. A
        task that ``waits`` for a slot gets one call, since others can use the rest.
        """
        self._tasks[task] = _Borrower(expected, waits)

    def end(self, task: str) -> None:
        """Take back the grants of a task that has ended. It must have no call in flight."""
        borrower = self._tasks.pop(task, None)
        if borrower is not None:
            self._over = _done(self._over, borrower.reported)
            self._gone = True

    def reported(self, task: str, now: Borrowed) -> None:
        """Note the report of a task."""
        if task not in self._tasks:  # It had ended, and another attempt at it has begun.
            self.begin(task)
        borrower = self._tasks[task]
        if now.calls < borrower.reported.calls or now.failed < borrower.reported.failed:
            # Another attempt has begun, which counts from zero.
            self._over = _done(self._over, borrower.reported)
        borrower.reported, borrower.waits = now, False
        wants = now.in_flight + now.ready
        has_work = wants or now.calls or now.failed  # If not, its first lanes may still be to come.
        borrower.wanted = max(1, wants if has_work else borrower.expected)
        older = [each for each in borrower.since if each[0] <= now.seen]
        borrower.since = [*older[-1:], *(each for each in borrower.since if each[0] > now.seen)]

    def grants(self) -> dict[str, int]:
        """Return the number of calls that each task may have in flight from now on.

        A task gets more than before only if so many calls are free. Other tasks may have to give
        them back first.
        """
        shares = self._shares()
        before = {task: borrower.granted for task, borrower in self._tasks.items()}
        for task, borrower in self._tasks.items():
            borrower.granted = min(borrower.granted, shares[task])
        free = self._left - sum(borrower.reserved for borrower in self._tasks.values())
        for task, borrower in self._tasks.items():
            reserved = borrower.reserved
            borrower.granted = max(borrower.granted, min(shares[task], reserved + max(0, free)))
            free -= max(0, borrower.granted - reserved)
        grants = {task: borrower.granted for task, borrower in self._tasks.items()}
        # If a task has ended, the number rises too, so that another attempt at it does not take the
        # grants of the first.
        if grants != before or self._gone:
            self._gone = False
            self.number += 1
            for borrower in self._tasks.values():
                while borrower.since and borrower.since[-1][1] <= borrower.granted:
                    borrower.since.pop()
                borrower.since.append((self.number, borrower.granted))
        return grants

    def measure(self, now_s: float) -> None:
        """Tell the search what the tasks did since the last time, once all of them obey.

        If the search changes the total, the next ``grants`` share that out.
        """
        reports = [each.reported for each in self._tasks.values()]
        did = _done(self._over, *reports)
        at_work = [each for each in self._tasks.values() if not each.waits]
        idle = sum(max(0, each.granted - each.reported.in_flight) for each in at_work)
        last, self._last = self._last, (now_s, did, idle)
        if last is None or self.search is None:
            return
        if any(0 < each.seen < self._first_of_total for each in reports):
            return
        then_s, before, idle_before = last
        limit = self.search.observe(
            LoadSample(
                now_s - then_s,
                did.done - before.done,
                did.failed - before.failed,
                self.search.limit - (idle_before + idle) / 2,
                calls=did.calls - before.calls,
            )
        )
        if limit != self.total:
            self.total = limit
            self._first_of_total = self.number + 1

    def restart(self) -> None:
        """Start to measure anew, because the total or the tasks' permission to work has changed."""
        self._last, self._first_of_total = None, 0

    def _shares(self) -> dict[str, int]:
        left = self._left
        shares: dict[str, int] = {}
        # Tasks that wait for a slot come last, since they can't make calls yet.
        wish = {task: (each.waits, each.wanted) for task, each in self._tasks.items()}
        by_wish = sorted(wish, key=wish.__getitem__)
        for number, task in enumerate(by_wish):
            # If there are more tasks than calls, the tasks that want least get one each. A task
            # that has only a hot lane left is among them.
            fair = max(min(1, left), left // (len(by_wish) - number))
            shares[task] = min(self._tasks[task].wanted, fair)
            left -= shares[task]
        at_work = [task for task in by_wish if not self._tasks[task].waits]
        # Calls that nobody wants are shared out too, so that a task can use them without asking.
        for number, task in enumerate(at_work):
            more = left // (len(at_work) - number)
            shares[task] += more
            left -= more
        return shares


def _done(one: Borrowed, *others: Borrowed) -> Borrowed:
    """Return the sum of the work that several reports have."""
    for other in others:
        done, calls, failed = one.done + other.done, one.calls + other.calls, one.failed
        one = Borrowed(done=done, calls=calls, failed=failed + other.failed)
    return one


@dataclass(eq=False)
class ControlChannel:
    """Writes the messages of the driver of one epoch.

    From ``begin`` to ``end``, a thread writes beats while the lock on the group is confirmed
    (``Lease``). ``confirmed_s`` returns the time of the last confirmation, by ``clock``. The next
    message has the current values of ``lent``, the calls that are lent to tasks, and ``totals``,
    what all tasks did.
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
        # Only one thread writes at a time, so that beat n + 1 proves that beat n was written.
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

        If this raises PlanNotWritten or StateLost, the next beat has the changes.
        """
        with self._writing:
            self._control = replace(self._control, **changes)
            self._write(self._control)

    def end(self) -> None:
        """Stop writing, so that the state can be removed. After this, nothing is written."""
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
            self._control = control  # If writing fails, the next beat has the same number.

    def _beat_on(self) -> None:
        while not self._ended.wait(self.times.beat_s):
            # If a beat can't be written, the next one is tried. If the leases of tasks end
            # meanwhile, they begin no calls.
            with suppress(DrainerError):
                self.beat()


class QuotaAllocator(Lender):
    """Lends a drain's concurrency to its tasks, and sends them the grants."""

    def __init__(self, concurrency: Concurrency, channel: ControlChannel, *, threads: bool) -> None:
        super().__init__(0)
        self._threads = threads
        self._channel = channel
        self._due_s = 0.0
        self.most = 0  # The maximum number of calls of all tasks, whatever a search finds.
        self.use(concurrency)

    def use(self, concurrency: Concurrency) -> None:
        """Lend this many calls from now on. A search begins at the current total."""
        self.most = most = concurrency.most_for(threads=self._threads)
        self.search = None
        if concurrency.is_auto:
            first = min(self.total or concurrency.first, most)
            self.search = ConcurrencyLimit(first, most)
        self.total = most if self.search is None else self.search.limit
        self.restart()

    def pause(self, paused: bool) -> None:
        """Lend no calls while the drain is paused."""
        if paused != self.paused:
            self.paused = paused
            self.restart()

    def restart(self) -> None:
        super().restart()
        self._due_s = 0.0

    async def lend_to(self, tasks: Mapping[str, int], slots: int) -> None:
        """Lend calls to tasks that are about to begin.

        ``tasks`` has the number of sub-messages of each task. Only as many tasks as there are free
        ``slots`` can begin at once: the first ones. The others wait for a slot.
        """
        for number, (task, subs) in enumerate(tasks.items()):
            self.begin(task, subs, waits=number >= slots)
        await self._lend()

    async def look(self) -> None:
        """Measure what the tasks did, and share the calls out anew.

        That happens as often as the tasks look for messages, however often this is called.
        """
        now_s = monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + self._channel.times.look_s
            if not self.paused:
                self.measure(now_s)
            await self._lend()

    async def _lend(self) -> None:
        before, calls = self.number, self.grants()
        if self.number != before:
            self._channel.lent = QuotaGrant(self.number, self.total, calls)
            with suppress(DrainerError):  # The next beat has the grants.
                await blocking_call(self._channel.send)
