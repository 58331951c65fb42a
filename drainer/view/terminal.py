"""The terminal: a command's result to stdout, all else to stderr, answers from stdin."""

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
from drainer.escape import is_printable, json_text
from drainer.machine import describe_os, is_of_machine, way_out
from drainer.mask import describe
from drainer.secret import redact
from drainer.view.layout import Pieces, headline, is_urgent, lay_out, segments, sentence
from drainer.view.page import Item, Page, Tone

ALARM_S = 0.1

_BUG_HINT = (
    "this is a bug in drainer, not in your backlog; please report it with the output of --debug"
)

_MARKS: dict[int | str, tuple[str, Tone]] = {
    "hint": ("hint: ", Tone.HINT),
    "stopped": ("■ ", Tone.WARN),
    logging.INFO: ("", Tone.PLAIN),
    logging.WARNING: ("warning: ", Tone.WARN),
    logging.ERROR: ("error: ", Tone.BAD),
}


class Form(StrEnum):
    """Forms of a result on standard output, for programs."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


class Terminal:
    """Output of a command.

    ``present`` and ``data`` write its result to stdout: as a page, or with a ``form`` as what
    programs read. Messages go to stderr: ``preview``, ``print_line`` (both silenced by ``quiet``),
    ``warn`` and ``fail`` (never silenced). Lines are never broken to fit the width, so that
    commands and paths in them copy whole. Nothing in a text is taken for markup, and a line stays
    one line of what can be seen, whatever is in it. Colours need two terminals, or FORCE_COLOR.

    ``debug`` adds tracebacks to ``fail``.
    The streams are those of the process unless given: they take everything (view/streams.py).
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
        # Markup, emoji codes and highlighting are off: topics, sub-keys and errors hold [, ] and :.
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
        """Whether the result is one object."""
        return self.form in (Form.JSON, Form.YAML)

    @property
    def is_interactive(self) -> bool:
        """Whether a person can answer: stdin and stderr are both a terminal."""
        return _is_tty(self._stdin) and _is_tty(self._stderr)

    @property
    def keyboard(self) -> int | None:
        """The descriptor to read keys from; None without a terminal."""
        return self._stdin.fileno() if self.is_interactive else None

    @property
    def is_live(self) -> bool:
        """Whether stderr can be redrawn in place; FORCE_COLOR does not make a pipe a screen."""
        return _is_tty(self._stderr) and self.console.is_interactive

    @property
    def shares_screen(self) -> bool:
        """Whether stdout is a terminal as well, most likely the same one."""
        return _is_tty(self._stdout)

    @property
    def is_ready(self) -> bool:
        """Whether a write to stderr would go through now.

        It would not while the terminal is held (Ctrl-S) or a pager has stopped reading. A running
        drain leaves out a frame rather than wait for its audience.
        """
        try:
            poll = select.poll()
            poll.register(self._stderr.fileno(), select.POLLOUT)
            return bool(poll.poll(0))
        except (OSError, ValueError, AttributeError):
            return True  # no descriptor (tests, captured output), or no poll on this platform

    def print_line(self, text: str) -> None:
        """One line of words."""
        self.event(logging.INFO, "note", text)

    def warn(self, text: str) -> None:
        """``warning: …``; shown even when quiet."""
        self.event(logging.WARNING, "warning", text)

    def hint(self, text: str) -> None:
        """``hint: …``, the way out; shown even when quiet, since it follows an error."""
        self.event(logging.WARNING, "hint", text)

    def fail(self, error: BaseException) -> None:
        """``error: …`` and its hint; no traceback, unless debug requests it.

        A requested stop is not an error.
        Of a DrainerError debug shows the traceback of its cause, such as the handler's error.
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
        """A line at one of logging's levels. Of its fields a terminal shows traceback and hint."""
        for line in fields.get("traceback", "").splitlines():
            self.show([(f"  | {line}", Tone.QUIET)], urgent=True)
        mark = _MARKS.get(event) or _MARKS[level]
        self.show([mark, (message, Tone.PLAIN)], urgent=level >= logging.WARNING)
        if hint := fields.get("hint"):
            self.hint(hint)

    def data(self, obj: Any) -> None:
        """The result as one object, if that is its form; indented when a person is looking."""
        if not self.json:
            return
        text = json_text(obj, indent=self.shares_screen)
        self._stdout.write(_as_yaml(text) if self.form is Form.YAML else f"{text}\n")
        self._stdout.flush()

    def confirm(self, question: str) -> bool | None:
        """Confirm on stderr. None when no person can answer; the caller refuses then.

        Only ``y`` or ``yes`` is a yes. Ctrl-C and Ctrl-D are a no.
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
        """The result as a page: warnings, the verdict, how to go on, facts, and tables last.

        This is the order of every page: what to do next never scrolls away behind a table.
        Warnings, the error and hints go to stderr. With a form the verdict does as well: stdout
        has the facts alone as a table, and as an object only what ``data`` is given.
        Quiet shows only what is wrong, and how to go on from there.
        """
        self._verdict(page, result=self.form is None)
        if not self.json:
            self._facts(page, result=True)

    def preview(self, page: Page) -> None:
        """Print a page on stderr, to be read before a question is answered."""
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
        """Parts of a page, one below the other; what is bad is shown even when quiet."""
        for item in items:
            for each in lay_out(item):
                self.show(each, urgent=urgent or is_urgent(item))

    def show(self, line: Pieces, *, urgent: bool = False, result: bool = False) -> None:
        """Prints a line that was laid out; ``urgent`` shows it even when quiet."""
        if self.quiet and not urgent:
            return
        printed = Segments([*segments(line), Segment.line()])
        # A table is as wide as its figures: an offset cut short would be another offset.
        (self._paper if result else self.console).print(printed, soft_wrap=True, end="")


def _as_yaml(text: str) -> str:
    import yaml  # noqa: PLC0415 - it takes its time, and few need it

    dump = partial(yaml.safe_dump, json.loads(text), sort_keys=False)
    made: str = dump(allow_unicode=True)
    return made if all(map(is_printable, made.split("\n"))) else dump()


@contextmanager
def _interruptible() -> Iterator[None]:
    # A Ctrl-C that comes between Python's last look at signals and the system's read would wait
    # for the next line. Alarms end that read, and Python looks again.
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
    except ValueError:  # closed
        return False
