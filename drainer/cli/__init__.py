"""The command line. Each command has one file, and calls ``operations`` for its work."""

from __future__ import annotations

import sys
from typing import NoReturn

from drainer.errors import EXIT_INTERRUPTED


def main() -> None:
    """Run drainer as the console script does."""
    try:
        from drainer.cli import app  # noqa: PLC0415 - Ctrl-C may come during the import

        app.main()
    except KeyboardInterrupt:
        end_interrupted()


def end_interrupted() -> NoReturn:
    """End the process after a Ctrl-C that came before a command began."""
    sys.stderr.write("interrupted before the command began: nothing was touched\n")
    sys.exit(EXIT_INTERRUPTED)
