"""Options in groups: each is declared once, as a field of a frozen dataclass.

``@command`` spreads the groups that a function asks for over the signature that typer reads, and
hands them over parsed. What goes wrong in any of this is told as every error is, by its option.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_type_hints

import typer

from drainer import mask
from drainer.cli.answer import LogFormat, answering, speaking
from drainer.cli.help import proposing, show_all
from drainer.cli.values import METAVARS
from drainer.errors import Refused, UsageError
from drainer.model.naming import option_name
from drainer.secret import IN_A_URL, may_hide, secret_of
from drainer.view.terminal import Form, Terminal

Group = TypeVar("Group")

_BY_NAME, _PREFIX = "by its name", "DRAINER_"
_WORDS = ((int, "N"), (float, "N"), (Path, "PATH"), (str, "TEXT"))  # for values of a type


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Option:
    """One option or argument as it was declared."""

    # As in ``--buffer`` and ``-b``; without a long one it is called as its field is. Of an argument
    # its metavar.
    names: tuple[str, ...]
    help: str  # what it is for
    default: Any = ...  # the text or value when nothing is given; ``...`` when something must be
    # Makes the value of what typer gives; None when that will do. Its metavar is shown.
    parse: Callable[[Any], Any] | None = None
    # The type of one of them, where it may be repeated; None where it may not.
    many: type | None = None
    # The variable that gives its value, too; made of its name unless it is given.
    envvar: str | None = _BY_NAME
    # Why it must be typed each time, and no variable or profile gives its value.
    risk: str | None = None
    panel: str | None = None  # of the help; that of its group unless it is given
    resumes: bool = False  # whether a command to resume has to repeat it
    pairs: bool = False  # whether it is ``NAME=VALUE``, and the value may be a secret
    hidden_value: bool = False  # whether its value may hold a secret
    basic: bool = False  # whether the short help has it
    is_argument: bool = False  # whether it is an argument
    more: Mapping[str, Any] = field(default_factory=dict)  # whatever else typer.Option takes

    @property
    def variable(self) -> str | None:
        """The variable that gives its value, too; None when none does."""
        if self.risk:
            return None
        if self.envvar != _BY_NAME:
            return self.envvar
        return f"{_PREFIX}{self.word.strip('-').upper().replace('-', '_')}"

    @property
    def key(self) -> str | None:
        """The key that gives its value in a profile: the name of its variable, as an option's."""
        if self.is_argument or self.risk or (self.envvar is None and self.many is None):
            return None
        variable = self.variable or self.word.strip("-")
        return variable.removeprefix(_PREFIX).lower().replace("_", "-")

    @property
    def word(self) -> str:
        """How an error names it, as in ``--buffer``."""
        return self.names[0].partition("/")[0]

    def of(self, field_name: str) -> Option:
        """The same, with the long name that its field or parameter gives it if it has none."""
        if any(len(name) > 2 for name in self.names) or self.names == ("-X",):
            return self
        return replace(self, names=(f"--{option_name(field_name)}", *self.names))

    def parameter(self, name: str, kind: Any, panel: str | None) -> inspect.Parameter:
        """What stands for it in a signature; ``kind`` is the type of its value."""
        if self.many is not None:
            kind = list[self.many] | None  # type: ignore[name-defined]
        elif self.parse is not None:
            kind = str | None if self.default is None else str
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.default is ... else self.default,
            annotation=Annotated[kind, self._made(panel, kind)],
        )

    def _made(self, panel: str | None, kind: Any) -> Any:
        proposed = proposing(self.word.strip("[]"))
        made: Any
        if self.is_argument:
            made = typer.Argument(metavar=self.word, help=self.help, autocompletion=proposed)
        else:
            made = typer.Option(
                *self.names,
                help=self.help,
                envvar=self.variable,
                rich_help_panel=self.panel or panel,
                **{"metavar": METAVARS.get(self.parse), "autocompletion": proposed, **self.more},
            )
        kinds = {self.many} if self.many else {kind, *get_args(kind)}
        made.metavar = made.metavar or next((word for of, word in _WORDS if of in kinds), None)
        return made

    def without_secret(self, text: str) -> str:
        """One value as it may be shown: with ``…`` in the place of what may be a secret."""
        if not self.pairs:
            return "…" if self.hidden_value or IN_A_URL.search(text) else text
        name, _, value = text.partition("=")
        return f"{shlex.quote(name)}=…" if may_hide(name, value, self.word == "--set") else text

    def value(self, given: Any) -> Any:
        """Raises UsageError, with the option's name."""
        if self.many is not None:
            given = tuple(given or ())
        if given is None or self.parse is None:
            return given
        try:
            return self.parse(given)
        except UsageError as error:
            if not self.word.startswith("-"):  # an argument's name says nothing
                raise
            raise UsageError(f"{self.word} {error}", hint=error.hint) from None


def option(*names: str, default: Any = ..., many: type | None = None, **given: Any) -> Any:
    """Declares an option, as a field of a group or as metadata of an ``Annotated`` parameter.

    Takes what ``Option`` has, and whatever else typer.Option takes.
    """
    more = {name: given.pop(name) for name in given.keys() - Option.__dataclass_fields__}
    default = default if many is None else None
    return Option(names=names, default=default, many=many, more=more, **given)


def argument(metavar: str, **given: Any) -> Any:
    """Declares an argument, as metadata; takes what ``Option`` has."""
    return Option(names=(metavar,), envvar=None, is_argument=True, **given)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
def options(panel: str | None = None) -> Callable[[type[Group]], type[Group]]:
    """Makes a group of a class: a frozen dataclass whose options stand in one panel of the help.

    A group that derives from another has its options as well, and may declare them anew.
    """

    def decorate(cls: type[Group]) -> type[Group]:
        declared = dict(getattr(cls, "__options__", {}))
        for name, found in list(vars(cls).items()):
            if isinstance(found, Option):
                declared[name] = found.of(name)
                setattr(cls, name, _as_field(declared[name]))
        made: Any = dataclass(frozen=True, kw_only=True)(cls)
        made.__options__ = declared
        made.__panel__ = panel
        return made  # type: ignore[no-any-return]

    return decorate


def _as_field(declared: Option) -> Any:
    if declared.default is ...:
        return field()
    return field(default_factory=lambda: declared.value(declared.default))


Declared = Mapping[str, Option]  # by the names of fields or parameters
Choice = Callable[[Declared], Declared]  # metadata of a parameter: what its command takes of them


def only(*names: str) -> Choice:
    return lambda found: {name: each for name, each in found.items() if name in names}


def without(*names: str) -> Choice:
    return lambda found: {name: each for name, each in found.items() if name not in names}


def defaults(others: str | None = None, **by_name: str) -> Choice:
    """What a command's help calls the defaults of a group's options."""

    def shown(name: str, declared: Option) -> Option:
        if (default := by_name.get(name, others)) is None:
            return declared
        return replace(declared, help=re.sub("Default: .+", f"Default: {default}.", declared.help))

    return lambda found: {name: shown(name, each) for name, each in found.items()}


@options("Output")
class Talk:
    """How a command speaks; its terminal is made of this."""

    output: Form | None = option(
        "-o", default=None, help="Print the result in this form, for programs."
    )
    quiet: bool = option("-q", default=False, help="Print only warnings and errors.")
    debug: bool = option(default=False, help="Show tracebacks.")
    help_all: bool = option(
        default=False, envvar=None, is_eager=True, callback=show_all, help="Show every option."
    )


Given = Mapping[str, Any]


def changing(function: Callable[..., int | None]) -> Callable[..., None]:
    """Makes a command of a function that changes something, unless it is given ``--dry-run``."""
    return changing_when(lambda given: not given.get("dry_run"))(function)


def changing_when(
    changes: Callable[[Given], bool],
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Makes a command of a function that changes something with these options.

    ``DRAINER_READ_ONLY`` refuses that, and ``DRAINER_REQUIRE_REASON`` insists on ``--reason`` where
    the command has that option.
    """
    return partial(command, changes=changes)


def command(
    function: Callable[..., int | None], *, changes: Callable[[Given], bool] = lambda given: False
) -> Callable[..., None]:
    """Makes a function of groups the callback of a command.

    Of its parameters, those of a group's type get the group; those that are ``Annotated`` with an
    ``option`` or ``argument`` get its value; one of the type Terminal gets the terminal that the
    options of ``Talk`` ask for; ``typer.Context`` gets the context. Options that ``only`` and
    ``without`` leave out have their defaults. What it gives back is the exit code.
    """
    spread = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    ]
    taken: dict[str, tuple[Any, Declared]] = {}  # by parameter: its kind, None for one's value
    for name, annotation in get_type_hints(function, include_extras=True).items():
        annotated = hasattr(annotation, "__metadata__")
        kind, *metadata = get_args(annotation) if annotated else [annotation]
        one = next((each for each in metadata if isinstance(each, Option)), None)
        if one is not None:
            found, panel, hints, kind = {name: one.of(name)}, None, {name: kind}, None
        elif kind is Terminal or hasattr(kind, "__options__"):
            group: Any = Talk if kind is Terminal else kind
            found, panel, hints = group.__options__, group.__panel__, get_type_hints(group)
            for choose in metadata:
                found = choose(found)
        elif name != "return":
            found, panel, hints = {}, None, {}
        else:
            continue
        taken[name] = kind, found
        spread += [each.parameter(of, hints[of], panel) for of, each in found.items()]

    def called(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is not None:
            return  # it is one of the group's commands that was meant
        talk = {each: given.get(each, False) for each in ("quiet", "debug")}
        log_format = given.get("log_format", LogFormat.TEXT)
        with speaking(log_format, given.get("output"), **talk) as terminal, answering(terminal):
            secret_of(mask.VARIABLE)
            if changes(given):
                _insist_that_it_may(given)
            arguments: dict[str, Any] = {}
            for name, (kind, found) in taken.items():
                values = {of: each.value(given[of]) for of, each in found.items()}
                if kind is None:
                    arguments |= values
                elif hasattr(kind, "__options__"):
                    arguments[name] = kind(**values)
                else:
                    arguments[name] = terminal if kind is Terminal else context
            if code := function(**arguments):
                raise typer.Exit(code)

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__module__ = function.__module__
    called.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in spread}
    options = (each for _, found in taken.values() for each in found.items())
    called.options = dict(options)  # type: ignore[attr-defined]
    return called


def _insist_that_it_may(given: Mapping[str, Any]) -> None:
    if _is_on("DRAINER_READ_ONLY"):
        raise Refused(
            "this command changes something, and DRAINER_READ_ONLY is set",
            hint="Unset DRAINER_READ_ONLY, or use --dry-run.",
        )
    if not (given.get("reason", "none needed") or "").strip() and _is_on("DRAINER_REQUIRE_REASON"):
        raise UsageError(
            "a reason is required: DRAINER_REQUIRE_REASON is set",
            hint='Add one, such as --reason "the database team asked".',
        )


def why_not_by_key() -> str | None:
    """Why a key on the keyboard may ask for nothing; None when it may."""
    if _is_on("DRAINER_REQUIRE_REASON"):
        return "a reason is required: use `drainer set`, `pause` or `stop` with --reason"
    return None


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "no", "false")
