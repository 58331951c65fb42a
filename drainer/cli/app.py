"""The command ``drainer`` and what all its commands have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from drainer import __version__, wings
from drainer.cli import end_interrupted
from drainer.cli.help import Command, Group, proposing

# The callback or group of each command of the house.
COMMANDS = {
    "run": "drainer.cli.run:run",
    "resume": "drainer.cli.resume:resume",
    "ps": "drainer.cli.steering:ps",
    "watch": "drainer.cli.steering:watch",
    "set": "drainer.cli.steering:set_",
    "pause": "drainer.cli.steering:pause",
    "unpause": "drainer.cli.steering:unpause",
    "stop": "drainer.cli.steering:stop",
    "plan": "drainer.cli.plan:app",
    "metrics": "drainer.cli.metrics:app",
    "config": "drainer.cli.config:app",
}


class Loaded(Mapping[str, Any]):
    """Commands by name; each is imported and made when it is first asked for."""

    def __init__(self) -> None:
        self._places = {**COMMANDS, **wings.COMMANDS}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            with _without_collecting():
                self._made[name] = _made(name, wings.load(self._places[name]))
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@contextmanager
def _without_collecting() -> Iterator[None]:
    # Nothing that is loaded is garbage: to look for it anyway takes a fifth of the time to start.
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
        self.commands = Loaded()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer ends by it without a word
            end_interrupted()


def _made(name: str, found: Any) -> Any:
    holder = typer.Typer(rich_markup_mode="markdown", callback=lambda: None)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls = Command
        holder.add_typer(found, name=name, cls=Group)
    else:
        holder.command(name, cls=Command)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    name="drainer",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drainer {__version__}")
        raise typer.Exit


@app.callback()
def drainer(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            envvar="DRAINER_PROFILE",
            metavar="NAME|FILE",
            autocompletion=proposing("--profile"),
            help="Read option values from this profile. Default: default, if it exists.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Drain a stuck Kafka backlog before the deadline.

    drainer keeps the order of each sub-key and loses nothing. It checks before it acts and shows
    its progress. If it is killed, it resumes from its plan. At the end it proves that the account
    adds up.

    Exit codes: 0 done, 1 unexpected error, 2 wrong usage, 3 refused (nothing touched),
    4 interrupted (resume with the plan), 5 halted by the failure policy (resume with the plan),
    6 done with dead letters or records lost to retention, 7 a check failed, 8 ended early and
    can't be resumed as is, 9 --only is done but for what waits for the rest.
    """
    if context.invoked_subcommand not in (None, "config"):
        _take_profile(context, profile)


def _take_profile(context: typer.Context, name: str | None) -> None:
    """Values that were not typed come from a profile, before those that are the options' own."""
    command: Any = context.invoked_subcommand
    group: Any = context.command
    options = getattr(group.get_command(context, command).callback, "options", None)
    if options:
        # The command has loaded all this; printing the version needs none of it.
        from drainer.cli.answer import answering  # noqa: PLC0415
        from drainer.cli.profile import profile_of  # noqa: PLC0415
        from drainer.view.terminal import Terminal  # noqa: PLC0415

        with answering(Terminal()):
            context.default_map = {command: profile_of(name, command, options)[1]}


def main() -> None:
    """Runs the command line of this process, on streams that outlive a closed pipe."""
    from drainer.view.streams import install_streams, settle_streams  # noqa: PLC0415

    out, _ = install_streams()
    try:
        app()
    finally:
        settle_streams(out)
