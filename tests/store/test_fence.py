"""The fence: a task begins nothing from the moment on at which another one may be at work, and what
is still in its handler some seconds later is cut off."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from drainer.core.merge import Record
from drainer.engine.runtime import boottime_s
from drainer.errors import Interrupted, LockLost, PlanRefused, StateLost
from drainer.handler import Handler
from drainer.kafka.settings import ClientSettings
from drainer.message import SubMessage
from drainer.model.settings import FailureSettings
from drainer.spark.assign.control import ControlChannel
from drainer.spark.driver import close_handlers
from drainer.spark.session.shipping import Shipped
from drainer.spark.state.lease import LeaseTimes
from drainer.spark.state.state import Attempt, State
from drainer.spark.task.python_worker import EXIT_CUT, Fence, HandlerSpec, PythonWorker
from kafka.topic import eventually
from store.plans import PLAN
from store.stores import DRAIN, TEST_PATH, FailingObjects, bucket, folder

FIRST, SECOND = Attempt(1, 1, 2, 0), Attempt(1, 1, 2, 1)
QUICK = LeaseTimes(0.01, 0.01, 0, 60, lease_s=60, cut_s=60)
SHORT = replace(QUICK, lease_s=0.3, cut_s=0.2)


@pytest.fixture(params=[folder, bucket], ids=["folder", "object store"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> FailingObjects:
    return FailingObjects(request.param(tmp_path))


class Lock:
    """The driver's, as far as a lease knows one: confirmed at each moment, until it isn't."""

    confirmed = True

    def confirmed_s(self) -> float:
        return boottime_s() if self.confirmed else float("-inf")


class Nothing(Handler):
    async def handle(self, sub: SubMessage) -> None:
        pass


def is_sure(fence: Fence) -> bool:
    return boottime_s() < fence.sure_until_s


TERMS = replace(PLAN.terms, drain_id=DRAIN)
Drive = Callable[..., tuple[State, ControlChannel, Lock]]


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Begins an epoch, whose driver goes on to the end of the test."""
    begun: list[ControlChannel] = []

    def start(objects: FailingObjects, epoch: int = 1) -> tuple[State, ControlChannel, Lock]:
        state, lock = State(objects, DRAIN), Lock()
        channel = ControlChannel(state, epoch, QUICK, lock.confirmed_s)
        channel.begin()
        begun.append(channel)
        return state, channel, lock

    yield start
    for channel in begun:
        channel.end()


@pytest.fixture
def driver(objects: FailingObjects, drive: Drive) -> tuple[State, ControlChannel, Lock]:
    made = drive(objects)
    made[0].begin(FIRST, {0: 0})
    return made


@pytest.fixture
def state(driver: tuple[State, ControlChannel, Lock]) -> State:
    return driver[0]


Ends = list[None]


def no_calls() -> int:
    return 0


@pytest.fixture
def make_fence(state: State) -> Iterator[Callable[..., tuple[Fence, Ends]]]:
    """A fence that runs, and how often it has ended the process."""
    made: list[Fence] = []

    def start(times: LeaseTimes = QUICK) -> tuple[Fence, Ends]:
        ended: Ends = []
        fence = Fence(state, 1, times, end_process=lambda: ended.append(None))
        fence.start()
        made.append(fence)
        return fence, ended

    yield start
    for fence in made:
        fence.stop()


@pytest.fixture
def fence(make_fence: Callable[..., tuple[Fence, Ends]]) -> Fence:
    """A fence that is sure."""
    found, _ = make_fence()
    found.guard(FIRST, no_calls)
    eventually(lambda: is_sure(found))
    return found


def test_a_task_waits_for_its_first_lease(
    make_fence: Callable[..., tuple[Fence, Ends]],
) -> None:
    fence, _ = make_fence()
    fence.await_lease()
    assert is_sure(fence)


def test_a_task_goes_on_without_a_lease_to_report_that_it_has_none(
    state: State, driver: tuple[State, ControlChannel, Lock]
) -> None:
    driver[2].confirmed = False
    fence = Fence(state, 1, SHORT)
    fence.await_lease()  # Nothing looks, so there is no lease.
    assert not is_sure(fence)


def test_between_two_looks_a_task_learns_what_the_driver_requests_and_no_more(
    driver: tuple[State, ControlChannel, Lock], make_fence: Callable[..., tuple[Fence, Ends]]
) -> None:
    """A look is dear in an object store: a request does not wait for the next one."""
    _, channel, _ = driver
    found, _ = make_fence(replace(QUICK, look_s=60, listen_s=0.01))
    found.guard(FIRST, no_calls)
    until_s = found.sure_until_s
    channel.send(failures=FailureSettings(retries=9))
    eventually(lambda: found.control.failures == FailureSettings(retries=9))
    channel.send(stop="a person requests it")
    eventually(lambda: isinstance(found.lost, Interrupted))
    assert found.sure_until_s == until_s, "its lease is as it was"


def test_a_driver_without_a_lock_makes_no_task_sure(
    driver: tuple[State, ControlChannel, Lock], make_fence: Callable[..., tuple[Fence, Ends]]
) -> None:
    _, channel, lock = driver
    lock.confirmed = False
    looks = threading.Semaphore(0)
    fence, _ = make_fence()
    fence.looked = lambda _: looks.release()
    for _ in range(5):
        channel.beat()
        assert looks.acquire(timeout=10)
    assert not is_sure(fence)
    lock.confirmed = True
    eventually(lambda: is_sure(fence))


@pytest.mark.parametrize(
    ("overtake", "reason"),
    [
        (lambda state: state.begin_epoch(2, QUICK), "another driver"),
        (lambda state: state.begin(SECOND, {0: 0}), "another attempt"),
        (lambda state: state.remove(), "state is gone"),
        # As between the first and the last object that remove() deletes.
        (lambda state: state.remove_slice(FIRST.epoch, FIRST.slice), "state is gone"),
    ],
)
def test_a_task_that_is_overtaken_notices_it(
    overtake: Callable[[State], object], reason: str, state: State, fence: Fence
) -> None:
    overtake(state)
    eventually(lambda: fence.lost)
    assert reason in str(fence.lost)
    assert isinstance(fence.lost, LockLost)
    assert not is_sure(fence)


def test_what_an_overtaken_task_has_in_its_handler_is_cut(
    state: State, make_fence: Callable[..., tuple[Fence, Ends]]
) -> None:
    fence, ended = make_fence(replace(QUICK, cut_s=0.05))
    fence.guard(FIRST, lambda: 1)
    eventually(lambda: is_sure(fence))
    state.begin(SECOND, {0: 0})
    eventually(lambda: ended)


def test_the_next_task_of_a_worker_whose_last_one_was_overtaken_goes_on(
    state: State, fence: Fence
) -> None:
    state.begin(SECOND, {0: 0})
    eventually(lambda: fence.lost)
    state.begin(next_one := Attempt(1, 1, 3, 2), {0: 0})
    fence.guard(next_one, no_calls)
    eventually(lambda: is_sure(fence))
    assert fence.lost is None


@pytest.mark.parametrize("epoch", [1, 2])
def test_calls_that_a_task_left_behind_are_over_when_the_next_one_of_its_worker_begins(
    epoch: int, drive: Drive, tmp_path: Path
) -> None:
    """The driver may be another one: sessions outlive drains."""
    uri, shipped = folder(tmp_path).uri, Shipped("orders:Nothing", source=Nothing)
    spec = HandlerSpec(shipped, ClientSettings("x:1"), TERMS, 1, uri, QUICK, 1)
    state, _, _ = drive(FailingObjects(folder(tmp_path)))
    state.begin(FIRST, {0: 0})
    worker = PythonWorker()
    calls_left = [None] * 3

    def calls() -> int:
        if calls_left:
            calls_left.pop()
        return len(calls_left)

    with worker.at_work(spec) as opened:
        opened.fence.guard(FIRST, calls)
        assert not opened.fence.leave()
    if epoch > 1:
        drive(FailingObjects(folder(tmp_path)), epoch)
    with worker.at_work(replace(spec, epoch=epoch)) as opened:
        assert not calls_left
        opened.fence.stop()


@pytest.mark.parametrize("closed", [True, False])
def test_others_are_kept_out_while_a_worker_may_be_in_a_call(
    closed: bool, state: State, tmp_path: Path
) -> None:
    """A second request to stop does not wait for the workers."""
    lock, forced = Mock(), asyncio.Event()
    name = state.opening(1)
    if closed:
        state.closed(name, None)
    forced.set()

    asyncio.run(close_handlers(state, 1, lock, forced, None))

    lock.linger.assert_called_once_with(not closed)


def test_a_task_that_wakes_up_after_its_slice_is_over_begins_nothing(
    state: State, make_fence: Callable[..., tuple[Fence, Ends]]
) -> None:
    records = state.begin(SECOND, {0: 0})  # which did it all, and made the slice one of the past
    state.remove_slice(1, 1)
    with suppress(StateLost):  # from a folder, where it finds none
        records.append(Record({}))  # by one that doesn't know it yet

    with pytest.raises(LockLost):
        make_fence()[0].guard(FIRST, no_calls)
    with pytest.raises(LockLost):
        make_fence()[0].guard(SECOND, no_calls)


def test_a_stop_of_the_driver_is_noticed_and_a_takeover_after_that_too(
    driver: tuple[State, ControlChannel, Lock], fence: Fence
) -> None:
    state, channel, _ = driver
    channel.send(stop="interrupted by Ctrl-C")
    eventually(lambda: fence.lost)
    assert str(fence.lost) == "interrupted by Ctrl-C"
    assert isinstance(fence.lost, Interrupted)
    assert is_sure(fence)  # calls in flight end within its time
    channel.beat()
    control = state.control(1)
    assert control is not None
    assert control.stop == "interrupted by Ctrl-C"
    state.begin(SECOND, {0: 0})
    eventually(lambda: isinstance(fence.lost, LockLost) and not is_sure(fence))


def test_two_drivers_of_one_epoch_are_one_too_many(objects: FailingObjects, drive: Drive) -> None:
    drive(objects, 3)
    with pytest.raises(PlanRefused, match="another process drains with the same plan"):
        drive(objects, 3)


@pytest.mark.parametrize("how", ["gone", "hangs", "no lock"])
def test_without_news_for_a_lease_nothing_is_sure_and_then_calls_are_cut(
    how: str,
    driver: tuple[State, ControlChannel, Lock],
    objects: FailingObjects,
    make_fence: Callable[..., tuple[Fence, Ends]],
) -> None:
    fence, ended = make_fence(replace(SHORT, cut_s=1.0))
    calls: Ends = []
    fence.guard(FIRST, lambda: len(calls))
    eventually(lambda: is_sure(fence))
    calls.append(None)
    if how == "gone":
        objects.gone = True
    elif how == "hangs":
        objects.answers.clear()
    else:
        driver[2].confirmed = False
    eventually(lambda: not is_sure(fence))
    assert fence.lost is None
    assert not ended
    eventually(lambda: ended)
    if how == "gone":
        assert "out of reach" in (fence.trouble or "")
    calls.clear()
    objects.gone = False
    objects.answers.set()
    driver[2].confirmed = True
    eventually(lambda: is_sure(fence))
    assert fence.trouble is None


def test_a_worker_without_calls_is_not_ended(
    driver: tuple[State, ControlChannel, Lock], make_fence: Callable[..., tuple[Fence, Ends]]
) -> None:
    fence, ended = make_fence(replace(SHORT, cut_s=0.01))
    checked = threading.Event()
    fence.guard(FIRST, lambda: checked.set() or 0)  # type: ignore[func-returns-value]
    eventually(lambda: is_sure(fence))
    checked.clear()
    driver[2].confirmed = False
    assert checked.wait(10)
    assert not ended


def test_a_state_that_can_not_be_reached_at_first_is_an_error(
    objects: FailingObjects, make_fence: Callable[..., tuple[Fence, Ends]]
) -> None:
    fence, _ = make_fence()
    objects.gone = True
    with pytest.raises(StateLost):
        fence.guard(FIRST, no_calls)


def test_a_stop_does_not_wait_for_a_look_that_hangs(fence: Fence, objects: FailingObjects) -> None:
    objects.answers.clear()
    since_s = time.monotonic()
    fence.stop()
    assert time.monotonic() - since_s < 5
    objects.answers.set()


# --- two processes ---

TASK = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1].split(':')
import stores
from drainer.core.merge import Record
from drainer.model.progress import Progress
from drainer.spark.task.python_worker import Fence
from drainer.spark.state.lease import LeaseTimes
from drainer.engine.runtime import boottime_s
from drainer.spark.state.state import Attempt, State
from kafka.topic import eventually
path, number = Path(sys.argv[2]), int(sys.argv[3])
log = path / "begun.log"
TIMES = LeaseTimes(0.02, 0.02, 0, 60, lease_s=0.5, cut_s=0.1)
state = State(stores.FailingObjects(stores.folder(path)), stores.DRAIN)
attempt = Attempt(1, 1, 2, number)
records = state.begin(attempt, {0: 0})
fence = Fence(state, 1, TIMES)
fence.start()
taken = state.await_earlier_attempts(attempt, TIMES)
records.go_on_from(taken)
at = Progress(0).merge(taken.claims["0/1"][0]).watermark if taken.claims else 0
calls = []
fence.guard(attempt, lambda: len(calls))
with log.open("a", buffering=1) as out:
    while fence.lost is None and at < 100_000:
        if boottime_s() >= fence.sure_until_s:
            time.sleep(0.001)
            continue
        out.write(f"{number} {at} {time.monotonic_ns()}\\n")
        at += 1
        try:
            records.append(Record({0: stores.done(at, count=at)}))
        except Exception:
            if fence.lost is None:
                raise
        if len(sys.argv) > 4:
            calls.append(at)
            state.objects.gone = sys.argv[4] == "cut off"
            time.sleep(60)
        time.sleep(0.002)
"""


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def task(tmp_path: Path, drive: Drive) -> Iterator[Start]:
    """Starts a task of this number; kills it at the end. With ``slow`` its first call takes a
    minute, with ``cut off`` it sees nothing of the state meanwhile."""
    drive(FailingObjects(folder(tmp_path)))
    started: list[subprocess.Popen[bytes]] = []

    def start(number: int, *call: str) -> subprocess.Popen[bytes]:
        arguments = [TEST_PATH, str(tmp_path), str(number), *call]
        process = subprocess.Popen([sys.executable, "-c", TASK, *arguments])
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def begun(path: Path) -> list[tuple[int, int, int]]:
    """Beginnings: by which task, of what, and when."""
    log = path / "begun.log"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    rows = [line.split() for line in lines if line.endswith("\n")]
    return [(int(a), int(b), int(c)) for a, b, c in rows]


def by(number: int, path: Path) -> list[tuple[int, int, int]]:
    return [row for row in begun(path) if row[0] == number]


@pytest.mark.long
def test_a_task_that_stood_still_begins_nothing_after_another_took_over(
    task: Start, tmp_path: Path
) -> None:
    first = task(0)
    eventually(lambda: len(by(0, tmp_path)) > 20)
    first.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    before = len(by(0, tmp_path))
    task(1)
    eventually(lambda: len(by(1, tmp_path)) > 20)
    first.send_signal(signal.SIGCONT)
    assert first.wait(10) == 0  # it has noticed that it is overtaken
    # One that it was about to begin when it was stopped is beyond help.
    assert len(by(0, tmp_path)) <= before + 1
    many = len(by(1, tmp_path))
    eventually(lambda: len(by(1, tmp_path)) > many + 5)


@pytest.mark.long
@pytest.mark.parametrize("call", ["slow", "cut off"])
def test_a_call_that_goes_on_for_long_is_over_before_the_next_task_begins(
    call: str, task: Start, tmp_path: Path
) -> None:
    first = task(0, call)
    eventually(lambda: by(0, tmp_path))
    task(1)
    eventually(lambda: by(1, tmp_path))
    assert first.poll() == EXIT_CUT
