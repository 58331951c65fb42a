"""``drainer config``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from drainer import wings
from drainer.cli.groups import Option, TableTerminal, argument, command, option
from drainer.cli.profile import DEFAULT, NEVER, path_of, profile_of
from drainer.errors import Refused, UsageError
from drainer.store.atomic_file import open_new
from drainer.view.page import Column, Line, Page, Table, Tone, section
from drainer.view.terminal import Terminal

app = typer.Typer(help="Keep option values in a profile.", no_args_is_help=True)
Named = Annotated[
    str | None,
    option("--profile", default=None, metavar="NAME|FILE", help="Profile. Default: default."),
]


@app.command()
@command
def init(profile: Named, terminal: Terminal) -> None:
    """Write a profile with every value commented out, and print its path.

    Examples:

    - `drainer config init`
    - `drainer config init --profile production`
    """
    path = path_of(profile or DEFAULT)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open_new(path)
    except FileExistsError:
        raise Refused(
            f"the profile {path} already exists", hint="Edit it, or name another."
        ) from None
    except OSError as error:
        raise Refused(
            f"can't write {path}: {error.strerror}", hint="Name another profile."
        ) from None
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(template(options_of("run")))
    _print(path, terminal)


@app.command()
@command
def show(
    of: Annotated[
        str, argument("[COMMAND]", default="run", help="Name of a command. Default: run.")
    ],
    profile: Named,
    terminal: TableTerminal,
) -> None:
    """Show the option values of a command, and where each comes from.

    Examples:

    - `drainer config show`
    - `drainer config show resume --profile production`
    """
    options = options_of(of)
    path, said = profile_of(profile, of, options)
    rows = []
    for name, each in sorted(options.items(), key=lambda item: item[1].word):
        if not each.word.startswith("--"):
            continue
        if (variable := each.variable) is not None and variable in os.environ:
            value = os.environ[variable]
            rows.append((each.word, _text(each, value.split() if each.many else value), variable))
        elif name in said:
            rows.append((each.word, _text(each, said[name]), str(path)))
        elif each.default not in (None, ..., (), False):
            value = getattr(each.default, "value", each.default)
            rows.append((each.word, _text(each, value), "default"))
    if terminal.json:
        terminal.data(
            {"command": of, "values": [dict(zip(_NAMES, row, strict=True)) for row in rows]}
        )
        return
    table = Table((Column("option"), Column("value"), Column("from")), tuple(rows), shown=len(rows))
    terminal.present(Page(Line(f"drainer {of}", Tone.STRONG), (section("Values", table),)))


_NAMES = ("option", "value", "from")


@app.command("path")
@command
def path_(profile: Named, terminal: Terminal) -> None:
    """Print the path of a profile, even if it does not exist.

    Example: `drainer config path --profile production`
    """
    _print(path_of(profile or DEFAULT), terminal)


def _print(path: Path, terminal: Terminal) -> None:
    if terminal.json:
        terminal.data({"profile": str(path)})
    else:
        typer.echo(path)


def options_of(name: str) -> Mapping[str, Option]:
    """Raises UsageError when there is no such command."""
    from drainer.cli.app import COMMANDS  # noqa: PLC0415 - which loads this

    place = {**COMMANDS, **wings.COMMANDS}.get(name)
    found: Any = None if place is None else wings.load(place)
    if not hasattr(found, "options"):
        raise UsageError(
            f"{name!r} is not a command with options", hint="Name one, such as run or resume."
        )
    options: Mapping[str, Option] = found.options
    return options


def template(options: Mapping[str, Option]) -> str:
    """A profile with each option of a command, and its default."""
    lines = [
        "# A drainer profile: option values, by option name without dashes.",
        "# Values here apply to all commands. A table such as [run] is for one command.",
        "",
    ]
    for each in sorted(options.values(), key=lambda option: option.word):
        name = each.word.lstrip("-")
        if not each.word.startswith("--") or name in NEVER:
            continue
        default = getattr(each.default, "value", each.default)
        value = '"…"' if default in (None, ..., ()) else _toml(default)
        lines += [f"# {each.help}", f"# {name} = {f'[{value}]' if each.many else value}", ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _text(option: Option, value: Any) -> str:
    values = value if isinstance(value, list | tuple) else [value]
    return ", ".join(option.without_secret(str(each)) for each in values)
