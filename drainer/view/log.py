"""The words of a command as a log: one JSON object a line on stderr, for a collector to read.

Whatever else is written to stderr meanwhile becomes a line too: what a handler prints there, and
what goes through Python's ``logging``.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import UTC, datetime
from typing import Any, TextIO, cast

from pythonjsonlogger.core import BaseJsonFormatter, LogData
from rich.console import Console, RenderableType

from drainer.core.latency import Latency
from drainer.engine.status import Status
from drainer.errors import EXIT_INTERRUPTED, EXIT_UNEXPECTED, DrainerError, Signalled
from drainer.escape import json_text
from drainer.view import figures
from drainer.view.layout import safe
from drainer.view.lines import LineView, start_line, status_line
from drainer.view.page import Page, Tone
from drainer.view.tasks import slowest
from drainer.view.terminal import Terminal

OURS = "drainer"  # the name of the terminal's logger, and above those of other packages
PARTITIONS_TOLD = 8  # in a line about progress: those with most to go
TASKS_TOLD = 8  # in such a line: stragglers, and those that are slow
_LEVELS = {Tone.WARN: logging.WARNING, Tone.BAD: logging.ERROR}
LINE_MOST = 16_384  # characters of what a handler prints without a newline


class LogTerminal(Terminal):
    """A terminal whose words are events; made by ``logging_as_json``.

    There is nobody to ask, and what is laid out for the eye elsewhere is told in fields.
    """

    def __init__(self, logger: logging.Logger, json: bool, quiet: bool, debug: bool) -> None:
        super().__init__(json, quiet, debug)
        self._logger = logger

    @property
    def is_interactive(self) -> bool:
        return False

    @property
    def is_live(self) -> bool:
        return False

    def event(self, level: int, event: str, message: str, **fields: object) -> None:
        """One line of the log. Raises nothing when nobody reads it any more."""
        self._logger.log(level, {"event": event, "message": message, **fields})

    def say(self, text: str) -> None:
        if text:
            self.event(logging.INFO, "note", text)

    def warn(self, text: str) -> None:
        self.event(logging.WARNING, "warning", text)

    def hint(self, text: str) -> None:
        self.event(logging.WARNING, "hint", text)

    def fail(self, error: BaseException) -> None:
        text, hint, trace = self._told(error)
        asked = isinstance(error, KeyboardInterrupt | Signalled)
        code = EXIT_INTERRUPTED if asked else EXIT_UNEXPECTED
        self.event(
            logging.WARNING if asked else logging.ERROR,
            "stopped" if asked else "error",
            text,
            error=type(error).__name__,
            exit_code=error.exit_code if isinstance(error, DrainerError) else code,
            hint=hint,
            **({} if trace is None else {"traceback": trace}),
        )

    def error(self, text: str, hint: str | None = None) -> None:
        self.event(logging.ERROR, "error", text, hint=hint)

    def present(self, page: Page) -> None:
        """A page as one event, where it is one; else line by line."""
        if page.event is None:
            super().present(page)
            return
        for warning in page.warnings:
            self.warn(warning)
        if page.cause is not None:
            self.fail(page.cause)
        for hint in page.hints:
            self.hint(hint)
        name, fields = page.event
        self.event(_LEVELS.get(page.headline.tone, logging.INFO), name, page.told, **fields)

    def show(self, renderable: RenderableType, *, urgent: bool = False) -> None:
        """What was only made to be looked at, line by line."""
        renderable = safe(renderable)
        paper = io.StringIO()
        Console(file=paper, width=200, markup=False, emoji=False, highlight=False).print(renderable)
        for line in paper.getvalue().splitlines():
            if line.strip():
                self.event(logging.WARNING if urgent else logging.INFO, "note", line.strip())


class LogView(LineView):
    """The status as events, as often as plain lines would come."""

    def __init__(self, terminal: LogTerminal) -> None:
        super().__init__(terminal)
        self._log = terminal

    def _begin(self, status: Status) -> None:
        self._log.event(
            logging.INFO,
            "begin",
            start_line(status),
            topic=status.topic,
            group=status.group,
            concurrency=status.concurrency,
            plan=status.plan_path,
        )

    def _tell_stopping(self, why: str) -> None:
        self._log.event(logging.WARNING, "stopping", why)

    def _tell_trouble(self, trouble: str | None) -> None:
        if trouble is None:
            self._log.event(logging.INFO, "trouble_over", "trouble over")
        else:
            self._log.event(logging.WARNING, "trouble", trouble)

    def _tell(self, status: Status) -> None:
        failures = status.failures
        most = sorted(status.partitions, key=lambda part: part.watermark - part.end)
        self._log.event(
            logging.INFO,
            "progress",
            status_line(status),
            topic=status.topic,
            group=status.group,
            elapsed_s=round(status.elapsed_s, 3),
            eta_s=None if status.eta_s is None else round(status.eta_s, 1),
            messages=status.messages.as_json(),
            sub_messages=status.sub_messages.as_json(),
            sub_messages_per_s=round(status.rate_now, 1),
            in_flight=status.running,
            concurrency=status.concurrency,
            lanes=status.lanes,
            lanes_ready=status.lanes_ready,
            hottest=[
                {"lane": figures.sub_key(key, 60), "waiting": waiting}
                for key, waiting in status.hottest
            ],
            buffered_bytes=status.buffered_bytes,
            plan_age_s=round(status.plan_age_s, 3),
            latency=latency_fields(status.latency_recent),
            failures=failures.failures,
            retries=failures.retries,
            timeouts=failures.timeouts,
            outage=failures.in_outage,
            parked_lanes=failures.parked_lanes,
            partitions=[
                {
                    "partition": part.partition,
                    "end": part.end,
                    "position": part.position,
                    "watermark": part.watermark,
                    "committed": part.committed,
                }
                for part in most[:PARTITIONS_TOLD]
            ],
            **_spark_fields(status),
        )


def _spark_fields(status: Status) -> dict[str, object]:
    if status.wave is None:
        return {}
    return {
        "wave": status.wave.as_json(),
        "tasks": len(status.tasks),
        "slowest_tasks": [task.as_json() for task in slowest(status.tasks)[:TASKS_TOLD]],
    }


def latency_fields(latency: Latency | None) -> dict[str, float] | None:
    """What a line has room for."""
    if latency is None:
        return None
    return {
        "mean_s": latency.mean_s,
        "p50_s": latency.p50_s,
        "p95_s": latency.p95_s,
        "p99_s": latency.p99_s,
    }


@contextmanager
def logging_as_json(
    *, json: bool, quiet: bool, debug: bool, stderr: TextIO | None = None
) -> Iterator[LogTerminal]:
    """Makes stderr a log while inside; quiet leaves warnings and errors."""
    stream = stderr or sys.stderr
    handler = _Handler(stream)
    handler.setFormatter(_Formatter())
    # Not of logging's own tree: a handler's dictConfig() switches off whatever it finds there.
    logger = logging.Logger(OURS, logging.WARNING if quiet else logging.INFO)
    logger.addHandler(handler)
    others = (logging.getLogger(), logging.getLogger(OURS))
    printed = _Printed(stream, logger)
    for other in others:
        other.addHandler(handler)
    try:
        # Typeshed wants a TextIO; nothing that prints needs more than what this has.
        with redirect_stderr(cast(TextIO, printed)):
            yield LogTerminal(logger, json, quiet, debug)
    finally:
        printed.rest()
        for other in others:
            other.removeHandler(handler)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A drain outlives the one who was reading its log."""


class _Formatter(BaseJsonFormatter):
    """``time``, ``level``, ``event`` and ``message`` first, then the fields of the event."""

    def __init__(self) -> None:
        super().__init__(["levelname", "message", "name"])

    def add_fields(
        self, log_data: LogData, record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        told = dict(log_data)
        name = told.pop("name")
        created = datetime.fromtimestamp(record.created, UTC)
        log_data.clear()
        log_data["time"] = created.isoformat(timespec="milliseconds")
        log_data["level"] = told.pop("levelname").lower()
        if name == OURS:
            log_data["event"] = told.pop("event")
        elif name.startswith(f"{OURS}."):
            log_data["event"] = name.removeprefix(f"{OURS}.")
        else:
            log_data |= {"event": "log", "logger": name}
        log_data["message"] = told.pop("message")
        for field, value in told.items():  # an extra of somebody else's takes none of ours
            log_data.setdefault(field, value)

    def jsonify_log_record(self, log_data: LogData) -> str:
        return json_text(log_data)


class _Printed(io.TextIOBase):
    """Takes what is printed, and gives it to the log line by line."""

    def __init__(self, real: TextIO, logger: logging.Logger) -> None:
        self._real = real
        self._logger = logger
        self._lock = threading.Lock()
        self._begun = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        # For a child process of the handler's, whose output is its own.
        return self._real.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._real.encoding

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            if len(self._begun) > LINE_MOST:
                lines.append(self._begun)
                self._begun = ""
        for line in lines:
            if line.strip():
                self._logger.info({"event": "output", "message": line})
        return len(text)

    def rest(self) -> None:
        """What was begun is a line as well, at the end."""
        if self._begun:
            self.write("\n")
