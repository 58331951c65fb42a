"""The processes of a drain on Spark: what started them, what they run, and how they are frozen."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

EXECUTOR = "CoarseGrainedExecutorBackend"


def below(pid: int) -> list[int]:
    """Return the processes that a process started, and those that these started."""
    children: dict[int, list[int]] = {}
    for child, (parent, _) in _processes().items():
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        found += (own := children.get(waiting.pop(), []))
        waiting += own
    return found


def above(pid: int) -> list[int]:
    """Return the ancestors of a process, its parent first."""
    found, processes = [], _processes()
    while pid in processes:
        pid, _ = processes[pid]
        found.append(pid)
    return found


def program(pid: int) -> str:
    """Return the command line of a process; empty for one that is dead."""
    return _processes().get(pid, (0, ""))[1]


def jvm_of(pid: int) -> int:
    """Return the JVM of a driver."""
    return next(each for each in below(pid) if "java" in program(each))


def executors_of(pid: int) -> list[int]:
    """Return the JVMs of the executors of a driver with a ``local-cluster``."""
    return [each for each in below(pid) if EXECUTOR in program(each)]


def executor_of(worker: int) -> int | None:
    """Return the JVM that a Python worker belongs to; None if it is gone."""
    return next((each for each in above(worker) if EXECUTOR in program(each)), None)


@contextmanager
def standing_still(pids: Iterable[int]) -> Iterator[None]:
    """Freeze processes until the end of the block, as a machine that stands still does."""
    stopped = list(pids)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _processes() -> dict[int, tuple[int, str]]:
    """Return, for each process that lives, what started it and what it runs."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,args="],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {}
    for line in listed.stdout.splitlines():
        pid, parent, stat, args = line.split(maxsplit=3)
        if not stat.startswith("Z"):
            found[int(pid)] = int(parent), args
    return found
