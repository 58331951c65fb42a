"""Lines on a screen are broken between words, and commands so that they can be copied."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from rich.cells import cell_len

import drainer
from drainer.text.escape import command
from drainer.view.layout import plain, wrapped
from drainer.view.page import Column, Field, Page, Table, Tone, section
from drainer.view.page import Line as PageLine
from drainer.view.terminal import Terminal

from . import samples

RESUME = "drainer resume 'my orders.plan' --handler my_handlers.py:Reindex --set 'a=b c' -c 500"


def lines_of(*pieces: str, width: int = 30) -> list[str]:
    return [plain(line) for line in wrapped([(text, Tone.PLAIN) for text in pieces], width)]


def test_a_line_is_broken_between_words_and_further_lines_are_indented() -> None:
    assert lines_of("error: ", "the broker b1:9092 does not answer, and nothing was touched") == [
        "error: the broker b1:9092 does",
        "  not answer, and nothing was",
        "  touched",
    ]
    assert lines_of("  ✓ ", "漢字漢字漢字 漢字漢字漢字", width=28) == [
        "  ✓ 漢字漢字漢字",
        "    漢字漢字漢字",
    ]


def test_a_field_goes_on_below_its_value() -> None:
    first, second = lines_of("  limited by    ", "the handler: every worker is busy", width=42)
    assert (first, second) == ("  limited by    the handler: every worker", " " * 16 + "is busy")


@pytest.mark.parametrize("word", ["x" * 50, "orders/0/" + "7" * 40])
def test_a_word_that_is_longer_than_the_screen_stays_whole(word: str) -> None:
    assert any(word in line for line in lines_of(f"see {word} there"))


@pytest.mark.parametrize("width", [20, 30, 60, 80])
def test_a_broken_command_can_be_copied_into_a_shell(width: int) -> None:
    pieces = [("resume: ", Tone.STRONG), (RESUME, Tone.COMMAND)]
    lines = [plain(line) for line in wrapped(pieces, width)]
    assert len(lines) > 1
    copied = "\n".join(lines).removeprefix("resume: ").replace("\\\n", "")
    assert shlex.split(copied) == shlex.split(RESUME)


@pytest.mark.parametrize("width", [20, 30, 60, 80])
def test_a_long_command_in_a_hint_can_be_copied_into_a_shell(width: int) -> None:
    lines = lines_of("hint: ", f"To go on, type `{RESUME}`, or wait for it.", width=width)
    _, copied, rest = "\n".join(lines).split("`")
    assert shlex.split(copied.replace("\\\n", "")) == shlex.split(RESUME)
    assert "\n" in copied or width == 80
    assert "\\" not in rest


CALL = (
    "drainer.resume('/home/ana/my own drains/a b c/orders.plan.json', client=…, handler=Reindex,"
    """ settings=drainer.LocalSettings(options={'log': "it's `here` or there", 'n': '1 2'}))"""
)


@pytest.mark.parametrize("width", [20, 30, 60, 80])
def test_a_long_call_can_be_copied_into_python(width: int) -> None:
    whole = ast.dump(ast.parse(CALL.replace("…", "c")))
    after = "(in the program that defines Reindex), or wait"
    lines = lines_of("hint: ", f"To resume it: `{CALL}` {after}", width=width)
    copied = "\n".join(lines).split("`", 1)[1].rpartition("`")[0]
    pieces = [("resume: ", Tone.STRONG), (CALL, Tone.COMMAND)]
    alone = "\n".join(plain(line) for line in wrapped(pieces, width)).removeprefix("resume: ")
    for text in (copied, alone):
        assert "\n" in text
        assert ast.dump(ast.parse(text.replace("…", "c"))) == whole
    assert " ".join(lines[-1].split()).endswith("wait")


def test_any_command_in_a_sentence_stays_whole() -> None:
    for each in (
        "drainer.resume('my own plan.json', client=…, handler=Mine)",
        "/home/ana/work/.venv/bin/python3.11 -m pip install …",
        'export DRAINER_MASK="$(openssl rand -hex 16)" and="a b c d"',
    ):
        text = f"To go on from here, and for no other reason: `{each}`, or not"
        assert any(f"`{each}`" in line for line in lines_of("hint: ", text, width=len(each) + 6))


def test_a_command_in_a_sentence_begins_a_line_rather_than_go_on_in_another() -> None:
    stop = command("stop", "orders.search.plan.json")
    text = f"To see it, wait for it, or read on. To end it: `{stop}`, which prints how to resume."
    first, second, third = lines_of("hint: ", text, width=60)
    assert first == "hint: To see it, wait for it, or read on. To end it:"
    assert (second, third) == (f"  `{stop}`, which prints how", "  to resume.")
    long = command("resume", "it's my.plan", options=["--handler", "my_handlers.py:Reindex"])
    first, *copied = lines_of("hint: ", f"To resume it: `{long}`", width=40)
    assert first == "hint: To resume it:"
    assert shlex.split("\n".join(copied).strip(" `").replace("\\\n", "")) == shlex.split(long)


def test_a_sentence_that_begins_with_the_name_of_the_program_is_no_command() -> None:
    text = "drainer sets the plan of the drain aside, because nothing of it was handled"
    assert "\\" not in "".join(lines_of("warning: ", text))


def test_every_command_in_a_sentence_is_in_backquotes() -> None:
    verbs = "run|resume|ps|watch|set|pause|unpause|stop|plan|dead|redrive|sandbox"
    bare = re.compile(rf"(?<!`)\{{[\w.]*command\(|: (?:kill|export|drainer (?:{verbs})\b)")
    for path in Path(drainer.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                assert not bare.search(ast.unparse(node)), f"{path.name}:{node.lineno}"


def test_only_a_screen_breaks_lines() -> None:
    page = Page(PageLine("word " * 40), (section("", Field("label", "word " * 40)),))
    terminal, out, _ = samples.terminal(width=40)
    terminal.present(page)
    assert max(map(len, out.getvalue().splitlines())) > 200
    screen = samples.Screen()
    Terminal(stdout=screen, stderr=screen, width=40).present(page)
    assert len(screen.getvalue().splitlines()) > 10


def test_a_table_that_is_too_wide_is_divided_and_loses_nothing() -> None:
    row = tuple(f"{name}-{'v' * 12}" for name in "abcdefgh")
    table = Table((Column("plan"), *"bcdefg", Column("ends", wide=True)), (row,))
    screen = samples.Screen()
    Terminal(stdout=screen, stderr=screen, width=50).present(
        Page(PageLine("drains"), (section("", table),))
    )
    lines = samples.plain(screen).splitlines()
    assert max(map(cell_len, lines)) <= 50
    assert set(row) <= set(" ".join(lines).split())
    assert (
        sum(line.startswith("plan") for line in lines) == sum(row[0] in line for line in lines) > 1
    )
