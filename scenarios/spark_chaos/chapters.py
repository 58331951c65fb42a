"""The chapters on Spark: each takes one backlog through one kind of trouble."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_UNRESUMABLE
from drainer.spark.lease import LOCAL
from scenarios.chaos.drain import Backlog, Pace, Process, until
from scenarios.chaos.stage import KILLED, Stage, Told, piped
from scenarios.chaos.trace import Judged
from scenarios.spark_chaos.processes import (
    below,
    executor_of,
    executors_of,
    jvm_of,
    program,
    standing_still,
)
from scenarios.spark_chaos.standalone import Standalone, standalone

PACE = Pace(concurrency=50, latency_ms=20)  # 2,500/s: time for things to happen
ON_SPARK = ("--engine", "spark", "--master", "local[2]", "--wave", "4MiB")
ON_A_CLUSTER = ("--engine", "spark", "--spark-conf", "spark.executor.memory=512m")
CLUSTER = ("--engine", "spark", "--master", "local-cluster[2,1,1024]")
SMALLEST_FILE = 64
PROCESSES_GO_S = 30.0


def worker_killed(stage: Stage) -> Told:
    """``kill -9`` of a Python worker in the midst of its task: Spark starts it anew."""
    with _chapter(stage) as (backlog, told):
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
    with _chapter(stage) as (backlog, told):
        victims: list[int] = []
        for tasks in (2, 3) if stage.short else (2, 3, 1, 4):
            process = backlog.begin(*ON_SPARK, "--tasks", str(tasks))
            _let_work(stage, backlog, process)
            started = below(process.pid)
            process.send(signal.SIGKILL)
            told.ends(process, KILLED)
            told.times += 1
            victims += started
            told.insist(_are_gone(started), "a process was left behind")
        told.finish(backlog, *ON_SPARK, "--tasks", "2")
        _judge(told, backlog, victims)
        return told


def engines_in_turn(stage: Stage) -> Told:
    """One process and Spark in turn, each killed in the midst of it."""
    with _chapter(stage) as (backlog, told):
        victims: list[int] = []
        for engine in (("--engine", "process"), ON_SPARK) * (1 if stage.short else 2):
            process = backlog.begin(*engine)
            _let_work(stage, backlog, process)
            victims += [process.pid, *below(process.pid)]
            process.send(signal.SIGKILL)
            told.ends(process, KILLED)
            told.times += 1
        told.finish(backlog, "--engine", "process")
        _judge(told, backlog, victims)
        return told


def jvm_killed(stage: Stage) -> Told:
    """``kill -9`` of Spark's JVM, as for want of memory: the drain stops, and says so."""
    with _chapter(stage) as (backlog, told):
        process = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, process)
        started = below(process.pid)
        os.kill(jvm_of(process.pid), signal.SIGKILL)
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        told.insist(_are_gone(started), "a process was left behind")
        told.insist("Spark's JVM is gone" in process.said, f"it said {process.said[-400:]}")
        _is_plain(told, process)
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog, started)
        return told


def terminated(stage: Stage) -> Told:
    """SIGTERM at random moments: an orderly stop each time, and nothing handled twice."""
    with _chapter(stage, rewinds=False) as (backlog, told):
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
    with _chapter(stage) as (backlog, told):
        process = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, process)
        started = below(process.pid)
        process.send(signal.SIGTERM)
        time.sleep(0.02)
        process.send(signal.SIGTERM)
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        told.insist(_are_gone(started), "a process was left behind")
        _is_plain(told, process)
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog, started)
        return told


def stood_still(stage: Stage) -> Told:
    """SIGSTOP of a worker for longer than its lease, then SIGCONT; and once more, then SIGKILL."""
    with _chapter(stage) as (backlog, told):
        process, victims = backlog.begin(*ON_SPARK), []
        for then in (signal.SIGCONT, signal.SIGKILL):
            _let_work(stage, backlog, process)
            worker = _worker_at_work(backlog)
            os.kill(worker, signal.SIGSTOP)
            time.sleep(LOCAL.lease_s + 1)
            os.kill(worker, then)
            told.times += 1
            victims += [worker] if then is signal.SIGKILL else []
        told.ends(process, EXIT_DONE)
        _judge(told, backlog, victims)
        return told


def broker_killed(stage: Stage) -> Told:
    """The broker is killed and comes back: the drain waits, and goes on."""
    with _chapter(stage, times=2, rewinds=False) as (backlog, told):
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
    with _chapter(stage) as (backlog, told):
        process = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, process)
        started = below(process.pid)
        shutil.rmtree(_state(backlog))
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        _is_plain(told, process)
        told.remarks.append(_last_words(process))
        told.finish(backlog, *ON_SPARK)
        _judge(told, backlog, started, strict=False)
        return told


def disk_full(stage: Stage) -> Told:
    """No file of a worker may grow past 64 bytes from a random moment on, as on a full disk."""
    with _chapter(stage) as (backlog, told), piped(backlog.trace) as pipe:
        trace = ("--set", f"trace={pipe}")
        process = backlog.begin(*ON_SPARK, *trace)
        _let_work(stage, backlog, process)
        started = below(process.pid)
        for pid in started:
            if "pyspark.worker" in program(pid):
                with suppress(ProcessLookupError):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALLEST_FILE, hard))
        told.times = 1
        told.ends(process, EXIT_INTERRUPTED)
        told.insist("Make room" in process.said, f"it said {process.said[-400:]}")
        _is_plain(told, process)
        told.finish(backlog, *ON_SPARK, *trace)
        _judge(told, backlog, started)
        return told


def two_at_once(stage: Stage) -> Told:
    """A second drain of the group, with this plan and with another: refused, and not felt."""
    with _chapter(stage, rewinds=False) as (backlog, told):
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


def executors_killed(stage: Stage) -> Told:
    """``kill -9`` of executors' JVMs on ``local-cluster[2,1,1024]``, which has new ones then."""
    with _chapter(stage, times=2) as (backlog, told):
        process = backlog.begin(*CLUSTER, "--state", f"{backlog.plan}.state")
        victims: list[int] = []
        for _ in range(1 if stage.short else 3):
            if not _let_work(stage, backlog, process):
                break
            executor = stage.chance.choice(executors_of(process.pid))
            victims += below(executor)
            os.kill(executor, signal.SIGKILL)
            told.times += 1
        _end(told, backlog, process, *CLUSTER)
        _judge(told, backlog, victims)
        return told


def machines(stage: Stage) -> Told:
    """A standalone cluster of three machines: at random one comes, one goes, or loses its executor
    or the Python worker in it."""
    with _chapter(stage, times=2) as (backlog, told), standalone(stage.folder) as cluster:
        where = (*ON_A_CLUSTER, "--master", cluster.url, "--state", f"{backlog.plan}.state")
        up = [cluster.worker() for _ in range(3)]
        process, victims = backlog.begin(*where), list[int]()
        for _ in range(2 if stage.short else 5):
            if not _let_work(stage, backlog, process):
                break
            victims += _change(stage, told, backlog, cluster, up)
            told.times += 1
        _end(told, backlog, process, *where)
        _judge(told, backlog, victims)
        return told


def _change(
    stage: Stage,
    told: Told,
    backlog: Backlog,
    cluster: Standalone,
    up: list[subprocess.Popen[bytes]],
) -> list[int]:
    """Does something to a cluster; gives the processes that are dead by that."""
    worker = _worker_at_work(backlog)
    machine = stage.chance.choice(up)
    lost = {"machine": machine.pid, "executor": executor_of(worker), "worker": worker}
    what = stage.chance.choice(["added", "worker", "executor", *["machine"] * (len(up) > 1)])
    told.remarks.append(what)
    if what == "added":
        up.append(cluster.worker())
        return []
    pid = lost[what]
    if what == "machine":
        up.remove(machine)
    if pid is None:  # it has died by itself
        return []
    dead = [pid, *below(pid)]
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return dead


def driver_frozen(stage: Stage) -> Told:
    """SIGSTOP of driver and JVM, and a fresh drain with another plan; then SIGCONT, at random."""
    with _chapter(stage) as (backlog, told):
        first = backlog.begin(*ON_SPARK)
        _let_work(stage, backlog, first)
        frozen_s = time.monotonic()
        with standing_still([first.pid, jvm_of(first.pid)]):
            engine = stage.chance.choice([("--engine", "process"), ON_SPARK])
            fresh = backlog.begin_other(backlog.plan.with_suffix(".other"), *engine)
            fresh.ends_within(stage.chance.uniform(5, 60))
        told.times = 1
        told.ends(fresh, EXIT_DONE)
        told.ends(first, EXIT_INTERRUPTED, EXIT_UNRESUMABLE)
        found = told.judge(backlog)
        ran_on_s = max(run.ended_s for run in found.runs.values() if run.begun_s < frozen_s)
        told.remarks.append(f"{engine[1]}; first drain's calls for {ran_on_s - frozen_s:.1f} s")
        return told


@contextmanager
def _chapter(
    stage: Stage, times: int = 1, *, rewinds: bool = True
) -> Iterator[tuple[Backlog, Told]]:
    """Its backlog, and what it reports."""
    with stage.backlog(times * (300 if stage.short else 600), PACE) as backlog:
        yield backlog, Told(backlog.sub_messages, rewinds=rewinds)


def _let_work(stage: Stage, backlog: Backlog, process: Process) -> bool:
    """For a random while; False when the drain has ended meanwhile."""
    return backlog.at_work(process, 500 + stage.chance.randrange(3_000))


def _end(told: Told, backlog: Backlog, process: Process, *where: str) -> None:
    """The drain ends well; or, where Spark has given up, a resume does."""
    if told.ends(process, EXIT_DONE, EXIT_INTERRUPTED) == EXIT_INTERRUPTED:
        _is_plain(told, process)
        told.remarks.append(_last_words(process))
        told.finish(backlog, *where)


def _worker_at_work(backlog: Backlog) -> int:
    return int(backlog.trace.read_bytes().splitlines()[-1].split()[5])


def _are_gone(pids: Iterable[int]) -> bool:
    over_s = time.monotonic() + PROCESSES_GO_S
    with suppress(TimeoutError):
        return until(
            lambda: not any(program(pid) for pid in pids), lambda: time.monotonic() > over_s
        )
    return False


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
    "executors": executors_killed,
    "machines": machines,
    "frozen": driver_frozen,
}
