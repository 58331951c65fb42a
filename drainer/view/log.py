"""The words of a command as a log, for a collector: each line on stderr is a JSON object.

Everything else that is written to stderr meanwhile also becomes lines of the log: what a handler
prints there, and what goes through Python's ``logging``.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from drainer.text.escape import json_text
from drainer.view.layout import Pieces, plain
from drainer.view.page import Page, Tone
from drainer.view.streams import LineStream
from drainer.view.terminal import Form, Terminal

# The name of the terminal's logger, and of the parent of the loggers that drainer's modules use.
OURS = "drainer"
_LEVELS = {Tone.WARN: logging.WARNING, Tone.BAD: logging.ERROR}
_OF_LOGGING = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}


class LogTerminal(Terminal):
    """A terminal that writes events to a log. ``logging_as_json`` makes it.

    It answers no questions. Where another terminal lays facts out, it gives them as fields.
    """

    def __init__(self, logger: logging.Logger, form: Form | None, quiet: bool, debug: bool) -> None:
        super().__init__(form, quiet=quiet, debug=debug, stdin=io.StringIO())
        self._logger = logger

    @property
    def is_live(self) -> bool:
        return False

    def event(self, level: int, event: str, message: str, **fields: Any) -> None:
        """Write one line of the log. It raises nothing when the reader of the log is gone."""
        if message:
            self._logger.log(level, {"event": event, "message": message, **fields})

    def _verdict(self, page: Page, *, result: bool) -> None:
        """Write a page as one event if it has a name for that, and otherwise line by line."""
        if not page.event:
            super()._verdict(page, result=result)
            return
        for warning in page.warnings:
            self.warn(warning)
        if page.cause is not None:
            self.fail(page.cause)
        for hint in page.hints:
            self.hint(hint)
        level = _LEVELS.get(page.headline.tone, logging.INFO)
        self.event(level, page.event, page.message, **page.data)

    def _facts(self, page: Page, *, result: bool) -> None:
        if not page.event or (result and self.form is not None):
            super()._facts(page, result=result)

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        """Write a line of a page as an event. Results for programs go to stdout as always."""
        if result and self.form is not None:
            super().show(line, urgent=urgent, result=True)
        else:
            self.event(logging.WARNING if urgent else logging.INFO, "note", plain(line).strip())


@contextmanager
def logging_as_json(
    form: Form | None = None,
    *,
    quiet: bool = False,
    debug: bool = False,
    stderr: TextIO | None = None,
) -> Iterator[LogTerminal]:
    """Make stderr a log until the block ends. With ``quiet``, it has only warnings and errors."""
    stream = stderr or sys.stderr
    handler = _Handler(stream)
    handler.setFormatter(_Formatter())
    # The logger is kept out of logging's own tree, because a user's handler may call dictConfig(),
    # which switches off all loggers that it finds there.
    logger = logging.Logger(OURS, logging.WARNING if quiet else logging.INFO)
    logger.addHandler(handler)
    others = (logging.getLogger(), logging.getLogger(OURS))

    def log_printed(lines: str) -> None:
        for line in lines.split("\n"):
            if line.strip():
                logger.info({"event": "output", "message": line})

    printed = LineStream(stream, log_printed)
    for other in others:
        other.addHandler(handler)
    try:
        # Typeshed wants a TextIO, but nothing that prints needs more than a LineStream has.
        with redirect_stderr(cast(TextIO, printed)):
            yield LogTerminal(logger, form, quiet, debug)
    finally:
        printed.end_line()
        for other in others:
            other.removeHandler(handler)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore the error: a drain goes on when the reader of its log is gone."""


class _Formatter(logging.Formatter):
    """Writes ``time``, ``level``, ``event`` and ``message`` first, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        created = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": created.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        if record.name == OURS and isinstance(record.msg, dict):
            return json_text(line | record.msg)
        below = record.name.removeprefix(f"{OURS}.")
        line["event"] = "log" if below == record.name else below
        line["logger"] = record.name
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exc_info"] = self.formatException(record.exc_info)
        # The extra fields of a handler's own records must not replace those of drainer.
        taken = _OF_LOGGING | line.keys()
        extra = {name: value for name, value in vars(record).items() if name not in taken}
        return json_text(line | extra)
