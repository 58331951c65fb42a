"""Concurrency lent to tasks that obey late, and report late."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.policy.concurrency_limit import ConcurrencyLimit
from drainer.spark.assign.control import Lender
from drainer.spark.state.records import Borrowed


class Modelled:
    """A task behind two delays: grants that it has yet to see, and reports on their way."""

    def __init__(self) -> None:
        self.coming: deque[tuple[int, int]] = deque()
        self.reported: deque[Borrowed] = deque()
        self.seen = self.allowed = self.running = 0
        self.waiting = 0

    def step(self, draw: Random) -> None:
        match draw.randrange(5):
            case 0 if self.coming:
                self.seen, self.allowed = self.coming.popleft()
            case 1:
                self.reported.append(Borrowed(self.seen, self.running, self.waiting))
            case 2 if self.waiting and self.running < self.allowed:
                more = draw.randint(1, min(self.waiting, self.allowed - self.running))
                self.running, self.waiting = self.running + more, self.waiting - more
            case 3:
                self.running -= draw.randint(0, self.running)
            case 4:
                self.waiting += draw.randint(0, 30)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_no_more_is_lent_than_there_is_however_late_tasks_obey_and_report(seed: int) -> None:
    draw = Random(seed)
    total = draw.randint(1, 40)
    lender = Lender(total)
    tasks: dict[str, Modelled] = {}
    for number in map(str, range(200)):
        if draw.random() < 0.1:
            tasks[number] = Modelled()
            lender.begin(number)
        if tasks and draw.random() < 0.05:
            ended = draw.choice(list(tasks))
            del tasks[ended]
            lender.end(ended)
        if draw.random() < 0.5:
            for name, granted in lender.grants().items():
                tasks[name].coming.append((lender.number, granted))
        for name, task in tasks.items():
            task.step(draw)
            if task.reported and draw.random() < 0.5:
                lender.reported(name, task.reported.popleft())
        assert sum(max(each.running, each.allowed) for each in tasks.values()) <= total


def obeyed(lender: Lender, running: dict[str, int], ready: dict[str, int]) -> dict[str, int]:
    """Grants once all tasks have obeyed and reported as often as it changes something."""
    for _ in range(3):
        lender.grants()
        for task, calls in running.items():
            lender.reported(task, Borrowed(lender.number, calls, ready[task]))
    return lender.grants()


def test_tasks_that_have_not_reported_yet_share_alike() -> None:
    lender = Lender(10)
    for task in "abc":
        lender.begin(task)

    assert sorted(lender.grants().values()) == [3, 3, 4]


def test_a_task_that_begins_holds_no_call_that_others_can_make() -> None:
    lender = Lender(20)
    lender.begin("busy")
    obeyed(lender, {"busy": 20}, {"busy": 90})

    lender.begin("new")

    assert obeyed(lender, {"busy": 19}, {"busy": 90}) == {"busy": 19, "new": 1}


@pytest.mark.parametrize(
    ("total", "later", "tasks"),
    [
        # A task with few lanes gives its share to those with many.
        (32, 32, {"hot": (1, 0, 1), "wide": (10, 90, 15), "wider": (11, 900, 16)}),
        # What no task needs is lent, too.
        (20, 20, {"a": (2, 0, 9), "b": (4, 0, 11)}),
        # A search may find that fewer calls do than there are tasks: a hot lane still moves.
        (8, 2, {"wide": (1, 9, 1), "wider": (1, 90, 0), "widest": (1, 99, 0), "hot": (1, 0, 1)}),
        # A lower total is obeyed.
        (20, 6, {"a": (10, 90, 3), "b": (10, 90, 3)}),
    ],
)
def test_calls_are_lent_by_what_tasks_can_use(
    total: int, later: int, tasks: dict[str, tuple[int, int, int]]
) -> None:
    """Tasks by the calls that run, by what is ready beside them, and by what they are lent."""
    running = {task: runs for task, (runs, _, _) in tasks.items()}
    ready = {task: waits for task, (_, waits, _) in tasks.items()}
    lender = Lender(total)
    for task in tasks:
        lender.begin(task)
    obeyed(lender, running, ready)
    lender.total = later
    assert obeyed(lender, running, ready) == {task: lent for task, (_, _, lent) in tasks.items()}


def test_a_task_that_had_ended_and_is_tried_again_is_lent_to_again() -> None:
    lender = Lender(10)
    lender.begin("tried again")
    lender.begin("other")
    lender.end("tried again")
    lender.grants()

    lender.reported("tried again", Borrowed(ready=9))
    lender.reported("other", Borrowed(1, in_flight=1, ready=9))

    assert lender.grants()["tried again"] == 0
    lender.reported("other", Borrowed(2, in_flight=5, ready=5))
    assert lender.grants() == {"tried again": 5, "other": 5}


class Downstream:
    """Tasks in virtual time, of which one after the other ends and begins anew, on something that
    does no more with more calls than it has slots."""

    def __init__(self, slots: int, latency_s: float, seed: int) -> None:
        self._slots, self._latency_s, self._draw = slots, latency_s, Random(seed)
        self.tasks: dict[str, Borrowed] = {}

    def step(self, seconds: float, grants: Mapping[str, int], number: int) -> None:
        calls = sum(grants.values())
        rate = min(calls, self._slots) / self._latency_s
        for task, granted in grants.items():
            reported = self.tasks.get(task, Borrowed())
            share = seconds * rate * granted / max(1, calls)
            done = reported.done + int(share + self._draw.random())
            self.tasks[task] = Borrowed(number, granted, 10_000, done, done)


@pytest.mark.parametrize("slots", [8, 200])
def test_the_search_over_all_tasks_finds_what_the_downstream_can_do_with(slots: int) -> None:
    search = ConcurrencyLimit(20, 2_000)
    lender = Lender(20, search)
    lender.measure(0.0)
    downstream = Downstream(slots, 0.02, seed=1)
    for task in "0123":
        lender.begin(task)
    grants, number = lender.grants(), lender.number
    for step in range(600):
        if step % 100 == 50:
            lender.end(str(step // 100))
            lender.begin(str(4 + step // 100))
            downstream.tasks.pop(str(step // 100), None)
        seen = {task: granted for task, granted in grants.items() if task in lender.grants()}
        downstream.step(0.1, seen, number)
        if step % 3 == 0:  # what tasks report and are granted takes a while
            for task, now in downstream.tasks.items():
                lender.reported(task, now)
            lender.measure(step / 10)
            grants, number = lender.grants(), lender.number

    assert search.found is not None
    assert 0.8 * slots <= search.found <= 1.2 * slots


def test_a_task_that_waits_for_a_slot_is_lent_one_call_until_it_reports_more() -> None:
    lender = Lender(100)
    for number, task in enumerate("abcd"):
        lender.begin(task, waits=number >= 2)
    assert lender.grants() == {"a": 49, "b": 49, "c": 1, "d": 1}


def test_what_a_task_is_expected_to_want_counts_until_it_has_work_to_report() -> None:
    lender = Lender(20)
    lender.begin("busy")
    obeyed(lender, {"busy": 20}, {"busy": 90})

    lender.begin("new", 500)
    lender.reported("new", Borrowed())

    assert lender.grants() == {"busy": 10, "new": 0}  # until the other one has obeyed
    assert obeyed(lender, {"busy": 10}, {"busy": 100}) == {"busy": 10, "new": 10}
    assert obeyed(lender, {"busy": 10, "new": 1}, {"busy": 100, "new": 0})["new"] == 1


def test_a_task_whose_first_calls_all_fail_keeps_nothing_by_what_was_expected() -> None:
    lender = Lender(20)
    lender.begin("sick", 5_000)
    lender.begin("busy", 5_000)
    lender.grants()

    for _ in range(3):
        lender.reported("sick", Borrowed(lender.number, failed=3))
        lender.reported("busy", Borrowed(lender.number, in_flight=10, ready=90))
        lent = lender.grants()

    assert lent == {"sick": 1, "busy": 19}


def test_of_fewer_calls_than_tasks_those_at_work_have_theirs_before_those_that_wait() -> None:
    """Otherwise none of them would ever end, and give its slot away."""
    lender = Lender(20)
    for number in range(16):
        lender.begin(str(number), 100, waits=number >= 4)
    lender.grants()
    lender.total = 10
    for _ in range(3):
        for task in "0123":
            lender.reported(task, Borrowed(lender.number, in_flight=1, ready=90))
        lent = lender.grants()

    assert [lent[task] > 0 for task in "0123"] == [True] * 4


def test_who_is_tried_again_does_not_find_what_was_lent_to_the_first_try() -> None:
    lender = Lender(100)
    lender.begin("a")
    lender.grants()
    before = lender.number
    lender.end("a")
    assert lender.grants() == {}
    assert lender.number > before
