"""The command line. Each command has one file, and calls ``operations`` for its work."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from drainer.errors import EXIT_INTERRUPTED, StopSignal

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = "interrupted before the command began: nothing was touched\n"


def main() -> None:
    """Run drainer as the console script does.

    SIGTERM and SIGHUP do what Ctrl-C does, so that locks are released and the exit code is 4. The
    kernel would not even deliver them to process 1 of a container, if nothing handled them.
    """
    for number in _STOPS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
    try:
        from drainer.cli import app  # noqa: PLC0415 - Ctrl-C may come during the import

        app.main()
    except KeyboardInterrupt:
        end_interrupted()


def begin() -> None:
    """Let signals raise an exception from now on, because the command may have to clean up."""
    for number in _STOPS:
        if signal.getsignal(number) is _end:
            signal.signal(number, _stop)


def end_interrupted() -> NoReturn:
    """End the process after a Ctrl-C that came before a command began."""
    sys.stderr.write(_INTERRUPTED)
    sys.exit(EXIT_INTERRUPTED)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    # No exception is raised, because code that is imported meanwhile may catch or replace it.
    os.write(2, _INTERRUPTED.encode())
    os._exit(EXIT_INTERRUPTED)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise StopSignal(f"interrupted by {signal.Signals(number).name}")
