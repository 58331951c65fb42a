"""``drainer config``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from drainer.cli.command import command
from drainer.cli.parameter import declared_by
from drainer.cli.profile import DEFAULT, command_of, path_of, read_profile
from drainer.errors import Refused, UsageError
from drainer.model.destinations import LOGINS
from drainer.model.option import Option
from drainer.secret import redact
from drainer.store.atomic_file import open_new
from drainer.view.page import Column, Line, Page, Table, Tone, section
from drainer.view.terminal import Terminal

app = typer.Typer(help="Keep option values in a profile.", no_args_is_help=True)
ProfileOption = Annotated[
    str | None,
    Option(
        "Name of a profile, or its file.",
        None,
        unset="default",
        envvar=None,
        metavar="NAME|FILE",
        proposes="profile",
    ),
]


@app.command()
@command
def init(context: typer.Context, profile: ProfileOption, terminal: Terminal) -> None:
    """Write a profile with the values of `drainer run` commented out, and print its path.

    Examples:

    - `drainer config init`
    - `drainer config init --profile production`
    """
    path = path_of(_name(context, profile) or DEFAULT)
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
        out.write(template(_options(context, "run")))
    terminal.data({"profile": str(path)})
    if not terminal.json:
        typer.echo(path)


@app.command()
@command
def show(
    context: typer.Context,
    words: Annotated[
        tuple[str, ...],
        Option(
            "A command, such as dead list.", (), unset="run", name="[COMMAND]...", is_argument=True
        ),
    ],
    profile: ProfileOption,
    terminal: Terminal,
) -> None:
    """Show the option values of a command, and where each comes from.

    Examples:

    - `drainer config show`
    - `drainer config show dead list --profile production`
    """
    words = words or ("run",)
    options = _options(context, *words)
    known = read_profile(_name(context, profile))
    given = known.values_for(context.find_root().command, *words)
    rows = []
    for name, each in sorted(options.items(), key=lambda item: item[1].word):
        if not each.word.startswith("--"):
            continue
        if (variable := each.variable) is not None and variable in os.environ:
            value = os.environ[variable]
            rows.append(
                (each.word, _text(each, value.split() if each.repeats else value), variable)
            )
        elif name in given:
            rows.append((each.word, _text(each, given[name]), str(known.path)))
        elif each.default_text is not None:
            rows.append((each.word, each.default_text, "default"))
    for file in [value for word, value, _ in rows if word == "--client-config"]:
        rows += _logins(file)
    values = [dict(zip(_NAMES, row, strict=True)) for row in rows]
    terminal.data({"command": " ".join(words), "values": values})
    table = Table((Column("option"), Column("value"), Column("from")), tuple(rows), shown=len(rows))
    terminal.present(
        Page(Line(f"drainer {' '.join(words)}", Tone.STRONG), (section("Values", table),))
    )


_NAMES = ("option", "value", "from")


def _logins(file: str) -> list[tuple[str, str, str]]:
    """Make rows for the logins of a client file and where they go, or one for its error."""
    from drainer.kafka.settings import ClientSettings  # noqa: PLC0415 - slow

    found = []
    try:
        settings = ClientSettings.load("of the command line", Path(file))
    except UsageError as error:
        return [("--client-config", str(error), file)]
    for prefix, kind in LOGINS.items():
        if names := settings.logins[prefix]:
            url = redact(settings.extras.get(f"{prefix}url", "that a command line names"))
            found.append((", ".join(names), f"for the {kind} {url}", file))
    return found


def _name(context: typer.Context, typed: str | None) -> str | None:
    # It may also be typed before the command, or come from a variable there.
    name: str | None = typed or context.find_root().params["profile"]
    return name


def _options(context: typer.Context, *words: str) -> Mapping[str, Option]:
    """Raises UsageError when there is no such command with options."""
    with suppress(KeyError):
        if options := declared_by(command_of(context.find_root().command, words)):
            return options
    raise UsageError(
        f"{' '.join(words)!r} is not a command with options",
        hint="Name one, such as run or dead list.",
    )


def template(options: Mapping[str, Option]) -> str:
    """A profile with each option of a command, and its default."""
    lines = [
        "# A drainer profile: option values, by option name without dashes.",
        "# Values here apply to all commands. A table such as [run] is for one command.",
        "",
    ]
    for each in sorted(options.values(), key=lambda option: option.word):
        if not each.word.startswith("--") or each.key is None:
            continue
        value = f'"{each.default_text or "…"}"'
        if each.is_flag:
            value = str(bool(each.default)).lower()
        lines += [f"# {each.text}", f"# {each.key} = {f'[{value}]' if each.repeats else value}", ""]
    return "\n".join(lines)


def _text(option: Option, value: Any) -> str:
    values = value if isinstance(value, list | tuple) else [value]
    return ", ".join(option.without_secret(str(each)) for each in values)
