"""The options of a command as they were declared, and the values that were given for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from drainer.errors import UsageError, raised_as
from drainer.model.option import Option

Declared: TypeAlias = Mapping[str, Option]  # The keys are the names of click's parameters.

_PROFILE = "in the profile"


def declared_by(command: Any) -> Declared:
    """Return the options of a command as they were declared, by the names of its parameters."""
    found: Declared = getattr(command.callback, "options", {})
    return found


def commands_of(group: Any) -> Mapping[str, Any]:
    """Return the commands of a group by name; none if this is a command and not a group."""
    found: Mapping[str, Any] = getattr(group, "commands", {})
    return found


def meant(name: str, options: Iterable[Option]) -> Option | None:
    """Return the option that a person probably meant by a misspelt name; None if none is close."""
    by_label = {each.label: each for each in options if not each.is_argument}
    return next(map(by_label.__getitem__, get_close_matches(name, by_label, 1)), None)


def pair_of(text: str) -> tuple[str, str | None]:
    """Return the name and the value of ``NAME=VALUE``; the value is None if there is no ``=``."""
    name, equals, value = text.partition("=")
    return name.strip().replace("_", "-"), value if equals else None


def value_of(context: Any, option: Option) -> tuple[str | None, Any]:
    """Return where the value of an option was given, and the value.

    The place is empty for the command line, and otherwise a phrase such as ``in the profile``. It
    is None if no value was given; the value is then the default.
    """
    if option.tune:
        return _tuned(context, option)
    value = context.params.get(option.parameter)
    source = context.get_parameter_source(option.parameter)
    if source is None or source.name == "DEFAULT":
        return None, value
    places = {"ENVIRONMENT": f"in {option.variable}", "DEFAULT_MAP": _PROFILE}
    return places.get(source.name, ""), value


def _tuned(context: Any, option: Option) -> tuple[str | None, Any]:
    typed = dict(map(pair_of, context.params.get("tune") or ()))
    found = {
        "": typed.get(option.label),
        f"in {option.variable}": os.environ.get(option.variable or "") or None,
        _PROFILE: context.lookup_default(option.parameter),
    }
    return next(
        ((place, value) for place, value in found.items() if value is not None), (None, None)
    )


def given_in(context: Any, options: Iterable[Option]) -> dict[str, Any]:
    """Return the values that were given, by the field of the option.

    Raises UsageError, which names the option, if a value can't be understood.
    """
    found = {}
    for option in options:
        place, value = value_of(context, option)
        if place is None:
            continue
        about = f"{option.word} {place}: " if place else f"{option.word} "
        with raised_as(UsageError, about="" if option.is_argument else about):
            found[option.field] = option.parse(value)
    return found


def is_given(context: Any, option: Option) -> bool:
    """Return whether a value was given for an option.

    This also works while typer reports an error, when it has not read all parameters.
    """
    known = (context.params.get(option.parameter), os.environ.get(option.variable or ""))
    return any(known) or context.lookup_default(option.parameter) is not None
