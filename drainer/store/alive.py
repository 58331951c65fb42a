"""Processes by a name that no other one has: whether one that wrote something is dead by now."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from drainer.core import fields

PS_TIMEOUT_S = 5.0
_DEAD = ("Z", "X", "x")  # states in /proc of what has only to be waited for


def this_process() -> dict[str, Any]:
    """Machine, process id and start time of this process, as JSON."""
    pid = os.getpid()
    return {"host": this_machine(), "pid": pid, "started": _started(pid)}


def is_dead(process: Mapping[str, Any]) -> bool:
    """Whether a process is known not to live any more; False when that can't be told.

    Raises KeyError or TypeError when it is none that ``this_process`` told of.
    """
    host, pid = fields.text(process["host"]), fields.whole(process["pid"])
    started = fields.optional(fields.text, process["started"])
    if host != this_machine():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, at least now
        pass
    now = _started(pid)
    return now == "" or (started is not None and now is not None and now != started)


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
