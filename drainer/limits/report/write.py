"""Writing limits as a report or a picture, when one is wanted."""

from __future__ import annotations

from datetime import datetime

from drainer.limits.search.boundary import Limits
from drainer.view.report.file import ReportFile, write_or_warn
from drainer.view.terminal import Terminal


def write_limits_report(terminal: Terminal, file: ReportFile | None, found: Limits) -> None:
    """Writes the report of limits, if one is wanted."""
    if file is None:
        return

    def page() -> str:
        from drainer.limits.report.limits import limits_page  # noqa: PLC0415

        return limits_page(found, datetime.now().astimezone())

    write_or_warn(terminal, file, page)


def write_limits_picture(terminal: Terminal, file: ReportFile | None, found: Limits) -> None:
    """Writes the picture of limits as PNG, if one is wanted."""
    if file is None:
        return

    def picture() -> bytes:
        from drainer.limits.report.boundary import boundary_png  # noqa: PLC0415

        return boundary_png(found)

    write_or_warn(terminal, file, picture, "picture")
