"""Processes that drainer starts, and that may outlive the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
KILL_WAIT_S = 10.0

# This program asks the kernel for a SIGKILL at the end of its parent, and then becomes another
# program. A preexec_fn could do the same, but may deadlock in a parent that has threads. If the
# parent is gone already, no signal would come, so nothing is started.
_BOUND = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """One process, told apart from a later one that has the same pid."""

    pid: int
    started: str  # The time of its start as the system writes it, which can only be compared.

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """Mark the process that has a pid now; None if there is none."""
        started = _started(pid)
        return None if started is None else cls(pid=pid, started=started)

    def alive(self) -> bool:
        """Return whether the process runs. A zombie does not.

        Raises OSError if that can't be known.
        """
        return _started(self.pid) == self.started

    def command(self) -> str:
        """Return the process's command line, with blanks between words; empty if it is gone."""
        if sys.platform != "linux":
            return _ps("args=", self.pid)
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return os.fsdecode(words).rstrip("\0").replace("\0", " ")

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal. Return False if the process is gone."""
        with suppress(ProcessLookupError):
            if self.alive():
                os.kill(self.pid, number)
                return True
        return False

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process is gone. Return False if it still runs after ``timeout_s``."""
        until_s = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > until_s:
                return False
            time.sleep(POLL_S)
        return True

    def end(self, *, grace_s: float) -> bool:
        """Terminate the process, and kill it after ``grace_s``. Return False if it still runs."""
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)  # A paused process would not notice the first signal.
            if not self.wait(grace_s):
                return self.kill()
        return True

    def kill(self) -> bool:
        """Kill the process. Return False if it still runs, as in a call that nothing can break."""
        self.signal(signal.SIGKILL)
        return self.wait(KILL_WAIT_S)


def bound_to_parent(command: Sequence[str]) -> list[str]:
    """Make a command end together with the thread that starts it. It needs Linux.

    The kernel watches the thread instead of its process, so start such a command from the main
    thread. On other systems the command is returned as it is.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *command]


def start_apart(
    command: Sequence[str], folder: Path, output: Path, *, die_with_parent: bool
) -> subprocess.Popen[bytes]:
    """Start a command in ``folder``, and write its output to a file. Raises OSError.

    It runs in a session of its own, so a Ctrl-C for this process does not reach it.
    ``die_with_parent`` makes it end with the thread that starts it (``bound_to_parent``).
    """
    with output.open("wb") as file:
        return subprocess.Popen(
            bound_to_parent(command) if die_with_parent else command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )


def python_module(module: str, *words: str) -> list[str]:
    """Return the command that runs a module in a Python of its own, with this one's ``sys.path``.

    ``python -m`` searches the working folder first, which may be another user's. This command
    imports only what this process would import, too, and no ``sitecustomize`` of a handler.
    """
    # An interactive session imports from the working folder first. Here it comes last.
    here = [str(Path.cwd())] if "" in sys.path else []
    path = [*filter(None, sys.path), *here]
    run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-P", "-c", f"import runpy, sys; sys.path[:] = {path!r}; {run}", *words]


def is_suspended(pid: int) -> bool:
    """Return whether SIGSTOP, Ctrl-Z or a debugger has stopped a process; False if not known."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(") ")[2].startswith(("T", "t"))
    return False


def _started(pid: int) -> str | None:
    if sys.platform != "linux":
        state, _, started = _ps("stat=,lstart=", pid).partition(" ")
        return None if not state or state.startswith("Z") else started.strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot_id = _BOOT_ID.read_text(encoding="utf-8").strip()
    # The second field is the name in parentheses, which may hold any character.
    fields = stat.rpartition(")")[2].split()
    state, threads, started_ticks = fields[0], int(fields[17]), fields[19]
    # A zombie with other threads that are still ending has not released its ports.
    ended = state in "ZX" and threads <= 1
    return None if ended else f"{boot_id}:{started_ticks}"


def _ps(columns: str, pid: int) -> str:
    words = ["ps", "-ww", "-o", columns, "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
