"""Writing a report at the end of a command, when what it is about is over and done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from drainer.engine.history import History
from drainer.engine.preview import Preview
from drainer.engine.status import Summary
from drainer.loader import describe
from drainer.view.page import Field, Page
from drainer.view.report.file import ReportFile, ReportNotWritten
from drainer.view.summary import drain_page
from drainer.view.terminal import Terminal


def write_drain_report(
    terminal: Terminal,
    file: ReportFile | None,
    action: Preview,
    summary: Summary,
    history: History,
) -> None:
    """Writes the report of a drain that just ended, if one is wanted."""
    write_page(terminal, file, lambda now: drain_page(action, summary, history, now))


def write_page(
    terminal: Terminal, file: ReportFile | None, page: Callable[[datetime], Page]
) -> None:
    """Writes a page as a report, if one is wanted; it is made for the time that it is given.

    What goes wrong with it is told, and changes nothing: the command ended as it did.
    """
    if file is None:
        return

    def made() -> str:
        from drainer.view.report.page import html  # noqa: PLC0415 - matplotlib is slow

        now = datetime.now().astimezone()
        return html(page(now), now)

    write_or_warn(terminal, file, made)


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
        terminal.items(Field(what, str(file.path)))
