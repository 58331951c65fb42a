"""The command ``drainer`` and what all its commands have in common."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from drainer import __version__
from drainer.cli import end_interrupted
from drainer.cli.help import Command, Group
from drainer.cli.parameter import completing, declare, keyword
from drainer.errors import DrainerError
from drainer.model.option import option, options_of

# The callback or group of each command, by panels of the help and in their order.
PANELS = {
    "Before": {
        "probe": "drainer.probe.cli:probe_",
        "inspect": "drainer.insight.cli.inspect:inspect",
        "estimate": "drainer.insight.cli.estimate:estimate",
        "certify": "drainer.certify.cli:certify",
        "limits": "drainer.limits.cli:app",
    },
    "Drain": {"run": "drainer.cli.run:run", "resume": "drainer.cli.resume:resume"},
    "Steer": {
        "ps": "drainer.cli.steering:ps",
        "watch": "drainer.cli.steering:watch",
        "set": "drainer.cli.steering:set_",
        "pause": "drainer.cli.steering:pause",
        "unpause": "drainer.cli.steering:unpause",
        "stop": "drainer.cli.steering:stop",
    },
    "After": {
        "plan": "drainer.cli.plan:app",
        "dead": "drainer.letters.cli.dead:app",
        "redrive": "drainer.letters.cli.redrive:redrive",
    },
    "Setup": {
        "sandbox": "drainer.sandbox.cli:app",
        "demo": "drainer.demo.cli:demo",
    },
}


class LazyCommands(Mapping[str, Any]):
    """Commands by name; each is imported and made when it is first wanted."""

    def __init__(self) -> None:
        self._panels = {name: panel for panel, names in PANELS.items() for name in names}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            panel = self._panels[name]
            module, _, callback = PANELS[panel][name].partition(":")
            with _without_collecting():
                found = getattr(import_module(module), callback)
                self._made[name] = _made(name, found, panel)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._panels)

    def __len__(self) -> int:
        return len(self._panels)


@contextmanager
def _without_collecting() -> Iterator[None]:
    # Nothing that is loaded is garbage, and looking for it takes a fifth of the time to start.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()


class Commands(Group):
    """The group of all commands, which loads one by its name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()  # type: ignore[assignment]

    def make_context(self, info_name: Any, args: list[str], *more: Any, **extra: Any) -> Any:
        with _answering(args.copy()):
            return super().make_context(info_name, args, *more, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _answering(ctx.args):
            return super().invoke(ctx)


@contextmanager
def _answering(args: list[str]) -> Iterator[None]:
    """Print an error that comes before the command begins as the command prints its own."""
    try:
        yield
    except KeyboardInterrupt:  # Typer would end without a word.
        end_interrupted()
    except (DrainerError, typer.TyperException) as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # This one carries the help.
            raise
        from drainer.cli.answer import reporting_errors  # noqa: PLC0415 - half as long as --help
        from drainer.cli.usage import usage_error  # noqa: PLC0415
        from drainer.view.terminal import Form, Terminal  # noqa: PLC0415

        found = re.search(r"(?:^| )(?:-o|--output)[ =]?(json|yaml)\b", " ".join(args))
        with reporting_errors(Terminal(found and Form(found[1]))):
            raise error if isinstance(error, DrainerError) else usage_error(error) from None


def _made(name: str, found: Any, panel: str) -> Any:
    holder = typer.Typer(rich_markup_mode="markdown", callback=lambda: None)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls = Command
        holder.add_typer(found, name=name, cls=Group, rich_help_panel=panel)
    else:
        holder.command(name, cls=Command, rich_help_panel=panel)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    name="drainer",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """Options that stand before the command, whichever it is."""

    quiet: bool = option("Print only warnings and errors.", False, short="-q")
    debug: bool = option("Show tracebacks.", False)


def _use_profile(context: typer.Context, name: str | None) -> str | None:
    from drainer.cli.profile import use_profile  # noqa: PLC0415 - half as long as --help

    use_profile(context, name)
    return name


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drainer {__version__}")
        raise typer.Exit


_profile: Any = typer.Option(
    "--profile",
    callback=_use_profile,
    is_eager=True,
    metavar="NAME|FILE",
    autocompletion=completing("profile"),
    help="Read option values from this profile. Default: default, if it exists.",
)
_version: Any = typer.Option(
    "--version",
    callback=_print_version,
    is_eager=True,
    allow_from_autoenv=False,
    help="Print the version.",
)


def drainer(**_: Any) -> None:
    """Drain a stuck Kafka backlog before the deadline.

    drainer keeps the order of each sub-key and loses no data. It checks before it acts and shows
    its progress. If it is killed, it resumes from its plan. At the end it checks that every message
    is accounted for.

    Exit codes: 0 done, 1 unexpected error, 2 wrong usage, 3 refused (nothing touched),
    4 interrupted (resume with the plan), 5 halted by the failure policy (resume with the plan),
    6 done with dead letters or records lost to retention, 7 a check failed, 8 ended early and
    can't be resumed as is, 9 --only is done, except for sub-messages that wait for the rest.
    """


declare(
    drainer,
    options_of(ProgramOptions).values(),
    keyword("profile", Annotated[str | None, _profile], None),
    keyword("version", Annotated[bool, _version], False),
)
app.callback()(drainer)


def main() -> None:
    """Run the command line of this process, on streams that outlive a closed pipe."""
    from drainer.view.streams import flush_streams, install_streams  # noqa: PLC0415

    out, _ = install_streams()
    try:
        app()
    finally:
        flush_streams(out)
