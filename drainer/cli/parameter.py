"""Parameters that typer reads, made of options, and the values that it found for them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias

import typer

from drainer.errors import UsageError, raised_as
from drainer.model.option import PREFIX, Option, ValueType

ALL = "--help-all"
SHORT_FROM = 20  # A command with more options than this shows only the basic ones in its help.
CHARACTERS_LEAST = 16  # A shorter secret can be found by trying.

Declared: TypeAlias = Mapping[str, Option]  # The keys are the names of click's parameters.


def declare(function: Any, options: Iterable[Option], *more: inspect.Parameter) -> None:
    """Give a function the parameters that typer reads: the context, these options, and more."""
    declared = {each.parameter: each for each in options}
    typed = {name: each for name, each in declared.items() if not each.tune}
    is_short = len(typed) > SHORT_FROM
    found = [keyword(name, *_typed(each, is_short=is_short)) for name, each in typed.items()]
    parameters = [keyword("context", typer.Context), *found, *more]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.options = declared


def tuning(options: Sequence[Option]) -> Option:
    """Return the option ``--tune``, by which a person gives those options that are rare."""
    rare = [each for each in options if each.tune]
    shown = (
        f"{each.label}={each.default_text}" if each.default_text else each.label for each in rare
    )

    def parse(texts: Iterable[str]) -> tuple[str, ...]:
        for label, value in map(_pair, texts):
            if value is None:  # The message leaves the text out, because it may be a secret.
                raise UsageError("must be NAME=VALUE", hint=f"Write it as {rare[0].label}=….")
            if all(each.label != label for each in rare):
                near = meant(label, options)
                hint = f"Did you mean {near.word}?" if near else f"`{ALL}` lists the names."
                raise UsageError(f"{label!r} is not a rare setting", hint=hint)
        return tuple(texts)

    return Option(
        f"Rare setting; repeatable. Names and defaults: {', '.join(shown)}.",
        (),
        ValueType("NAME=VALUE", parse, repeats=True),
        name="--tune",
        field="tune",
        panel="Rare settings",
        risk="each rare setting has a key and a variable of its own",
        proposes="tune",
        repeats=True,
    )


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name.strip().replace("_", "-"), value if equals else None


def _typed(option: Option, *, is_short: bool) -> tuple[Any, Any]:
    """Return the annotation and the default that stand for an option in a signature.

    Typer reads only texts and switches; the option knows what they mean. If the help is short, it
    shows the basic options alone, in one panel.
    """
    kind: Any = bool if option.is_flag else list[str] if option.repeats else str
    default = option.default
    if default is not ...:
        default = option.default if option.is_flag else option.default_text
        kind = kind | None if default is None else kind
    text = option.help
    if option.unset is not None and default is None:
        text = f"{text} Default: {option.unset}."
    given: dict[str, Any] = {
        "help": text,
        "rich_help_panel": None if is_short else option.panel,
        "hidden": is_short and not (option.basic or option.is_argument),
        "autocompletion": _completing(option),
    }
    if option.is_argument:
        return Annotated[kind, typer.Argument(metavar=option.name, **given)], default
    names = [option.name, *([option.short] if option.short else [])]
    # Click makes the variable's name of the parameter's name, unless another one is declared.
    by_name = option.variable == f"{PREFIX}_{option.parameter.upper()}"
    given["envvar"] = None if by_name else option.variable
    given |= {"allow_from_autoenv": by_name, "show_envvar": False}
    if not option.is_flag:
        given["metavar"] = option.typed_as
    return Annotated[kind, typer.Option(*names, **given)], default


def keyword(name: str, annotation: Any, default: Any = ...) -> inspect.Parameter:
    """Return a parameter that is given by its name; without a default it is required."""
    absent = inspect.Parameter.empty if default is ... else default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=absent, annotation=annotation)


Completion = Callable[[typer.Context, str], list[str]]


def completing(wanted: str) -> Completion:
    """Return the function by which a shell proposes values of this kind."""

    def propose(context: typer.Context, incomplete: str) -> list[str]:
        # Only a shell needs this module. The help must not wait for it.
        from drainer.cli import completion  # noqa: PLC0415

        return completion.propose(wanted, context, incomplete)

    return propose


def _completing(option: Option) -> Completion | None:
    if option.kind is not None and (choices := option.kind.choices):
        return lambda ctx, incomplete: [each for each in choices if each.startswith(incomplete)]
    return completing(option.proposes) if option.proposes else None


def declared_by(command: Any) -> Declared:
    """Return the options of a command as they were declared, by the names of its parameters."""
    found: Declared = getattr(command.callback, "options", {})
    return found


def commands_of(group: Any) -> Mapping[str, Any]:
    """Return the commands of a group by name. A command that is not a group has none."""
    found: Mapping[str, Any] = getattr(group, "commands", {})
    return found


def meant(name: str, options: Iterable[Option]) -> Option | None:
    """Return the option that a misspelt name is probably for."""
    by_label = {each.label: each for each in options if not each.is_argument}
    return next(map(by_label.__getitem__, get_close_matches(name, by_label, 1)), None)


_PROFILE = "in the profile"


def value_of(context: Any, option: Option) -> tuple[str | None, Any]:
    """Return the place of a given value, and the value; None and the default if none was given.

    The place is empty for the command line.
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
    typed = dict(map(_pair, context.params.get("tune") or ()))
    found = {
        "": typed.get(option.label),
        f"in {option.variable}": os.environ.get(option.variable or "") or None,
        _PROFILE: context.lookup_default(option.parameter),
    }
    return next(
        ((place, value) for place, value in found.items() if value is not None), (None, None)
    )


def given_in(context: Any, options: Iterable[Option]) -> dict[str, Any]:
    """Return the values that were given, by field.

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
    """Return whether an option has a value.

    It also works in a context whose parameters typer has not read to the end.
    """
    known = (context.params.get(option.parameter), os.environ.get(option.variable or ""))
    return any(known) or context.lookup_default(option.parameter) is not None


def secret_of(variable: str) -> str:
    """Return the secret in a variable, or an empty text. Raises UsageError if it is too short."""
    value = os.environ.get(variable, "")
    if value and len(value) < CHARACTERS_LEAST:
        raise UsageError(
            f"{variable} must be a secret of at least {CHARACTERS_LEAST} characters, but has"
            f" {len(value)}",
            hint=f'Make one: export {variable}="$(openssl rand -hex 16)"',
        )
    return value
