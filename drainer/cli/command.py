"""Makes commands of functions that take settings records.

Typer reads options from the signature of a function. ``@command`` gives it a signature with all
options of the records that the function takes (``drainer.model.option``), and calls the function
with whole records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

import typer

from drainer.cli import begin
from drainer.cli.answer import open_terminal, reporting_errors
from drainer.cli.declared import Declared, declared_by, given_in, places_of, unknown_variables
from drainer.cli.parameter import HELP_ALL, declare, tuning
from drainer.errors import DrainerError, Refused, UsageError
from drainer.model.option import Option, option, options_of
from drainer.text import mask
from drainer.view.terminal import Form, Terminal

# Metadata of a parameter's annotation, which selects or changes the options of its record.
Choice = Callable[[Declared], Declared]
Values = Mapping[str, Any]  # The values of options, by the names of their fields.


def only(*names: str) -> Choice:
    """Take only these options of a record. The other fields keep their defaults."""
    return lambda found: {name: each for name, each in found.items() if name in names}


def without(*names: str) -> Choice:
    """Leave these options of a record out. Their fields keep their defaults."""
    return lambda found: {name: each for name, each in found.items() if name not in names}


def basic(*names: str) -> Choice:
    """Add these options of a record to the short help of this command."""
    return lambda found: {
        name: replace(each, basic=each.basic or name in names) for name, each in found.items()
    }


@dataclass(frozen=True, slots=True)
class ChangesTo:
    """Metadata of a parameter that gets a mapping of only those settings that were given."""

    settings: type
    unset: str = "the plan's"  # The help shows this as the default.

    def options(self) -> Declared:
        return {
            name: replace(each, default=None, unset=self.unset)
            for name, each in options_of(self.settings).items()
        }


OUTPUT = "Output"
MASK_CHARACTERS_LEAST = 16  # A shorter secret could be found by trying all of them.


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The form of what a command prints."""

    output: Form | None = option("Output format, for programs.", None, short="-o", panel=OUTPUT)


@dataclass(frozen=True, slots=True)
class _Argument:
    """One parameter of a command's function, and the options that its value is made from."""

    options: Declared  # The keys are the names of the record's fields.
    make: Callable[[Values], Any]  # It makes the parameter's value from the options' values.

    @classmethod
    def of(cls, name: str, annotation: Any) -> _Argument:
        annotated = hasattr(annotation, "__metadata__")
        kind, *metadata = get_args(annotation) if annotated else [annotation]
        for each in metadata:
            if isinstance(each, Option):
                return cls._of_one(name, each.of(name, kind))
            if isinstance(each, ChangesTo):
                return cls(each.options(), dict)
        found = options_of(OutputOptions if kind is Terminal else kind)
        known = next((each for each in metadata if type(each) is kind), None)
        if known is not None:  # The annotation has a record with this command's defaults.
            found = {n: replace(each, default=getattr(known, n)) for n, each in found.items()}
        choices: list[Choice] = [each for each in metadata if callable(each)]
        for choose in choices:
            found = choose(found)
        return cls(found, (lambda given: kind(**given)) if known is None else known.changed)

    @classmethod
    def _of_one(cls, name: str, option: Option) -> _Argument:
        return cls({name: option}, lambda given: given.get(name, option.default))


def command(
    function: Callable[..., int | None], *, changes: Callable[[Values], bool] = lambda given: False
) -> Callable[..., None]:
    """Make a function of records the callback of a command.

    The type of a parameter decides what the function gets for it:

    - a record: the record, made from its options
    - anything ``Annotated`` with an ``Option``: the value of that option
    - anything ``Annotated`` with ``ChangesTo``: a mapping of the settings that were given
    - Terminal: a terminal made from ``OutputOptions`` and the options of the program
    - ``typer.Context``: the context

    The function returns the exit code, or None for 0. ``changes`` gets the values that were given,
    and returns whether the command would change something.
    """
    hints = get_type_hints(function, include_extras=True)
    kinds = {name: kind for name, kind in hints.items() if name != "return"}
    taken = {n: _Argument.of(n, kind) for n, kind in kinds.items() if kind is not typer.Context}
    options = [each for one in taken.values() for each in one.options.values()]
    if any(each.tune for each in options):
        options.append(tuning(options))
    options.sort(key=lambda each: each.panel == OUTPUT)  # That panel comes last.
    early = [each for each in options if each.field in ("output", "log_format")]
    of_terminal = {n for n, kind in kinds.items() if Terminal in (kind, *get_args(kind)[:1])}

    def called(context: typer.Context, **_: Any) -> None:
        begin()
        root = context.find_root()
        of_program = {} if root is context else given_in(root, declared_by(root.command).values())
        opened = open_terminal(**of_program, **given_in(context, early))
        with opened as terminal, reporting_errors(terminal):
            _ensure_strong_mask()
            if unknown := unknown_variables(context):
                terminal.warn(f"drainer does not know these variables: {unknown}")
            given = given_in(context, options)
            if changes(given):
                _ensure_allowed(given, options)
            arguments: dict[str, Any] = dict.fromkeys(kinds, context)
            for name, one in taken.items():
                values = {each: given[each] for each in one.options if each in given}
                arguments[name] = terminal if name in of_terminal else one.make(values)
            try:
                code = function(**arguments)
            except DrainerError as error:
                places = places_of(context, options, str(error))
                error.hint = f"{error.hint or ''}{places}".lstrip() or None
                raise
            if code:
                raise typer.Exit(code)

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__module__ = function.__module__
    declare(called, options, HELP_ALL)
    return called


def changing(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a command of a function that changes something, unless it is given ``--dry-run``.

    ``DRAINER_READ_ONLY`` refuses such a command. ``DRAINER_REQUIRE_REASON`` requires ``--reason``
    if the command has that option.
    """
    return command(function, changes=lambda given: not given.get("dry_run"))


def _ensure_strong_mask() -> None:
    """Raise UsageError if the secret for masking keys is so short that it could be guessed."""
    length = len(mask.secret())
    if 0 < length < MASK_CHARACTERS_LEAST:
        raise UsageError(
            f"{mask.VARIABLE} must be a secret of at least {MASK_CHARACTERS_LEAST} characters, but"
            f" has {length}",
            hint=f'Make one: `export {mask.VARIABLE}="$(openssl rand -hex 16)"`',
        )


def _ensure_allowed(given: Values, options: Iterable[Option]) -> None:
    if _is_on("DRAINER_READ_ONLY"):
        raise Refused(
            "this command changes something, and DRAINER_READ_ONLY is set",
            hint="Unset DRAINER_READ_ONLY, or use --dry-run.",
        )
    takes_reason = any(each.field == "reason" for each in options)
    if takes_reason and not given.get("reason") and _is_on("DRAINER_REQUIRE_REASON"):
        raise UsageError(
            "a reason is required: DRAINER_REQUIRE_REASON is set",
            hint='Add one, such as --reason "failover of the database".',
        )


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "no", "false")
