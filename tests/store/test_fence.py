"""The fence: a task begins nothing from the moment on at which another one may be at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from stores import DRAIN, Failing, bucket, folder

from drainer.errors import Interrupted, LockLost, StateLost
from drainer.spark.fence import Fence
from drainer.spark.state import Attempt, Control, State

FIRST, SECOND = Attempt(1, 1, "2/8", 0), Attempt(1, 1, "2/8", 1)
LONG_S = 60.0


def eventually(condition: Callable[[], object], within_s: float = 10.0) -> None:
    until_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.005)


@pytest.fixture(params=[folder, bucket], ids=["folder", "object store"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Failing:
    return Failing(request.param(tmp_path))


@pytest.fixture
def state(objects: Failing) -> State:
    made = State(objects, DRAIN)
    made.set_control(Control(1))
    made.begin(FIRST)
    return made


@pytest.fixture
def fence(state: State) -> Fence:
    return Fence(state, FIRST, look_s=0.01, lease_s=LONG_S)


def test_a_task_that_nobody_overtook_is_sure(fence: Fence) -> None:
    assert not fence.sure
    fence.start()
    assert (fence.sure, fence.unsure_since_s, fence.lost) == (True, None, None)
    fence.stop()


@pytest.mark.parametrize(
    ("overtake", "reason"),
    [
        (lambda state: state.set_control(Control(2)), "another driver"),
        (lambda state: state.begin(SECOND), "another attempt"),
        (lambda state: state.remove(), "removed"),
    ],
)
def test_a_task_that_is_overtaken_hears_of_it(
    overtake: Callable[[State], object], reason: str, state: State, fence: Fence
) -> None:
    fence.start()
    overtake(state)
    eventually(lambda: fence.lost)
    assert reason in str(fence.lost)
    assert isinstance(fence.lost, LockLost)
    assert not fence.sure
    assert fence.unsure_since_s is not None


def test_a_task_that_wakes_up_after_its_wave_is_over_begins_nothing(
    state: State, fence: Fence
) -> None:
    records = state.begin(SECOND)  # which did it all, and made the wave one of the past
    state.remove_wave(1, 1)
    with suppress(StateLost):  # from a folder, where it finds none
        records.append({})  # by one that doesn't know it yet

    with pytest.raises(LockLost):
        fence.start()
    with pytest.raises(LockLost):
        state.insist_on(SECOND)


def test_a_driver_that_pauses_holds_tasks_back(state: State, fence: Fence) -> None:
    fence.start()
    state.set_control(Control(1, paused=True))
    eventually(lambda: not fence.sure)
    assert fence.unsure_since_s is not None
    assert fence.unsure_since_s <= time.monotonic()
    state.set_control(Control(1))
    eventually(lambda: fence.sure)
    assert fence.unsure_since_s is None
    fence.stop()


def test_the_stop_of_an_earlier_driver_is_not_meant(state: State) -> None:
    state.set_control(Control(2))
    state.begin(attempt := Attempt(2, 1, "0/2", 1))
    fence = Fence(state, attempt)
    state.set_control(Control(1, stop="interrupted"))  # as a mounted folder may show it
    fence.start()

    assert (fence.lost, fence.sure) == (None, True)
    fence.stop()


def test_a_driver_that_stops_is_heard_and_a_takeover_after_that_too(
    state: State, fence: Fence
) -> None:
    fence.start()
    state.set_control(Control(1, stop="interrupted by Ctrl-C"))
    eventually(lambda: fence.lost)
    assert str(fence.lost) == "interrupted by Ctrl-C"
    assert isinstance(fence.lost, Interrupted)
    assert fence.sure  # calls in flight end within its time
    state.begin(SECOND)
    eventually(lambda: isinstance(fence.lost, LockLost) and not fence.sure)


@pytest.mark.parametrize("how", ["gone", "hangs"])
def test_without_an_answer_for_a_lease_nothing_is_sure(
    how: str, state: State, objects: Failing
) -> None:
    fence = Fence(state, FIRST, look_s=0.01, lease_s=0.2)
    fence.start()
    if how == "gone":
        objects.gone = True
    else:
        objects.answers.clear()
    eventually(lambda: not fence.sure)
    assert fence.unsure_since_s is not None
    assert fence.lost is None
    if how == "gone":
        assert "out of reach" in (fence.trouble or "")
    objects.gone = False
    objects.answers.set()
    eventually(lambda: fence.sure)
    assert fence.trouble is None
    fence.stop()


def test_a_state_that_can_not_be_reached_at_first_is_told(objects: Failing, fence: Fence) -> None:
    objects.gone = True
    with pytest.raises(StateLost):
        fence.start()


def test_the_lease_begins_when_the_question_was_put(state: State, objects: Failing) -> None:
    """The answer may have been true at that moment only."""
    now_s = [100.0]
    ask = objects.get

    def slow(name: str) -> bytes | None:
        now_s[0] += 3.5  # and it is asked for two objects
        return ask(name)

    objects.get = slow  # type: ignore[method-assign]
    fence = Fence(state, FIRST, look_s=LONG_S, lease_s=10.0, clock=lambda: now_s[0])
    fence.start()
    assert fence.sure
    now_s[0] += 2.9
    assert fence.sure
    now_s[0] += 0.2
    assert not fence.sure
    fence.stop()


# --- two processes ---

TASK = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import stores
from drainer.core.progress import Progress
from drainer.spark.state import Attempt
from drainer.spark.fence import Fence
from drainer.spark.state import State
path, number = Path(sys.argv[2]), int(sys.argv[3])
log = path / "begun.log"
LOOK_S, LEASE_S = 0.05, 0.5
state = State(stores.folder(path), stores.DRAIN)
attempt = Attempt(1, 1, "2/8", number)
records = state.begin(attempt, {0: 0})
taken = state.settle(attempt, LOOK_S, LEASE_S)
at = Progress(0).merge(taken.changes[0]).watermark if 0 in taken.changes else 0
fence = Fence(state, attempt, look_s=LOOK_S, lease_s=LEASE_S)
fence.start()
with log.open("a", buffering=1) as out:
    while fence.lost is None and at < 100_000:
        if not fence.sure:
            time.sleep(0.001)
            continue
        out.write(f"{number} {at} {time.monotonic_ns()}\\n")
        at += 1
        try:
            records.append({0: stores.done(at, count=at)})
        except Exception:
            if fence.lost is None:
                raise
        time.sleep(0.002)
"""


Start = Callable[[int], subprocess.Popen[bytes]]


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Start]:
    """Starts a task of this number; kills it at the end at the latest."""
    started: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parent)
        arguments = [here, str(tmp_path), str(number)]
        process = subprocess.Popen([sys.executable, "-c", TASK, *arguments])
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def begun(path: Path) -> list[tuple[int, int, int]]:
    """Who began what, and when."""
    log = path / "begun.log"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    rows = [line.split() for line in lines if line.endswith("\n")]
    return [(int(a), int(b), int(c)) for a, b, c in rows]


def by(number: int, path: Path) -> list[tuple[int, int, int]]:
    return [row for row in begun(path) if row[0] == number]


def prepare(path: Path) -> None:
    State(folder(path), DRAIN).set_control(Control(1))


def test_a_task_goes_on_at_once_from_one_that_was_killed(task: Start, tmp_path: Path) -> None:
    prepare(tmp_path)
    first = task(0)
    eventually(lambda: len(by(0, tmp_path)) > 20)
    first.kill()
    first.wait()
    task(1)
    eventually(lambda: len(by(1, tmp_path)) > 20)
    last, goes_on = by(0, tmp_path)[-1][1], by(1, tmp_path)[0][1]
    # What a folder's task had begun was reported but for the last one.
    assert last - 1 <= goes_on <= last + 1


def test_a_task_that_stood_still_begins_nothing_after_another_took_over(
    task: Start, tmp_path: Path
) -> None:
    prepare(tmp_path)
    first = task(0)
    eventually(lambda: len(by(0, tmp_path)) > 20)
    first.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    before = len(by(0, tmp_path))
    task(1)
    eventually(lambda: len(by(1, tmp_path)) > 20)
    first.send_signal(signal.SIGCONT)
    assert first.wait(10) == 0  # it has heard that it is overtaken
    # One that it was about to begin when it was stopped is beyond help.
    assert len(by(0, tmp_path)) <= before + 1
    many = len(by(1, tmp_path))
    eventually(lambda: len(by(1, tmp_path)) > many + 5)


def test_two_tasks_that_live_never_work_at_the_same_time(task: Start, tmp_path: Path) -> None:
    """The first has not heard of the second yet when that begins."""
    prepare(tmp_path)
    first = task(0)
    eventually(lambda: len(by(0, tmp_path)) > 20)
    task(1)
    eventually(lambda: len(by(1, tmp_path)) > 20)
    assert first.wait(10) == 0
    assert max(row[2] for row in by(0, tmp_path)) < min(row[2] for row in by(1, tmp_path))


def test_stopping_does_not_wait_for_a_look_that_hangs(state: State, objects: Failing) -> None:
    fence = Fence(state, FIRST, look_s=0.01, lease_s=LONG_S)
    fence.start()
    objects.answers.clear()
    since_s = time.monotonic()
    fence.stop()
    assert time.monotonic() - since_s < 5
    objects.answers.set()
    assert threading.active_count() < 50
