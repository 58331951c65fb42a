"""The state: each record is news once, and an attempt continues from what earlier ones reported."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from builders import counts
from drainer.core.merge import Record, TaskRecord
from drainer.engine.runtime import boottime_s
from drainer.errors import Interrupted, LockLost, StateLost, StateRefused
from drainer.model.progress import Partial, Progress
from drainer.model.unhandled import Unhandled
from drainer.spark.reading.slices import Manifest
from drainer.spark.state import state as state_module
from drainer.spark.state.lease import Process, is_dead, this_process
from drainer.spark.state.records import Head, TaskRecords
from drainer.spark.state.state import (
    Attempt,
    DriverControl,
    State,
    TaskInput,
    TaskShare,
    state_beside,
)
from drainer.store import plan_file
from drainer.store.journal import encode_line
from store.plans import PLAN
from store.stores import (
    AT_ONCE,
    DRAIN,
    bucket,
    done,
    driven,
    folder,
    names_in,
)

FIRST = Attempt(1, 1, 2, 0)
SECOND = Attempt(1, 1, 2, 1)
THIRD = Attempt(1, 1, 2, 2)
STARTS = {0: 100, 2: 0}
BEGUN, ANOTHER = f"{DRAIN}/{FIRST.name}", encode_line("another process")
SKIPPED = Unhandled({"index > 9": 1})
LONG = replace(AT_ONCE, look_s=1, lease_s=20, cut_s=10)


@pytest.fixture(params=[folder, bucket], ids=["folder", "object store"])
def state(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr(state_module, "LIST_S", 0)
    return driven(State(request.param(tmp_path), DRAIN))


def news_of(state: State) -> list[tuple[Attempt, Head]]:
    """All news of the first slice."""
    found: list[tuple[Attempt, Head]] = []
    while more := state.news([(1, 1, task) for task in range(10)]):
        found += more
    return sorted(found, key=lambda each: each[0])


def begun(state: State, attempt: Attempt) -> tuple[TaskRecords, TaskRecord]:
    records = state.begin(attempt, STARTS)
    earlier = state.await_earlier_attempts(attempt, AT_ONCE)
    records.go_on_from(earlier)
    records.write(PLAN)
    return records, earlier


def mark_of(head: Head) -> int | None:
    """Watermark of partition 0; None when the record has none."""
    return head.marks["0/1"][0][1] if "0/1" in head.marks else None


def marks(news: list[tuple[Attempt, Head]]) -> list[tuple[int, int, int | None]]:
    """By task and attempt, without what attempts go on from."""
    return [(a.task, a.number, mark_of(head)) for a, head in news if head.marks]


def report(records: TaskRecords, *reported: dict[int, Progress]) -> None:
    for changes in reported:
        records.append(Record(changes))
    records.write(PLAN)


def finished(record: TaskRecord, number: int = 0) -> tuple[tuple[int, int], ...]:
    return record.claims["0/1"][number].finished


def test_an_epoch_begins_once_and_is_the_newest(state: State) -> None:
    assert state.begin_epoch(10, LONG)
    assert not state.begin_epoch(10, AT_ONCE)
    assert not state.begin_epoch(1, LONG)
    assert (state.epoch(), state.times(10), state.times(1)) == (10, LONG, AT_ONCE)


def test_each_record_is_news_once_and_in_order(state: State) -> None:
    driver = State(state.objects, DRAIN)
    assert news_of(driver) == []
    one, _ = begun(state, FIRST)
    other, _ = begun(state, Attempt(1, 1, 9, 7))
    report(one, {0: done(101, count=1)}, {0: done(102, count=2)})
    report(other, {0: done(105, count=1)})

    assert marks(news_of(driver)) == [(2, 0, 101), (2, 0, 102), (9, 7, 105)]
    assert news_of(driver) == []
    report(one, {0: done(103, count=3)})
    assert marks(news_of(driver)) == [(2, 0, 103)]


def test_no_news_comes_of_an_attempt_once_the_next_one_has_begun(state: State) -> None:
    """The next one does again what comes late; a part would be done while that goes on."""
    first, _ = begun(state, FIRST)
    report(first, {0: done(101, count=1)})
    assert marks(news_of(state)) == [(2, 0, 101)]
    second = state.begin(SECOND, STARTS)
    report(first, {0: done(105, count=5)})
    assert news_of(state) == []
    second.go_on_from(TaskRecord())
    report(second, {0: done(102, count=2)})
    assert marks(news_of(state)) == [(2, 1, 102)]


def test_no_news_comes_of_a_driver_that_stood_still_before_it_read(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile, the next attempt may have waited for the first one, which reports late."""
    first, _ = begun(state, FIRST)
    report(first, {0: done(105, count=5)})
    clock = count(step=LONG.wait_s)  # The whole wait passes from one look at the clock to the next.
    with monkeypatch.context() as slow:
        slow.setattr(state_module, "boottime_s", lambda: next(clock))
        assert state.news([FIRST.share], LONG.wait_s) == []
    assert marks(news_of(state)) == [(2, 0, 105)]


def test_a_record_that_is_spoilt_is_no_news(state: State) -> None:
    records, _ = begun(state, FIRST)
    report(records, {0: done(101, count=1)}, {0: done(102, count=2)})
    name = f"{DRAIN}/1/1/2/0/00000002"
    data = state.objects.get(name)
    assert data is not None
    state.objects.put(name, data.replace(b'"marks"', b'"murks"'))

    with pytest.raises(StateLost, match=r"2/0/00000002 is damaged"):
        news_of(state)


@pytest.mark.parametrize("spoilt", [b"", b"00000000 {}\n", encode_line({"marks": 1})])
def test_what_follows_a_spoilt_record_of_its_attempt_is_left_out(
    spoilt: bytes, state: State
) -> None:
    records, _ = begun(state, FIRST)
    report(records, *({0: done(100 + n, count=n)} for n in (1, 2, 3)))
    state.objects.put(f"{DRAIN}/1/1/2/0/00000002", spoilt)

    reported = state.report((1, 1, 2))
    assert (reported.count, reported.torn) == (2, True)
    assert finished(reported.record) == ((100, 101),)
    _, taken = begun(state, SECOND)
    assert taken == reported.record


def test_an_attempt_goes_on_from_all_that_earlier_ones_reported(state: State) -> None:
    first, _ = begun(state, FIRST)
    first.append(Record({0: done(104, (106, 108), count=6)}, ("'a'",), SKIPPED))
    first.append(Record({0: done(104, (110, 111), count=7, partial={105: Partial(3, 9, 0b001)})}))
    first.end()
    second, taken = begun(state, SECOND)
    assert finished(taken) == ((100, 104), (106, 108), (110, 111))
    assert taken.claims["0/1"][0].partial == {105: Partial(3, 9, 0b001)}
    assert taken.counts == {0: counts(done=14)}
    assert (taken.parked, taken.unhandled) == (("'a'",), SKIPPED)

    second.append(Record({0: done(106, count=1)}, ("'b'",), Unhandled({"index > 9": 3})))
    second.end()
    _, taken = begun(state, THIRD)
    assert finished(taken) == ((100, 108), (110, 111))
    assert (taken.claims["0/1"][0].partial, taken.counts) == ({}, {0: counts(done=16)})
    assert taken.parked == ("'a'", "'b'")
    assert taken.unhandled == Unhandled({"index > 9": 3})
    assert state.report((1, 1, 2)).record == taken


@pytest.mark.parametrize(
    ("before", "error"),
    [
        (lambda state: state.objects.create(f"{BEGUN}/begun", ANOTHER), "has begun before"),
        (lambda state: state.begin_epoch(2, LONG), "epoch 2"),
        (lambda state: state.remove(), "state is gone"),
    ],
    ids=["twice", "old driver", "ended"],
)
def test_no_attempt_begins_twice_under_an_old_driver_or_after_the_end(
    before: Callable[[State], object], error: str, state: State
) -> None:
    before(state)
    with pytest.raises((LockLost, StateRefused), match=error):
        state.begin(FIRST, STARTS)


@pytest.mark.parametrize(
    ("overtake", "error"),
    [
        (lambda state: state.begin_epoch(2, LONG), "another driver"),
        (lambda state: state.begin(THIRD, STARTS), "another attempt"),
    ],
)
def test_an_attempt_that_is_overtaken_as_it_begins_stops(
    overtake: Callable[[State], object], error: str, state: State
) -> None:
    state.begin(FIRST, STARTS)
    state.begin(SECOND, STARTS)
    overtake(state)
    with pytest.raises(LockLost, match=error):
        state.await_earlier_attempts(SECOND, LONG)


def test_what_an_overtaken_attempt_reports_late_does_not_count(state: State) -> None:
    """The next attempt does it again and counts it: two accounts of it would be one too many."""
    first, _ = begun(state, FIRST)
    report(first, {0: done(101, count=1)})
    second, _ = begun(state, SECOND)
    report(first, {0: done(105, count=5)})  # it woke up
    report(second, {0: done(102, count=2)})
    third, taken = begun(state, THIRD)
    assert (finished(taken), taken.counts) == (((100, 102),), {0: counts(done=6)})
    report(first, {0: done(106, count=6)})
    report(third, {0: done(103, count=1)})
    reported = state.report((1, 1, 2))
    assert (finished(reported.record), reported.record.counts) == (
        ((100, 103),),
        {0: counts(done=8)},
    )
    assert (reported.count, reported.torn) == (2, False)


# --- waiting for those before ---


def waited_s(call: Callable[[], object]) -> float:
    since_s = time.monotonic()
    call()
    return time.monotonic() - since_s


def test_an_attempt_that_has_ended_is_not_waited_for(state: State) -> None:
    first, _ = begun(state, FIRST)
    first.end()
    state.begin(SECOND, STARTS)
    assert waited_s(lambda: state.await_earlier_attempts(SECOND, LONG)) < 1


def test_a_successor_waits_for_lease_and_cut(state: State) -> None:
    begun(state, FIRST)  # by this process, which lives

    def begin_and_revoke() -> None:  # the lease counts from when the second one began
        state.begin(SECOND, STARTS)
        state.await_earlier_attempts(SECOND, replace(LONG, lease_s=0.2, cut_s=0.1))

    assert 0.3 <= waited_s(begin_and_revoke) < 5


def test_an_attempt_that_ends_meanwhile_is_waited_for_no_longer(state: State) -> None:
    first, _ = begun(state, FIRST)
    state.begin(SECOND, STARTS)
    ending = threading.Timer(0.1, first.end)
    ending.start()
    assert (
        0.05
        < waited_s(lambda: state.await_earlier_attempts(SECOND, replace(LONG, look_s=0.02)))
        < 10
    )
    ending.join()


def marked(**changes: Any) -> Process:
    """Return this process, but for these fields of its mark."""
    me = this_process()
    assert me.mark is not None
    return replace(me, mark=replace(me.mark, **changes))


def test_a_process_that_was_killed_is_not_waited_for(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = marked(pid=2**22 + 1)
    with monkeypatch.context() as patched:
        patched.setattr(state_module, "this_process", lambda: dead)
        report(begun(state, FIRST)[0], {0: done(103, count=3)})
    state.begin(SECOND, STARTS)
    taken: list[TaskRecord] = []
    assert waited_s(lambda: taken.append(state.await_earlier_attempts(SECOND, LONG))) < 1
    assert finished(taken[0]) == ((100, 103),)


def test_a_driver_waits_for_live_tasks_of_the_one_before(state: State) -> None:
    begun(state, FIRST)
    begun(state, Attempt(1, 1, 3, 0))[0].end()
    driver = State(state.objects, DRAIN)
    driver.begin_epoch(2, LONG)
    since_s = boottime_s()
    assert not driver.attempts_are_over(below=2)
    driver.await_earlier_drivers(2, since_s, replace(LONG, lease_s=0.2, cut_s=0.1))
    assert boottime_s() - since_s >= 0.3


def test_a_process_is_dead_when_it_is_a_zombie_or_another_one_has_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    me = this_process()
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(marked(pid=ended.pid))
    assert not is_dead(me)
    assert is_dead(marked(started="1"))
    assert not is_dead(replace(me, mark=None))
    assert not is_dead(replace(marked(pid=2**22 + 1), host="elsewhere"))
    assert is_dead(marked(pid=2**22 + 1))
    another = marked(started="1")
    plan_file.this_machine.cache_clear()
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert not is_dead(another)
    plan_file.this_machine.cache_clear()


# --- the end ---


def test_a_slice_that_is_removed_leaves_the_others(state: State) -> None:
    for number in (1, 2, 11):
        begun(state, Attempt(1, number, 9, 0))
    state.remove_slice(1, 1)
    assert [share[1] for share in state.shares()] == [2, 11]
    assert state.epoch() == 1


def test_another_drains_state_stays(state: State) -> None:
    other = driven(State(state.objects, "20260101-180000-other0"), 4)
    begun(state, FIRST)
    state.remove()
    assert names_in(state.objects, DRAIN) == []
    assert (other.epoch(), other.control(4)) == (4, DriverControl())


@pytest.mark.parametrize("body", [{"beat": "1", "stop": None}, [], {"beat": -1}])
def test_a_control_that_makes_no_sense_is_damaged(body: object, state: State) -> None:
    state.objects.put(f"{DRAIN}/1/control", encode_line(body))
    with pytest.raises(StateLost, match="control is damaged"):
        state.control(1)


def test_the_folder_beside_a_plan_goes_with_its_last_state_and_any_other_stays(
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan.json"
    folders = [Path(state_beside(plan)), tmp_path / "of-somebody"]
    other = driven(State.open(str(folders[0]), "other"))
    for place in folders:
        driven(State.open(str(place), DRAIN)).remove(plan)
    assert other.control(1) == DriverControl()
    other.remove(plan)
    assert [place.exists() for place in folders] == [False, True]


def test_a_handler_is_opened_for_a_driver_that_goes_on_and_for_no_other(state: State) -> None:
    name = state.opening(1)
    assert state.handlers(1) == (1, [])
    state.closed(name, "no answer")
    assert state.handlers(1) == (0, ["no answer"])

    state.set_control(1, DriverControl(stop="as requested"))
    with pytest.raises(Interrupted, match="as requested"):
        state.opening(1)
    driven(state, 2)
    state.opening(2)
    with pytest.raises(LockLost, match="took over the drain"):
        state.opening(1)


def test_a_handler_that_is_closed_late_leaves_nothing_in_a_folder_that_was_removed(
    tmp_path: Path,
) -> None:
    state = driven(State(folder(tmp_path), DRAIN))
    name = state.opening(1)
    state.remove()

    with pytest.raises(StateLost):
        state.closed(name, None)
    with pytest.raises(LockLost, match="state is gone"):
        state.opening(1)

    assert names_in(state.objects) == []


# --- slices, and who handles what of them ---


def test_the_manifest_of_the_first_reader_of_a_span_counts(state: State) -> None:
    first, second = Manifest(0, 5, 9, subs={1: 4}), Manifest(0, 5, 9, subs={1: 3})
    state.submit(1, 7)
    known: dict[int, Manifest] = {}
    state.spans(1, 7, Manifest, known)
    assert known == {}

    assert state.add_span(1, 7, 0, first) == first
    assert state.add_span(1, 7, 0, second) == first
    assert state.add_span(1, 7, 12, second) == second
    state.spans(1, 7, Manifest, known)

    assert known == {0: first, 12: second}
    assert state.shares() == [], "no task has begun"


def test_a_reader_that_wakes_up_after_its_slice_was_removed_leaves_nothing(state: State) -> None:
    state.submit(1, 7)
    state.remove_slice(1, 7)
    if state.objects.is_local:
        with pytest.raises(StateLost):
            state.add_span(1, 7, 0, Manifest(0, 5, 9))
        assert "7" not in state.objects.children(f"{DRAIN}/1")


def test_a_task_finds_its_share_once_the_driver_gives_it(state: State) -> None:
    share = TaskShare({3: TaskInput(5, 9, 4, 2**62)}, ("'a'",), (3,))
    state.submit(1, 7)
    assert state.share((1, 7, 2)) is None

    state.give(1, 7, {2: share, 0: TaskShare()})

    assert state.share((1, 7, 2)) == share
    assert state.share((1, 7, 0)) == TaskShare()
    assert state.share((1, 7, 1)) is None
    assert state.attempts((1, 7, 2)) == []
