"""The chapters, each of which takes one backlog through one kind of trouble."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from drainer.errors import EXIT_DONE, EXIT_HALTED, EXIT_INTERRUPTED, EXIT_REFUSED
from scenarios.chaos.drain import Process, until
from scenarios.chaos.stage import KILLED, SLOW, WIDE, Report, Stage, limit, piped
from scenarios.chaos.trace import began_after

HERE = Path(__file__).parent
SESSION_S = 6.0  # The session of the lock.
STARTING = 0.2  # This share of the kills comes while the drain is starting.
SMALLEST_FILE = 2048
LEAK_KIB = 64
ROOM_MIB = 256
STOPS_WITHIN_S = 1.0
STOPPED_S = 14.0


def killed(stage: Stage) -> Report:
    """``kill -9`` the drain at random moments, until the backlog is drained."""
    with stage.backlog(4_000 if stage.short else 20_000, WIDE) as backlog:
        report = Report(backlog.sub_messages)
        starting, kills = 0, stage.times(6, 20)
        while report.times < kills:
            process = backlog.begin()
            if stage.chance.random() < STARTING:
                ended = process.ends_within(stage.chance.uniform(0, 1.5))
                starting += not ended
            else:
                ended = not backlog.at_work(process)
                ended = ended or process.ends_within(stage.chance.uniform(0, 0.8))
            if ended:
                break
            process.send(signal.SIGKILL)
            report.ends(process, KILLED)
            report.times += 1
        else:
            process = backlog.begin()
        report.ends(process, EXIT_DONE)
        report.remarks.append(f"{starting} while starting")
        found = report.judge(backlog)
        report.check_repeats(list(found.runs.values())[:-1], WIDE.concurrency)
        report.ensure(report.times >= kills, f"done after {report.times} kills")
        return report


def terminated(stage: Stage) -> Report:
    """Send SIGTERM at random moments. Each stop must be orderly, and nothing may be handled
    twice."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages, rewinds=False)
        for _ in range(2 if stage.short else 5):
            process = backlog.begin()
            backlog.at_work(process, stage.chance.randrange(5_000))
            process.send(signal.SIGTERM)
            report.ends(process, EXIT_INTERRUPTED)
            report.times += 1
        report.finish(backlog)
        report.judge(backlog)
        return report


def stopped_shortly(stage: Stage) -> Report:
    """Send SIGSTOP for less than the lock's session, then SIGCONT. The drain must continue as if
    nothing had happened."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages, rewinds=False)
        process = backlog.begin()
        for _ in range(1 if stage.short else 3):
            backlog.at_work(process, 2_000)
            _stop_for(process, stage.chance.uniform(1, SESSION_S - 3))
            report.times += 1
        report.ends(process, EXIT_DONE)
        report.judge(backlog)
        return report


def stopped_long(stage: Stage) -> Report:
    """Send SIGSTOP for longer than the session, while no other drain takes the lock. The drain must
    continue."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages, rewinds=False)
        process = backlog.begin()
        backlog.at_work(process, 5_000)
        _stop_for(process, SESSION_S + 2)
        report.times = 1
        report.ends(process, EXIT_DONE)
        report.judge(backlog)
        return report


def overtaken(stage: Stage) -> Report:
    """Send SIGSTOP for longer than the session, while another drain takes the lock.

    After that the first drain must begin no call other than one that it was just beginning, stop by
    itself, and leave the group to the other one.
    """
    return _overtaken(stage, "Traced")


def overtaken_on_threads(stage: Stage) -> Report:
    """Do the same as ``overtaken`` with a handler on threads, for which sub-messages are
    waiting."""
    return _overtaken(stage, "TracedOnThreads")


def _overtaken(stage: Stage, handler: str) -> Report:
    with stage.backlog(1_200, SLOW) as backlog:
        backlog.handler = handler
        report = Report(backlog.sub_messages)
        first = backlog.begin()
        backlog.at_work(first, 5_000)
        first.send(signal.SIGSTOP)
        report.times = 1
        stopped_s = time.monotonic()
        time.sleep(SESSION_S + 1)
        second = backlog.begin_other(backlog.plan.with_suffix(".other"), from_="committed")
        backlog.at_work(second, 2_000)
        time.sleep(max(0.0, stopped_s + STOPPED_S - time.monotonic()))
        woken_s = time.monotonic()
        report.ensure(second.running, "the second one had ended by then")
        first.send(signal.SIGCONT)
        report.ends(first, EXIT_INTERRUPTED)
        report.ensure("took the lock" in first.output, f"it printed {first.output}")
        report.ends(second, EXIT_DONE)
        report.ends(backlog.begin(), EXIT_REFUSED)  # The group is where the other drain left it.
        more = began_after(backlog.trace, first.pid, woken_s)
        # The other drain begins what was in flight, and calls on threads end after SIGCONT.
        found = report.judge(backlog, at_once=more + SLOW.concurrency)
        last_s = max(0.0, found.runs[first.pid].ended_s - woken_s)
        report.remarks.append(f"the first began {more} more, its last line {last_s:.2f} s after")
        # SIGSTOP may come between the check of the lock and the first line of the handler.
        report.ensure(more <= 1, f"the first one began {more} calls after SIGCONT")
        report.ensure(last_s < STOPS_WITHIN_S, "the first one went on")
        return report


def broker_killed(stage: Stage) -> Report:
    """Kill the broker, and start it again. The drain must wait, and then continue."""
    with stage.backlog(1_200 if stage.short else 2_400, SLOW) as backlog:
        report = Report(backlog.sub_messages, rewinds=False)
        process = backlog.begin("--tune", "buffer=4MiB")
        for _ in range(1 if stage.short else 3):
            if not backlog.at_work(process, 4_000):
                break
            stage.broker.kill()
            report.times += 1
            time.sleep(stage.chance.uniform(0, 2))
            stage.broker.start()
        report.ends(process, EXIT_DONE)
        report.judge(backlog)
        return report


def disk_full(stage: Stage) -> Report:
    """Let no file grow past 2 KiB from a random moment on, as on a full disk."""
    with stage.backlog(600, SLOW) as backlog, piped(backlog.trace) as pipe:
        report = Report(backlog.sub_messages)
        trace = ("--set", f"trace={pipe}")
        for _ in range(2 if stage.short else 5):
            process = backlog.begin(*trace)
            backlog.at_work(process, stage.chance.randrange(5_000))
            limit(process, resource.RLIMIT_FSIZE, SMALLEST_FILE)
            report.ends(process, EXIT_INTERRUPTED)
            report.ensure("Make room" in process.output, f"it printed {process.output}")
            report.times += 1
        report.finish(backlog, *trace)
        found = report.judge(backlog)
        report.check_repeats(list(found.runs.values())[:-1], SLOW.concurrency)
        return report


def clock_jumps(stage: Stage) -> Report:
    """Let the wall clock jump by hours, back and forth, at each look, with a kill and a SIGTERM."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages)
        paths = [str(HERE / "clock"), os.environ.get("PYTHONPATH", "")]
        env = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        for number, code in ((signal.SIGTERM, EXIT_INTERRUPTED), (signal.SIGKILL, KILLED)):
            process = backlog.begin(env=env)
            backlog.at_work(process, stage.chance.randrange(5_000))
            process.send(number)
            report.ends(process, code)
            report.times += 1
        report.ends(backlog.begin(env=env), EXIT_DONE)
        plan = json.loads(backlog.plan.read_text())
        report.remarks.append(f"created {plan['created'][:16]}, updated {plan['updated'][:16]}")
        off = abs(datetime.fromisoformat(plan["updated"]) - datetime.now(UTC)).total_seconds()
        report.ensure(off > 60, "the clock did not jump")
        found = report.judge(backlog)
        report.check_repeats(list(found.runs.values())[1:2], SLOW.concurrency)
        return report


def memory_error(stage: Stage) -> Report:
    """Let the handler allocate more memory than there is, which must be a failure like any
    other."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages)
        process = backlog.begin("--set", "hog=300", "--retries", "0")
        backlog.at_work(process, 500)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="utf-8").split()[0])
        room = pages * os.sysconf("SC_PAGE_SIZE") + ROOM_MIB * 2**20
        limit(process, resource.RLIMIT_AS, room)
        report.ends(process, EXIT_HALTED)
        report.ensure("MemoryError" in process.output, f"it printed {process.output}")
        report.times = 1
        report.finish(backlog)
        found = report.judge(backlog)
        report.ensure(not found.repeated, "another than the one that failed is begun again")
        return report


def out_of_memory(stage: Stage) -> Report:
    """Let the handler leak memory, and kill the process once it takes too much, as the kernel
    does."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages)
        reached = []
        for _ in range(1 if stage.short else 3):
            process = backlog.begin("--set", f"leak_kib={LEAK_KIB}")
            backlog.at_work(process)
            reached.append(_outgrows(process))
            process.send(signal.SIGKILL)
            report.ends(process, KILLED)
            report.times += 1
        report.finish(backlog)
        report.remarks.append(f"killed at {', '.join(f'{mib:.0f}' for mib in reached)} MiB")
        found = report.judge(backlog)
        report.check_repeats(list(found.runs.values())[:-1], SLOW.concurrency)
        return report


def consumer_joins(stage: Stage) -> Report:
    """Let a production consumer join the group. The drain must stop, print why, and be
    resumable."""
    with stage.backlog(600, SLOW) as backlog:
        report = Report(backlog.sub_messages)
        process = backlog.begin()
        backlog.at_work(process, 5_000)
        with subprocess.Popen(
            [
                *(sys.executable, str(HERE / "consumer.py")),
                *(backlog.settings.bootstrap_servers, backlog.group, backlog.topic),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdin is not None
            consumer.stdout.readline()
            joined_s = time.monotonic()
            report.times = 1
            report.ends(process, EXIT_INTERRUPTED)
            report.ensure("checkout-7" in process.output, f"it printed {process.output}")
            report.remarks.append(
                f"stopped {time.monotonic() - joined_s:.1f} s after it had joined"
            )
            consumer.stdin.close()
        report.finish(backlog)
        found = report.judge(backlog)
        report.check_repeats(list(found.runs.values())[:-1], SLOW.concurrency)
        return report


def two_at_once(stage: Stage) -> Report:
    """Start a second drain of the group, with this plan and with another. It must be refused, and
    the first drain must not notice it."""
    with stage.backlog(900, SLOW) as backlog:
        report = Report(backlog.sub_messages, rewinds=False)
        first = backlog.begin()
        backlog.at_work(first, 2_000)
        begun_s = time.monotonic()
        report.ends(backlog.begin(), EXIT_REFUSED)
        same_s = time.monotonic() - begun_s
        other = backlog.begin_other(backlog.plan.with_suffix(".other"), from_="committed")
        report.ends(other, EXIT_REFUSED)
        report.ensure("holds the lock" in other.output, f"it printed {other.output}")
        other_s = time.monotonic() - begun_s - same_s
        report.times = 2
        report.ensure(first.running, "the first one had ended by then")
        report.ends(first, EXIT_DONE)
        report.remarks.append(
            f"refused after {same_s:.1f} s (same plan), {other_s:.1f} s (another)"
        )
        report.judge(backlog)
        return report


def _outgrows(process: Process) -> float:
    most_mib = process.resident_mib + ROOM_MIB
    until(lambda: process.resident_mib > most_mib, lambda: not process.running)
    return process.resident_mib


def _stop_for(process: Process, seconds: float) -> None:
    process.send(signal.SIGSTOP)
    time.sleep(seconds)
    process.send(signal.SIGCONT)


CHAPTERS: dict[str, Callable[[Stage], Report]] = {
    "kill": killed,
    "term": terminated,
    "stop-short": stopped_shortly,
    "stop-long": stopped_long,
    "overtaken": overtaken,
    "overtaken-threads": overtaken_on_threads,
    "broker": broker_killed,
    "disk": disk_full,
    "clock": clock_jumps,
    "memory-error": memory_error,
    "oom": out_of_memory,
    "consumer": consumer_joins,
    "two": two_at_once,
}
