"""Options as typer takes them, and the values that it read for them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from drainer.errors import UsageError, raised_as
from drainer.model.option import PREFIX

if TYPE_CHECKING:
    from drainer.model.option import Option

CHARACTERS_LEAST = 16  # of a secret: a shorter one can be found by trying

Declared: TypeAlias = "Mapping[str, Option]"  # by the names of click's parameters


def signature(declared: Declared, *more: inspect.Parameter) -> inspect.Signature:
    """The signature of a function with these options, beside the context, as typer reads it."""
    context = _parameter("context", typer.Context)
    options = [_parameter(name, *_typed(each)) for name, each in declared.items()]
    return inspect.Signature([context, *options, *more])


def _typed(option: Option) -> tuple[Any, Any]:
    """The annotation and the default that stand for an option in a signature.

    Typer reads texts and switches only; what they mean is the option's.
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
        "rich_help_panel": option.panel,
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


def _parameter(name: str, annotation: Any, default: Any = ...) -> inspect.Parameter:
    absent = inspect.Parameter.empty if default is ... else default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=absent, annotation=annotation)


Completion = Callable[[typer.Context, str], list[str]]


def completing(wanted: str) -> Completion:
    """Return what makes a shell propose values of this kind."""

    def propose(context: typer.Context, incomplete: str) -> list[str]:
        # Only a shell needs it, and printing the help must not wait for it.
        from drainer.cli import completion  # noqa: PLC0415

        return completion.propose(wanted, context, incomplete)

    return propose


def _completing(option: Option) -> Completion | None:
    if option.kind is not None and (choices := option.kind.choices):
        return lambda ctx, incomplete: [each for each in choices if each.startswith(incomplete)]
    return completing(option.proposes) if option.proposes else None


def declared_by(command: Any) -> Declared:
    """The options of a command as they were declared, by the names of its parameters."""
    found: Declared = getattr(command.callback, "options", {})
    return found


def commands_of(group: Any) -> Mapping[str, Any]:
    """The commands of a group by name; none of a command that is not a group."""
    found: Mapping[str, Any] = getattr(group, "commands", {})
    return found


def meant(name: str, options: Iterable[Option]) -> Option | None:
    """Return the option that a misspelt name is probably for."""
    by_label = {each.label: each for each in options if not each.is_argument}
    return next(map(by_label.__getitem__, get_close_matches(name, by_label, 1)), None)


def source_of(context: Any, name: str, option: Option) -> str | None:
    """The place of a given value, empty for the command line; None of a default."""
    source = context.get_parameter_source(name)
    if source is None or source.name == "DEFAULT":
        return None
    return {"ENVIRONMENT": f"in {option.variable}", "DEFAULT_MAP": "in the profile"}.get(
        source.name, ""
    )


def given_in(context: typer.Context, declared: Declared) -> dict[str, Any]:
    """The values that were given, by field. Raises UsageError, with the name of the option."""
    found = {}
    for name, option in declared.items():
        if (where := source_of(context, name, option)) is None:
            continue
        about = f"{option.word} {where}: " if where else f"{option.word} "
        with raised_as(UsageError, about="" if option.is_argument else about):
            found[option.field] = option.parse(context.params[name])
    return found


def is_given(context: Any, name: str, option: Option) -> bool:
    """Whether there is a value, in a context whose parameters typer has not read to the end."""
    known = (context.params.get(name), os.environ.get(option.variable or ""))
    return any(known) or context.lookup_default(name) is not None


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
