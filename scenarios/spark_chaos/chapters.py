"""The chapters on Spark, each of which takes one backlog through one kind of trouble."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_UNRESUMABLE
from drainer.spark.state.lease import LOCAL
from scenarios.chaos.drain import Backlog, Pace, Process, until
from scenarios.chaos.stage import KILLED, Report, Stage, piped
from scenarios.chaos.trace import Judged
from scenarios.spark_chaos.place import ALONE, Place
from scenarios.spark_chaos.processes import (
    below,
    executor_of,
    executors_of,
    program,
    standing_still,
)
from scenarios.spark_chaos.standalone import Standalone, standalone

# At 2,500 per second there is time for things to happen.
PACE = Pace(concurrency=50, latency_ms=20)
CLUSTER = "local-cluster[2,1,1024]"
SMALLEST_FILE = 64
PROCESSES_GO_S = 30.0


def worker_killed(stage: Stage) -> Report:
    """``kill -9`` a Python worker in the middle of its task. Spark must start it anew."""
    with _chapter(stage) as (backlog, place, report):
        process, victims = place.begin(backlog), []
        for _ in range(2 if stage.short else 3):
            _let_work(stage, backlog, process)
            victims.append(_worker_at_work(backlog))
            os.kill(victims[-1], signal.SIGKILL)
            report.times += 1
        report.ends(process, EXIT_DONE)
        _judge(report, backlog, victims)
        return report


def driver_killed(stage: Stage) -> Report:
    """``kill -9`` the driver. A resume must continue, with another number of tasks."""
    with _chapter(stage) as (backlog, place, report):
        victims: list[int] = []
        for tasks in (2, 3) if stage.short else (2, 3, 1, 4):
            process = place.begin(backlog, "--spark-conf", f"drainer.tasks={tasks}")
            _let_work(stage, backlog, process)
            started = place.processes(process)
            process.send(signal.SIGKILL)
            report.ends(process, KILLED)
            report.times += 1
            victims += started
            _ensure_gone(report, place, started)
        report.finish(backlog, *place.words(backlog.plan), "--spark-conf", "drainer.tasks=2")
        _judge(report, backlog, victims)
        return report


def engines_in_turn(stage: Stage) -> Report:
    """Let one process and Spark take turns, and kill each in the middle of its work."""
    with _chapter(stage) as (backlog, place, report):
        victims: list[int] = []
        on_spark = place.words(backlog.plan)
        for engine in (("--engine", "process"), on_spark) * (1 if stage.short else 2):
            process = backlog.begin(*engine)
            _let_work(stage, backlog, process)
            victims += [process.pid, *place.processes(process)]
            process.send(signal.SIGKILL)
            report.ends(process, KILLED)
            report.times += 1
        report.finish(backlog, "--engine", "process")
        _judge(report, backlog, victims)
        return report


def jvm_killed(stage: Stage) -> Report:
    """``kill -9`` Spark's JVM, as a lack of memory would. The drain must stop, and print why."""
    with _chapter(stage) as (backlog, place, report):
        process = place.begin(backlog)
        _let_work(stage, backlog, process)
        started = place.processes(process)
        os.kill(place.jvm(process), signal.SIGKILL)
        report.times = 1
        report.ends(process, EXIT_INTERRUPTED)
        report.ensure(_are_gone(started), "a process was left behind")
        report.ensure(place.is_gone in process.output, f"it printed {process.output[-400:]}")
        _is_plain(report, process)
        place.restart()
        report.finish(backlog, *place.words(backlog.plan))
        _judge(report, backlog, started)
        return report


def terminated(stage: Stage) -> Report:
    """Send SIGTERM at random moments. Each stop must be orderly, and nothing may be handled
    twice."""
    with _chapter(stage, rewinds=False) as (backlog, place, report):
        for _ in range(1 if stage.short else 3):
            process = place.begin(backlog)
            _let_work(stage, backlog, process)
            process.send(signal.SIGTERM)
            report.ends(process, EXIT_INTERRUPTED)
            report.ensure(not _state(backlog).exists(), "its state was left behind")
            _is_plain(report, process)
            report.times += 1
        report.finish(backlog, *place.words(backlog.plan))
        _judge(report, backlog)
        return report


def hurried(stage: Stage) -> Report:
    """Send SIGTERM twice. The drain must end at once, and repeat what was in the handlers."""
    with _chapter(stage) as (backlog, place, report):
        process = place.begin(backlog)
        _let_work(stage, backlog, process)
        started = place.processes(process)
        process.send(signal.SIGTERM)
        time.sleep(0.02)
        process.send(signal.SIGTERM)
        report.times = 1
        report.ends(process, EXIT_INTERRUPTED)
        _ensure_gone(report, place, started)
        _is_plain(report, process)
        report.finish(backlog, *place.words(backlog.plan))
        _judge(report, backlog, started)
        return report


def stood_still(stage: Stage) -> Report:
    """Send SIGSTOP to a worker for longer than its lease, then SIGCONT; and once more, then
    SIGKILL."""
    with _chapter(stage) as (backlog, place, report):
        process, victims = place.begin(backlog), []
        for then in (signal.SIGCONT, signal.SIGKILL):
            _let_work(stage, backlog, process)
            worker = _worker_at_work(backlog)
            os.kill(worker, signal.SIGSTOP)
            time.sleep(LOCAL.lease_s + 1)
            os.kill(worker, then)
            report.times += 1
            victims += [worker] if then is signal.SIGKILL else []
        report.ends(process, EXIT_DONE)
        _judge(report, backlog, victims)
        return report


def broker_killed(stage: Stage) -> Report:
    """Kill the broker, and start it again. The drain must wait, and then continue."""
    with _chapter(stage, times=2, rewinds=False) as (backlog, place, report):
        process = place.begin(backlog, "--spark-conf", "drainer.slice=512KiB")
        for _ in range(1 if stage.short else 3):
            if not backlog.at_work(process, 4_000):
                break
            stage.broker.kill()
            report.times += 1
            time.sleep(stage.chance.uniform(0, 2))
            stage.broker.start()
        report.ends(process, EXIT_DONE)
        _judge(report, backlog)
        return report


def state_deleted(stage: Stage) -> Report:
    """Delete the folder of the state, as a person might. The drain must stop, with the reports that
    it has."""
    with _chapter(stage) as (backlog, place, report):
        process = place.begin(backlog)
        _let_work(stage, backlog, process)
        started = place.processes(process)
        shutil.rmtree(_state(backlog))
        report.times = 1
        report.ends(process, EXIT_INTERRUPTED)
        _is_plain(report, process)
        report.remarks.append(_last_words(process))
        report.finish(backlog, *place.words(backlog.plan))
        _judge(report, backlog, started, strict=False)
        return report


def disk_full(stage: Stage) -> Report:
    """Let no file of a worker grow past 64 bytes from a random moment on, as on a full disk."""
    with _chapter(stage) as (backlog, place, report), piped(backlog.trace) as pipe:
        trace = ("--set", f"trace={pipe}")
        process = place.begin(backlog, *trace)
        _let_work(stage, backlog, process)
        started = place.processes(process)
        for pid in started:
            if "pyspark.worker" in program(pid):
                with suppress(ProcessLookupError):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (SMALLEST_FILE, hard))
        report.times = 1
        report.ends(process, EXIT_INTERRUPTED)
        report.ensure("Make room" in process.output, f"it printed {process.output[-400:]}")
        _is_plain(report, process)
        place.restart()
        report.finish(backlog, *place.words(backlog.plan), *trace)
        _judge(report, backlog, started)
        return report


def two_at_once(stage: Stage) -> Report:
    """Start a second drain of the group, with this plan and with another. It must be refused, and
    the first drain must not notice it."""
    with _chapter(stage, rewinds=False) as (backlog, place, report):
        first = place.begin(backlog)
        backlog.at_work(first, 500)
        report.ends(place.begin(backlog), EXIT_REFUSED)
        other = backlog.plan.with_suffix(".other")
        words = place.words(other)
        report.ends(backlog.begin_other(other, *words, from_="committed"), EXIT_REFUSED)
        report.times = 2
        report.ensure(first.running, "the first one had ended by then")
        report.ends(first, EXIT_DONE)
        _judge(report, backlog)
        return report


def executors_killed(stage: Stage) -> Report:
    """``kill -9`` JVMs of executors on ``local-cluster[2,1,1024]``, which then starts new ones."""
    with _chapter(stage, times=2, master=CLUSTER) as (backlog, place, report):
        process = place.begin(backlog)
        victims: list[int] = []
        for _ in range(1 if stage.short else 3):
            if not _let_work(stage, backlog, process):
                break
            parent = process.pid if place.server is None else place.server.pid
            executor = stage.chance.choice(executors_of(parent))
            victims += below(executor)
            os.kill(executor, signal.SIGKILL)
            report.times += 1
        _end(report, backlog, process, place)
        _judge(report, backlog, victims)
        return report


def machines(stage: Stage) -> Report:
    """Drain on a standalone cluster of three machines. At random, a machine comes or goes, or loses
    its executor or the Python worker in it."""
    memory = {"spark.executor.memory": "512m"}
    with (
        standalone(stage.folder) as cluster,
        _chapter(stage, times=2, master=cluster.url, conf=memory) as (backlog, place, report),
    ):
        up = [cluster.worker() for _ in range(3)]
        process, victims = place.begin(backlog), list[int]()
        for _ in range(2 if stage.short else 5):
            if not _let_work(stage, backlog, process):
                break
            victims += _change(stage, report, backlog, cluster, up)
            report.times += 1
        _end(report, backlog, process, place)
        _judge(report, backlog, victims)
        return report


def _change(
    stage: Stage,
    report: Report,
    backlog: Backlog,
    cluster: Standalone,
    up: list[subprocess.Popen[bytes]],
) -> list[int]:
    """Do something to a cluster at random, and return the processes that are dead because of it."""
    worker = _worker_at_work(backlog)
    machine = stage.chance.choice(up)
    lost = {"machine": machine.pid, "executor": executor_of(worker), "worker": worker}
    what = stage.chance.choice(["added", "worker", "executor", *["machine"] * (len(up) > 1)])
    report.remarks.append(what)
    if what == "added":
        up.append(cluster.worker())
        return []
    pid = lost[what]
    if what == "machine":
        up.remove(machine)
    if pid is None:  # The process has died by itself.
        return []
    dead = [pid, *below(pid)]
    # A machine takes everything with it that runs there.
    for each in dead if what == "machine" else [pid]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    return dead


def driver_frozen(stage: Stage) -> Report:
    """Freeze the driver and its JVM, start a fresh drain with another plan, and let the driver
    continue at a random moment."""
    with _chapter(stage) as (backlog, place, report):
        first = place.begin(backlog)
        _let_work(stage, backlog, first)
        frozen_s = time.monotonic()
        jvm = [place.jvm(first)] if place.server is None else []  # A server goes on by itself.
        other = backlog.plan.with_suffix(".other")
        with standing_still([first.pid, *jvm]):
            engine = stage.chance.choice([("--engine", "process"), place.words(other)])
            fresh = backlog.begin_other(other, *engine)
            fresh.ends_within(stage.chance.uniform(5, 60))
        report.times = 1
        if place.server is None:
            report.ends(fresh, EXIT_DONE)
            report.ends(first, EXIT_INTERRUPTED, EXIT_UNRESUMABLE)
        else:  # A lease in a folder that others may have mounted outlasts the freeze.
            report.ends(fresh, EXIT_REFUSED)
            report.ends(first, EXIT_DONE)
        found = report.judge(backlog)
        ran_on_s = max(run.ended_s for run in found.runs.values() if run.begun_s < frozen_s)
        report.remarks.append(f"{engine[1]}; first drain's calls for {ran_on_s - frozen_s:.1f} s")
        return report


@contextmanager
def _chapter(
    stage: Stage,
    times: int = 1,
    *,
    rewinds: bool = True,
    master: str = ALONE,
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[Backlog, Place, Report]]:
    """Provide the backlog, the place and the report of a chapter."""
    messages = times * (300 if stage.short else 600)
    with Place.of(stage, master, conf) as place, stage.backlog(messages, PACE) as backlog:
        yield backlog, place, Report(backlog.sub_messages, rewinds=rewinds)


def _let_work(stage: Stage, backlog: Backlog, process: Process) -> bool:
    """Let a drain work for a random while. Return False if it has ended meanwhile."""
    return backlog.at_work(process, 500 + stage.chance.randrange(3_000))


def _end(report: Report, backlog: Backlog, process: Process, place: Place) -> None:
    """Ensure that the drain ends well or, where Spark has given up, that a resume does."""
    if report.ends(process, EXIT_DONE, EXIT_INTERRUPTED) == EXIT_INTERRUPTED:
        _is_plain(report, process)
        report.remarks.append(_last_words(process))
        report.finish(backlog, *place.words(backlog.plan))


def _worker_at_work(backlog: Backlog) -> int:
    return int(backlog.trace.read_bytes().splitlines()[-1].split()[5])


def _ensure_gone(report: Report, place: Place, started: Iterable[int]) -> None:
    """Ensure that nothing is left of a drain that was ended. A server keeps its workers."""
    if place.server is None:
        report.ensure(_are_gone(started), "a process was left behind")


def _are_gone(pids: Iterable[int]) -> bool:
    over_s = time.monotonic() + PROCESSES_GO_S
    with suppress(TimeoutError):
        return until(
            lambda: not any(program(pid) for pid in pids), lambda: time.monotonic() > over_s
        )
    return False


def _state(backlog: Backlog) -> Path:
    return Path(f"{backlog.plan}.state")


def _is_plain(report: Report, process: Process) -> None:
    """Ensure that the output is meant for people."""
    printed = process.output
    plain = "Traceback" not in printed and "\tat " not in printed
    report.ensure(plain, f"it printed {printed[-1000:]}")


def _last_words(process: Process) -> str:
    found = [line for line in process.output.splitlines() if line.startswith("error: ")]
    return found[-1].removeprefix("error: ") if found else "no error printed"


def _judge(
    report: Report, backlog: Backlog, victims: Iterable[int] = (), *, strict: bool = True
) -> Judged:
    """Check the laws. Only what the victims had in flight or had just finished may be repeated."""
    found = report.judge(backlog)
    killed = [found.runs[pid] for pid in set(victims) if pid in found.runs]
    if strict:
        report.check_repeats(killed, PACE.concurrency)
        repeated = sum(run.repeated for run in killed)
        report.ensure(found.repeated == repeated, f"{found.repeated - repeated} by others")
    left = [path.name for path in backlog.plan.parent.glob(f"{backlog.plan.name}.*")]
    report.ensure(not left, f"left behind: {left}")
    return found


CHAPTERS: dict[str, Callable[[Stage], Report]] = {
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
