"""Processes by a name that no other one has: whether one that wrote something is dead by now."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PS_TIMEOUT_S = 5.0
_DEAD = ("Z", "X", "x")  # states in /proc of what has only to be waited for


@dataclass(frozen=True, slots=True)
class Process:
    """One process: where it runs, and when it began, in some unit; None when that can't be told."""

    host: str
    pid: int
    started: str | None


def this_process() -> Process:
    pid = os.getpid()
    return Process(this_machine(), pid, _started(pid))


def is_dead(process: Process) -> bool:
    """Whether a process is known not to live any more; False when that can't be told."""
    if process.host != this_machine():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, at least now
        pass
    now = _started(process.pid)
    return now == "" or (None not in (process.started, now) and now != process.started)


@cache
def this_machine() -> str:
    """This machine since it was switched on, as far as process ids mean the same in it."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """When a process began, in some unit; empty when it is dead, None when that can't be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    except ProcessLookupError:
        return ""
    except OSError:
        return None
    else:
        state, *rest = stat.rpartition(")")[2].split()  # the name before it may hold anything
        return "" if state in _DEAD else rest[18]
    try:  # no /proc, as on a Mac
        asked = ["ps", "-o", "lstart=", "-p", str(pid)]
        told = subprocess.run(
            asked, capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None
