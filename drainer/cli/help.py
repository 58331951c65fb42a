"""Help in two lengths: ``--help``, and ``--help-all`` with every option and variable."""

from __future__ import annotations

from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from drainer.cli.parameter import Declared, declared_by
from drainer.model.option import PREFIX

ALL = "--help-all"
SHORT_OF = 20  # options; of fewer, all are shown


def basic_options(command: Any) -> Declared:
    """The options of the short help of a command; none when that has them all."""
    basic = {name: each for name, each in declared_by(command).items() if each.basic}
    return basic if len(command.params) > SHORT_OF else {}


class _TwoLengths:
    """A command whose ``--help`` names no variables, and of many options the ``basic`` ones."""

    def make_context(self: Any, info_name: Any, args: Any, parent: Any = None, **more: Any) -> Any:
        # Each command has the same variables, such as DRAINER_TOPIC, not DRAINER_RUN_TOPIC.
        more["auto_envvar_prefix"] = PREFIX
        return super().make_context(info_name, args, parent, **more)  # type: ignore[misc]

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        whole = ALL in ctx.meta
        basic = {} if whole else basic_options(self)
        left_out = 0
        for each in self.get_params(ctx):  # the process prints them once, and ends
            if isinstance(each, TyperArgument):
                each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
                continue
            each.show_envvar = whole
            each.metavar = "" if each.is_flag else each.metavar
            if basic and each.name not in {*basic, "help"}:
                left_out += not each.hidden
                each.hidden = True
            elif basic:
                each.rich_help_panel = None
            elif each.opts == [ALL]:
                each.hidden = not whole
        super().format_help(ctx, formatter)  # type: ignore[misc]
        if left_out:
            typer.echo(f" {left_out} more options: {ctx.command_path} {ALL}\n", color=ctx.color)


class Command(_TwoLengths, TyperCommand):
    """A command whose usage has its arguments as its errors name them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            vars(error)["ctx"] = ctx  # which typer leaves out where a value is missing
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        words = (each.name for each in declared_by(self).values() if each.is_argument)
        return [self.options_metavar or "", *words]


class Group(_TwoLengths, TyperGroup):
    """Commands, of which it may be one itself."""


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[ALL] = True
        typer.echo(context.get_help(), color=context.color)
        raise typer.Exit


HELP_ALL = Parameter(
    "help_all",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            ALL,
            callback=_show_all,
            is_eager=True,
            allow_from_autoenv=False,
            help="Show every option.",
            rich_help_panel="Output",
        ),
    ],
)
