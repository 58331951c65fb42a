"""Profiles: values for options, in a TOML file of the user's own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any

from drainer.cli.parameter import declared_by
from drainer.errors import Refused, UsageError
from drainer.ownership import NotOwn, read_own

ONE_RUN = "it is meant for one run"
DEFAULT = "default"  # the profile that is taken unless another is named


def folder() -> Path:
    """The folder of profiles by their names."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return Path(base) / "drainer"


def path_of(name: str) -> Path:
    """The path of a profile: of that name, or the file itself if it names one."""
    is_file = name.endswith(".toml") or os.sep in name
    return Path(name) if is_file else folder() / f"{name}.toml"


def read_profile(name: str | None) -> Profile:
    """The profile of this name; without a name that of DEFAULT, which is empty if it is missing.

    Raises UsageError when a named one is missing or is not TOML; Refused when another user
    may have written it.
    """
    path = path_of(name or DEFAULT)
    try:
        return Profile(path, tomllib.loads(read_own(path).decode()))
    except (FileNotFoundError, NotADirectoryError):
        if name is None:
            return Profile(path, {})
        raise UsageError(
            f"the profile {path} does not exist",
            hint=f"Create it: drainer config init --profile {name}",
        ) from None
    except NotOwn as error:
        raise Refused(f"the profile {error}", hint="Make it your own, or name another.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        if name is None and isinstance(error, PermissionError):
            return Profile(path, {})  # of another user's home
        raise UsageError(
            f"can't read the profile {path}: {error}", hint="Write it in TOML."
        ) from None


@dataclass(frozen=True, slots=True)
class Profile:
    """Values by key: outside tables for all commands, in a table such as [dead.list] for one."""

    path: Path
    values: Mapping[str, Any]

    def values_for(self, root: Any, *words: str) -> dict[str, Any]:
        """The values for a command by its parameters; ``words`` lead to it from ``root``.

        Raises UsageError for a key that no command takes from a profile, and for a table without a
        command.
        """
        keys = {each.key: name for name, each in declared_by(command_of(root, words)).items()}
        found, table = {}, self.values
        for depth, word in enumerate((*words, "")):
            for key, value in table.items():
                if key in keys and not isinstance(value, dict):
                    found[keys[key]] = _typed(value)
                else:
                    self._ensure_known(key, value, root, words[:depth])
            below = table.get(word)
            table = below if isinstance(below, dict) else {}
        return found

    def default_map(self, root: Any, *words: str) -> dict[str, Any]:
        """The same with the values for the commands of a group, each by its name."""
        names = commands_of(command_of(root, words))
        below = {name: self.default_map(root, *words, name) for name in names}
        return self.values_for(root, *words) | below

    def _ensure_known(self, key: str, value: Any, root: Any, words: tuple[str, ...]) -> None:
        where = f"{self.path}: [{'.'.join(words)}]" if words else str(self.path)
        command = command_of(root, words)
        commands = commands_of(command)
        if isinstance(value, dict):
            if key not in commands:
                raise _unknown(f"{where}: there is no command for the table {key}", key, commands)
            return
        declared = [each for one in _all_of(command) for each in declared_by(one).values()]
        known = {each.key for each in declared if each.key is not None}
        if key in known:
            return
        for each in declared:
            if each.key is None and each.word == f"--{key}":
                raise UsageError(
                    f"{where} sets {key}, which must be typed each time: {each.risk or ONE_RUN}",
                    hint=f"Remove it from the profile, and type {each.word}.",
                )
        if key in commands:
            raise UsageError(f"{where}: {key} must be a table", hint=f"Write it as [{key}].")
        raise _unknown(f"{where} sets {key}, which is not an option", key, known)


def _unknown(text: str, key: str, known: Iterable[str]) -> UsageError:
    near = get_close_matches(key, known, 1)
    return UsageError(text, hint=f"Did you mean {near[0]}?" if near else "Remove it.")


def command_of(root: Any, words: Sequence[str]) -> Any:
    """Raises KeyError when ``words`` lead to no command."""
    return reduce(lambda group, word: commands_of(group)[word], words, root)


def commands_of(group: Any) -> Mapping[str, Any]:
    """The commands of a group by name; none of a command that is not a group."""
    found: Mapping[str, Any] = getattr(group, "commands", {})
    return found


def _all_of(command: Any) -> Iterator[Any]:
    yield command
    for each in commands_of(command).values():
        yield from _all_of(each)


def _typed(value: Any) -> Any:
    """The value as it would be typed."""
    if isinstance(value, list):
        return [_typed(each) for each in value]
    return value if isinstance(value, bool) else str(value)
