"""The end of a command: its exit code, and a message in place of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from enum import StrEnum

import typer

from drainer.errors import EXIT_INTERRUPTED, EXIT_REFUSED, DrainerError, Refused
from drainer.view.terminal import Form, Terminal, logging_as_json

_ADD_YES = "Check the preview above, then add --yes."
_STATUS = {EXIT_REFUSED: "refused", EXIT_INTERRUPTED: "interrupted"}


class LogFormat(StrEnum):
    """The formats in which a drain writes to standard error."""

    TEXT = "text"
    JSON = "json"


def open_terminal(
    log_format: LogFormat = LogFormat.TEXT,
    output: Form | None = None,
    *,
    quiet: bool = False,
    debug: bool = False,
) -> AbstractContextManager[Terminal]:
    """Open the terminal of a command. With ``LogFormat.JSON``, its stderr is a log of objects."""
    if log_format is LogFormat.TEXT:
        return nullcontext(Terminal(output, quiet=quiet, debug=debug))
    return logging_as_json(output, quiet=quiet, debug=debug)


@contextmanager
def reporting_errors(terminal: Terminal) -> Iterator[None]:
    """Turn an exception into a message and an exit code.

    If the command's result is an object for programs, so is the error. Standard output then holds
    nothing but that object, and whatever a handler prints goes to standard error.
    """
    try:
        with redirect_stdout(sys.stderr) if terminal.form else nullcontext():
            yield
    except typer.Exit:
        raise
    except (KeyboardInterrupt, Exception) as error:
        code = terminal.fail(error)
        status = _STATUS.get(code)
        terminal.data(
            {
                "status": status or "error",
                "exit_code": code,
                "error": str(error) or status or type(error).__name__,
                "hint": error.hint if isinstance(error, DrainerError) else None,
            }
        )
        raise typer.Exit(code) from None


def ensure_confirmed(
    terminal: Terminal, question: str, *, yes: bool, needs_yes: bool = False, hint: str = _ADD_YES
) -> None:
    """Ask a person to confirm, unless ``--yes`` was typed.

    With ``needs_yes``, nobody is asked: only ``--yes`` confirms the question.

    Raises Refused if the answer is no, or if there is no terminal to ask at. In the second case the
    error has this ``hint``.
    """
    if yes:
        return
    if needs_yes:
        raise Refused(f"{question} Only --yes confirms that", hint=_ADD_YES)
    answer = terminal.confirm(question)
    if answer is None:
        raise Refused("confirmation needs a terminal", hint=hint)
    if not answer:
        raise Refused("not confirmed; nothing was touched")
