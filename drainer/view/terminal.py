"""The terminal of a command: its result goes to stdout, all else to stderr."""

from __future__ import annotations

import json
import logging
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment, Segments

from drainer.errors import EXIT_INTERRUPTED, EXIT_UNEXPECTED, DrainerError, Signalled
from drainer.host.os_errors import describe_os, is_of_machine, way_out
from drainer.text.escape import is_printable, json_text
from drainer.text.mask import describe
from drainer.text.secret import redact
from drainer.view.layout import Pieces, headline, is_urgent, lay_out, segments, sentence
from drainer.view.page import Item, Page, Tone

ALARM_S = 0.1

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


class Form(StrEnum):
    """The forms that a result on standard output can have for programs."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


class Terminal:
    """The output of a command.

    ``present`` and ``data`` write its result to stdout: as a page, or in the ``form`` that a
    program asked for. Messages go to stderr. ``quiet`` silences those of ``preview`` and
    ``print_line``, but never those of ``warn`` and ``fail``. ``debug`` adds tracebacks to ``fail``.

    Lines are never broken to fit the width, so that commands and paths can be copied whole. Texts
    may contain anything: nothing in them counts as markup, and a line stays one line. Colours need
    two terminals, or FORCE_COLOR.

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
        """Whether stderr can be redrawn in place. With FORCE_COLOR, a pipe still can't."""
        return _is_tty(self._stderr) and self.console.is_interactive

    @property
    def shares_screen(self) -> bool:
        """Whether stdout is a terminal, too, most likely the same one as stderr."""
        return _is_tty(self._stdout)

    @property
    def is_ready(self) -> bool:
        """Whether a write to stderr would go through now.

        It would not while the terminal is stopped (Ctrl-S), or while a pager does not read. A
        running drain leaves out a frame rather than wait for its reader.
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

    def fail(self, error: BaseException) -> None:
        """Print ``error: …`` and its hint.

        A stop that the user asked for is printed as such, not as an error. With ``debug``, a
        traceback is printed as well. For a DrainerError it is that of its cause, such as an error
        of the handler.
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
            return
        if self.debug and cause is not None:
            fields["traceback"] = redact("".join(traceback.format_exception(cause))).rstrip()
        self.event(logging.ERROR, "error", text, **fields)

    def event(self, level: int, event: str, message: str, **fields: Any) -> None:
        """Print a message. Of its ``fields``, a terminal shows only the traceback and the hint.

        ``level`` is one of ``logging``.
        """
        for line in fields.get("traceback", "").splitlines():
            self.show([(f"  | {line}", Tone.QUIET)], urgent=True)
        mark = _MARKS.get(event) or _MARKS[level]
        self.show([mark, (message, Tone.PLAIN)], urgent=level >= logging.WARNING)
        if hint := fields.get("hint"):
            self.hint(hint)

    def data(self, obj: Any) -> None:
        """Print the result as one object, if the user asked for JSON or YAML.

        On a terminal it is indented, because a person reads it there.
        """
        if not self.json:
            return
        text = json_text(obj, indent=self.shares_screen)
        self._stdout.write(_as_yaml(text) if self.form is Form.YAML else f"{text}\n")
        self._stdout.flush()

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
        """Print the result as a page: warnings, the verdict, how to go on, facts, and tables last.

        Every page has this order, so that what to do next never scrolls away behind a table.
        Warnings, the error and hints go to stderr. If a program reads the result, the verdict goes
        there as well: stdout then has the facts alone (-o table), or only what ``data`` gets. With
        --quiet, a page shows only what is wrong, and how to go on from there.
        """
        self._verdict(page, result=self.form is None)
        if not self.json:
            self._facts(page, result=True)

    def preview(self, page: Page) -> None:
        """Print a page on stderr, which the user reads before answering a question."""
        self._verdict(page, result=False)
        self._facts(page, result=False)

    def _verdict(self, page: Page, *, result: bool) -> None:
        for warning in page.warnings:
            self.warn(warning)
        if page.warnings:
            self.print_line("")
        unhappy = page.headline.tone in (Tone.WARN, Tone.BAD)
        show = partial(self.show, urgent=unhappy, result=result)
        show(headline(page))
        for line in page.details:
            show(sentence(line))
        if page.cause is not None:
            self.fail(page.cause)
        for hint in page.hints:
            self.hint(hint)
        for way in page.ways_on:
            show([(f"{way.label}: ", Tone.STRONG), (way.value, Tone.PLAIN)])
            if way.note:
                show([(f"  {way.note}", Tone.PLAIN)])

    def _facts(self, page: Page, *, result: bool) -> None:
        requested = result and self.form is not None
        whole = requested or (result and not self.shares_screen)
        begun = not requested
        for section in page.tables_last:
            shown = [
                (each, is_urgent(item)) for item in section.items for each in lay_out(item, whole)
            ]
            if shown and begun:
                self.show([], urgent=requested, result=result)
            begun |= bool(shown)
            for each, urgent in shown:
                self.show(each, urgent=urgent or requested, result=result)

    def items(self, *items: Item, urgent: bool = False) -> None:
        """Print parts of a page. Those that are bad are shown even with --quiet."""
        for item in items:
            for each in lay_out(item):
                self.show(each, urgent=urgent or is_urgent(item))

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        """Print a line that was laid out. If it is ``urgent``, it is shown even with --quiet."""
        if self.quiet and not urgent:
            return
        printed = Segments([*segments(line), Segment.line()])
        # A line is never cut: an offset that is cut short would be another offset.
        (self._paper if result else self.console).print(printed, soft_wrap=True, end="")


def _as_yaml(text: str) -> str:
    import yaml  # noqa: PLC0415 - slow to import, and rarely needed

    dump = partial(yaml.safe_dump, json.loads(text), sort_keys=False)
    made: str = dump(allow_unicode=True)
    return made if all(map(is_printable, made.split("\n"))) else dump()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a read at once.

    Python handles signals between two system calls. A Ctrl-C that comes just before a read begins
    would wait for the next line of input, so regular alarms interrupt the read.
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
