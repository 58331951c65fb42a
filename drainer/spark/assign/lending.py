"""Concurrency lent: a total of calls at once, shared out among tasks by what they have to do.

A task whose lanes are few gives its share to those that have many. What is taken from one is lent
to another only when the one has reported that it obeys, so the sum never exceeds the total. Shares
are
max-min fair: none is larger than another one while that one's task wants more.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from drainer.policy.concurrency_limit import ConcurrencyLimit, LoadSample
from drainer.spark.state.records import Borrowed

Task = TypeVar("Task", bound=Hashable)


class _Borrower:
    """One task: what it may do, and what it may still be doing."""

    __slots__ = ("expected", "granted", "reported", "since", "waits", "wanted")

    def __init__(self, expected: int = 1, *, waits: bool = False) -> None:
        self.expected = expected
        self.waits = waits  # for a slot, as far as is known
        self.wanted = 1
        self.granted = 0
        self.reported = Borrowed()
        # Grants by number from the one that it obeys on, less those with a greater one behind.
        self.since: list[tuple[int, int]] = []

    @property
    def reserved(self) -> int:
        return max([self.reported.in_flight, self.granted, *(grant for _, grant in self.since)])


class Lender(Generic[Task]):
    """Lends ``total`` calls at once to tasks; it may change at any time."""

    def __init__(self, total: int) -> None:
        self.total = total
        # Of the grants; rises when one changes. Tasks report which they obey.
        self.number = 0
        self._tasks: dict[Task, _Borrower] = {}
        self._over = Borrowed()  # what tasks and attempts did that have ended
        self._gone = False  # whether one was lent something that has no part of it any more

    @property
    def room(self) -> int:
        """Number of tasks that can still have a call each."""
        return max(0, self.total - len(self._tasks))

    def begin(self, task: Task, expected: int = 1, *, waits: bool = False) -> None:
        """Lend to a task: one call until it reports, then what is ``expected`` until it has work
        to report. A task that ``waits`` for a slot gets one call: others can use the rest."""
        self._tasks[task] = _Borrower(expected, waits=waits)

    def end(self, task: Task) -> None:
        """Take back a task's grants: it has no call in flight, and begins none."""
        borrower = self._tasks.pop(task, None)
        if borrower is not None:
            self._over = _added(self._over, borrower.reported)
            self._gone = True

    def reported(self, task: Task, now: Borrowed) -> None:
        """Takes what a task reports; one that had ended is being tried again."""
        if task not in self._tasks:
            self.begin(task)
        borrower = self._tasks[task]
        if now.calls < borrower.reported.calls or now.failed < borrower.reported.failed:
            self._over = _added(self._over, borrower.reported)  # it has begun again
        borrower.reported, borrower.waits = now, False
        wants = now.in_flight + now.ready
        begun = wants or now.calls or now.failed  # else its first lanes are still to come
        borrower.wanted = max(1, wants if begun else borrower.expected)
        older = [each for each in borrower.since if each[0] <= now.seen]
        borrower.since = [*older[-1:], *(each for each in borrower.since if each[0] > now.seen)]

    def grants(self) -> dict[Task, int]:
        """Return the calls that each task may have in flight from now on; 0 while no other has
        given enough back."""
        shares = self._shares()
        before = {task: borrower.granted for task, borrower in self._tasks.items()}
        for task, borrower in self._tasks.items():
            borrower.granted = min(borrower.granted, shares[task])
        free = self.total - sum(borrower.reserved for borrower in self._tasks.values())
        for task, borrower in self._tasks.items():
            reserved = borrower.reserved
            borrower.granted = max(borrower.granted, min(shares[task], reserved + max(0, free)))
            free -= max(0, borrower.granted - reserved)
        grants = {task: borrower.granted for task, borrower in self._tasks.items()}
        if grants != before or self._gone:  # one that is tried again is not to find the old ones
            self._gone = False
            self.number += 1
            for borrower in self._tasks.values():
                while borrower.since and borrower.since[-1][1] <= borrower.granted:
                    borrower.since.pop()
                borrower.since.append((self.number, borrower.granted))
        return grants

    def obey(self, number: int) -> bool:
        """Whether the tasks that are at work obey the grants with this number, or later ones."""
        return all(not 0 < each.reported.seen < number for each in self._tasks.values())

    @property
    def idle(self) -> int:
        """Calls that tasks which have a slot may make, and do not."""
        return sum(
            max(0, each.granted - each.reported.in_flight)
            for each in self._tasks.values()
            if not each.waits
        )

    @property
    def did(self) -> Borrowed:
        """Work of all tasks, of those that have ended too."""
        did = self._over
        for borrower in self._tasks.values():
            did = _added(did, borrower.reported)
        return did

    def _wish(self, task: Task) -> tuple[bool, int]:
        borrower = self._tasks[task]
        return borrower.waits, borrower.wanted

    def _shares(self) -> dict[Task, int]:
        left = self.total
        shares: dict[Task, int] = {}
        # Those that wait for a slot come last: they get one when those at work have ended.
        by_wish = sorted(self._tasks, key=self._wish)
        for number, task in enumerate(by_wish):
            # Of more tasks than calls those have one that want least: a hot lane is among them.
            fair = max(min(1, left), left // (len(by_wish) - number))
            shares[task] = min(self._tasks[task].wanted, fair)
            left -= shares[task]
        at_work = [task for task in by_wish if not self._tasks[task].waits]
        for number, task in enumerate(at_work):  # what is over lets each begin more at once
            more = left // (len(at_work) - number)
            shares[task] += more
            left -= more
        return shares


class SharedSearch(Generic[Task]):
    """Finds the total that a downstream can do with, by what all tasks do together."""

    def __init__(self, lender: Lender[Task], search: ConcurrencyLimit, now_s: float) -> None:
        self._lender = lender
        self._search = search
        self._tried = 0  # the number of the first grants under the limit of the moment
        self._last = now_s, lender.did, 0
        lender.total = search.limit

    def look(self, now_s: float) -> None:
        """Measure the time since the last look, once all tasks obey; call ``grants`` after it."""
        lender, search = self._lender, self._search
        then_s, before, idle_before = self._last
        self._last = now_s, lender.did, lender.idle
        if not lender.obey(self._tried):
            return
        did = _added(lender.did, before, -1)
        idle = (idle_before + lender.idle) / 2
        interval = LoadSample(
            now_s - then_s, did.done, did.failed, search.limit - idle, calls=did.calls
        )
        if search.observe(interval) != lender.total:
            lender.total = search.limit
            self._tried = lender.number + 1


def _added(one: Borrowed, other: Borrowed, times: int = 1) -> Borrowed:
    """Sum of two reports."""
    return Borrowed(
        done=one.done + times * other.done,
        calls=one.calls + times * other.calls,
        failed=one.failed + times * other.failed,
    )
