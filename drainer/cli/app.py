"""The command ``drainer`` and what all its commands have in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from drainer import __version__
from drainer.certify import cli as certify
from drainer.cli import dead, metrics, plan, redrive, resume, run
from drainer.cli.answer import announce, answering
from drainer.cli.profile import apply_profile
from drainer.demo import cli as demo
from drainer.insight.cli import estimate, inspect
from drainer.limits.cli import limits
from drainer.sandbox import cli as sandbox
from drainer.view.streams import install_streams, settle_streams
from drainer.view.terminal import Terminal

app = typer.Typer(
    name="drainer",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("inspect")(inspect.inspect)
app.command("run")(run.run)
app.command("resume")(resume.resume)
app.add_typer(plan.app, name="plan")
app.add_typer(dead.app, name="dead")
app.add_typer(limits.app, name="limits")
app.add_typer(metrics.app, name="metrics")
app.add_typer(sandbox.app, name="sandbox")
app.command("redrive")(redrive.redrive)
app.command("certify")(certify.certify)
app.command("estimate")(estimate.estimate)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drainer {__version__}")
        raise typer.Exit


@app.callback()
def drainer(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(envvar="DRAINER_PROFILE", help="Values from [profile.NAME] of drainer.toml."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="DRAINER_CONFIG",
            help="The profile file. Default: ./drainer.toml; handler, brokers, logins and yes are"
            " only taken from a file that is named.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """Empties a stuck Kafka backlog before the deadline.

    In order per sub-key, never losing a thing. It looks before it acts, shows what it does,
    survives being killed, and proves afterwards that nothing was lost.

    Exit codes: 0 done; 1 unexpected error; 2 usage; 3 refused, nothing touched; 4 interrupted,
    resume with the plan; 5 the handler failed, resume with the plan; 6 finished, with dead
    letters or records lost to retention; 8 ended part-way, and can't be resumed as things are.
    """
    # The command's own options are not known yet, and its words no longer in the context.
    with answering(Terminal(json="--json" in sys.argv)):
        announce(apply_profile(context, config, profile))


def main() -> None:
    """The entry point of the console script."""
    out, _ = install_streams()
    try:
        app()
    finally:
        settle_streams(out)
