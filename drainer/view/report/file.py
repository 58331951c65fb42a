"""The file of a report: it is checked before the drain begins, and written when it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from errno import EACCES
from pathlib import Path

from drainer.errors import Refused
from drainer.store.atomic_file import write_whole
from drainer.text.mask import describe
from drainer.view.page import Field, Page
from drainer.view.terminal import Terminal

MARK = b'<meta name="generator" content="drainer">'
_MARK_WITHIN_BYTES = 1024


class ReportFile:
    """The file that a report is written to. An earlier report is replaced, but no other file is.

    The constructor raises Refused if the file can't be written, so that nobody learns of a typing
    error only at the end of a long drain.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._ensure_place()

    def _ensure_place(self) -> None:
        folder, why = self.path.parent, ""
        try:
            if not folder.is_dir():
                why = f"there is no folder {folder} for the report"
            elif not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
            elif self.path.exists() and not self.path.is_file():
                why = f"{self.path} exists, and is not a file"
            elif self.path.exists():
                with self.path.open("rb") as stream:
                    beginning = stream.read(_MARK_WITHIN_BYTES)
                if beginning and MARK not in beginning:
                    why = f"{self.path} exists, and is not a report of drainer"
        except OSError as error:
            why = f"the report can't be written to {self.path}: {error.strerror or error}"
        if why:
            raise Refused(why, hint="Name another file with --report.")

    def write(self, page: str) -> None:
        """Write the page as a whole, or leave the file as it was.

        Only its owner can read the file, because keys and errors may contain confidential data.

        Raises Refused when something other than a report has been written there meanwhile, and
        OSError.
        """
        self._ensure_place()
        write_whole(self.path, page.encode("utf-8", "backslashreplace"))


def write_page(
    terminal: Terminal, file: ReportFile | None, page: Callable[[datetime], Page]
) -> None:
    """Write a page as a report, if the user wants one. ``page`` makes it for the current time.

    An error is only a warning, because the command has already done its work.
    """
    if file is None:
        return
    try:
        from drainer.view.report.page import html  # noqa: PLC0415 - jinja2 is slow

        now = datetime.now().astimezone()
        file.write(html(page(now), now))
    except (Exception, KeyboardInterrupt) as error:
        terminal.warn(f"the report was not written: {describe(error)}")
    else:
        terminal.items(Field("report", str(file.path)))
