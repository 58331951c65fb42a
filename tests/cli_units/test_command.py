"""Commands of settings: options declared on fields, spread over a signature, handed over whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from drainer.cli.command import ChangesTo, command, only, without
from drainer.model.option import SIZE, Option, option
from drainer.view.terminal import Terminal

size = partial(option, panel="Sizes", kind=SIZE)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    least: int = size("The least.", default=1024)
    most: int | None = size("The most.", default=None, unset="no limit")
    waits: tuple[str, ...] = option("Waits.", (), name="--wait", panel="Sizes")

    def changed(self, given: Mapping[str, Any]) -> Sizes:
        return Sizes(**{"least": self.least} | dict(given))


@dataclass(frozen=True, kw_only=True)
class OtherSizes(Sizes):
    least: int = size("Another least.", default=2048)


def run(function: Any, *words: str, code: int = 0, **environment: str) -> Result:
    app = typer.Typer()
    app.command()(command(function))
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200", "TERM": "dumb"} | environment)
    assert result.exit_code == code, result.output
    return result


def sizes(
    where: Annotated[Path, Option("Where.", name="WHERE", is_argument=True)], given: Sizes
) -> None:
    typer.echo(f"{where} {given.least} {given.most} {given.waits}")


def test_a_command_gets_its_groups_parsed() -> None:
    assert run(sizes, "here").stdout == "here 1024 None ()\n"
    given = ["here", "--most", "2MiB", "--wait", "1s", "--wait", "200ms"]
    assert run(sizes, *given).stdout == "here 1024 2097152 ('1s', '200ms')\n"


def test_an_option_can_be_a_variable_and_stands_in_the_panel_of_its_group() -> None:
    assert run(sizes, "here", DRAINER_LEAST="7").stdout.startswith("here 7 ")
    assert "─ Sizes ─" in run(sizes, "--help").stdout


def test_a_group_may_declare_an_option_of_another_anew() -> None:
    def other(given: OtherSizes) -> None:
        typer.echo(f"{given.least} {given.most}")

    assert run(other, "--most", "3").stdout == "2048 3\n"
    shown = run(other, "--help").stdout
    assert "Another least." in shown
    assert "The least." not in shown


@pytest.mark.parametrize("metadata", [only("most", "waits"), without("least")])
def test_options_that_a_command_does_not_take_have_their_defaults(metadata: Any) -> None:
    def some(given: Sizes) -> None:
        typer.echo(f"{given.least} {given.most}")

    some.__annotations__["given"] = Annotated[Sizes, metadata]
    assert run(some, "--most", "3").stdout == "1024 3\n"
    assert "--least" not in run(some, "--help").stdout


def test_a_terminal_is_made_of_the_options_that_say_how_to_speak() -> None:
    def speak(terminal: Terminal) -> int:
        terminal.print_line("words")
        terminal.data({"json": terminal.json})
        return 6

    found = run(speak, "-o", "json", "--quiet", code=6)
    assert json.loads(found.stdout) == {"json": True}
    assert "words" not in found.stderr


def test_a_command_has_its_own_defaults() -> None:
    def other(given: Annotated[Sizes, Sizes(least=7 * 1024)]) -> None:
        typer.echo(f"{given.least} {given.most}")

    assert run(other, "--most", "3").stdout == "7168 3\n"
    assert "[default: 7KiB]" in run(other, "--help").stdout


def test_changes_are_what_was_given_and_nothing_else() -> None:
    def change(given: Annotated[Mapping[str, Any], ChangesTo(Sizes)]) -> None:
        typer.echo(str(given))

    assert run(change).stdout == "{}\n"
    assert run(change, "--least", "1KiB", DRAINER_MOST="2").stdout == "{'least': 1024, 'most': 2}\n"
    assert "Default: the plan's." in run(change, "--help").stdout
