"""Runs ``drainer`` with a stopwatch on its journal, and prints ``journal: SECONDS`` at the end.

The stopwatch measures the event loop's own time, in which the journal keeps it from other work. So
other processes of the machine don't count. The time in which the loop notes in memory what has
finished is not part of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from drainer.cli import main
from drainer.engine.checkpointer import Checkpointer
from drainer.store.plan_file import PlanFile

_spent_s = 0.0


def _timed(function: Callable[..., None]) -> Callable[..., None]:
    def measured(*args: object) -> None:
        global _spent_s  # noqa: PLW0603 - a process of its own for each measurement
        begun_s = time.thread_time()
        try:
            function(*args)
        finally:
            _spent_s += time.thread_time() - begun_s

    return measured


Checkpointer.note = _timed(Checkpointer.note)  # type: ignore[method-assign]
PlanFile.start_journal = _timed(PlanFile.start_journal)  # type: ignore[method-assign]

if __name__ == "__main__":
    try:
        main()
    finally:
        print(f"journal: {_spent_s:.6f}", file=sys.stderr)
