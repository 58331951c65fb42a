"""Help in two lengths (``--help``, ``--help-all``), and what a shell may propose at Tab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

ALL = "--help-all"
SHORT_OF = 20  # options; of fewer, all are shown
_PROPOSED = ("--topic", "--dead-letter-topic", "--group", "--handler", "--profile", "PLAN")


class Command(TyperCommand):
    """A command whose ``--help`` shows the options declared as ``basic``, if it has many others."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._short(ctx) as left_out:
            super().format_help(ctx, formatter)
        if left_out:
            typer.echo(f" {left_out} more options: {ctx.command_path} {ALL}\n", color=ctx.color)

    @contextmanager
    def _short(self, ctx: Any) -> Iterator[int]:
        """Without variables and the types of flags; of many options, those that are basic in one
        panel."""
        declared = getattr(self.callback, "options", {})
        basic = {name for name, each in declared.items() if each.basic}
        is_short = bool(basic) and len(self.params) > SHORT_OF and ALL not in ctx.meta
        before = [(each, dict(vars(each))) for each in self.params]
        left_out = 0
        for each in self.params:
            if not isinstance(each, TyperOption):
                continue
            if is_short and each.name not in basic:
                left_out += not each.hidden
                each.hidden = True
            elif is_short:
                vars(each).update(show_envvar=False, rich_help_panel=None)
            elif each.opts == [ALL]:
                each.hidden = ALL not in ctx.meta
            if each.is_flag:
                vars(each)["display_type_rich"] = lambda ctx: None
        try:
            yield left_out
        finally:
            for each, known in before:
                vars(each).clear()
                vars(each).update(known)


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
