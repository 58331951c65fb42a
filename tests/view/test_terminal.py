from __future__ import annotations

import ctypes
import io
import json
import os
import pty
import termios
import threading
from collections import deque
from collections.abc import Callable
from operator import call

import pytest
import yaml

from drainer.errors import HandleFailed, Refused
from drainer.view.page import Column, Field, Line, Page, Table, Tone, bars, section
from drainer.view.terminal import Form, Terminal

from . import samples


class Answers(samples.Screen):
    """A person who types; ``answer`` None is Ctrl-C."""

    def __init__(self, answer: str | None) -> None:
        super().__init__(answer or "")
        self._interrupted = answer is None

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        if self._interrupted:
            raise KeyboardInterrupt
        return super().readline(size)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_what_looks_like_markup_is_shown_as_it_is_and_control_characters_are_spelled_out() -> None:
    terminal, _, err = samples.terminal()
    nasty = "orders [bold]x[/bold] [/] [link=x] :smile: \\[a]"
    terminal.print_line(nasty)
    terminal.warn(nasty)
    terminal.fail(Refused(nasty, hint=nasty))
    terminal.items(Table(("a [b]", Column("")), ((nasty, ""),)))
    assert err.getvalue().count(nasty) == 5
    assert "a [b]" in err.getvalue()
    terminal.fail(Refused("bad \x1b[2J\r\x07 topic"))
    assert err.getvalue().endswith("error: bad \\x1b[2J\\r\\x07 topic\n")


def test_an_error_has_its_hint_and_no_traceback_unless_debug_is_on() -> None:
    refused = raised(Refused("group g has 2 live members", hint="stop them"), OSError("x"))
    failed = raised(HandleFailed("orders/0 offset 7"), raised(ValueError("in [handle]")))
    for debug in (False, True):
        terminal, _, err = samples.terminal(debug=debug)
        terminal.fail(refused)
        assert err.getvalue().endswith("error: group g has 2 live members\nhint: stop them\n")
        terminal.fail(failed)
        terminal.fail(raised(RuntimeError("two\nlines")))
        assert "error: RuntimeError: two\nhint: this is a bug" in err.getvalue()
        assert ("Traceback" in err.getvalue()) is debug
        assert ("ValueError: in [handle]" in err.getvalue()) is debug
        terminal.fail(AssertionError())
        assert "\nerror: AssertionError\n" in err.getvalue()


def test_quiet_keeps_warnings_and_errors() -> None:
    terminal, _, err = samples.terminal(quiet=True)
    terminal.print_line("hello")
    terminal.warn("careful")
    terminal.fail(Refused("no"))
    assert err.getvalue() == "warning: careful\nerror: no\n"


def test_data_is_one_object_on_stdout_indented_for_a_person() -> None:
    terminal, out, err = samples.terminal(Form.JSON)
    terminal.print_line("words")
    terminal.data({"a": "[b]", "n": 1})
    assert out.getvalue().startswith('{"status":"ok","exit_code":0,"hint":null,"next":null,')
    assert out.getvalue().endswith(',"a":"[b]","n":1}\n')
    assert err.getvalue() == "words\n"
    screen = samples.Screen()
    Terminal(Form.JSON, stdout=screen, stderr=io.StringIO()).data({"a": 1})
    assert screen.getvalue().endswith(',\n  "a": 1\n}\n')
    terminal, out, _ = samples.terminal()
    terminal.data({"a": 1})
    assert out.getvalue() == "", "no object was requested"


def test_as_yaml_data_is_the_same_object_and_steers_no_terminal() -> None:
    out = io.StringIO()
    terminal = Terminal(Form.YAML, stdout=out, stderr=io.StringIO())
    terminal.data({"name": "Zoë", "n": [1, 2]})
    assert terminal.json
    assert (
        out.getvalue()
        == "status: ok\nexit_code: 0\nhint: null\nnext: null\nname: Zoë\nn:\n- 1\n- 2\n"
    )
    out.truncate(out.seek(0))
    terminal.data({"name": "\x1b[2J\u202e"})
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()
    assert yaml.safe_load(out.getvalue())["name"] == "\x1b[2J\u202e"


KEYS = Table((Column("sub-key"), "updates"), tuple((f"d-{n}", "7") for n in range(100)), shown=3)
FOUND = Page(
    Line("100 sub-keys", Tone.WARN),
    (section("Keys", KEYS), section("", Field("lag", "7"))),
    warnings=("careful",),
    cause=Refused("no"),
    hints=("look",),
    ways_on=(Field("resume", "drainer resume it"),),
)
TO_STDERR = ["warning: careful", "", "error: no", "hint: look"]


def test_a_result_goes_to_stdout_and_messages_to_stderr() -> None:
    """With a table the facts alone are on stdout, with an object nothing; a preview never is."""
    for form, head in ((None, ["100 sub-keys", "resume: drainer resume it", ""]), (Form.TABLE, [])):
        terminal, out, err = samples.terminal(form)
        terminal.present(FOUND)
        lines = out.getvalue().splitlines()
        assert lines[: len(head)] == head
        assert [line.split() for line in lines[len(head) + 3 :]] == [*map(list, KEYS.rows)]
        assert err.getvalue().splitlines()[:2] == TO_STDERR[:2]
        assert ("100 sub-keys\n" in err.getvalue()) is bool(form)
    terminal, out, err = samples.terminal(Form.JSON)
    terminal.present(FOUND)
    assert "100 sub-keys\n" in err.getvalue()
    assert "lag" not in err.getvalue()
    terminal.preview(FOUND)
    assert out.getvalue() == ""
    ends = "and 97 more\n\nwarning: careful\n"
    assert err.getvalue().endswith(ends), (
        "a question follows, and the first lines have scrolled off"
    )
    assert err.getvalue().count("warning: ") == 2, "each page has it once"


def test_only_a_screen_is_spared_rows() -> None:
    for form, end in ((None, "and 97 more\n"), (Form.TABLE, "d-99           7\n")):
        screen = samples.Screen()
        Terminal(form, stdout=screen, stderr=io.StringIO()).present(FOUND)
        assert screen.getvalue().endswith(end), screen.getvalue()[-30:]


def test_long_lines_and_figures_are_never_broken_or_cut() -> None:
    terminal, _, err = samples.terminal(width=20)
    path = "/var/lib/" + "x" * 200
    terminal.print_line(f"drainer resume {path}")
    terminal.items(Table(("partition", "committed"), (("1" * 30, "9" * 30),)))
    assert f"drainer resume {path}\n" in err.getvalue()
    assert "1" * 30 + "  " + "9" * 30 in err.getvalue()


def test_the_longest_cell_of_the_last_column_pads_no_other_row() -> None:
    terminal, _, err = samples.terminal()
    terminal.items(Table(("n", Column("what")), (("1", "a"), ("20", "b" * 400)), total=("21", "")))
    assert err.getvalue() == f" n  what\n 1  a\n20  {'b' * 400}\n21\n"


def test_bars_are_as_long_as_their_values() -> None:
    terminal, _, err = samples.terminal(width=80)
    rows = (("partition order", 14 * 86400.0, "14 days"), ("sub-key order", 9.0, "9 s"))
    terminal.items(bars("one key [50 operations]", "", rows), bars("none", "", ()))
    heading, longest, shortest, *_ = err.getvalue().splitlines()
    assert heading.split() == ["one", "key", "[50", "operations]"]
    assert longest.count("█") > 20
    assert shortest.split() == ["sub-key", "order", "▏", "9", "s"]


def test_without_a_terminal_no_one_confirms() -> None:
    terminal, _, err = samples.terminal()
    assert terminal.confirm("sure?") is None
    piped = Terminal(stdin=io.StringIO("y\n"), stdout=io.StringIO(), stderr=samples.Screen())
    assert piped.confirm("sure?") is None
    assert err.getvalue() == ""


def test_only_a_yes_is_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    answers: dict[str | None, bool] = {"y\n": True, "YES \n": True}
    answers |= dict.fromkeys(("\n", "n\n", "yy\n", "", None), False)
    for typed, answer in answers.items():
        out, err = io.StringIO(), samples.Screen()
        terminal = Terminal(stdin=Answers(typed), stdout=out, stderr=err)
        assert terminal.is_interactive
        assert terminal.confirm("drain [orders]?") is answer
        assert "drain [orders]?" in err.getvalue()
        assert "[y/N]" in err.getvalue()
        assert out.getvalue() == ""


def test_a_ctrl_c_just_before_the_read_begins_is_an_answer() -> None:
    """Nothing of Python runs between the signal and the system's read: both are called from C."""
    emulator, program = pty.openpty()
    late = threading.Timer(30, os.write, (emulator, b"y\n"))
    late.start()
    with os.fdopen(program) as typed:

        class Interrupted(Answers):
            def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
                steps: list[Callable[[], object]]
                steps = [ctypes.pythonapi.PyErr_SetInterrupt, typed.readline]
                return str(deque(map(call, steps), maxlen=1)[0])

        terminal = Terminal(stdin=Interrupted(""), stderr=samples.Screen())
        assert terminal.confirm("drain?") is False
    assert late.is_alive(), "it took no more than the Ctrl-C"
    late.cancel()
    os.close(emulator)


def test_no_color_is_respected_and_a_pipe_or_a_dumb_terminal_is_not_redrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coloured, plain = samples.Screen(), samples.Screen()
    Terminal(stdout=coloured, stderr=coloured).warn("x")
    monkeypatch.setenv("NO_COLOR", "1")
    Terminal(stdout=plain, stderr=plain).warn("x")
    assert "\x1b[1;33m" in coloured.getvalue()
    assert "33m" not in plain.getvalue()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not Terminal(stderr=io.StringIO()).is_live
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal(stderr=samples.Screen()).is_live


def test_colours_need_two_terminals_unless_they_are_forced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def written(out: io.StringIO, err: io.StringIO) -> str:
        Terminal(stdout=out, stderr=err).present(FOUND)
        return out.getvalue() + err.getvalue()

    screen, pipe = samples.Screen, io.StringIO
    assert "\x1b[1;33m" in written(screen(), screen())
    for out, err in ((screen(), pipe()), (pipe(), screen()), (pipe(), pipe())):
        assert "\x1b" not in written(out, err)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;33m" in written(pipe(), pipe())


def test_a_held_terminal_is_not_ready() -> None:
    emulator, program = pty.openpty()
    with os.fdopen(program, "w") as stderr:
        terminal = Terminal(stderr=stderr)
        assert terminal.is_ready
        termios.tcflow(program, termios.TCOOFF)  # what Ctrl-S does
        assert not terminal.is_ready
        termios.tcflow(program, termios.TCOON)
        assert terminal.is_ready
    os.close(emulator)


def test_every_object_for_programs_begins_with_four_fields() -> None:
    terminal, out, _ = samples.terminal(Form.JSON)
    way = Field("resume", "drainer resume 'my plan.json'")
    page = Page(Line("halted"), (), hints=("Fix it.",), ways_on=(way,))
    terminal.data({"drains": []})
    terminal.data({"exit_code": 7, "status": "refused"}, page)
    terminal.data({"hint": "See `drainer stop PLAN` or `drainer plan undo x.json`."})
    terminal.data({"hint": "Start one with `drainer run`.", "next": "own"}, page)
    found = list(map(json.loads, out.getvalue().splitlines()))
    assert all([*each][:4] == ["status", "exit_code", "hint", "next"] for each in found)
    assert [[*each.values()][:4] for each in found] == [
        ["ok", 0, None, None],
        ["refused", 7, "Fix it.", "drainer resume 'my plan.json'"],
        ["ok", 0, found[2]["hint"], "drainer plan undo x.json"],
        ["ok", 0, found[3]["hint"], "own"],
    ]
