"""Profiles: values for options, in a TOML file of the user's own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from drainer.cli.groups import Option
from drainer.errors import Refused, UsageError
from drainer.ownership import NotOwn, read_own

DEFAULT = "default"  # the profile that is taken unless another is named
NEVER = frozenset({"yes", "reason", "help-all"})  # said each time, by a person


def folder() -> Path:
    """Where profiles lie by their names."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "drainer"


def path_of(name: str) -> Path:
    """Of a profile by its name, or the file itself where it is one."""
    is_file = name.endswith(".toml") or os.sep in name
    return Path(name) if is_file else folder() / f"{name}.toml"


def read_profile(name: str | None) -> tuple[Path, Mapping[str, Any]] | None:
    """What a profile says; None without one by the name of DEFAULT.

    Raises UsageError when one that was named is not there, or is no TOML; Refused when somebody
    else may have written it.
    """
    path = path_of(name or DEFAULT)
    try:
        return path, tomllib.loads(read_own(path).decode())
    except FileNotFoundError:
        if name is None:
            return None
        raise UsageError(
            f"the profile {path} does not exist",
            hint=f"Create it: drainer config init --profile {name}",
        ) from None
    except NotOwn as error:
        raise Refused(f"the profile {error}", hint="Make it your own, or name another.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        if name is None and isinstance(error, PermissionError):
            return None  # of another user's home
        raise UsageError(
            f"can't read the profile {path}: {error}", hint="Write it in TOML."
        ) from None


def profile_of(
    name: str | None, command: str, options: Mapping[str, Option]
) -> tuple[Path | None, dict[str, Any]]:
    """Where a profile lies and what it says of one command: nothing where there is none.

    Raises as ``read_profile`` and ``values_for``.
    """
    read = read_profile(name)
    return (None, {}) if read is None else (read[0], values_for(read[1], command, options))


def values_for(
    profile: Mapping[str, Any], command: str, options: Mapping[str, Option]
) -> dict[str, Any]:
    """What it says of the options of one command, by the names of their parameters.

    What stands outside of tables is for all commands that have such an option. Raises UsageError
    for what the command's own table has too much, and for what no profile may say.
    """
    names = {option.word.lstrip("-"): name for name, option in options.items()}
    own = profile.get(command, {})
    if not isinstance(own, dict):
        raise UsageError(
            f"in the profile, {command} must be a table", hint=f"Write it as [{command}]."
        )
    found = {}
    for key, value in {**profile, **own}.items():
        if isinstance(value, dict) or (key not in names and key not in own):
            continue
        if key not in names:
            near = get_close_matches(key, names, 1)
            raise UsageError(
                f"the profile sets {key} for {command}, which has no such option",
                hint=f"Did you mean {near[0]}?" if near else f"See `drainer {command} --help-all`.",
            )
        if key in NEVER:
            raise UsageError(f"a profile can't set {key}", hint="Give it on the command line.")
        found[names[key]] = _typed(value)
    return found


def _typed(value: Any) -> Any:
    """As it would be typed."""
    if isinstance(value, list):
        return [_typed(each) for each in value]
    return value if isinstance(value, bool) else str(value)
