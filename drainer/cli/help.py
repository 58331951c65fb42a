"""Help in two lengths (``--help``, ``--help-all``), usage errors, and proposals of a shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from drainer.errors import UsageError

if TYPE_CHECKING:
    from drainer.cli.groups import Option

ALL = "--help-all"
SHORT_OF = 20  # options; of fewer, all are shown
_PROPOSED = (
    "--topic",
    "--dead-letter-topic",
    "--group",
    "--handler",
    "--profile",
    "HANDLER",
    "PLAN",
)


class _TwoLengths:
    """A command whose ``--help`` names no variables, and of many options the ``basic`` ones."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        with self._short(ctx) as left_out:
            super().format_help(ctx, formatter)  # type: ignore[misc]
        if left_out:
            typer.echo(f" {left_out} more options: {ctx.command_path} {ALL}\n", color=ctx.color)

    @contextmanager
    def _short(self: Any, ctx: Any) -> Iterator[int]:
        basic = {} if ALL in ctx.meta else _basic(self)
        is_short = bool(basic)
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
            if isinstance(each, TyperArgument) and each.metavar:  # typer would add braces
                vars(each)["_usage_display_name"] = partial(str, each.metavar)
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
MISUSED: Any = typer.BadParameter.__base__  # what typer raises for what was typed
_CLUSTER = ("bootstrap_server", "client_config", "client_properties")  # one of them names it


class Command(_TwoLengths, TyperCommand):
    """A command that names at once all that is missing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except MISUSED as error:
            error.ctx = ctx
            if not hasattr(error, "param_type"):  # only a MissingParameter has it
                raise
        # Typer reads all that was typed before it misses anything.
        raise _missing(ctx, self.params)


class Group(_TwoLengths, TyperGroup):
    """Commands, of which it may be one itself."""


def in_our_words(error: Any) -> UsageError:
    """The error that replaces one of typer's for what was typed, a variable or a profile."""
    context, param = error.ctx, getattr(error, "param", None)
    text, _, near = error.message.rstrip(".?").partition(". Did you mean ")
    text = text.removeprefix("Value error, ")
    text = re.sub(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"unexpected: \1", text)
    text = f"{text[:1].lower()}{text[1:]}"
    if param is not None:
        by = {"ENVIRONMENT": f" in {param.envvar}", "DEFAULT_MAP": " in the profile"}
        source = context.get_parameter_source(param.name)
        text = f"{_word(param)}{by.get(source.name, '')}: {text}"
    near = near or " or ".join(getattr(error, "possibilities", None) or ())
    hint = f"Did you mean {near}?" if near else f"See `{context.command_path} {_page(error)}`."
    root = context.find_root()
    named = getattr(error, "option_name", None)
    if context is not root and any(named in each.opts for each in root.command.params):
        hint = f"Put it before the command: `{root.command_path} {named} …`."
    return UsageError(text, hint=hint)


def _page(error: Any) -> str:
    """The help that has the option of an error."""
    basic, param = _basic(error.ctx.command), getattr(error, "param", None)
    return ALL if basic and param is not None and param.name not in basic else "--help"


def _missing(context: Any, params: list[Any]) -> UsageError:
    def is_missing(param: Any) -> bool:
        known = context.params
        value = known[param.name] if param.name in known else param.consume_value(context, {})[0]
        return bool(param.value_is_missing(value))

    missing = [each for each in params if each.required and is_missing(each)]
    cluster = [each for each in params if each.name in _CLUSTER]
    # Where only a plan is required, it names the cluster.
    if any(each.required and isinstance(each, TyperOption) for each in params):
        missing += cluster[:1] if all(map(is_missing, cluster)) else []
    words = [_word(each) for each in missing]
    typed = (" ".join(dict.fromkeys((_word(each), each.metavar))) for each in missing)
    return UsageError(
        f"missing {', '.join(words)}",
        hint=f"Add {' '.join(typed)}: see `{context.command_path} --help`.",
    )


def _word(param: Any) -> str:
    """How a parameter is named where it is typed."""
    return min(param.opts, key=len) if isinstance(param, TyperOption) else param.metavar


def _basic(command: Any) -> Mapping[str, Option]:
    """The options of its short help; none when that has them all."""
    basic = {name: each for name, each in options_of(command).items() if each.basic}
    return basic if len(command.params) > SHORT_OF else {}


def options_of(command: Any) -> Mapping[str, Option]:
    """The options of a command as they were declared, by the names of its parameters."""
    found: Mapping[str, Option] = getattr(command.callback, "options", {})
    return found


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
