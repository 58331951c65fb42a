"""Help in two lengths (``--help``, ``--help-all``), and what a shell may propose at Tab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

ALL = "--help-all"
SHORT_OF = 20  # options; of fewer, all are shown
_PROPOSED = ("--topic", "--dead-letter-topic", "--group", "--handler", "--profile", "PLAN")


class _TwoLengths:
    """A command whose ``--help`` names no variables, and of many options the ``basic`` ones."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        with self._short(ctx) as left_out:
            super().format_help(ctx, formatter)  # type: ignore[misc]
        if left_out:
            typer.echo(f" {left_out} more options: {ctx.command_path} {ALL}\n", color=ctx.color)

    @contextmanager
    def _short(self: Any, ctx: Any) -> Iterator[int]:
        declared = getattr(self.callback, "options", {})
        basic = {name for name, each in declared.items() if each.basic}
        is_short = bool(basic) and len(self.params) > SHORT_OF and ALL not in ctx.meta
        params = [each for each in self.get_params(ctx) if isinstance(each, _SHOWN)]
        before = [(each, dict(vars(each))) for each in params]
        left_out = 0
        for each in params:
            if is_short and each.name not in {*basic, "help"} and isinstance(each, TyperOption):
                left_out += not each.hidden
                each.hidden = True
            elif is_short:
                vars(each)["rich_help_panel"] = None
            elif each.opts == [ALL]:
                each.hidden = ALL not in ctx.meta
            vars(each)["show_envvar"] = ALL in ctx.meta
            vars(each)["_get_number_range_help_str"] = lambda: None  # how Python would say it
            if isinstance(each, TyperArgument) or each.is_flag:
                vars(each)["display_type_rich"] = lambda ctx: None
        try:
            yield left_out
        finally:
            for each, known in before:
                vars(each).clear()
                vars(each).update(known)


_SHOWN = (TyperArgument, TyperOption)


class Command(_TwoLengths, TyperCommand):
    pass


class Group(_TwoLengths, TyperGroup):
    """Commands, of which it may be one itself."""


def show_all(context: typer.Context, wanted: bool) -> None:
    """What ``--help-all`` does."""
    if wanted:
        context.meta[ALL] = True
        typer.echo(context.get_help(), color=context.color)
        raise typer.Exit


def proposing(name: str) -> Callable[[typer.Context, str], list[str]] | None:
    """What completes the value of an option or argument; None of those that have no proposals."""
    if name not in _PROPOSED:
        return None

    def propose(context: typer.Context, incomplete: str) -> list[str]:
        # Only a shell asks for it, and printing the help must not wait for it.
        from drainer.cli import completion  # noqa: PLC0415

        return completion.propose(name, context, incomplete)

    return propose
