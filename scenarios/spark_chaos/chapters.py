"""The chapters on Spark: each takes one backlog through one kind of trouble."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED
from scenarios.chaos.drain import Backlog, Pace, Process, until
from scenarios.chaos.stage import KILLED, Stage, Told, piped
from scenarios.chaos.trace import Judged

PACE = Pace(concurrency=50, latency_ms=20)  # 2,500/s: time for things to happen
ON_SPARK = ("--engine", "spark", "--master", "local[2]", "--wave", "4MiB")
CLUSTER = ("--engine", "spark", "--master", "local-cluster[2,1,1024]")
LEASE_S = 3.2  # of a task, and a look more
SMALLEST_FILE = 64
PROCESSES_GO_S = 30.0


def worker_killed(stage: Stage) -> Told:
    """``kill -9`` of a Python worker in the midst of its task: Spark starts it anew."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        process, victims = backlog.begin(*ON_SPARK), []
        for _ in range(2 if stage.short else 3):
            _let_work(stage, backlog, process)
            victims.append(_worker_at_work(backlog))
            os.kill(victims[-1], signal.SIGKILL)
            told.times += 1
        told.ends(process, EXIT_DONE)
        _judge(told, backlog, victims)
        return told


def driver_killed(stage: Stage) -> Told:
    """``kill -9`` of the driver; a resume goes on, with another number of tasks."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        victims: list[int] = []
        for tasks in (2, 3) if stage.short else (2, 3, 1, 4):
            process = backlog.begin(*ON_SPARK, "--tasks", str(tasks))
            _let_work(stage, backlog, process)
            below = descendants(process.pid)
            process.send(signal.SIGKILL)
            told.ends(process, KILLED)
            told.times += 1
            victims += below
            told.insist(_are_gone(below), "a process was left behind")
        told.finish(backlog, *ON_SPARK, "--tasks", "2")
        _judge(told, backlog, victims)
        return told


def engines_in_turn(stage: Stage) -> Told:
    """One process and Spark in turn, each killed in the midst of it."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        victims: list[int] = []
        for engine in (("--engine", "process"), ON_SPARK) * (1 if stage.short else 2):
            process = backlog.begin(*engine)
            _let_work(stage, backlog, process)
            victims += [process.pid, *descendants(process.pid)]
            process.send(signal.SIGKILL)
            told.ends(process, KILLED)
            told.times += 1
        told.finish(backlog, "--engine", "process")
        _judge(told, backlog, victims)
        return told


def jvm_killed(stage: Stage) -> Told:
    """``kill -9`` of Spark's JVM, as for want of memory: the drain stops, and says so."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        process = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, process)
        below = descendants(process.pid)
        os.kill(next(pid for pid in below if "java" in _program(pid)), signal.SIGKILL)
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        told.insist(_are_gone(below), "a process was left behind")
        told.insist("Spark's JVM is gone" in process.said, f"it said {process.said[-400:]}")
        _is_plain(told, process)
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog, below)
        return told


def terminated(stage: Stage) -> Told:
    """SIGTERM at random moments: an orderly stop each time, and nothing handled twice."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages, rewinds=False)
        for _ in range(1 if stage.short else 3):
            process = backlog.begin(*ON_SPARK)
            _let_work(stage, backlog, process)
            process.send(signal.SIGTERM)
            told.ends(process, EXIT_INTERRUPTED)
            told.insist(not _state(backlog).exists(), "its state was left behind")
            _is_plain(told, process)
            told.times += 1
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog)
        return told


def hurried(stage: Stage) -> Told:
    """SIGTERM twice: it ends at once, and what is in the handlers is repeated."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        process = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, process)
        below = descendants(process.pid)
        process.send(signal.SIGTERM)
        time.sleep(0.02)
        process.send(signal.SIGTERM)
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        told.insist(_are_gone(below), "a process was left behind")
        _is_plain(told, process)
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog, below)
        return told


def stood_still(stage: Stage) -> Told:
    """SIGSTOP of a worker for longer than its lease, then SIGCONT; and once more, then SIGKILL."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        process, victims = backlog.begin(*ON_SPARK), []
        for then in (signal.SIGCONT, signal.SIGKILL):
            _let_work(stage, backlog, process)
            worker = _worker_at_work(backlog)
            os.kill(worker, signal.SIGSTOP)
            time.sleep(LEASE_S + 1)
            os.kill(worker, then)
            told.times += 1
            victims += [worker] if then is signal.SIGKILL else []
        told.ends(process, EXIT_DONE)
        _judge(told, backlog, victims)
        return told


def broker_killed(stage: Stage) -> Told:
    """The broker is killed and comes back: the drain waits, and goes on."""
    with _backlog(stage, times=2) as backlog:
        told = Told(backlog.sub_messages, rewinds=False)
        process = backlog.begin(*ON_SPARK, "--wave", "512KiB")
        for _ in range(1 if stage.short else 3):
            if not backlog.at_work(process, 4_000):
                break
            stage.broker.kill()
            told.times += 1
            time.sleep(stage.chance.uniform(0, 2))
            stage.broker.start()
        told.ends(process, EXIT_DONE)
        _judge(told, backlog)
        return told


def state_deleted(stage: Stage) -> Told:
    """Somebody deletes the folder of the state: the drain stops, with what it has heard."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        process = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, process)
        below = descendants(process.pid)
        shutil.rmtree(_state(backlog))
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        _is_plain(told, process)
        told.remarks.append(_last_words(process))
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog, below, strict=False)
        return told


def disk_full(stage: Stage) -> Told:
    """No file of a worker may grow past 64 bytes from a random moment on, as on a full disk."""
    with _backlog(stage) as backlog, piped(backlog.trace) as pipe:
        told = Told(backlog.sub_messages)
        trace = ("--set", f"trace={pipe}")
        process = backlog.begin(*ON_SPARK, *trace)
        _let_work(stage, backlog, process)
        below = descendants(process.pid)
        for pid in below:
            if "pyspark.daemon" in _program(pid):
                with suppress(ProcessLookupError):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALLEST_FILE, hard))
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        told.insist("make room" in process.said, f"it said {process.said[-400:]}")
        _is_plain(told, process)
        told.finish(backlog, *ON_SPARK, *trace)
        _judge(told, backlog, below)
        return told


def two_at_once(stage: Stage) -> Told:
    """A second drain of the group, with this plan and with another: refused, and not felt."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages, rewinds=False)
        first = backlog.begin(*ON_SPARK)
        backlog.at_work(first, 500)
        told.ends(backlog.begin(*ON_SPARK), EXIT_REFUSED)
        other = backlog.plan.with_suffix(".other")
        told.ends(backlog.begin_other(other, *ON_SPARK, from_="committed"), EXIT_REFUSED)
        told.times = 2
        told.insist(first.running, "the first one had ended by then")
        told.ends(first, EXIT_DONE)
        _judge(told, backlog)
        return told


def executor_killed(stage: Stage) -> Told:
    """``kill -9`` of an executor's JVM, on ``local-cluster[2,1,1024]``."""
    with _backlog(stage) as backlog:
        told = Told(backlog.sub_messages)
        process = backlog.begin(*CLUSTER, "--state", f"{backlog.plan}.state")
        _let_work(stage, backlog, process)
        worker = _worker_at_work(backlog)
        executor = worker
        while "CoarseGrainedExecutorBackend" not in _program(executor):
            executor = _parent(executor)
        victims = descendants(executor)
        os.kill(executor, signal.SIGKILL)
        told.times = 1
        told.ends(process, EXIT_DONE)
        _judge(told, backlog, victims)
        return told


def descendants(pid: int) -> list[int]:
    """The processes that it started, and those that these did."""
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    children: dict[int, list[int]] = {}
    for line in told.stdout.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _backlog(stage: Stage, times: int = 1) -> AbstractContextManager[Backlog]:
    return stage.backlog(times * (300 if stage.short else 600), PACE)


def _let_work(stage: Stage, backlog: Backlog, process: Process) -> None:
    backlog.at_work(process, 500 + stage.chance.randrange(3_000))


def _worker_at_work(backlog: Backlog) -> int:
    return int(backlog.trace.read_bytes().splitlines()[-1].split()[4])


def _are_gone(pids: Iterable[int]) -> bool:
    over_s = time.monotonic() + PROCESSES_GO_S
    with suppress(TimeoutError):
        return until(
            lambda: not any(_program(pid) for pid in pids), lambda: time.monotonic() > over_s
        )
    return False


def _program(pid: int) -> str:
    """The command line; nothing for one that is dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


def _state(backlog: Backlog) -> Path:
    return Path(f"{backlog.plan}.state")


def _is_plain(told: Told, process: Process) -> None:
    """What it says is for people."""
    said = process.said
    told.insist("Traceback" not in said and "\tat " not in said, f"it said {said[-1000:]}")


def _last_words(process: Process) -> str:
    found = [line for line in process.said.splitlines() if line.startswith("error: ")]
    return found[-1].removeprefix("error: ") if found else "no error told"


def _judge(
    told: Told, backlog: Backlog, victims: Iterable[int] = (), *, strict: bool = True
) -> Judged:
    """The laws; and that what is repeated, the victims had in flight or had just finished."""
    found = told.judge(backlog)
    killed = [found.runs[pid] for pid in victims if pid in found.runs]
    if strict:
        told.check_repeats(killed, PACE.concurrency)
        repeated = sum(run.repeated for run in killed)
        told.insist(found.repeated == repeated, f"{found.repeated - repeated} by others")
    left = [path.name for path in backlog.plan.parent.glob(f"{backlog.plan.name}.*")]
    told.insist(not left, f"left behind: {left}")
    return found


CHAPTERS: dict[str, Callable[[Stage], Told]] = {
    "worker": worker_killed,
    "driver": driver_killed,
    "engines": engines_in_turn,
    "jvm": jvm_killed,
    "term": terminated,
    "hurried": hurried,
    "stop": stood_still,
    "broker": broker_killed,
    "state": state_deleted,
    "disk": disk_full,
    "two": two_at_once,
    "executor": executor_killed,
}
