"""Processes by a name that no other one has: whether one that wrote something is dead by now."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from drainer.store.plan_file import this_machine

_DEAD = ("Z", "X", "x")  # states in /proc of what has only to be waited for


@dataclass(frozen=True, slots=True)
class Process:
    """One process: where it runs, and when it began, in some unit; None when that isn't known."""

    host: str
    pid: int
    started: str | None


def this_process() -> Process:
    pid = os.getpid()
    return Process(this_machine(), pid, _started(pid))


def is_dead(process: Process) -> bool:
    """Whether a process is known not to live any more; False when that isn't known."""
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


def _started(pid: int) -> str | None:
    """When a process began, in some unit; empty when it is dead, None when that isn't known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else None  # as on a Mac
    except ProcessLookupError:
        return ""
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return "" if state in _DEAD else rest[18]
