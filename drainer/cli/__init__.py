"""The command line. Each command has one file, and calls ``operations`` for its work."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from drainer.errors import EXIT_INTERRUPTED


def main() -> None:
    """Run drainer as the console script does.

    A SIGTERM or SIGHUP is a Ctrl-C from the start, so that locks are released and the exit code is
    4. The kernel would not even deliver it to process 1 of a container, if nothing handled it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        from drainer.cli import app  # noqa: PLC0415 - Ctrl-C may come during the import

        app.main()
    except KeyboardInterrupt:
        end_interrupted()


def end_interrupted() -> NoReturn:
    """End the process after a Ctrl-C that came before a command began."""
    sys.stderr.write("interrupted before the command began: nothing was touched\n")
    sys.exit(EXIT_INTERRUPTED)
