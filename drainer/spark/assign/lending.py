"""Lending: sharing out a total of calls among tasks, by what they have to do.

A task with few lanes gives its share to tasks with many. Calls that are taken from a task are lent
to another one only after the first has reported that it obeys, so the sum never exceeds the total.
Shares are max-min fair: no task has a larger share than another task that wants more.
"""

from __future__ import annotations

from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample
from drainer.spark.state.records import Borrowed


class _Borrower:
    """A task that borrows calls.

    Attributes:
        expected: the number of calls that it will want before it reports how much work it has.
        waits: whether it waits for a slot, as far as is known.
        wanted: the number of calls that it wants.
        granted: the number of calls that it may have in flight.
        reported: its newest report.
        since: by number, the grants from the one that it obeys on. Grants that are followed by a
            larger one are left out.
    """

    __slots__ = ("expected", "granted", "reported", "since", "waits", "wanted")

    def __init__(self, expected: int = 1, *, waits: bool = False) -> None:
        self.expected = expected
        self.waits = waits
        self.wanted = 1
        self.granted = 0
        self.reported = Borrowed()
        self.since: list[tuple[int, int]] = []

    @property
    def reserved(self) -> int:
        """The number of calls that it may have in flight at this moment."""
        return max([self.reported.in_flight, self.granted, *(grant for _, grant in self.since)])


class Lender:
    """Lends ``total`` calls to tasks, and none while it is ``paused``. Both may change at any time.

    If there is a ``search``, it finds the total that the downstream can do with, by what all tasks
    do together.
    """

    def __init__(self, total: int, search: ConcurrencyLimit | None = None) -> None:
        self.total = total
        self.search = search
        self.paused = False
        # The number of the grants, which rises when a grant changes. Tasks report which they obey.
        self.number = 0
        self._tasks: dict[str, _Borrower] = {}
        self._over = Borrowed()  # what tasks and attempts did that are over
        self._gone = False  # whether a task has ended since the last grants
        self._tried = 0  # the number of the first grants under the present total
        # The last measurement: its time, what tasks had done, and calls that they did not use.
        self._last: tuple[float, Borrowed, int] | None = None

    @property
    def room(self) -> int:
        """The number of further tasks that can have a call each."""
        return max(0, self._left - len(self._tasks))

    @property
    def _left(self) -> int:
        return 0 if self.paused else self.total

    def begin(self, task: str, expected: int = 1, *, waits: bool = False) -> None:
        """Lend to a task: one call until it reports, and then ``expected`` calls until it has work.

        A task that ``waits`` for a slot gets one call, since others can use the rest.
        """
        self._tasks[task] = _Borrower(expected, waits=waits)

    def end(self, task: str) -> None:
        """Take back the grants of a task that has no call in flight, and begins none."""
        borrower = self._tasks.pop(task, None)
        if borrower is not None:
            self._over = _done(self._over, borrower.reported)
            self._gone = True

    def reported(self, task: str, now: Borrowed) -> None:
        """Take the report of a task. If the task had ended, another attempt at it has begun."""
        if task not in self._tasks:
            self.begin(task)
        borrower = self._tasks[task]
        if now.calls < borrower.reported.calls or now.failed < borrower.reported.failed:
            # Another attempt counts from zero.
            self._over = _done(self._over, borrower.reported)
        borrower.reported, borrower.waits = now, False
        wants = now.in_flight + now.ready
        begun = wants or now.calls or now.failed  # Otherwise its first lanes are still to come.
        borrower.wanted = max(1, wants if begun else borrower.expected)
        older = [each for each in borrower.since if each[0] <= now.seen]
        borrower.since = [*older[-1:], *(each for each in borrower.since if each[0] > now.seen)]

    def grants(self) -> dict[str, int]:
        """Return the number of calls that each task may have in flight from now on.

        It is 0 for a task while the others have not given enough back.
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
        # After a task has ended, another attempt at it must not find the old grants.
        if grants != before or self._gone:
            self._gone = False
            self.number += 1
            for borrower in self._tasks.values():
                while borrower.since and borrower.since[-1][1] <= borrower.granted:
                    borrower.since.pop()
                borrower.since.append((self.number, borrower.granted))
        return grants

    def measure(self, now_s: float) -> None:
        """Go on with the search by what tasks did since the last time, once all tasks obey.

        If that changes the total, the next ``grants`` follow it.
        """
        reports = [each.reported for each in self._tasks.values()]
        did = _done(self._over, *reports)
        at_work = [each for each in self._tasks.values() if not each.waits]
        idle = sum(max(0, each.granted - each.reported.in_flight) for each in at_work)
        last, self._last = self._last, (now_s, did, idle)
        if last is None or self.search is None:
            return
        if any(0 < each.seen < self._tried for each in reports):
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
            self._tried = self.number + 1

    def restart(self) -> None:
        """Start to measure anew, since earlier measurements mean nothing any more."""
        self._last, self._tried = None, 0

    def _shares(self) -> dict[str, int]:
        left = self._left
        shares: dict[str, int] = {}
        # Tasks that wait for a slot come last. They get calls when the tasks at work have ended.
        wish = {task: (each.waits, each.wanted) for task, each in self._tasks.items()}
        by_wish = sorted(wish, key=wish.__getitem__)
        for number, task in enumerate(by_wish):
            # If there are more tasks than calls, those that want least get one: a task that is left
            # with a hot lane is among them.
            fair = max(min(1, left), left // (len(by_wish) - number))
            shares[task] = min(self._tasks[task].wanted, fair)
            left -= shares[task]
        at_work = [task for task in by_wish if not self._tasks[task].waits]
        # Calls that nobody wants are shared out, so that each task can begin more at once.
        for number, task in enumerate(at_work):
            more = left // (len(at_work) - number)
            shares[task] += more
            left -= more
        return shares


def _done(one: Borrowed, *others: Borrowed) -> Borrowed:
    """Return the sum of what was done by several reports."""
    for other in others:
        done, calls, failed = one.done + other.done, one.calls + other.calls, one.failed
        one = Borrowed(done=done, calls=calls, failed=failed + other.failed)
    return one
