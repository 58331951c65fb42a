"""The command line: one file for each command, without logic."""

from __future__ import annotations

import sys
from typing import NoReturn

from drainer.errors import EXIT_INTERRUPTED


def main() -> None:
    """The entry point of the console script."""
    try:
        from drainer.cli import app  # noqa: PLC0415 - Ctrl-C may come while this is imported

        app.main()
    except KeyboardInterrupt:
        end_interrupted()


def end_interrupted() -> NoReturn:
    """End the process for a Ctrl-C that came before a command began."""
    sys.stderr.write("interrupted before the command began: nothing was touched\n")
    sys.exit(EXIT_INTERRUPTED)
