"""A profile file: option values by name, below environment variables and flags.

Its top level holds for every command, and ``[profile.NAME]`` on top of it when ``--profile NAME``
is given. A key is the long option's name without its dashes. A redrive's own group and plan, which
are not those of the drain, are ``redrive-group`` and ``redrive-plan``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from drainer.errors import UsageError
from drainer.ownership import read_own


def apply_profile(context: typer.Context, path: Path | None, name: str | None) -> None:
    """Makes the file's values the defaults of whichever command follows.

    Raises UsageError, and NotOwn when another user could have written the file.
    """
    if path is not None:
        values = read_profile(path, name)
        context.default_map = as_defaults(values, context.command, path, context.invoked_subcommand)
    elif name is not None:
        raise UsageError(f"--profile {name} needs a file", hint="Name the file with --config.")


def read_profile(path: Path, name: str | None) -> dict[str, Any]:
    """The values of a file's top level and of one profile of it. Raises as ``apply_profile``."""
    try:
        content = tomllib.loads(read_own(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"the profile file {path} can't be read: {error}") from None
    profiles = content.pop("profile", {})
    profile = profiles.get(name, {}) if isinstance(profiles, dict) else None
    if not isinstance(profile, dict):
        raise UsageError(f"{path}: profile must be a table", hint="Write [profile.NAME].")
    if name is not None and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"{path} has no profile {name!r}", hint=f"It has: {known}.")
    return {**content, **profile}


def as_defaults(
    values: Mapping[str, Any], app: Any, source: Path, wanted: str | None = None
) -> dict[str, Any]:
    """The values of the file ``source`` as defaults of every command with such an option.

    Of those commands that are not ``wanted`` it loads only as many as it takes to know the keys.
    Raises UsageError for a key that no command has, which is most likely a slip, and for a value
    that its option does not take.
    """
    defaults: dict[str, Any] = {}
    unknown = set(values)
    for top in sorted(app.commands, key=lambda name: name != wanted):
        if not unknown and top != wanted:
            break
        for words, command in _commands(app.commands[top], (top,)):
            place = defaults
            for word in words:
                place = place.setdefault(word, {})
            for option in command.params:
                for key in values.keys() & _keys(option):
                    unknown.discard(key)
                    place[option.name] = _checked(command, option, values[key], f"{source}: {key}")
    if unknown:
        raise UsageError(
            f"{source}: no command has an option {min(unknown)!r}",
            hint="A key is a long option's name without its dashes, as in concurrency = 200.",
        )
    return defaults


def _keys(option: Any) -> set[str]:
    own = "redrive-" if str(option.envvar).startswith("DRAINER_REDRIVE_") else ""
    return {
        own + word.removeprefix("--")
        for word in option.opts
        if word.startswith("--") or word == "-X"
    }


def _checked(command: Any, option: Any, value: Any, place: str) -> Any:
    # As text, which the option takes as it would from the command line.
    values = value if isinstance(value, list) and option.multiple else [value]
    if not option.is_flag and (
        odd := [each for each in values if type(each) in (bool, list, dict)]
    ):
        raise UsageError(f"{place} can't be {odd[0]!r}", hint="Write a text or a number.")
    given: Any = value if option.is_flag else str(value)
    if option.multiple:
        given = [str(each) for each in values]
    try:
        option.process_value(typer.Context(command), given)
    except typer.BadParameter as error:
        raise UsageError(f"{place} can't be {value!r}: {error.message}") from None
    return given


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command  # a group, too, may do something by itself
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*words, name))
