"""The file of a report: checked before anything begins, written whole when all is over."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from errno import EACCES
from pathlib import Path
from stat import S_ISREG

from drainer.errors import Refused
from drainer.mask import describe
from drainer.store.atomic_file import write_whole
from drainer.view.page import Field, Page
from drainer.view.terminal import Terminal

MARK = b'<meta name="generator" content="drainer">'
_MARK_WITHIN_BYTES = 1024


class ReportRefused(Refused):
    """Raised when the report can't be written where it is wanted."""


class ReportFile:
    """The file that a report goes to.

    Raises ReportRefused at once when that can't be: so a drain of a night does not end without its
    report for a typing error. An earlier report is written over; any other file is not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._ensure_place()

    def _ensure_place(self) -> None:
        try:
            why = self._why_not()
        except OSError as error:
            why = f"the report can't be written to {self.path}: {error.strerror or error}"
        if why is not None:
            raise ReportRefused(why, hint="Name another file with --report.")

    def _why_not(self) -> str | None:
        folder = self.path.parent
        if not folder.is_dir():
            return f"there is no folder {folder} for the report"
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return None
        if not S_ISREG(mode):
            return f"{self.path} exists, and is not a file"
        with self.path.open("rb") as stream:
            beginning = stream.read(_MARK_WITHIN_BYTES)
        if beginning and MARK not in beginning:
            return f"{self.path} exists, and is not a report of drainer's"
        return None

    def write(self, page: str) -> None:
        """Writes the page whole, or leaves what was there. For its owner only, as a plan is: keys
        and errors may hold what isn't everybody's.

        Raises ReportRefused (it may be another file by now, such as the plan) and OSError.
        """
        self._ensure_place()
        write_whole(self.path, page.encode("utf-8", "backslashreplace"))


def write_page(
    terminal: Terminal, file: ReportFile | None, page: Callable[[datetime], Page]
) -> None:
    """Writes a page as a report, if one is wanted; it is made for the time that it is given.

    What goes wrong with it is reported, and changes nothing: the command ended as it did.
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
