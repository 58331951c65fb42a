"""The processes of a drain on Spark: what started them, what they run, and how they are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

EXECUTOR = "CoarseGrainedExecutorBackend"


def below(pid: int) -> list[int]:
    """The processes that it started, and those that these did."""
    children: dict[int, list[int]] = {}
    for child, (parent, _) in _processes().items():
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        found += (own := children.get(waiting.pop(), []))
        waiting += own
    return found


def above(pid: int) -> list[int]:
    """Ancestors of a process, its parent first."""
    found, processes = [], _processes()
    while pid in processes:
        pid, _ = processes[pid]
        found.append(pid)
    return found


def program(pid: int) -> str:
    """Command line of a process; empty for one that is dead."""
    return _processes().get(pid, (0, ""))[1]


def jvm_of(pid: int) -> int:
    """The JVM of a driver."""
    return next(each for each in below(pid) if "java" in program(each))


def executors_of(pid: int) -> list[int]:
    """The JVMs of the executors of a driver with a ``local-cluster``."""
    return [each for each in below(pid) if EXECUTOR in program(each)]


def executor_of(worker: int) -> int | None:
    """The JVM that a Python worker belongs to; None when it is gone."""
    return next((each for each in above(worker) if EXECUTOR in program(each)), None)


@contextmanager
def standing_still(pids: Iterable[int]) -> Iterator[None]:
    """Freeze processes until the end of the block, as their machine might."""
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
    """Of each that lives what started it, and what it runs."""
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
