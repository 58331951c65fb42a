"""The parameters of a command, which typer reads, and its help in two lengths.

If a command has many options, ``--help`` shows only the basic ones. ``--help-all`` always shows
every option and its variable.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from drainer.cli.declared import declared_by, meant, pair_of
from drainer.errors import UsageError
from drainer.model.option import PREFIX, Option, ValueType

ALL = "--help-all"
SHORT_FROM = 20  # A command with more options than this shows only the basic ones in its help.


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
    """Return the option ``--tune``, with which a person sets those options that are rare."""
    rare = [each for each in options if each.tune]
    shown = (
        f"{each.label}={each.default_text}" if each.default_text else each.label for each in rare
    )

    def parse(texts: Iterable[str]) -> tuple[str, ...]:
        for label, value in map(pair_of, texts):
            if value is None:  # The error does not quote the text, because it may be a secret.
                known = meant(label, rare) or rare[0]
                raise UsageError("must be NAME=VALUE", hint=f"Write it as {known.label}=….")
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


def _typed(option: Option, *, is_short: bool) -> tuple[Any, Any]:
    """Return the annotation and the default that stand for an option in a signature.

    Typer only sees texts and switches, and the option parses them. With ``is_short``, the help
    shows only the basic options, in one panel.
    """
    kind: Any = bool if option.is_flag else list[str] if option.repeats else str
    default = option.default
    if default is not ...:
        default = option.default if option.is_flag else option.default_text
        kind = kind | None if default is None else kind
    given: dict[str, Any] = {
        "help": option.text,
        "rich_help_panel": None if is_short else option.panel,
        "hidden": is_short and not (option.basic or option.is_argument),
        "autocompletion": _completing(option),
    }
    if option.is_argument:
        return Annotated[kind, typer.Argument(metavar=option.name, **given)], default
    names = [option.name, *([option.short] if option.short else [])]
    # Unless a variable is declared, click derives the variable's name from the parameter's.
    by_name = option.variable == f"{PREFIX}_{option.parameter.upper()}"
    given["envvar"] = None if by_name else option.variable
    given |= {"allow_from_autoenv": by_name, "show_envvar": False}
    if not option.is_flag:
        given["metavar"] = option.typed_as
    return Annotated[kind, typer.Option(*names, **given)], default


def keyword(name: str, annotation: Any, default: Any = ...) -> inspect.Parameter:
    """Return a keyword-only parameter of a signature. Without a default, it is required."""
    absent = inspect.Parameter.empty if default is ... else default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=absent, annotation=annotation)


Completion = Callable[[typer.Context, str], list[str]]


def completing(wanted: str) -> Completion:
    """Return the function by which a shell proposes values of this kind."""

    def propose(context: typer.Context, incomplete: str) -> list[str]:
        # Only completion in a shell needs this module, and the help must not wait for its import.
        from drainer.cli import completion  # noqa: PLC0415

        return completion.propose(wanted, context, incomplete)

    return propose


def _completing(option: Option) -> Completion | None:
    if option.kind is not None and (choices := option.kind.choices):
        return lambda ctx, incomplete: [each for each in choices if each.startswith(incomplete)]
    return completing(option.proposes) if option.proposes else None


class _TwoLengths:
    """A mixin for commands whose short help shows only the basic options.

    It also gives an option the same variable in every command.
    """

    def make_context(self: Any, info_name: Any, args: Any, parent: Any = None, **more: Any) -> Any:
        # Click would name the variable of a nested command DRAINER_RUN_TOPIC. In drainer, all
        # commands share DRAINER_TOPIC.
        more["auto_envvar_prefix"] = PREFIX
        return super().make_context(info_name, args, parent, **more)  # type: ignore[misc]

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        for each in self.get_params(ctx):
            if isinstance(each, TyperArgument):
                each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
            elif each.is_flag:
                each.metavar = ""
        super().format_help(ctx, formatter)  # type: ignore[misc]
        if left_out := sum(each.hidden and each.opts != [ALL] for each in self.params):
            typer.echo(f" {left_out} more options: {ctx.command_path} {ALL}\n", color=ctx.color)


class Command(_TwoLengths, TyperCommand):
    """A command whose usage line names arguments as they are declared, as its errors also do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            vars(error)["ctx"] = ctx  # Typer does not set the context if a value is missing.
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = (each.name for each in declared_by(self).values() if each.is_argument)
        return [self.options_metavar or "", *words]


class Group(_TwoLengths, TyperGroup):
    """A group of commands."""


def _show_all(context: Any, wanted: bool) -> None:
    if wanted:
        declared = declared_by(context.command)
        for each in context.command.params:
            each.hidden, each.show_envvar = False, True
            if each.name in declared:
                each.rich_help_panel = declared[each.name].panel
        typer.echo(context.get_help(), color=context.color)
        raise typer.Exit


_all: Any = typer.Option(
    ALL,
    callback=_show_all,
    is_eager=True,
    allow_from_autoenv=False,
    hidden=True,
    help="Show every option.",
    rich_help_panel="Output",
)
HELP_ALL = keyword("help_all", Annotated[bool, _all], False)
