"""The terminal of a command. The command's result goes to stdout, and everything else to stderr.

``logging_as_json`` makes a terminal whose stderr is a log for a collector: each line is a JSON
object. Whatever a handler prints to stderr, or logs by Python's ``logging``, also becomes lines of
the log.
"""

from __future__ import annotations

import io
import json
import logging
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, TextIO, cast

from rich.console import Console
from rich.segment import Segment, Segments

from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_UNEXPECTED, DrainerError, Signalled
from drainer.host.os_errors import describe_os, is_of_machine, way_out
from drainer.text.escape import command_in, is_printable, json_text
from drainer.text.mask import describe
from drainer.text.secret import redact
from drainer.view.layout import Pieces, head, is_urgent, lay_out, plain, segments, wrapped
from drainer.view.page import Item, Page, Tone
from drainer.view.streams import LineStream

ALARM_S = 0.1  # While drainer waits for an answer, an alarm interrupts the read this often.

_BUG_HINT = (
    "this is a bug in drainer, not in your backlog; please report it with the output of"
    " `drainer --debug …`"
)

_MARKS: dict[int | str, tuple[str, Tone]] = {
    "hint": ("hint: ", Tone.HINT),
    "stopped": ("■ ", Tone.WARN),
    logging.INFO: ("", Tone.PLAIN),
    logging.WARNING: ("warning: ", Tone.WARN),
    logging.ERROR: ("error: ", Tone.BAD),
}


# The name of the terminal's logger, and of the parent of the loggers that drainer's modules use.
OURS = "drainer"
_LEVELS = {Tone.WARN: logging.WARNING, Tone.BAD: logging.ERROR}
_OF_LOGGING = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}


class Form(StrEnum):
    """The forms in which programs can get a result on standard output."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


class Terminal:
    """The output of a command.

    ``present`` and ``data`` write its result to stdout: as a page, or in the ``form`` that a
    program asked for. Messages go to stderr. ``quiet`` silences those of ``preview`` and
    ``print_line``, but never those of ``warn`` and ``fail``. ``debug`` adds tracebacks to ``fail``.

    On a screen, lines are broken between words, and commands so that they can be copied. Elsewhere,
    lines are never broken. Texts may contain anything: nothing in them counts as markup. There are
    colours only if stdout and stderr are both terminals, or with FORCE_COLOR.

    Without arguments, the streams are those of the process, which never fail (view/streams.py).
    """

    def __init__(
        self,
        form: Form | None = None,
        *,
        quiet: bool = False,
        debug: bool = False,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        self.form = form
        self.quiet = quiet
        self.debug = debug
        self._stdin = stdin or sys.stdin
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        # Markup, emoji codes and highlighting are off, because topics, sub-keys and errors may
        # contain brackets and colons.
        streams = (self._stderr, self._stdout)
        coloured = all(Console(file=each).is_terminal for each in streams)
        self.console, self._paper = (
            Console(
                file=each,
                color_system="auto" if coloured else None,
                width=width,
                height=height,
                markup=False,
                emoji=False,
                highlight=False,
            )
            for each in streams
        )

    @property
    def json(self) -> bool:
        """Whether the result is one JSON or YAML object."""
        return self.form in (Form.JSON, Form.YAML)

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer a question: stdin and stderr are both terminals."""
        return _is_tty(self._stdin) and _is_tty(self._stderr)

    @property
    def keyboard(self) -> int | None:
        """The descriptor from which keys are read; None without a terminal."""
        return self._stdin.fileno() if self.is_interactive else None

    @property
    def is_live(self) -> bool:
        """Whether stderr can be redrawn in place. A pipe can't, even with FORCE_COLOR."""
        return _is_tty(self._stderr) and self.console.is_interactive

    @property
    def shares_screen(self) -> bool:
        """Whether stdout is a terminal, which is most likely the same one as that of stderr."""
        return _is_tty(self._stdout)

    @property
    def is_ready(self) -> bool:
        """Whether a write to stderr would return at once.

        It would not while the terminal is stopped (Ctrl-S), or while a pager does not read. A
        running drain leaves out a frame rather than wait.
        """
        try:
            poll = select.poll()
            poll.register(self._stderr.fileno(), select.POLLOUT)
            return bool(poll.poll(0))
        except (OSError, ValueError, AttributeError):
            return True  # The stream has no descriptor, or the platform has no poll().

    def print_line(self, text: str) -> None:
        """Print a line of words, unless the terminal is quiet."""
        self.event(logging.INFO, "note", text)

    def warn(self, text: str) -> None:
        """Print ``warning: …``, even with --quiet."""
        self.event(logging.WARNING, "warning", text)

    def hint(self, text: str) -> None:
        """Print ``hint: …``, even with --quiet, because it follows an error."""
        self.event(logging.WARNING, "hint", text)

    def fail(self, error: BaseException) -> int:
        """Print ``error: …`` and its hint, and return the exit code for the error.

        A stop that the user requested is printed as such, not as an error. With ``debug``, a
        traceback is printed as well. For a DrainerError, it is the traceback of its cause, such as
        an error of the handler.
        """
        cause: BaseException | None = None
        if isinstance(error, DrainerError):
            text, hint, code, cause = str(error), error.hint, error.exit_code, error.__cause__
        elif isinstance(error, KeyboardInterrupt):
            text, hint, code = "interrupted", None, EXIT_INTERRUPTED
        else:
            text, hint = describe(error), way_out(error, _BUG_HINT)
            code, cause = EXIT_UNEXPECTED, error
            if is_of_machine(error):
                text = describe_os(error)
        fields: dict[str, Any] = {"error": type(error).__name__, "exit_code": code, "hint": hint}
        if isinstance(error, KeyboardInterrupt | Signalled):
            self.event(logging.WARNING, "stopped", text, **fields)
            return code
        if self.debug and cause is not None:
            fields["traceback"] = redact("".join(traceback.format_exception(cause))).rstrip()
        self.event(logging.ERROR, "error", text, **fields)
        return code

    def event(self, level: int, event: str, message: str, **fields: Any) -> None:
        """Print a message. Of its ``fields``, a terminal shows only the traceback and the hint.

        ``level`` is a level of ``logging``. The name ``event`` is for the log.
        """
        for line in fields.get("traceback", "").splitlines():
            self.show([(f"  | {line}", Tone.QUIET)], urgent=True)
        mark = _MARKS.get(event) or _MARKS[level]
        self.show([mark, (message, Tone.PLAIN)], urgent=level >= logging.WARNING)
        if hint := fields.get("hint"):
            self.hint(hint)

    def data(self, obj: Mapping[str, Any], page: Page | None = None) -> None:
        """Print the result as one object, if the user asked for JSON or YAML.

        On a terminal, the object is indented for a person to read. Every object begins with
        ``status``, ``exit_code``, ``hint`` and ``next``, the command that comes next. Unless
        ``obj`` has its own, they are those of a command that found nothing wrong, and of the page
        that a person would see.
        """
        if not self.json:
            return
        hint = obj.get("hint") or " ".join(page.hints if page else ()) or None
        way = (page and page.next) or command_in(hint or "")
        obj = {"status": "ok", "exit_code": EXIT_DONE, "hint": hint, "next": way, **obj}
        text = json_text(obj, indent=self.shares_screen)
        self._stdout.write(_as_yaml(text) if self.form is Form.YAML else f"{text}\n")
        self._stdout.flush()

    def answer(self, obj: Mapping[str, Any], page: Page) -> None:
        """Print the result, as the object of ``data`` and as the page of ``present``."""
        self.data(obj, page)
        self.present(page)

    def confirm(self, question: str) -> bool | None:
        """Ask a question on stderr, and return the answer.

        Only ``y`` and ``yes`` mean yes. Ctrl-C and Ctrl-D mean no. If no person can answer, the
        result is None, and the caller refuses to go on.
        """
        if not self.is_interactive:
            return None
        try:
            prompt = segments([(question, Tone.STRONG), (" [y/N] ", Tone.PLAIN)])
            self.console.print(Segments(prompt), end="", soft_wrap=True)
            with _interruptible():
                answer = self._stdin.readline()
        except KeyboardInterrupt:
            answer = ""
        if not answer.endswith("\n"):
            self.console.print()
        return answer.strip().lower() in ("y", "yes")

    def present(self, page: Page) -> None:
        """Print the result as a page: warnings, verdict, how to continue, facts, and tables last.

        Every page has this order, so that a long table never hides what to do next. Warnings, the
        error and hints go to stderr. If a program reads the result, the verdict goes to stderr as
        well. Stdout then has only the facts (-o table), or only the object that ``data`` prints.
        With --quiet, a page shows only what is wrong, and how to continue from there.
        """
        self._verdict(page, result=self.form is None)
        if not self.json:
            self._facts(page, result=True)

    def preview(self, page: Page) -> None:
        """Print a page on stderr, which the user reads before answering a question.

        Its warnings come last, right above the question, because the page may be longer than the
        screen.
        """
        self._verdict(replace(page, warnings=()), result=False)
        self._facts(page, result=False)
        if page.warnings:
            self.print_line("")
        for warning in page.warnings:
            self.warn(warning)

    def _verdict(self, page: Page, *, result: bool) -> None:
        for warning in page.warnings:
            self.warn(warning)
        if page.warnings:
            self.print_line("")
        unhappy = page.headline.tone in (Tone.WARN, Tone.BAD)
        show = partial(self.show, urgent=unhappy, result=result)
        for line in head(page):
            show(line)
        if page.cause is not None:
            self.fail(page.cause)
        for hint in page.hints:
            self.hint(hint)
        for way in page.ways_on:
            show([(f"{way.label}: ", Tone.STRONG), (way.value, Tone.COMMAND)])
            if way.note:
                show([(f"  {way.note}", Tone.PLAIN)])

    def _facts(self, page: Page, *, result: bool) -> None:
        requested = result and self.form is not None
        whole = requested or (result and not self.shares_screen)
        begun, width = not requested, self._width(result=result)
        for section in page.tables_last:
            shown = [
                (each, is_urgent(item))
                for item in section.items
                for each in lay_out(item, whole, width)
            ]
            if shown and begun:
                self.show([], urgent=requested, result=result)
            begun |= bool(shown)
            for each, urgent in shown:
                self.show(each, urgent=urgent or requested, result=result)

    def items(self, *items: Item, urgent: bool = False) -> None:
        """Print parts of a page. Parts that report something bad are shown even with --quiet."""
        for item in items:
            for each in lay_out(item, width=self._width(result=False)):
                self.show(each, urgent=urgent or is_urgent(item))

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        """Print one line. If it is ``urgent``, it is shown even with --quiet."""
        if self.quiet and not urgent:
            return
        # A line is never cut, because an offset without its last digits would be another offset.
        for each in wrapped(line, self._width(result=result)):
            printed = Segments([*segments(each), Segment.line()])
            (self._paper if result else self.console).print(printed, soft_wrap=True, end="")

    def _width(self, *, result: bool) -> int | None:
        """Return the width of a screen; None if the output does not go to a screen."""
        stream, console = (self._stdout, self._paper) if result else (self._stderr, self.console)
        return console.width if _is_tty(stream) else None


class LogTerminal(Terminal):
    """A terminal that writes events to a log. ``logging_as_json`` makes it.

    Nobody can answer a question there. Where another terminal shows facts as text, this one gives
    them as fields of an event.
    """

    def __init__(self, logger: logging.Logger, form: Form | None, quiet: bool, debug: bool) -> None:
        super().__init__(form, quiet=quiet, debug=debug, stdin=io.StringIO())
        self._logger = logger

    @property
    def is_live(self) -> bool:
        return False

    def event(self, level: int, event: str, message: str, **fields: Any) -> None:
        """Write one line of the log. If the reader of the log is gone, nothing is raised."""
        if message:
            self._logger.log(level, {"event": event, "message": message, **fields})

    def _verdict(self, page: Page, *, result: bool) -> None:
        """Write a page as one event if its ``event`` has a name, and otherwise line by line."""
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
    """Make stderr a log until the block ends. With ``quiet``, it gets only warnings and errors."""
    stream = stderr or sys.stderr
    handler = _Handler(stream)
    handler.setFormatter(_Formatter())
    # This logger is not registered with logging, because a handler may call dictConfig(), which
    # switches off all registered loggers.
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


def _as_yaml(text: str) -> str:
    import yaml  # noqa: PLC0415 - slow to import, and rarely needed

    dump = partial(yaml.safe_dump, json.loads(text), sort_keys=False)
    made: str = dump(allow_unicode=True)
    return made if all(map(is_printable, made.split("\n"))) else dump()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a read at once.

    Python handles signals between system calls. If Ctrl-C came just before a read began, it would
    have no effect until the next line of input. So a regular alarm interrupts the read.
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, ALARM_S, ALARM_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # The stream is closed.
        return False
