"""Ends of commands: an exit code, and a message instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from enum import StrEnum

import typer

from drainer.errors import EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_UNEXPECTED, DrainerError, Refused
from drainer.view.log import logging_as_json
from drainer.view.terminal import Form, Terminal

_ADD_YES = "Check the preview above, then add --yes."
_STATUS = {EXIT_REFUSED: "refused", EXIT_INTERRUPTED: "interrupted"}


class LogFormat(StrEnum):
    """Formats of what a drain writes to standard error."""

    TEXT = "text"
    JSON = "json"


def open_terminal(
    log_format: LogFormat = LogFormat.TEXT,
    output: Form | None = None,
    *,
    quiet: bool = False,
    debug: bool = False,
) -> AbstractContextManager[Terminal]:
    """The terminal of a command, which can write a log instead."""
    if log_format is LogFormat.TEXT:
        return nullcontext(Terminal(output, quiet=quiet, debug=debug))
    return logging_as_json(output, quiet=quiet, debug=debug)


@contextmanager
def reporting_errors(terminal: Terminal) -> Iterator[None]:
    """Turn what is raised inside into a message and an exit code, and into an object where the
    result is one.

    A result that programs read has standard output alone: what a handler prints goes to stderr.
    """
    try:
        with redirect_stdout(sys.stderr) if terminal.form else nullcontext():
            yield
    except typer.Exit:
        raise
    except KeyboardInterrupt as error:
        _report(terminal, error, EXIT_INTERRUPTED, None)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except DrainerError as error:
        _report(terminal, error, error.exit_code, error.hint)
        raise typer.Exit(error.exit_code) from None
    except Exception as error:
        _report(terminal, error, EXIT_UNEXPECTED, None)
        raise typer.Exit(EXIT_UNEXPECTED) from None


def ensure_confirmed(
    terminal: Terminal, question: str, *, yes: bool, needs_yes: bool = False
) -> None:
    """Require confirmation, unless it was given with --yes; nothing else does where it is needed.

    Raises Refused when there is no terminal, or the answer is no.
    """
    if yes:
        return
    if needs_yes:
        raise Refused(f"{question} Only --yes confirms that", hint=_ADD_YES)
    answer = terminal.confirm(question)
    if answer is None:
        raise Refused("confirmation needs a terminal", hint=_ADD_YES)
    if not answer:
        raise Refused("not confirmed; nothing was touched")


def _report(terminal: Terminal, error: BaseException, code: int, hint: str | None) -> None:
    terminal.fail(error)
    terminal.data(
        {
            "status": _STATUS.get(code, "error"),
            "exit_code": code,
            "error": str(error) or _STATUS.get(code, type(error).__name__),
            "hint": hint,
        }
    )
