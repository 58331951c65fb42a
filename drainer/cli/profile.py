"""``drainer.toml``: option values by name, below environment variables and flags.

The top level holds for every drain, and ``[profile.NAME]`` on top of it when ``--profile NAME`` is
given. A key is the long option's name without its dashes. A redrive's own group and plan, which are
not those of the drain, are ``redrive-group`` and ``redrive-plan``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from drainer.errors import UsageError

FILE = "drainer.toml"
_NO_TEXT = {bool: "true or false", list: "a list", dict: "a table"}  # where text is wanted


def read_profile(path: Path | None, name: str | None) -> dict[str, Any]:
    """The values of a profile file; those of ``drainer.toml`` here when no path is given.

    Raises UsageError when a named file or profile is missing, the file is no TOML, or a profile is
    no table.
    """
    found = path or Path(FILE)
    if not found.is_file():
        if path is None and name is None:
            return {}
        raise UsageError(
            f"there is no profile file {found}",
            hint="make it, or name another with --config",
        )
    try:
        content = tomllib.loads(found.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{found} can't be read: {error}") from None
    profiles = _table(found, "profile", content.pop("profile", {}))
    if name is None:
        return content
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"{found} has no profile {name!r}", hint=f"it has: {known}")
    return {**content, **_table(found, f"profile.{name}", profiles[name])}


def as_defaults(values: Mapping[str, Any], app: Any, source: Path = Path(FILE)) -> dict[str, Any]:
    """The values of a profile file, ``source``, as defaults of every command with such an option.

    Raises UsageError for a key that no command has, which is most likely a slip, and for a value
    that its option won't take.
    """
    defaults: dict[str, Any] = {}
    unknown = set(values)
    for path, command in _commands(app, ()):
        known = {
            _key(word, parameter): parameter
            for parameter in command.params
            for word in parameter.opts
            if word.startswith("--") or word == "-X"
        }
        place = defaults
        for word in path:
            place = place.setdefault(word, {})
        for key, value in values.items():
            if key in known:
                unknown.discard(key)
                option = known[key]
                place[option.name] = _fitting(path, command, option, value, f"{source}: {key}")
    if unknown:
        raise UsageError(
            f"{source}: no command has an option {sorted(unknown)[0]!r}",
            hint="a key is a long option's name without its dashes, as in concurrency = 200",
        )
    return defaults


def _key(word: str, option: Any) -> str:
    key = word.removeprefix("--")
    return f"redrive-{key}" if str(option.envvar).startswith("DRAINER_REDRIVE_") else key


def _fitting(words: Iterable[str], command: Any, option: Any, value: Any, place: str) -> Any:
    # As text, which the option takes as it would from the command line.
    hint = f"`drainer {' '.join(words)} --help` says what it may be"
    if option.is_flag:
        given: Any = value if isinstance(value, bool) else str(value)
    else:
        values = value if isinstance(value, list) and option.multiple else [value]
        for each in values:
            if type(each) in _NO_TEXT:
                raise UsageError(f"{place} can't be {_NO_TEXT[type(each)]}", hint=hint)
        texts = [str(each) for each in values]
        given = texts if option.multiple else texts[0]
    try:
        option.process_value(typer.Context(command), given)
    except typer.BadParameter as error:
        raise UsageError(f"{place} can't be {value!r}: {error.message}", hint=hint) from None
    return given


def _table(source: Path, name: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise UsageError(
            f"{source}: {name} is no table",
            hint="values for --profile NAME stand under [profile.NAME]",
        )
    return found


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    if path:
        yield path, command  # a group may do something by itself
    for name, child in children.items():
        yield from _commands(child, (*path, name))


def apply_profile(context: typer.Context, path: Path | None, name: str | None) -> None:
    """Makes the profile's values the defaults of whichever command follows."""
    values = read_profile(path, name)
    context.default_map = as_defaults(values, context.command, path or Path(FILE))
