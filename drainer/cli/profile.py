"""``drainer.toml``: option values by name, below environment variables and flags.

The top level holds for every drain, and ``[profile.NAME]`` on top of it when ``--profile NAME`` is
given. A key is the long option's name without its dashes. A redrive's own group and plan, which are
not those of the drain, are ``redrive-group`` and ``redrive-plan``.

A file that lies in the current folder is read without being asked for, and that folder may be /tmp
or a repository from somewhere. So it must be the user's own or root's, and it can't say what runs
code, answers for the user, leaves work out, or decides where logins and data go (``NAMED_ONLY``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from drainer.errors import UsageError
from drainer.ownership import NotOwn, insist_own_folder, read_own

FILE = "drainer.toml"
RUNS_CODE = "runs code"
ANSWERS = "answers for you"
SENDS = "decides where logins and data go"
LEAVES_OUT = "decides what is never handled"
NAMED_ONLY = {  # options that only a file says that was named, and why
    "handler": RUNS_CODE,
    "master": RUNS_CODE,
    "spark-conf": RUNS_CODE,
    "archive": RUNS_CODE,
    "jmx": RUNS_CODE,
    "yes": ANSWERS,
    "accept-gap": ANSWERS,
    "shared-cluster": ANSWERS,
    "quiet": "hides what you are asked about",
    "-X": SENDS,
    "bootstrap-server": SENDS,
    "client-config": SENDS,
    "set": SENDS,
    "state": SENDS,
    "metrics-host": SENDS,
    "dead-letter-topic": SENDS,
    "from": LEAVES_OUT,
    "until": LEAVES_OUT,
    "skip": LEAVES_OUT,
    "skip-key": LEAVES_OUT,
    "rules": LEAVES_OUT,
    "no-rules": LEAVES_OUT,
    "limit-per-key": LEAVES_OUT,
    "over-limit": LEAVES_OUT,
    "on-failure": LEAVES_OUT,
    "order": "decides what keeps its order",
    "folder": "names processes to stop",
}
_NO_TEXT = {bool: "true or false", list: "a list", dict: "a table"}  # where text is wanted


def read_profile(path: Path | None, name: str | None) -> dict[str, Any]:
    """The values of a profile file; those of ``drainer.toml`` here when no path is given.

    Raises UsageError when a named file or profile is missing, the file is no TOML, a profile is
    no table, or a file that was not named has a value that only a named one may have; NotOwn when
    somebody else could have written it.
    """
    found = path or Path(FILE)
    try:
        is_there = found.is_file()
    except PermissionError as error:  # the folder can't be searched, as the one that sudo left
        if path is None and name is None:
            return {}
        raise UsageError(f"{found} can't be read: {error.strerror}") from None
    if not is_there:
        if path is None and name is None:
            return {}
        raise UsageError(
            f"there is no profile file {found}",
            hint="make it, or name another with --config",
        )
    try:
        if path is None:
            insist_own_folder(found.absolute().parent)
        content = tomllib.loads(read_own(found).decode())
    except NotOwn as error:
        raise NotOwn(
            f"options are not taken from {found}: {error}",
            hint="look at it; if it is what you want, make a copy and name that with --config",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{found} can't be read: {error}") from None
    profiles = _table(found, "profile", content.pop("profile", {}))
    if name is not None and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageError(f"{found} has no profile {name!r}", hint=f"it has: {known}")
    if name is not None:
        content |= _table(found, f"profile.{name}", profiles[name])
    for key in content if path is None else ():
        if key in NAMED_ONLY:
            raise UsageError(
                f"{found} says {key}, which {NAMED_ONLY[key]}: it was found here, and not named",
                hint=f"name the file if it is meant: drainer --config {found} …",
            )
    return content


def as_defaults(
    values: Mapping[str, Any], app: Any, source: Path = Path(FILE), wanted: str | None = None
) -> dict[str, Any]:
    """The values of a profile file, ``source``, as defaults of every command with such an option.

    Of those commands that are not ``wanted`` only as many are loaded as it takes to know the keys.
    Raises UsageError for a key that no command has, which is most likely a slip, and for a value
    that its option won't take.
    """
    defaults: dict[str, Any] = {}
    unknown = set(values)
    names = sorted(app.commands, key=lambda name: name != wanted) if values else []
    for top in names:
        if not unknown and wanted not in (None, top):
            break
        for path, command in _commands(app.commands[top], (top,)):
            known = {
                _key(word, parameter): parameter
                for parameter in command.params
                for word in parameter.opts
                if word.startswith("--") or word == "-X"
            }
            place = defaults
            for word in path:
                place = place.setdefault(word, {})
            for key in values.keys() & known.keys():
                unknown.discard(key)
                option, said = known[key], values[key]
                place[option.name] = _fitting(path, command, option, said, f"{source}: {key}")
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
    if path:
        yield path, command  # a group, too, may do something by itself
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*path, name))


def apply_profile(context: typer.Context, path: Path | None, name: str | None) -> str:
    """Makes the profile's values the defaults of whichever command follows, and says whose."""
    values = read_profile(path, name)
    source = path or Path(FILE)
    wanted = context.invoked_subcommand
    context.default_map = as_defaults(values, context.command, source, wanted)
    if not values:
        return ""
    profile = f" and its profile {name}" if name is not None else ""
    return f"options are taken from {source.absolute()}{profile}"
