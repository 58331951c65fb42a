"""``drainer sandbox up|status|down``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drainer import sandbox
from drainer.cli import options as o
from drainer.cli.answer import answering
from drainer.view.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="A real one-node Kafka on this machine, to try things on. Needs Java 17 or newer.",
)

Folder = Annotated[
    Path | None,
    typer.Option(envvar="DRAINER_SANDBOX", help="Where its data is kept; `down` removes it."),
]


@app.command()
def up(folder: Folder = None, json: o.Json = False, debug: o.Debug = False) -> None:
    """Start the sandbox, or tell where it runs.

    The first time it fetches Kafka (43 MB) into your cache folder.

    Example: `export DRAINER_BOOTSTRAP_SERVER=$(drainer sandbox up)`
    """
    terminal = Terminal(json=json, debug=debug)
    with answering(terminal):
        _print(terminal, sandbox.up(folder, say=terminal.say))


@app.command()
def status(folder: Folder = None, json: o.Json = False, debug: o.Debug = False) -> None:
    """Tell whether the sandbox runs, and where; exits with 1 when it does not.

    Example: `drainer sandbox status`
    """
    terminal = Terminal(json=json, debug=debug)
    with answering(terminal):
        state = sandbox.status(folder)
        if state is None or not state.running:
            left = "" if state is None else f"; its data is in {state.folder}"
            terminal.say(f"the sandbox is not running{left}")
            if json:
                terminal.data({"running": False})
            raise typer.Exit(1)
        _print(terminal, state)


@app.command()
def down(folder: Folder = None, debug: o.Debug = False) -> None:
    """Stop the sandbox and remove its data.

    Example: `drainer sandbox down`
    """
    terminal = Terminal(debug=debug)
    with answering(terminal):
        if not sandbox.down(folder, say=terminal.say):
            terminal.say("there was no sandbox")


def _print(terminal: Terminal, state: sandbox.SandboxState) -> None:
    if terminal.json:
        terminal.data(
            {
                "running": state.running,
                "bootstrap_servers": state.bootstrap_servers,
                "folder": str(state.folder),
            }
        )
        return
    terminal.say(f"the sandbox runs in {state.folder}; `drainer sandbox down` removes it")
    typer.echo(state.bootstrap_servers)
