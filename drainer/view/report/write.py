"""Writing a report at the end of a command, when what it is about is over and done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from drainer.engine.history import History
from drainer.engine.preview import Preview
from drainer.engine.status import Summary
from drainer.insight.estimate import Estimate
from drainer.insight.inspection import Inspection
from drainer.limits.search.boundary import Limits
from drainer.loader import describe
from drainer.view.layout import field
from drainer.view.report.file import ReportFile, ReportNotWritten
from drainer.view.terminal import Terminal


def write_drain_report(
    terminal: Terminal,
    file: ReportFile | None,
    action: Preview,
    summary: Summary,
    history: History,
) -> None:
    """Writes the report of a drain that just ended, if one is wanted.

    What goes wrong with it is told, and changes nothing: the drain ended as it did.
    """
    if file is None:
        return

    def page() -> str:
        from drainer.view.report.drain import drain_page  # noqa: PLC0415 - matplotlib is slow

        return drain_page(action, summary, history, datetime.now().astimezone())

    write_or_warn(terminal, file, page)


def write_inspection_report(
    terminal: Terminal,
    file: ReportFile | None,
    found: Inspection,
    drained_in_s: float | None = None,
) -> None:
    """Writes the report of a backlog that was looked at, if one is wanted."""
    if file is None:
        return

    def page() -> str:
        from drainer.insight.report.inspect import inspection_page  # noqa: PLC0415

        return inspection_page(found, datetime.now().astimezone(), drained_in_s)

    write_or_warn(terminal, file, page)


def write_estimate_report(terminal: Terminal, file: ReportFile | None, found: Estimate) -> None:
    """Writes the report of an estimate, if one is wanted."""
    if file is None:
        return

    def page() -> str:
        from drainer.insight.report.estimate import estimate_page  # noqa: PLC0415

        return estimate_page(found, datetime.now().astimezone())

    write_or_warn(terminal, file, page)


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


def write_or_warn(
    terminal: Terminal, file: ReportFile, page: Callable[[], str | bytes], what: str = "report"
) -> None:
    """Makes the page and writes it; what goes wrong is told."""
    try:
        file.write(page())
    except ReportNotWritten as error:
        terminal.warn(str(error))
    except KeyboardInterrupt:
        terminal.warn(f"the {what} was not written: interrupted")
    except Exception as error:  # a mistake in a picture must not change how a drain ended
        terminal.warn(f"the {what} was not written: {describe(error)}")
    else:
        terminal.show(field(what, str(file.path)))
