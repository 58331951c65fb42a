"""Help in two lengths: ``--help``, and ``--help-all`` with every option and variable."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from drainer.cli.declared import declared_by
from drainer.cli.parameter import ALL, keyword
from drainer.model.option import PREFIX


class _TwoLengths:
    """A command whose short help leaves rare options out.

    Its variables are named as in every other command.
    """

    def make_context(self: Any, info_name: Any, args: Any, parent: Any = None, **more: Any) -> Any:
        # Click would make DRAINER_RUN_TOPIC of a nested command; all commands share DRAINER_TOPIC.
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
    """A command whose usage line names its arguments as its errors do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            vars(error)["ctx"] = ctx  # Typer leaves it out if a value is missing.
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = (each.name for each in declared_by(self).values() if each.is_argument)
        return [self.options_metavar or "", *words]


class Group(_TwoLengths, TyperGroup):
    """A group of commands, which may be a command itself."""


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
