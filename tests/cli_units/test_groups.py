"""Options in groups: declared once, spread over a command's signature, handed over parsed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from drainer.cli.groups import argument, command, only, option, options, without
from drainer.cli.options import Failing
from drainer.cli.values import parse_duration, parse_size
from drainer.view.terminal import Terminal


@options("Sizes")
class Sizes:
    least: int = option("--least", default="1KiB", parse=parse_size, help="The least.")
    most: int | None = option("--most", default=None, parse=parse_size, help="The most.")
    waits: tuple[float, ...] = option(
        "--wait",
        default=(),
        many=str,
        parse=lambda texts: tuple(map(parse_duration, texts)),
        help="Waits.",
    )


@options("Sizes")
class OtherSizes(Sizes):
    least: int = option("--least", default="2KiB", parse=parse_size, help="Another least.")


def run(function: Any, *words: str, code: int = 0, **environment: str) -> Result:
    app = typer.Typer()
    app.command()(command(function))
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200", "TERM": "dumb"} | environment)
    assert result.exit_code == code, result.output
    return result


def sizes(where: Annotated[Path, argument("WHERE", help="Where.")], given: Sizes) -> None:
    typer.echo(f"{where} {given.least} {given.most} {given.waits}")


def test_a_command_gets_its_groups_parsed() -> None:
    assert run(sizes, "here").stdout == "here 1024 None ()\n"
    given = ["here", "--most", "2MiB", "--wait", "1s", "--wait", "200ms"]
    assert run(sizes, *given).stdout == "here 1024 2097152 (1.0, 0.2)\n"


def test_an_option_can_be_a_variable_and_stands_in_the_panel_of_its_group() -> None:
    assert run(sizes, "here", DRAINER_LEAST="7").stdout.startswith("here 7 ")
    shown = run(sizes, "--help").stdout
    assert "DRAINER_LEAST" in shown
    assert "Sizes" in shown


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


def failing(given: Failing, terminal: Terminal) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "value"), [("retry-delay", "soon"), ("max-failures", "150%"), ("rate", "0")]
)
def test_what_makes_no_sense_is_told_with_the_name_of_the_option(name: str, value: str) -> None:
    answer = json.loads(run(failing, f"--{name}={value}", "-o", "json", code=2).stdout)
    assert answer["error"].startswith(f"--{name} '{value}'")
    assert answer["hint"]
