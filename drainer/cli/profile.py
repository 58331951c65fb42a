"""Profiles: TOML files of the user, from which click takes the defaults of options."""

from __future__ import annotations

import os
import tomllib
from collections import UserDict
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from drainer.cli.declared import all_of, commands_of, declared_by, meant
from drainer.errors import Refused, UsageError
from drainer.host.trust import NotTrusted, read_own
from drainer.model.option import ONE_RUN

DEFAULT = "default"  # This profile is read unless another one is named.


def folder() -> Path:
    """Return the folder of the profiles that are known by their names."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return Path(base) / "drainer"


def use_profile(context: typer.Context, name: str | None) -> None:
    """Make a profile the default map of the program's context.

    ``name`` is the name of a profile or the path of a file. If it is None, the profile ``default``
    is used, which may be missing.

    Raises UsageError when a named profile is missing or is not TOML; Refused when another user may
    have written it.
    """
    is_file = name is not None and (name.endswith(".toml") or os.sep in name)
    path = Path(str(name)) if is_file else folder() / f"{name or DEFAULT}.toml"
    context.default_map = DefaultMap(path, context.command, _read(path, is_named=name is not None))


def _read(path: Path, *, is_named: bool) -> Mapping[str, Any]:
    try:
        return tomllib.loads(read_own(path).decode())
    except (FileNotFoundError, NotADirectoryError):
        if not is_named:
            return {}
        near = get_close_matches(path.stem, [each.stem for each in path.parent.glob("*.toml")], 1)
        hint = f"Write it, one option a line, or name one in {folder()}."
        hint = f"Did you mean {near[0]}?" if near else hint
        raise UsageError(f"the profile {path} does not exist", hint=hint) from None
    except NotTrusted as error:
        raise Refused(f"the profile {error}", hint=error.hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        if not is_named and isinstance(error, PermissionError):
            return {}  # Under sudo, for example, the home folder may be another user's.
        raise UsageError(
            f"can't read the profile {path}: {error}",
            hint='Write it in TOML, texts and times in quotes: deadline = "08:00".',
        ) from None


class DefaultMap(UserDict[str, Any]):
    """Values of a profile for one command, by the names of click's parameters.

    Values outside tables apply to every command that has the option. A table such as [dead] applies
    to the commands of a group, and [dead.list] to one of them. Click calls ``get`` with the name of
    a command to get the map of that command, so only the commands that were typed are loaded.

    ``where`` names the file and the table. Raises UsageError for a key that no command takes from a
    profile, and for a table without a command.
    """

    def __init__(
        self,
        file: Path,
        command: Any,
        table: Mapping[str, Any],
        words: tuple[str, ...] = (),
        outer: Mapping[str, tuple[Any, DefaultMap]] | None = None,
    ) -> None:
        super().__init__()
        self._command, self._table, self._words = command, table, words
        self.where = f"{file}: [{'.'.join(words)}]" if words else str(file)
        self._file = file
        keys = {each.label: each for each in declared_by(command).values() if each.is_key}
        for key, value in table.items():
            if isinstance(value, dict) and key not in commands_of(command):
                near = get_close_matches(key, commands_of(command), 1)
                text = f"{self.where}: there is no command for the table {key}"
                hint = f"Did you mean {near[0]}?" if near else "Remove it."
                if option := keys.get(key):
                    hint = f'It is an option, and takes a text or a list: "{option.typed_as}".'
                raise UsageError(text, hint=hint)
        own = {key: (each, self) for key, each in table.items() if not isinstance(each, dict)}
        # Each value is kept with the map whose table has it, so that an error can name that table.
        self._values = {**(outer or {}), **own}
        for key, (value, origin) in self._values.items():
            if option := keys.get(key):
                several = option.repeats and not isinstance(value, list)
                self.data[option.parameter] = _typed([value] if several else value)
            elif words and declared_by(command):
                origin.ensure_known(key)  # The key may be an option of another command.

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a parameter, or the map of a command below this one."""
        if (below := commands_of(self._command).get(key)) is None:
            return super().get(key, default)
        table = self._table.get(key)
        # For `set` and `plan`, this may be a value, because options have these names, too.
        table = table if isinstance(table, dict) else {}
        return DefaultMap(self._file, below, table, (*self._words, key), self._values)

    def place(self, key: str) -> str:
        """Return the file and the table that give a value."""
        return self._values[key][1].where if key in self._values else self.where

    def ensure_known(self, key: str) -> None:
        """Raise UsageError unless this command or one below it takes this key from a profile."""
        options = [each for one in all_of(self._command) for each in declared_by(one).values()]
        keys = [each for each in options if each.is_key]
        if any(each.label == key for each in keys):
            return
        if key in commands_of(self._command):
            raise UsageError(f"{self.where}: {key} must be a table", hint=f"Write it as [{key}].")
        text, hint = f"{self.where} sets {key}, which is not an option", "Remove it."
        if near := meant(key, keys):
            hint = f"Did you mean {near.label}?"
        for each in options:
            if each.label == key and not each.is_argument:
                why = each.risk or ONE_RUN
                text = f"{self.where} sets {key}, which must be typed each time: {why}"
                hint = f"Remove it from the profile, and type {each.word}."
        raise UsageError(text, hint=hint)


def _typed(value: Any) -> Any:
    """Return a value as a person would type it. Booleans stay as they are."""
    if isinstance(value, list):
        return [_typed(each) for each in value]
    return value if isinstance(value, bool) else str(value)
