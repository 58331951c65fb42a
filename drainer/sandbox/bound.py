"""Becomes another program that can't outlive its parent: ``bound.py PARENT_PID PROGRAM ARG...``.

Run as a script, never imported by the package. It asks the kernel for a SIGKILL when the parent
goes, and only then executes the program: safer than a ``preexec_fn``, which may deadlock in a
parent with threads. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # The parent may have died before it was asked for: then no signal will come.
    if os.getppid() == parent:
        os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
