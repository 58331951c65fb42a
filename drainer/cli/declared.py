"""The options of a command as they were declared, and the values that were given for them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeAlias

from drainer.errors import UsageError, raised_as
from drainer.model.option import PREFIX, Option
from drainer.text import escape

Declared: TypeAlias = Mapping[str, Option]  # The keys are the names of click's parameters.

# Variables that drainer reads, but that give no option of a command its value.
_OTHERS = {
    f"{PREFIX}_{name}"
    for name in ("MASK_KEYS", "PROFILE", "READ_ONLY", "REQUIRE_REASON", "SANDBOX", "STATUS")
}
# Kubernetes gives every pod such variables of a service that is named drainer.
_OF_A_SERVICE = re.compile(rf"{PREFIX}_(\w+_)?(PORT|SERVICE)(_.*)?")


def declared_by(command: Any) -> Declared:
    """Return the options of a command as they were declared, by the names of its parameters."""
    found: Declared = getattr(command.callback, "options", {})
    return found


def commands_of(group: Any) -> Mapping[str, Any]:
    """Return the commands of a group by name; none if this is a command and not a group."""
    found: Mapping[str, Any] = getattr(group, "commands", {})
    return found


def all_of(command: Any) -> Iterator[Any]:
    """Yield a command, and all commands below it. It imports all of them."""
    yield command
    for each in commands_of(command).values():
        yield from all_of(each)


def unknown_variables(context: Any) -> str:
    """Name the variables of the environment that look like drainer's, but that no command reads.

    Each has the nearest name after it. The text is empty if there are none.
    """

    given = {n for n in os.environ if n.startswith(f"{PREFIX}_") and not _OF_A_SERVICE.fullmatch(n)}
    known, root = set(_OTHERS), context.find_root().command
    typed: dict[str, str] = {}  # What a person types for the options that have no variable.
    # Usually, no other command has to be imported, or only `run`. Each is looked up in its turn.
    usual = (commands_of(root).get(name, root) for name in ("run",))
    for command in chain([context.command], usual, all_of(root)):
        options = declared_by(command).values()
        known |= {each.variable or "" for each in options}
        typed |= {each.name: each.word for each in options if each.variable is None}
        if given <= known:
            return ""

    def described(name: str) -> str:
        if word := typed.get(f"--{name.removeprefix(PREFIX)[1:].replace('_', '-').lower()}"):
            return f"{name} ({word} has no variable)"
        near = get_close_matches(name, known, 1, 0.8)
        return f"{name} (did you mean {near[0]}?)" if near else name

    return ", ".join(map(described, sorted(given - known)))


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

    The place is empty for the command line, and otherwise a phrase such as ``in DRAINER_RATE``. It
    is None if no value was given; the value is then the default.
    """
    if option.tune:
        return _tuned(context, option)
    value = context.params.get(option.parameter)
    source = context.get_parameter_source(option.parameter)
    if source is None or source.name == "DEFAULT":
        return None, value
    places = {"ENVIRONMENT": f"in {option.variable}", "DEFAULT_MAP": _in_profile(context, option)}
    return places.get(source.name, ""), value


def _in_profile(context: Any, option: Option) -> str:
    return "" if context.default_map is None else f"in {context.default_map.place(option.label)}"


def _tuned(context: Any, option: Option) -> tuple[str | None, Any]:
    typed = dict(map(pair_of, context.params.get("tune") or ()))
    found = (
        ("", typed.get(option.label)),
        (f"in {option.variable}", os.environ.get(option.variable or "") or None),
        (_in_profile(context, option), context.lookup_default(option.parameter)),
    )
    return next(((place, value) for place, value in found if value is not None), (None, None))


def given_in(context: Any, options: Iterable[Option]) -> dict[str, Any]:
    """Return the values that were given, by the field of the option.

    Raises UsageError, which names the options, if values can't be understood. The commands in its
    hint name the plan that was given before them.
    """
    found: dict[str, Any] = {}
    errors: list[UsageError] = []
    for option in options:
        place, value = value_of(context, option)
        if place is None:
            continue
        is_typed_so = place in ("", f"in {option.variable}")  # A profile has its label as the key.
        name = option.word if is_typed_so else option.label
        about = f"{name} {place}: " if place else f"{name} "
        try:
            with raised_as(UsageError, about="" if option.is_argument else about):
                found[option.field] = option.parse(value)
        except UsageError as error:
            if error.hint is not None and (plan := found.get("plan")) is not None:
                error.hint = error.hint.replace(" PLAN", f" {shlex.quote(str(plan))}")
            errors.append(error)
    if len(errors) > 1:
        hints = " ".join(each.hint for each in errors if each.hint)
        raise UsageError("; ".join(map(str, errors)), hint=hints)
    if errors:
        raise errors[0]
    return found


def places_of(context: Any, options: Iterable[Option], text: str) -> str:
    """Return sentences that say where the options in a text were given, if they were not typed.

    They are for errors that come up only after all values were understood.
    """
    found = []
    for option in options:
        if re.search(rf"(?<![\w-]){re.escape(option.word)}(?![\w-])", text):
            place, _ = value_of(context, option)
            if place and place not in text:
                found.append(f" {option.label} is given {place}.")
    return "".join(found)


def typed_words(
    context: Any,
    options: Iterable[Option],
    shown: Callable[[Option, str], str] = Option.without_secret,
) -> tuple[str, ...]:
    """Return options as they were given, for another command.

    ``shown`` makes the text of each value. By default, ``…`` is in place of secrets.
    """
    words: list[str] = []
    for option in options:
        place, value = value_of(context, option)
        if place is None or value in (None, False):
            continue
        for text in value if isinstance(value, list | tuple) else (value,):
            if option.is_flag and not option.tune:
                words.append(option.name)
            else:
                words += option.typed(shown(option, str(text)))[option.is_argument :]
    return tuple(words)


def next_command(context: Any, verb: str, leave_out: Collection[str] = ()) -> str:
    """Return another command with the options that were given for this one, but for some labels."""
    left_out = {"output", "tune", *leave_out}
    options = declared_by(context.command).values()
    kept = [each for each in options if each.label not in left_out]
    return escape.command(verb, options=typed_words(context, kept))


def is_given(context: Any, option: Option) -> bool:
    """Return whether a value was given for an option.

    This also works while typer reports an error, when it has not read all parameters.
    """
    known = (context.params.get(option.parameter), os.environ.get(option.variable or ""))
    return any(known) or context.lookup_default(option.parameter) is not None
