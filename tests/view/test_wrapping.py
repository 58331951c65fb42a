"""Lines on a screen are broken between words, and commands so that they can be copied."""

from __future__ import annotations

import shlex

import pytest
from rich.cells import cell_len

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
    lines = lines_of("resume: ", RESUME, width=width)
    assert len(lines) > 1
    copied = "\n".join(lines).removeprefix("resume: ").replace("\\\n", "")
    assert shlex.split(copied) == shlex.split(RESUME)


@pytest.mark.parametrize("width", [20, 30, 60, 80])
def test_a_long_command_in_a_hint_can_be_copied_into_a_shell(width: int) -> None:
    lines = lines_of("hint: ", f"To go on, type `{RESUME}`, or wait for it.", width=width)
    _, copied, rest = "\n".join(lines).split("`")
    assert shlex.split(copied.replace("\\\n", "")) == shlex.split(RESUME)
    assert "\n" in copied
    assert "\\" not in rest


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
