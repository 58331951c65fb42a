"""Commands: functions of settings records, whose options typer reads as parameters.

``@command`` spreads the options of each record that a function takes (``drainer.model.option``)
over the signature that typer reads, and hands the records over whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args, get_type_hints

import typer

from drainer import mask
from drainer.cli.answer import open_terminal, reporting_errors
from drainer.cli.help import HELP_ALL
from drainer.cli.parameter import Declared, given_in, secret_of, signature
from drainer.errors import Refused, UsageError
from drainer.model.option import Option, option, options_of
from drainer.view.terminal import Form, Terminal

Choice = Callable[[Declared], Declared]  # metadata of a parameter: what its command takes of them
Values = Mapping[str, Any]  # values by the same names


def only(*names: str) -> Choice:
    """Take these options of a record; the other fields have their defaults."""
    return lambda found: {name: each for name, each in found.items() if name in names}


def without(*names: str) -> Choice:
    """Leave out these options of a record, whose fields have their defaults."""
    return lambda found: {name: each for name, each in found.items() if name not in names}


@dataclass(frozen=True, slots=True)
class ChangesTo:
    """Metadata of a parameter that gets what was given of some settings, by field."""

    settings: type
    unset: str = "the plan's"  # what the help calls the defaults

    def options(self) -> Declared:
        return {
            name: replace(each, default=None, unset=self.unset)
            for name, each in options_of(self.settings).items()
        }


OUTPUT = "Output"
_output = partial(option, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of what a command prints; its terminal is made of them."""

    output: Form | None = _output("Output format, for programs.", None, short="-o")
    quiet: bool = _output("Print only warnings and errors.", False, short="-q")
    debug: bool = _output("Show tracebacks.", False)


@dataclass(frozen=True, slots=True)
class _Argument:
    """One parameter of a command's function: its options, and what makes its value of theirs."""

    options: Declared  # by field
    make: Callable[[Values], Any]

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
        if known is not None:  # a record with the defaults of this command
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

    Of its parameters, those of a record's type get the record; those that are ``Annotated`` with
    an ``Option`` get its value, those with ``ChangesTo`` what was given; one of the type Terminal
    gets the terminal of ``OutputOptions``; ``typer.Context`` gets the context. Options
    that ``only`` and ``without`` leave out have their defaults. It returns the exit code.
    """
    hints = get_type_hints(function, include_extras=True)
    kinds = {name: kind for name, kind in hints.items() if name != "return"}
    taken = {n: _Argument.of(n, kind) for n, kind in kinds.items() if kind is not typer.Context}
    found = [each for one in taken.values() for each in one.options.values()]
    found.sort(key=lambda each: each.panel == OUTPUT)  # that panel is last
    declared = {each.parameter: each for each in found}
    early = {n: each for n, each in declared.items() if n in _OUTPUT}
    of_terminal = {n for n, kind in kinds.items() if Terminal in (kind, *get_args(kind)[:1])}

    def called(context: typer.Context, **_: Any) -> None:
        if context.invoked_subcommand is not None:
            return  # it is one of the group's commands that was meant
        with open_terminal(**given_in(context, early)) as terminal, reporting_errors(terminal):
            secret_of(mask.VARIABLE)
            given = given_in(context, declared)
            if changes(given):
                _ensure_allowed(given, declared)
            arguments: dict[str, Any] = dict.fromkeys(kinds, context)
            for name, one in taken.items():
                values = {each: given[each] for each in one.options if each in given}
                arguments[name] = terminal if name in of_terminal else one.make(values)
            if code := function(**arguments):
                raise typer.Exit(code)

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__module__ = function.__module__
    made = signature(declared, HELP_ALL)
    called.__signature__ = made  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in made.parameters.values()}
    called.options = declared  # type: ignore[attr-defined]
    return called


def changing(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a command of a function that changes something, unless it is given ``--dry-run``.

    ``DRAINER_READ_ONLY`` refuses such a command. ``DRAINER_REQUIRE_REASON`` requires ``--reason``
    if the command has that option.
    """
    return command(function, changes=lambda given: not given.get("dry_run"))


_OUTPUT = ("output", "quiet", "debug", "log_format")


def _ensure_allowed(given: Values, declared: Declared) -> None:
    if _is_on("DRAINER_READ_ONLY"):
        raise Refused(
            "this command changes something, and DRAINER_READ_ONLY is set",
            hint="Unset DRAINER_READ_ONLY, or use --dry-run.",
        )
    if "reason" in declared and not given.get("reason") and _is_on("DRAINER_REQUIRE_REASON"):
        raise UsageError(
            "a reason is required: DRAINER_REQUIRE_REASON is set",
            hint='Add one, such as --reason "failover of the database".',
        )


def why_not_by_key() -> str | None:
    """Return why no key of the keyboard may request anything; None when it may."""
    if _is_on("DRAINER_REQUIRE_REASON"):
        return "a reason is required: use `drainer set`, `pause` or `stop` with --reason"
    return None


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "no", "false")
