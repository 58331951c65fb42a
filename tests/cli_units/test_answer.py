"""Ends of commands: one object on standard output with -o json, whatever happens in it."""

from __future__ import annotations

import io
import json
import sys

import pytest
import typer

from drainer.cli.answer import reporting_errors
from drainer.errors import Halted, Refused, UsageError
from drainer.view.terminal import Form, Terminal


@pytest.mark.parametrize(
    ("error", "status", "code", "text"),
    [
        (Refused("not safe", hint="wait"), "refused", 3, "not safe"),
        (UsageError("no such handler"), "error", 2, "no such handler"),
        (Halted("handle failed"), "error", 5, "handle failed"),
        (KeyboardInterrupt(), "interrupted", 4, "interrupted"),
        (ZeroDivisionError(), "error", 1, "ZeroDivisionError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_end_is_one_object(error: BaseException, status: str, code: int, text: str) -> None:
    out, err = io.StringIO(), io.StringIO()

    with (
        pytest.raises(typer.Exit) as caught,
        reporting_errors(Terminal(Form.JSON, stdout=out, stderr=err)),
    ):
        raise error

    assert caught.value.exit_code == code
    assert out.getvalue().count("\n") == 1
    answer = json.loads(out.getvalue())
    assert (answer["status"], answer["exit_code"], answer["error"]) == (status, code, text)
    mark = "■ " if isinstance(error, KeyboardInterrupt) else "error: "  # a stop on request
    assert mark in err.getvalue()


def test_what_a_handler_prints_is_kept_off_the_object(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(Form.JSON)
    with reporting_errors(terminal):
        print("from a handler")
        sys.stdout.write("and its library\n")
        terminal.data({"status": "done"})

    out, err = capsys.readouterr()
    assert json.loads(out) == {"status": "done", "exit_code": 0, "hint": None, "next": None}
    assert err == "from a handler\nand its library\n"
