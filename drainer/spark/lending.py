"""Concurrency lent: a total of calls at once, shared out among tasks by what they have to do.

A task whose lanes are few gives its share to those that have many. What is taken from one is lent
to another only when the one has said that it obeys, so the sum never exceeds the total. Shares are
max-min fair: none is larger than another one while that one's task wants more.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Task = TypeVar("Task", bound=Hashable)


class _Borrower:
    """One task: what it may do, and what it may still be doing."""

    __slots__ = ("granted", "running", "since", "wanted")

    def __init__(self, wanted: int) -> None:
        self.granted = 0
        self.wanted = wanted
        self.running = 0
        # Grants by number from the one that it obeys on, less those with a greater one behind.
        self.since: list[tuple[int, int]] = []

    @property
    def held(self) -> int:
        return max([self.running, self.granted, *(grant for _, grant in self.since)])


class Lender(Generic[Task]):
    """Lends ``total`` calls at once to tasks; it may change at any time.

    Attributes:
        number: of the grants; rises when one changes. Tasks say which they obey.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0
        self._tasks: dict[Task, _Borrower] = {}

    @property
    def room(self) -> int:
        """How many more tasks can have a call each."""
        return max(0, self.total - len(self._tasks))

    def begin(self, task: Task) -> None:
        """Until it tells what it wants, it wants as much as others have."""
        self._tasks[task] = _Borrower(self.total)

    def end(self, task: Task) -> None:
        """It has no call in flight, and begins none."""
        self._tasks.pop(task, None)

    def told(self, task: Task, *, seen: int, running: int, ready: int) -> None:
        """Takes what a task said when it obeyed the grants with the number ``seen``; of a task
        that has ended, nothing."""
        borrower = self._tasks.get(task)
        if borrower is None:
            return
        borrower.running = running
        borrower.wanted = max(1, running + ready)
        older = [each for each in borrower.since if each[0] <= seen]
        borrower.since = [*older[-1:], *(each for each in borrower.since if each[0] > seen)]

    def grants(self) -> dict[Task, int]:
        """What each task may have in flight from now on; 0 while no other has given enough back."""
        shares = self._shares()
        before = {task: borrower.granted for task, borrower in self._tasks.items()}
        for task, borrower in self._tasks.items():
            borrower.granted = min(borrower.granted, shares[task])
        free = self.total - sum(borrower.held for borrower in self._tasks.values())
        for task, borrower in self._tasks.items():
            held = borrower.held
            borrower.granted = max(borrower.granted, min(shares[task], held + max(0, free)))
            free -= max(0, borrower.granted - held)
        grants = {task: borrower.granted for task, borrower in self._tasks.items()}
        if grants != before:
            self.number += 1
            for borrower in self._tasks.values():
                while borrower.since and borrower.since[-1][1] <= borrower.granted:
                    borrower.since.pop()
                borrower.since.append((self.number, borrower.granted))
        return grants

    def _shares(self) -> dict[Task, int]:
        left = self.total
        shares: dict[Task, int] = {}
        by_wish = sorted(self._tasks, key=lambda task: self._tasks[task].wanted)
        for number, task in enumerate(by_wish):
            shares[task] = min(self._tasks[task].wanted, left // (len(by_wish) - number))
            left -= shares[task]
        for number, task in enumerate(by_wish):  # what is over lets each begin more at once
            more = left // (len(by_wish) - number)
            shares[task] += more
            left -= more
        return shares
