"""The terminal: words to stderr, data to stdout, questions answered from stdin."""

from __future__ import annotations

import json
import logging
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any, TextIO

from rich.console import Console, RenderableType

from drainer.errors import EXIT_INTERRUPTED, EXIT_UNEXPECTED, DrainerError, Signalled
from drainer.escape import is_printable, json_text
from drainer.loader import describe
from drainer.view.layout import headline, is_urgent, lay_out, sentence, words
from drainer.view.page import Curves, Field, Item, Page, Plot, Table, Tone

ALARM_S = 0.1

_BUG_HINT = (
    "this is a bug in drainer, not in your backlog; please report it with what --debug prints"
)

_MARKS: dict[int | str, tuple[str, str]] = {
    "hint": ("hint: ", Tone.HINT),
    "stopped": ("■ ", Tone.WARN),
    logging.INFO: ("", Tone.PLAIN),
    logging.WARNING: ("warning: ", Tone.WARN),
    logging.ERROR: ("error: ", Tone.BAD),
}


class Form(StrEnum):
    """How data is written to standard output."""

    JSON = "json"
    YAML = "yaml"
    TABLE = "table"


class Terminal:
    """Where a command speaks.

    Words go to stderr: ``say`` (silenced by ``quiet``), ``warn`` and ``fail`` (never silenced).
    Data goes to stdout, as JSON. Lines are never broken to fit the width, so that
    commands and paths in them copy whole. Nothing in a text is taken for markup, and a line stays
    one line of what can be seen, whatever is in it.

    ``json`` tells the views that data is wanted on stdout, and ``form`` how it is written; as a
    table it is a page's own tables. ``debug`` adds tracebacks to ``fail``.
    The streams are those of the process unless given: they take everything (view/streams.py).
    """

    def __init__(
        self,
        json: bool = False,
        quiet: bool = False,
        debug: bool = False,
        *,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        form: Form | None = None,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        self.json = json or form in (Form.JSON, Form.YAML)
        self.form = form
        self.quiet = quiet
        self.debug = debug
        self._stdin = stdin or sys.stdin
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        # Markup, emoji codes and highlighting are off: topics, sub-keys and errors hold [, ] and :.
        self.console = Console(
            file=self._stderr,
            width=width,
            height=height,
            markup=False,
            emoji=False,
            highlight=False,
        )

    @property
    def is_interactive(self) -> bool:
        """Whether there is a person to ask: stdin and stderr are both a terminal."""
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

    def say(self, text: str) -> None:
        """One line of words."""
        self.event(logging.INFO, "note", text)

    def warn(self, text: str) -> None:
        """``warning: …``; shown even when quiet."""
        self.event(logging.WARNING, "warning", text)

    def hint(self, text: str) -> None:
        """``hint: …``, the way out; shown even when quiet, since it follows an error."""
        self.event(logging.WARNING, "hint", text)

    def fail(self, error: BaseException) -> None:
        """``error: …`` and its hint; no traceback, unless debug asks for it.

        A stop that was asked for is no error.
        Of a DrainerError debug shows the traceback of its cause: what the handler raised, say.
        """
        cause: BaseException | None = None
        if isinstance(error, DrainerError):
            text, hint, code, cause = str(error), error.hint, error.exit_code, error.__cause__
        elif isinstance(error, KeyboardInterrupt):
            text, hint, code = "interrupted", None, EXIT_INTERRUPTED
        else:
            text, hint, code, cause = describe(error), _BUG_HINT, EXIT_UNEXPECTED, error
        fields: dict[str, Any] = {"error": type(error).__name__, "exit_code": code, "hint": hint}
        if isinstance(error, KeyboardInterrupt | Signalled):
            self.event(logging.WARNING, "stopped", text, **fields)
            return
        if self.debug and cause is not None:
            fields["traceback"] = "".join(traceback.format_exception(cause)).rstrip()
        self.event(logging.ERROR, "error", text, **fields)

    def event(self, level: int, event: str, message: str, **fields: Any) -> None:
        """A line at one of logging's levels. Of its fields a terminal shows traceback and hint."""
        for line in fields.get("traceback", "").splitlines():
            self.show(words((f"  | {line}", Tone.QUIET)), urgent=True)
        mark = _MARKS.get(event) or _MARKS[level]
        self.show(words(mark, message), urgent=level >= logging.WARNING)
        if hint := fields.get("hint"):
            self.hint(hint)

    def data(self, obj: Any) -> None:
        """One object on stdout; as JSON it is indented when a person is looking."""
        text = json_text(obj, indent=self.shares_screen)
        self._stdout.write(_as_yaml(text) if self.form is Form.YAML else f"{text}\n")
        self._stdout.flush()

    def confirm(self, question: str) -> bool | None:
        """Asks on stderr. None when there is no one to ask; the caller refuses then.

        Only ``y`` or ``yes`` is a yes. Ctrl-C and Ctrl-D are a no.
        """
        if not self.is_interactive:
            return None
        try:
            self.console.print(words((question, Tone.STRONG), " [y/N] "), end="", soft_wrap=True)
            with _interruptible():
                answer = self._stdin.readline()
        except KeyboardInterrupt:
            answer = ""
        if not answer.endswith("\n"):
            self.console.print()
        return answer.strip().lower() in ("y", "yes")

    def present(self, page: Page) -> None:
        """A page: warnings, the verdict, how to go on, facts, and tables last.

        This is the order of every page: what to do next never scrolls away behind a table.
        Quiet shows only what is wrong, and how to go on from there.
        """
        for warning in page.warnings:
            self.warn(warning)
        if page.warnings:
            self.say("")
        unhappy = page.headline.tone in (Tone.WARN, Tone.BAD)
        self.show(headline(page), urgent=unhappy)
        for line in page.details:
            self.show(sentence(line), urgent=unhappy)
        if page.cause is not None:
            self.fail(page.cause)
        for hint in page.hints:
            self.hint(hint)
        for way in page.ways_on:
            self.go_on(way, urgent=unhappy)
        apart = (Plot, Curves, Table) if self.form is Form.TABLE else (Plot, Curves)
        for section in page.tables_last:
            if shown := [item for item in section.items if not isinstance(item, apart)]:
                self.say("")
            self.items(*shown)
        if self.form is Form.TABLE:
            self._print_tables(page)

    def _print_tables(self, page: Page) -> None:
        """All rows, on stdout."""
        paper = Console(file=self._stdout, markup=False, emoji=False, no_color=True)
        for section in page.sections:
            for item in section.items:
                if isinstance(item, Table):
                    for each in lay_out(replace(item, shown=len(item.rows), caption="")):
                        paper.print(each, soft_wrap=True)

    def go_on(self, way: Field, *, urgent: bool = True) -> None:
        """A command to go on with, to be copied; ``urgent`` shows it even when quiet."""
        self.show(words((f"{way.label}: ", Tone.STRONG), way.value), urgent=urgent)
        if way.note:
            self.show(words(f"  {way.note}"), urgent=urgent)

    def items(self, *items: Item, urgent: bool = False) -> None:
        """Parts of a page, one below the other; what is bad is shown even when quiet."""
        for item in items:
            for each in lay_out(item):
                self.show(each, urgent=urgent or is_urgent(item))

    def show(self, renderable: RenderableType, *, urgent: bool = False) -> None:
        """Prints what was laid out; ``urgent`` shows it even when quiet."""
        if self.quiet and not urgent:
            return
        # A table is as wide as its figures: an offset cut short would be another offset.
        self.console.print(renderable, soft_wrap=True)


def _as_yaml(text: str) -> str:
    import yaml  # noqa: PLC0415 - it takes its time, and few ask for it

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
