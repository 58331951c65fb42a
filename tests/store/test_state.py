"""The state: a driver hears each record once, and an attempt goes on from all that earlier ones
told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from plans import PLAN
from stores import (
    AT_ONCE,
    DRAIN,
    STREAMS,
    TEST_PATH,
    bucket,
    done,
    driven,
    folder,
    names_in,
)

from builders import changed, counts, progress_at
from drainer.core.merge import Record, TaskRecord, TaskReport
from drainer.engine.runtime import boottime_s
from drainer.errors import Interrupted, LockLost, StateLost, StateRefused
from drainer.model.claims import ALL
from drainer.model.progress import Outcome, Partial, Progress
from drainer.model.rules import RuleAccount
from drainer.spark import state as state_module
from drainer.spark.lease import is_dead, this_process
from drainer.spark.records import Head, TaskRecords, TaskStatus
from drainer.spark.state import Attempt, DriverControl, State, state_beside
from drainer.store import plan_file
from drainer.store.journal import encode_line

FIRST = Attempt(1, 1, 2, 0)
SECOND = Attempt(1, 1, 2, 1)
THIRD = Attempt(1, 1, 2, 2)
STARTS = {0: 100, 2: 0}
ASKED = RuleAccount({"r": 1}, asked_by={"0/8": {0: 108}})
LONG = replace(AT_ONCE, look_s=1, lease_s=20, cut_s=10)


@pytest.fixture(params=[folder, bucket], ids=["folder", "object store"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> State:
    return followed(driven(State(request.param(tmp_path), DRAIN)))


def followed(state: State) -> State:
    state.follow(1, {1: 10})
    return state


def begun(state: State, attempt: Attempt) -> tuple[TaskRecords, TaskRecord]:
    records = state.begin(attempt, STREAMS, STARTS)
    earlier = state.revoke_lease(attempt, AT_ONCE)
    records.go_on_from(earlier)
    records.write(PLAN)
    return records, earlier


def mark_of(head: Head) -> int | None:
    """How far it is in partition 0; None when it says nothing of that."""
    return head.marks["0/8"][0][1] if "0/8" in head.marks else None


def marks(news: list[tuple[Attempt, Head]]) -> list[tuple[int, int, int | None]]:
    """By task and attempt, without what attempts go on from."""
    return [(a.task, a.number, mark_of(head)) for a, head in news if head.marks]


def tell(records: TaskRecords, *reported: dict[int, Progress]) -> None:
    for changes in reported:
        records.append(Record(changes))
    records.write(PLAN)


def finished(record: TaskRecord, number: int = 0) -> tuple[tuple[int, int], ...]:
    return record.claims["0/8"][number].finished


def test_control_is_what_its_driver_said_last(state: State) -> None:
    assert state.control(1) == DriverControl()
    state.set_control(1, DriverControl(7, stop="Ctrl-C"))
    assert (state.control(1), state.control(2)) == (DriverControl(7, stop="Ctrl-C"), None)


def test_an_epoch_begins_once_and_is_the_newest(state: State) -> None:
    assert state.begin_epoch(10, LONG)
    assert not state.begin_epoch(10, AT_ONCE)
    assert not state.begin_epoch(1, LONG)
    assert (state.epoch(), state.times(10), state.times(1)) == (10, LONG, AT_ONCE)


def test_an_object_store_is_asked_for_one_record_of_each_attempt_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = driven(State(bucket(tmp_path), DRAIN))
    now_s = [100.0]
    monkeypatch.setattr(state_module, "boottime_s", lambda: now_s[0])
    state.follow(1, {1: 3})
    one, _ = begun(state, FIRST)
    tell(one, {0: done(101, count=1)}, {0: done(102, count=2)})

    def news(*, sparing: bool) -> list[tuple[int, int, int | None]]:
        found = state.news(sparing=sparing)
        return [(a.task, a.number, mark_of(head)) for a, head in found]

    assert news(sparing=True) == [(2, 0, None)]
    other, _ = begun(state, Attempt(1, 1, 0, 7))
    tell(other, {0: done(103, count=3)})
    assert news(sparing=True) == [(0, 7, None), (2, 0, 101)]
    again, _ = begun(state, SECOND)
    assert news(sparing=True) == [(0, 7, 103), (2, 0, 102)]
    now_s[0] += state_module.LIST_S
    assert news(sparing=True) == [(2, 1, 102)]
    tell(again, {0: done(105, count=5)}, {0: done(106, count=6)})
    assert news(sparing=False) == [(2, 1, 105), (2, 1, 106)]


def test_each_record_is_news_once_and_in_order(state: State) -> None:
    driver = followed(State(state.objects, DRAIN))
    assert driver.news() == []
    one, _ = begun(state, FIRST)
    other, _ = begun(state, Attempt(1, 1, 9, 7))
    tell(one, {0: done(101, count=1)}, {0: done(102, count=2)})
    tell(other, {0: done(105, count=1)})

    assert marks(driver.news()) == [(2, 0, 101), (2, 0, 102), (9, 7, 105)]
    assert driver.news() == []
    tell(one, {0: done(103, count=3)})
    assert marks(driver.news()) == [(2, 0, 103)]


def test_an_attempt_is_not_heard_any_more_once_the_next_one_has_begun(state: State) -> None:
    """What it tells late the next one does again; a part would be done while that goes on."""
    first, _ = begun(state, FIRST)
    tell(first, {0: done(101, count=1)})
    assert marks(state.news()) == [(2, 0, 101)]
    second = state.begin(SECOND, STREAMS, STARTS)
    tell(first, {0: done(105, count=5)})
    assert state.news() == []
    second.go_on_from(TaskRecord())
    tell(second, {0: done(102, count=2)})
    assert marks(state.news()) == [(2, 1, 102)]


def test_a_driver_reads_no_more_than_heads(state: State) -> None:
    records, _ = begun(state, FIRST)
    tell(records, {0: done(101, (103, 104), count=2)})
    name = f"{DRAIN}/1/1/2/0/00000001"
    data = state.objects.get(name)
    assert data is not None
    head, detail, _ = data.split(b"\n")
    assert b"103" in detail
    state.objects.put(name, head + b"\nnot to be decoded")

    assert marks(state.news()) == [(2, 0, 101)]
    assert state.report((1, 1, 2)) == TaskReport(TaskRecord(), 1, torn=True)


def test_news_is_of_the_shares_that_are_followed(state: State) -> None:
    driver = State(state.objects, DRAIN)
    driver.follow(1, {2: 3})
    for attempt in (FIRST, Attempt(1, 2, 2, 0), Attempt(1, 2, 3, 0)):
        tell(begun(state, attempt)[0], {0: done(101, count=1)})

    assert {attempt for attempt, _ in driver.news()} == {Attempt(1, 2, 2, 0)}
    driver.follow(1, {3: 3})
    assert driver.news() == []


def test_a_record_that_is_spoilt_is_no_news(state: State) -> None:
    records, _ = begun(state, FIRST)
    tell(records, {0: done(101, count=1)}, {0: done(102, count=2)})
    name = f"{DRAIN}/1/1/2/0/00000002"
    data = state.objects.get(name)
    assert data is not None
    state.objects.put(name, data.replace(b'"marks"', b'"murks"'))

    with pytest.raises(StateLost, match=r"2/0/00000002 is damaged"):
        state.news()


@pytest.mark.parametrize("spoilt", [b"", b"x", b"00000000 {}\n", encode_line({"marks": 1})])
def test_what_follows_a_spoilt_record_of_its_attempt_is_left_out(
    spoilt: bytes, state: State
) -> None:
    records, _ = begun(state, FIRST)
    tell(records, *({0: done(100 + n, count=n)} for n in (1, 2, 3)))
    state.objects.put(f"{DRAIN}/1/1/2/0/00000002", spoilt)

    reported = state.report((1, 1, 2))
    assert (reported.count, reported.torn) == (2, True)
    assert finished(reported.record) == ((100, 101),)
    _, taken = begun(state, SECOND)
    assert taken == reported.record


def test_of_a_task_that_has_come_to_rest_no_more_is_read_than_its_last_word(state: State) -> None:
    """A drain that is stopped does not read what was reported for an hour."""
    records, _ = begun(state, FIRST)
    tell(records, {0: replace(done(101, count=1), fates={Outcome.DEAD: ((100, 101),)})})
    claim = {ALL: {0: done(102, (104, 105), count=3, partial={106: Partial(3, 9, 0b001)})}}
    records.start_journal(DRAIN, 1)
    records.write(changed(PLAN, claims=claim, generation=1, ruled=RuleAccount({"r": 1})))
    before = state.report((1, 1, 2))
    records.status = TaskStatus
    records.beat()
    records.end()

    reported = state.report((1, 1, 2))
    assert (reported.record, reported.count) == (before.record, 2)
    assert reported.record.claims["0/8"][0] == progress_at(
        0,
        finished=((100, 102), (104, 105)),
        partial={106: Partial(3, 9, 0b001)},
        fates={Outcome.DEAD: ((100, 101),)},
    )
    assert reported.record.counts == {0: counts(done=6)}


def test_an_attempt_goes_on_from_all_that_earlier_ones_told(state: State) -> None:
    first, _ = begun(state, FIRST)
    first.append(
        Record({0: done(104, (106, 108), count=6)}, ("'a'",), RuleAccount({"r": 1}, {0: 108}))
    )
    first.append(Record({0: done(104, (110, 111), count=7, partial={105: Partial(3, 9, 0b001)})}))
    first.end()
    second, taken = begun(state, SECOND)
    assert finished(taken) == ((100, 104), (106, 108), (110, 111))
    assert taken.claims["0/8"][0].partial == {105: Partial(3, 9, 0b001)}
    assert taken.counts == {0: counts(done=14)}
    assert (taken.parked, taken.ruled) == (("'a'",), ASKED)

    second.append(Record({0: done(106, count=1)}, ("'b'",), RuleAccount({"r": 3})))
    second.end()
    _, taken = begun(state, THIRD)
    assert finished(taken) == ((100, 108), (110, 111))
    assert (taken.claims["0/8"][0].partial, taken.counts) == ({}, {0: counts(done=16)})
    assert taken.parked == ("'a'", "'b'")
    assert taken.ruled == replace(ASKED, skipped_by={"r": 3})
    assert state.report((1, 1, 2)).record == taken


def test_nothing_below_its_share_is_said_to_be_finished(state: State) -> None:
    """A message below may be pending for a sub-message of a parked lane."""
    records, _ = begun(state, FIRST)
    tell(records, {0: done(100, (103, 104), count=1)})
    assert finished(state.report((1, 1, 2)).record) == ((103, 104),)
    tell(records, {0: done(102, count=3)})
    assert finished(state.report((1, 1, 2)).record) == ((100, 102), (103, 104))


def test_an_attempt_begins_once(state: State) -> None:
    state.objects.create(f"{DRAIN}/{FIRST.name}/begun", encode_line("another process"))
    with pytest.raises(StateRefused, match="has begun before"):
        state.begin(FIRST, STREAMS, STARTS)


def test_no_attempt_begins_under_an_old_driver(state: State) -> None:
    state.begin_epoch(2, LONG)
    with pytest.raises(LockLost, match="epoch 2"):
        state.begin(FIRST, STREAMS, STARTS)
    assert state.attempts() == []


def test_no_attempt_begins_after_the_end(state: State) -> None:
    state.remove()
    with pytest.raises(LockLost, match="state is gone"):
        state.begin(FIRST, STREAMS, STARTS)


def test_a_driver_that_takes_over_as_an_attempt_begins_stops_it(state: State) -> None:
    state.begin(FIRST, STREAMS, STARTS)
    state.begin_epoch(2, LONG)
    with pytest.raises(LockLost, match="another driver"):
        state.revoke_lease(FIRST, AT_ONCE)


def test_a_later_attempt_stops_one_that_waits_for_an_earlier_one(state: State) -> None:
    state.begin(FIRST, STREAMS, STARTS)
    state.begin(SECOND, STREAMS, STARTS)
    state.begin(THIRD, STREAMS, STARTS)
    with pytest.raises(LockLost, match="another attempt"):
        state.revoke_lease(SECOND, LONG)


def test_what_an_overtaken_attempt_tells_late_counts_for_nobody(state: State) -> None:
    """The next attempt does it again and counts it: two accounts of it would be one too many."""
    first, _ = begun(state, FIRST)
    tell(first, {0: done(101, count=1)})
    second, _ = begun(state, SECOND)
    tell(first, {0: done(105, count=5)})  # it woke up
    tell(second, {0: done(102, count=2)})
    third, taken = begun(state, THIRD)
    assert (finished(taken), taken.counts) == (((100, 102),), {0: counts(done=6)})
    tell(first, {0: done(106, count=6)})
    tell(third, {0: done(103, count=1)})
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


def test_nobody_waits_for_an_attempt_that_has_ended(state: State) -> None:
    first, _ = begun(state, FIRST)
    first.end()
    state.begin(SECOND, STREAMS, STARTS)
    assert waited_s(lambda: state.revoke_lease(SECOND, LONG)) < 1


def test_a_successor_waits_for_lease_and_cut(state: State) -> None:
    begun(state, FIRST)  # by this process, which lives

    def begin_and_settle() -> None:  # the lease counts from when the second one began
        state.begin(SECOND, STREAMS, STARTS)
        state.revoke_lease(SECOND, replace(LONG, lease_s=0.2, cut_s=0.1))

    assert 0.3 <= waited_s(begin_and_settle) < 5


def test_an_attempt_that_ends_meanwhile_is_waited_for_no_longer(state: State) -> None:
    first, _ = begun(state, FIRST)
    state.begin(SECOND, STREAMS, STARTS)
    ending = threading.Timer(0.1, first.end)
    ending.start()
    assert 0.05 < waited_s(lambda: state.revoke_lease(SECOND, replace(LONG, look_s=0.02))) < 10
    ending.join()


def killed_process(state: State, attempt: Attempt, path: Path) -> None:
    """Begins an attempt in a process that is killed before it ends."""
    code = (
        "import sys, time; from pathlib import Path; sys.path[:0] = sys.argv[1].split(':')\n"
        "import plans, stores; from drainer.core.merge import Record\n"
        "from drainer.spark.state import Attempt\n"
        "from drainer.spark.state import State\n"
        "state = State(getattr(stores, sys.argv[2])(Path(sys.argv[3])), stores.DRAIN)\n"
        "attempt = Attempt(*eval(sys.argv[4]))\n"
        "records = state.begin(attempt, stores.STREAMS, {0: 100})\n"
        "records.go_on_from(state.revoke_lease(attempt, stores.AT_ONCE))\n"
        "records.append(Record({0: stores.done(103, count=3)})); records.write(plans.PLAN)\n"
        "print('there', flush=True); time.sleep(60)"
    )
    kind = "folder" if state.objects.is_local else "bucket"
    spec = repr((attempt.epoch, attempt.deal, attempt.task, attempt.number))
    arguments = [TEST_PATH, kind, str(path), spec]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie: nobody has waited for it


def test_nobody_waits_for_a_process_that_was_killed(state: State, tmp_path: Path) -> None:
    killed_process(state, FIRST, tmp_path)
    state.begin(SECOND, STREAMS, STARTS)
    taken: list[TaskRecord] = []
    assert waited_s(lambda: taken.append(state.revoke_lease(SECOND, LONG))) < 1
    assert finished(taken[0]) == ((100, 103),)


def test_a_driver_waits_for_live_tasks_of_the_one_before(state: State) -> None:
    begun(state, FIRST)
    begun(state, Attempt(1, 1, 3, 0))[0].end()
    driver = State(state.objects, DRAIN)
    driver.begin_epoch(2, LONG)
    since_s = boottime_s()
    assert not driver.at_rest(below=2)
    driver.revoke_epochs(2, since_s, replace(LONG, lease_s=0.2, cut_s=0.1))
    assert boottime_s() - since_s >= 0.3


def test_a_process_is_dead_when_another_one_has_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    me = this_process()
    assert not is_dead(me)
    assert is_dead(replace(me, started="1"))
    assert not is_dead(replace(me, started=None))
    assert not is_dead(replace(me, host="elsewhere", pid=2**22 + 1))
    assert is_dead(replace(me, pid=2**22 + 1))
    plan_file.this_machine.cache_clear()
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert not is_dead(replace(me, started="1"))
    plan_file.this_machine.cache_clear()


# --- the end ---


def test_a_deal_that_is_removed_leaves_the_others(state: State) -> None:
    for deal in (1, 2, 11):
        begun(state, Attempt(1, deal, 9, 0))
    state.remove_deal(1, 1)
    assert [share[1] for share in state.shares()] == [2, 11]
    assert state.epoch() == 1


def test_another_drains_state_stays(state: State) -> None:
    other = driven(State(state.objects, "20260101-180000-other0"), 4)
    begun(state, FIRST)
    state.remove()
    assert names_in(state.objects, DRAIN) == []
    assert (other.epoch(), other.control(4)) == (4, DriverControl())


@pytest.mark.parametrize(
    "body", [{"beat": "1", "stop": None}, [], {"beat": 1, "stop": 2}, {"beat": -1}]
)
def test_a_control_that_makes_no_sense_is_told(body: object, state: State) -> None:
    state.objects.put(f"{DRAIN}/1/control", encode_line(body))
    with pytest.raises(StateLost, match="control is damaged"):
        state.control(1)


def test_the_folder_beside_a_plan_goes_with_the_state_and_any_other_stays(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    folders = [Path(state_beside(plan)), tmp_path / "of-somebody"]
    for place in folders:
        state = driven(State.open(str(place), DRAIN))
        state.remove(plan)
    assert [place.exists() for place in folders] == [False, True]


def test_the_folder_beside_a_plan_stays_while_another_drain_has_something_in_it(
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan.json"
    state, other = (driven(State.open(state_beside(plan), name)) for name in (DRAIN, "other"))
    state.remove(plan)
    assert other.control(1) == DriverControl()


def test_a_handler_is_opened_for_a_driver_that_goes_on_and_for_no_other(state: State) -> None:
    name = state.opening(1)
    assert state.handlers(1) == (1, [])
    state.closed(name, "no answer")
    assert state.handlers(1) == (0, ["no answer"])

    state.set_control(1, DriverControl(stop="as was asked"))
    with pytest.raises(Interrupted, match="as was asked"):
        state.opening(1)
    driven(state, 2)
    state.opening(2)
    with pytest.raises(LockLost, match="took the drain over"):
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
